#include <string.h>

#include "llmc/text/tokenizer.h"
#include "llmc/text/utf8.h"

size_t text_stream_push(TextStream *stream, char *out, const char *bytes, size_t count)
{
    size_t total = (size_t)stream->held_count + count;
    memcpy(out, stream->held, (size_t)stream->held_count);
    if (count > 0) {
        memcpy(out + stream->held_count, bytes, count);
    }
    stream->held_count = 0;
    const uint8_t *end = (const uint8_t *)out + total;
    for (size_t tail = total < 3 ? total : 3; tail > 0; tail--) {
        if (utf8_incomplete(end - tail, end) > 0) {
            memcpy(stream->held, end - tail, tail);
            stream->held_count = (int)tail;
            break;
        }
    }
    return total - (size_t)stream->held_count;
}

size_t text_stream_finish(TextStream *stream, char *out)
{
    size_t count = (size_t)stream->held_count;
    memcpy(out, stream->held, count);
    stream->held_count = 0;
    return count;
}
