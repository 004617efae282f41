/* jansson fails alike for a text that is wrong and when memory runs out. Its allocations are watched, so that
 * a whole file is not taken for a damaged one.
 *
 *     json_memory_watch();
 *     json_t *json = json_loadb(...);
 *     if (!json && json_memory_failed()) ...
 */
#ifndef LLMC_SNAPSHOT_JSON_MEMORY_H
#define LLMC_SNAPSHOT_JSON_MEMORY_H

/* From here on failed allocations of this thread are noticed; earlier ones are forgotten. */
void json_memory_watch(void);

/* Whether jansson was refused memory since. */
int json_memory_failed(void);

#endif
