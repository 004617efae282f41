/* What tests of faults look into files with.
 *   inspect --shards PATTERN     each shard's name and a hash of its bytes, as training's reader finds them
 *   inspect --snapshots FILE...  each snapshot's name and a hash of its tensors, or "damaged": by zstd alone
 *   inspect --counts FILE        how often each call was made: a file of inject.so's FAULT_COUNTS
 *   inspect --fired FILE         1 if the fault came, else 0
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <zstd.h>

#include "dev/fault/calls.h"
#include "llmc/base/file.h"
#include "llmc/base/hash.h"
#include "llmc/base/memory.h"
#include "llmc/data/shard_folder.h"

/* The whole of a snapshot, decompressed, which the caller frees; NULL where it is cut or damaged. */
static unsigned char *decompress(const char *path, size_t *bytes)
{
    enum { SNAPSHOT_BYTES_MAX = 64 << 20 };
    MappedFile file;
    Error error;
    if (mapped_file_init(&file, path, &error) != 0) {
        return NULL;
    }
    unsigned char *data = memory_alloc(SNAPSHOT_BYTES_MAX, 1, path);
    ZSTD_DStream *stream = ZSTD_createDStream();
    ZSTD_inBuffer in = {.src = file.data, .size = (size_t)file.bytes};
    ZSTD_outBuffer out = {.dst = data, .size = SNAPSHOT_BYTES_MAX};
    size_t left = 1;
    while (in.pos < in.size && !ZSTD_isError(left)) {
        left = ZSTD_decompressStream(stream, &out, &in);
    }
    ZSTD_freeDStream(stream);
    mapped_file_release(&file);
    *bytes = out.pos;
    if (left != 0 || *bytes < 8) {
        memory_free(data);
        return NULL;
    }
    return data;
}

/* Tensors follow a header, whose length comes first; its metadata may differ from run to run. */
static int print_snapshot(const char *path)
{
    size_t bytes;
    uint64_t header_bytes = 0;
    unsigned char *data = decompress(path, &bytes);
    if (data) {
        memcpy(&header_bytes, data, sizeof(header_bytes));
    }
    if (data && header_bytes <= bytes - 8) {
        size_t first = 8 + (size_t)header_bytes;
        printf("%s %016" PRIx64 "\n", path, hash_bytes(data + first, bytes - first, bytes - first));
    } else {
        printf("%s damaged\n", path);
    }
    memory_free(data);
    return 0;
}

static int print_shards(const char *pattern)
{
    Error error;
    ShardPaths paths;
    if (shard_paths_find(&paths, pattern, &error) != 0) {
        error_exit(EXIT_FAILED, "%s", error.text);
    }
    for (size_t i = 0; i < paths.count; i++) {
        struct stat status;
        MappedFile file;
        if (stat(paths.items[i].place, &status) != 0 ||
            mapped_file_init(&file, paths.items[i].place, &error) != 0) {
            error_exit(EXIT_FAILED, "%s: cannot read", paths.items[i].place);
        }
        printf("%s %016" PRIx64 " %" PRIu64 "\n", paths.items[i].path,
               hash_bytes(file.data, (size_t)file.bytes, 0), file.bytes);
        mapped_file_release(&file);
    }
    shard_paths_release(&paths);
    return 0;
}

static int print_counts(const char *path, int only_fired)
{
    FaultCounts counts;
    FILE *file = fopen(path, "rb");
    if (!file || fread(&counts, sizeof(counts), 1, file) != 1) {
        error_exit(EXIT_FAILED, "%s: cannot read", path);
    }
    fclose(file);
    if (only_fired) {
        printf("%" PRId64 "\n", (int64_t)counts.fired);
        return 0;
    }
    for (int i = 0; i < CALLS_COUNT; i++) {
        if (counts.made[i] > 0) {
            printf("%s %" PRId64 "\n", call_names[i], (int64_t)counts.made[i]);
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    error_set_program("inspect");
    const char *what = argc > 2 ? argv[1] : "";
    for (int i = 2; strcmp(what, "--snapshots") == 0 && i < argc; i++) {
        print_snapshot(argv[i]);
    }
    if (strcmp(what, "--snapshots") == 0) {
        return 0;
    }
    if (argc == 3 && strcmp(what, "--shards") == 0) {
        return print_shards(argv[2]);
    }
    if (argc == 3 && (strcmp(what, "--counts") == 0 || strcmp(what, "--fired") == 0)) {
        return print_counts(argv[2], strcmp(what, "--fired") == 0);
    }
    error_exit(EXIT_FAILED, "expected --shards PATTERN, --snapshots FILE.., --counts FILE or --fired FILE");
}
