#include "data_prep/gzip.h"

#include <zlib.h>

#include "llmc/base/error.h"
#include "llmc/base/memory.h"

enum { GZIP_WINDOW_BITS = 15 + 16 /* a gzip header and trailer, nothing else */ };

struct Gzip {
    z_stream stream;
    GzipReader reader;
    void *context;
    int is_between_parts;
    int is_at_end;
};

Gzip *gzip_create(GzipReader reader, void *context)
{
    Gzip *gzip = memory_alloc_zeroed(1, sizeof(*gzip), "gzip");
    gzip->reader = reader;
    gzip->context = context;
    int result = inflateInit2(&gzip->stream, GZIP_WINDOW_BITS);
    CHECK(result == Z_OK, "out of memory for unpacking gzip");
    return gzip;
}

void gzip_free(Gzip *gzip)
{
    if (gzip) {
        inflateEnd(&gzip->stream);
        memory_free(gzip);
    }
}

/* Make sure that there is input, unless it has ended. Returns 0, or -1 when the reader failed. */
static int refill(Gzip *gzip)
{
    if (gzip->stream.avail_in > 0) {
        return 0;
    }
    const void *bytes;
    ptrdiff_t got = gzip->reader(gzip->context, &bytes);
    if (got < 0) {
        return -1;
    }
    gzip->stream.next_in = (Bytef *)bytes;
    gzip->stream.avail_in = (uInt)got;
    return 0;
}

/* Go to the next part, over zero bytes. Returns 1, 0 when there is none, -1 when the reader failed. */
static int next_part(Gzip *gzip)
{
    for (;;) {
        if (refill(gzip) != 0) {
            return -1;
        }
        if (gzip->stream.avail_in == 0) {
            gzip->is_at_end = 1;
            return 0;
        }
        if (*gzip->stream.next_in != 0) {
            break;
        }
        gzip->stream.next_in++;
        gzip->stream.avail_in--;
    }
    inflateReset(&gzip->stream);
    gzip->is_between_parts = 0;
    return 1;
}

ptrdiff_t gzip_read(Gzip *gzip, char *out, size_t capacity, const char **why)
{
    *why = NULL;
    gzip->stream.next_out = (Bytef *)out;
    gzip->stream.avail_out = (uInt)capacity;
    while (!gzip->is_at_end && gzip->stream.avail_out == capacity) {
        if (gzip->is_between_parts) {
            if (next_part(gzip) < 0) {
                return -1;
            }
            continue;
        }
        if (refill(gzip) != 0) {
            return -1;
        }
        if (gzip->stream.avail_in == 0) {
            *why = "it ends too early";
            return -1;
        }
        int result = inflate(&gzip->stream, Z_NO_FLUSH);
        if (result == Z_STREAM_END) {
            gzip->is_between_parts = 1;
        } else if (result != Z_OK) {
            *why = gzip->stream.msg ? gzip->stream.msg : "not gzip";
            return -1;
        }
    }
    return (ptrdiff_t)(capacity - gzip->stream.avail_out);
}
