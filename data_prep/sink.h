/* Where encoded text goes: straight into shards, or, if documents are shuffled, first into a partial folder
 * (partial.h), and from there in its new order into shards (arrange.h).
 */
#ifndef DATA_PREP_SINK_H
#define DATA_PREP_SINK_H

#include "data_prep/partial.h"
#include "data_prep/shards.h"

typedef struct Sink {
    ShardWriter writer;
    Partial partial; /* used if is_shuffled */
    int is_shuffled;
} Sink;

/* Takes the folder. -1 with *error, and then there is nothing to release. */
int sink_init(Sink *sink, const TokenizeOptions *options, Error *error);

/* What an earlier run has left for this one; zeros if nothing. */
PartialState sink_begun(const Sink *sink);
int sink_append(Sink *sink, const PartialChunk *chunk, Error *error);
int64_t sink_tokens(const Sink *sink);

/* Put the shards in place. Where documents are shuffled, `pause` is called about once a second; it may end
 * the program (sink_release first). Release the sink afterwards, whatever this returns. */
int sink_finish(Sink *sink, void (*pause)(void *context), void *context, Error *error);

/* Remove what is temporary. If finish has not succeeded, what was read stays where the same command can go on
 * with it, and a line on stderr says so. */
void sink_release(Sink *sink);
/* In a program that ends because something is broken. */
void sink_abandon(Sink *sink);

#endif
