/* The text of a shard. */
#ifndef DATA_PREP_DECODE_H
#define DATA_PREP_DECODE_H

#include "llmc/base/error.h"

/* Print the text of a shard, llm.c's or without header, to stdout. Returns 0, or -1 with *error set. */
int decode_shard(const char *path, Error *error);

#endif
