/* Ranks that must agree before a run may start or go on: the same options, data and weights. A difference is
 * said once, by the lowest rank that differs, and ends all ranks.
 */
#ifndef LLMC_RUN_AGREE_H
#define LLMC_RUN_AGREE_H

#include <stdint.h>

#include "llmc/run/options.h"

/* Collective. 0 when every rank has rank 0's options; -1 with *error naming the rank, the option and both
 * values. */
int agree_on_options(const Options *options, Error *error);

/* Collective. 0 when every rank's value is rank 0's; -1 with *error naming the ranks that differ in `what`,
 * both values, and the way out. */
int agree_on(uint64_t mine, const char *what, const char *way_out, Error *error);

/* Collective: the lowest rank whose value is not 0; the number of ranks if there is none. What that rank says
 * ends all of them, for which the others wait. */
int agree_find_speaker(uint64_t mine);
void agree_wait_for_the_end(void);

#endif
