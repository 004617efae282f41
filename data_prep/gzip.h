/* A gzip stream, unpacked with its sums checked (which libarchive does not do). Parts that follow each
 * other are one text; zero bytes behind the last are padding.
 */
#ifndef DATA_PREP_GZIP_H
#define DATA_PREP_GZIP_H

#include <stddef.h>

typedef struct Gzip Gzip;

/* Where compressed bytes come from: sets *bytes and returns how many, 0 at the end, -1 when it failed. */
typedef ptrdiff_t (*GzipReader)(void *context, const void **bytes);

Gzip *gzip_create(GzipReader reader, void *context);
void gzip_free(Gzip *gzip);

/* Up to capacity bytes, 0 at the end. -1 on failure: *why says what is wrong with the stream, or is NULL
 * where the reader failed. */
ptrdiff_t gzip_read(Gzip *gzip, char *out, size_t capacity, const char **why);

#endif
