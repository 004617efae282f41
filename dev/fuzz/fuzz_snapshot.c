/* Snapshots of any bytes, as they lie on disk or before compression: an error that names the file, or
 * state that fills a model of the shape that the file names.
 *
 * The first byte of an input says which: 0, a file; 1, what a file would hold once it is decompressed; 2,
 * a file whose seal is made to fit its bytes, so that damage gets past it. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zstd.h>

#include "dev/fuzz/fuzz.h"
#include "llmc/base/file.h"
#include "llmc/base/hash.h"
#include "llmc/base/memory.h"
#include "llmc/snapshot/frames_format.h"
#include "llmc/snapshot/snapshot.h"

enum { INPUT_FILE, INPUT_CONTENT, INPUT_SEALED, INPUT_KINDS };

const char *const fuzz_words[] = {"{",
                                  "}",
                                  "[",
                                  "]",
                                  ",",
                                  ":",
                                  "\"",
                                  "\"U8\"",
                                  "\"F32\"",
                                  "[0,1]",
                                  "-1",
                                  "0",
                                  "nan",
                                  "inf",
                                  "99999999999999999999",
                                  "\\u0000",
                                  "\"n_layer\":\"1000\"",
                                  "\"step\":\"0\"",
                                  "/b3",
                                  "param.",
                                  "\"plans\":\"",
                                  "8x8x8 nn fp32 bf16 plain set 1 2 4: 1 0 1 0 0 0 0 0 0\\n",
                                  NULL};

static void read_nothing(void *context, SavedState state, int64_t offset, float *values, int64_t count)
{
    (void)context;
    (void)state;
    for (int64_t i = 0; i < count; i++) {
        values[i] = (float)(offset + i);
    }
}

/* A snapshot of the smallest model, as it lies on disk. */
static char *write_tiny(size_t *bytes)
{
    Error error;
    char folder[] = "/tmp/llmc-fuzz-XXXXXX";
    char path[PATH_BYTES_MAX];
    SnapshotInfo info = {.shape = {1, 1, 1, 1, 1},
                         .step = 1,
                         .best_loss = INFINITY,
                         .version = "1",
                         .options = "{\"a\":1}",
                         .plans = "device\n8x8x8 nn fp32 bf16 plain set 1 2 4: 1 0 1 0 0 0 0 0 0\n",
                         .characters = "{\"tokenizer\":\"char\",\"characters\":[\"a\"]}"};
    StateSource source = {read_nothing, NULL};
    ParamTable table;
    params_init(&table, &info.shape);
    CHECK(mkdtemp(folder) && snapshot_path(path, folder, 1, &error) == 0 &&
              snapshot_write(NULL, folder, &info, &table, &source, 0, &error) == 0,
          "cannot write a snapshot to start from");
    char *data = file_read(path, FUZZ_INPUT_BYTES_MAX - 1, bytes, &error);
    CHECK(data, "%s", error.text);
    unlink(path);
    rmdir(folder);
    params_release(&table);
    return data;
}

size_t fuzz_seed(uint8_t *data, int index)
{
    size_t bytes;
    if (index >= INPUT_KINDS) {
        return 0;
    }
    char *file = write_tiny(&bytes);
    data[0] = (uint8_t)index;
    if (index != INPUT_CONTENT) {
        memcpy(data + 1, file, bytes);
    } else {
        ZSTD_DCtx *context = ZSTD_createDCtx();
        ZSTD_inBuffer in = {file, bytes, 0};
        ZSTD_outBuffer out = {data + 1, FUZZ_INPUT_BYTES_MAX - 1, 0};
        while (in.pos < in.size) {
            size_t status = ZSTD_decompressStream(context, &out, &in);
            CHECK(!ZSTD_isError(status) && out.pos < out.size, "a snapshot to start from is too large");
        }
        ZSTD_freeDCtx(context);
        bytes = out.pos;
    }
    memory_free(file);
    return bytes + 1;
}

typedef struct Counter {
    int64_t count;
    int64_t arena_count;
} Counter;

static void count_values(void *context, SavedState state, int64_t offset, const float *values, int64_t count)
{
    Counter *counter = context;
    (void)values;
    CHECK(state < SAVED_STATES && offset >= 0 && offset + count <= counter->arena_count,
          "values outside the arena");
    counter->count += count;
}

static void open_file(const char *path)
{
    Error error = {.text = ""};
    SnapshotInfo info;
    if (snapshot_read_info(&info, path, &error) == 0) {
        snapshot_info_release(&info);
    }
    Snapshot *snapshot = snapshot_open(path, &error);
    if (!snapshot) {
        CHECK(strncmp(error.text, path, strlen(path)) == 0, "an error without its file: %s", error.text);
        return;
    }
    ParamTable table;
    params_init(&table, &snapshot_info(snapshot)->shape);
    Counter counter = {0, table.arena_count};
    StateSink sink = {count_values, &counter};
    int status = snapshot_load(snapshot, &table, SAVED_WEIGHTS, SAVED_MOMENT2, &sink, &error);
    CHECK(status == 0, "verified, but not loaded: %s", error.text);
    CHECK(counter.count == SAVED_STATES * model_shape_parameters(&table.shape), "%lld values",
          (long long)counter.count);
    params_release(&table);
    snapshot_close(snapshot);
}

static void open_content(const uint8_t *data, size_t bytes)
{
    size_t bound = ZSTD_compressBound(bytes);
    uint8_t *compressed = malloc(bound);
    CHECK(compressed, "out of memory");
    size_t compressed_bytes = ZSTD_compress(compressed, bound, data, bytes, 1);
    open_file(fuzz_file(compressed, compressed_bytes));
    free(compressed);
}

static void open_sealed(const uint8_t *data, size_t bytes)
{
    if (bytes < SEAL_BYTES) {
        return;
    }
    uint8_t *copy = malloc(bytes);
    CHECK(copy, "out of memory");
    memcpy(copy, data, bytes);
    seal_fill(copy + bytes - SEAL_BYTES, bytes > SEAL_BYTES ? hash_bytes(copy, bytes - SEAL_BYTES, 0) : 0);
    open_file(fuzz_file(copy, bytes));
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0) {
        return 0;
    }
    switch (data[0] % INPUT_KINDS) {
    case INPUT_FILE:
        open_file(fuzz_file(data + 1, bytes - 1));
        break;
    case INPUT_CONTENT:
        open_content(data + 1, bytes - 1);
        break;
    default:
        open_sealed(data + 1, bytes - 1);
    }
    return 0;
}
