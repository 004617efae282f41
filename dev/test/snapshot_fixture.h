/* State to save and folders to save it in, for the tests of snapshots. Include cmocka.h before. */
#ifndef DEV_TEST_SNAPSHOT_FIXTURE_H
#define DEV_TEST_SNAPSHOT_FIXTURE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/test/scratch.h"
#include "llmc/base/memory.h"
#include "llmc/base/random.h"
#include "llmc/snapshot/snapshot.h"

/* A vocabulary that is padded in memory, sizes that no power of two divides. */
static const ModelShape small = {.block_size = 7, .vocab_size = 131, .n_layer = 2, .n_head = 3, .n_embd = 15};

typedef struct Arenas {
    ParamTable table;
    float *values[SAVED_STATES];
    int write_count;
} Arenas;

static inline void arenas_init(Arenas *arenas, const ModelShape *shape)
{
    params_init(&arenas->table, shape);
    for (int s = 0; s < SAVED_STATES; s++) {
        arenas->values[s] = memory_alloc_zeroed((size_t)arenas->table.arena_count, sizeof(float), "arena");
    }
    arenas->write_count = 0;
}

static inline void arenas_release(Arenas *arenas)
{
    for (int s = 0; s < SAVED_STATES; s++) {
        memory_free(arenas->values[s]);
    }
    params_release(&arenas->table);
}

/* Random bits: also NaNs with payloads, infinities, negative zeros and subnormals have to come back. */
static inline void fill_random(Arenas *arenas, uint64_t seed)
{
    for (int s = 0; s < SAVED_STATES; s++) {
        RandomKey key = {.seed = seed, .purpose = RANDOM_TEST, .step = (uint32_t)s};
        for (int i = 0; i < arenas->table.count; i++) {
            const ParamSpec *spec = &arenas->table.specs[i];
            for (int64_t j = 0; j < param_file_count(spec); j++) {
                uint32_t bits[4];
                random_block(bits, &key, (uint64_t)(spec->offset + j));
                memcpy(&arenas->values[s][spec->offset + j], bits, sizeof(float));
            }
        }
    }
}

/* The same without values that no run may save. */
static inline void fill_finite(Arenas *arenas, uint64_t seed)
{
    fill_random(arenas, seed);
    for (int s = 0; s < SAVED_STATES; s++) {
        for (int64_t i = 0; i < arenas->table.arena_count; i++) {
            arenas->values[s][i] = isfinite(arenas->values[s][i]) ? arenas->values[s][i] : 1.0f;
        }
    }
}

static inline void read_state(void *context, SavedState state, int64_t offset, float *values, int64_t count)
{
    Arenas *arenas = context;
    memcpy(values, arenas->values[state] + offset, (size_t)count * sizeof(float));
}

static inline void write_state(void *context, SavedState state, int64_t offset, const float *values,
                               int64_t count)
{
    Arenas *arenas = context;
    memcpy(arenas->values[state] + offset, values, (size_t)count * sizeof(float));
    arenas->write_count++;
}

static inline SnapshotInfo info_of(int64_t step, const ModelShape *shape)
{
    SnapshotInfo info = {.shape = *shape,
                         .step = step,
                         .sample = 0xfedcba9876543210u,
                         .best_loss = 3.0000000000000004,
                         .bad_steps = 2,
                         .data_fingerprint = 0x0123456789abcdefu,
                         .options = "{\"start\": \"\\u00e9 \\\"q\\\" \\n\", \"seed\": 1337}",
                         .plans = "device / library 1\n"
                                  "8x8x8 nn fp32 bf16 plain set 1 2 4: 1 0 1 0 0 0 0 0 0\n"};
    snprintf(info.version, sizeof(info.version), "1.2.3");
    return info;
}

static inline void write_step(const char *folder, int64_t step, Arenas *arenas, int threads)
{
    Error error;
    StateSource source = {read_state, arenas};
    SnapshotInfo info = info_of(step, &arenas->table.shape);
    if (snapshot_write(NULL, folder, &info, &arenas->table, &source, threads, &error) != 0) {
        fail_msg("%s", error.text);
    }
}

/* The path of a fresh folder inside the scratch folder; lives as long as the test program. */
static inline const char *new_folder(void)
{
    static char folders[256][512];
    static int count;
    char name[32];
    assert_true(count < 256);
    snprintf(name, sizeof(name), "out%d", count);
    snprintf(folders[count], sizeof(folders[count]), "%s", scratch_path(name));
    return folders[count++];
}

static inline char *step_path(const char *folder, int64_t step)
{
    static char paths[4][PATH_BYTES_MAX];
    static int next;
    char *path = paths[next++ % 4];
    assert_int_equal(snapshot_path(path, folder, step, NULL), 0);
    return path;
}

#endif
