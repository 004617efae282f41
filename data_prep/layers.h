/* The bytes of an input, unpacked. An input is a stack of layers: a file, in it perhaps a compressed stream,
 * in that perhaps an archive, in an entry of that the next, and so on. The top of the stack is what is read.
 */
#ifndef DATA_PREP_LAYERS_H
#define DATA_PREP_LAYERS_H

#include <stddef.h>
#include <stdint.h>

#include "llmc/base/error.h"

enum { LAYERS_MAX = 12, LAYER_NAME_BYTES = 512 };

typedef struct Layers Layers;

Layers *layers_create(void);
void layers_free(Layers *layers);

/* Begin an input: a path, or "-" for stdin. The one before must be at its end. */
int layers_open(Layers *layers, const char *path, Error *error);

/* Go to the next file of the input: itself, or the next one inside it. Returns 1, or 0 when there is no more,
 * or -1 with *error set. */
int layers_next_file(Layers *layers, Error *error);

/* Pass over so many files of the outermost archive of the input that was opened just now. */
void layers_skip(Layers *layers, int64_t count);
/* How many files of the outermost archive lie before the present one; 0 outside of archives. */
int64_t layers_entry(const Layers *layers);

/* Up to `capacity` bytes of this file; 0 at its end; -1 with *error set, naming the file. */
ptrdiff_t layers_read(Layers *layers, char *out, size_t capacity, Error *error);

/* Name of this file without what tells of compression ("a.jsonl" for a.jsonl.gz), for telling its format. */
const char *layers_plain_name(const Layers *layers);
/* The whole way to this file, for errors: `data.tar: part1.xz: 17.txt`. */
void layers_describe(const Layers *layers, char *out, size_t capacity);

/* Bytes read of all inputs so far. Any thread may ask. */
int64_t layers_bytes_read(const Layers *layers);

#endif
