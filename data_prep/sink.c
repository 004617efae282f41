#include "data_prep/sink.h"

#include <stdio.h>

#include "data_prep/arrange.h"
#include "llmc/base/format.h"

int sink_init(Sink *sink, const TokenizeOptions *options, Error *error)
{
    *sink = (Sink){.is_shuffled = options->shuffle_documents >= 0};
    if (shard_writer_init(&sink->writer, options, error) != 0) {
        return -1;
    }
    int folder = sink->writer.folder.descriptor;
    if (!sink->is_shuffled) {
        partial_remove(folder);
        return 0;
    }
    if (partial_init(&sink->partial, options, folder, error) != 0) {
        shard_writer_release(&sink->writer);
        return -1;
    }
    if (sink->partial.has_notice) {
        fprintf(stderr, "tokenize: %s/%s was made from other inputs or options: beginning again\n",
                options->output, PARTIAL_FOLDER);
    }
    if (sink->partial.state.documents > 0) {
        char count[FORMAT_COUNT_BYTES];
        format_count(count, sink->partial.state.documents);
        fprintf(stderr, "tokenize: %s/%s: going on after %s documents of an earlier run\n", options->output,
                PARTIAL_FOLDER, count);
    }
    return 0;
}

PartialState sink_begun(const Sink *sink)
{
    return sink->is_shuffled ? sink->partial.state : (PartialState){0};
}

int sink_append(Sink *sink, const PartialChunk *chunk, Error *error)
{
    return sink->is_shuffled
               ? partial_append(&sink->partial, chunk, error)
               : shard_writer_append(&sink->writer, chunk->tokens, (int64_t)chunk->tokens_count, error);
}

int64_t sink_tokens(const Sink *sink)
{
    return sink->is_shuffled ? sink->partial.state.tokens : sink->writer.tokens;
}

static int arrange(Sink *sink, void (*pause)(void *context), void *context, Error *error)
{
    if (partial_save(&sink->partial, error) != 0) {
        return -1;
    }
    Arrange *arrange = arrange_create(&sink->partial, &sink->writer, error);
    int more = arrange ? 1 : -1;
    while (more > 0) {
        more = arrange_next(arrange, error);
        pause(context);
    }
    arrange_free(arrange);
    return more;
}

int sink_finish(Sink *sink, void (*pause)(void *context), void *context, Error *error)
{
    if ((sink->is_shuffled && arrange(sink, pause, context, error) != 0) ||
        shard_writer_finish(&sink->writer, error) != 0) {
        return -1;
    }
    if (sink->is_shuffled) {
        sink->partial.is_resumable = 0; /* it has served */
    }
    return 0;
}

void sink_release(Sink *sink)
{
    if (sink->is_shuffled && sink->writer.folder.descriptor >= 0) {
        Error error;
        if (sink->partial.is_resumable && partial_save(&sink->partial, &error) == 0 &&
            sink->partial.saved_tokens > 0) {
            char count[FORMAT_COUNT_BYTES];
            format_count(count, sink->partial.state.documents);
            fprintf(stderr, "tokenize: %s/%s keeps %s documents: the same command goes on after them\n",
                    sink->partial.options->output, PARTIAL_FOLDER, count);
        }
        partial_release(&sink->partial);
    }
    shard_writer_release(&sink->writer);
}

void sink_abandon(Sink *sink)
{
    shard_writer_abandon(&sink->writer);
}
