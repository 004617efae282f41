/* Documents in an order of their own: from the order of arrival (partial.h) into shards. The order is that of
 * Hugging Face's datasets, train_test_split(test_size=F, seed=S, shuffle=True): n documents are permuted by
 * numpy's default_rng(S); the first ceil(F * n) of the permutation are for validation, the others for
 * training, in the permutation's order.
 *
 * The tokens are read and written in order: they go into buckets, each a range of the new order that fits
 * into memory, and each bucket is put in order there. Memory: 10 bytes a document, and --shuffle-memory.
 */
#ifndef DATA_PREP_ARRANGE_H
#define DATA_PREP_ARRANGE_H

#include "data_prep/partial.h"
#include "data_prep/shards.h"

typedef struct Arrange Arrange;

/* The documents that `partial` holds; save it first. NULL with *error set. The caller frees. */
Arrange *arrange_create(const Partial *partial, ShardWriter *writer, Error *error);
void arrange_free(Arrange *arrange);

/* Do a part of the work, a second or so of it. Returns 1, 0 when all is written, or -1 with *error set. */
int arrange_next(Arrange *arrange, Error *error);

#endif
