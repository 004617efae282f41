/* How state flows between a model on some device and a file: in chunks, through callbacks, so that neither
 * side knows the other and no second copy of the model is held. Offsets and counts are elements of the
 * parameter arena (model/params.h).
 */
#ifndef LLMC_SNAPSHOT_STATE_H
#define LLMC_SNAPSHOT_STATE_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is saved, in the order in which it lies in a snapshot. The first values of compute's StateKind. */
typedef enum SavedState { SAVED_WEIGHTS, SAVED_MOMENT1, SAVED_MOMENT2, SAVED_STATES } SavedState;

/* Where files take values from. read fills values[0 .. count) with the arena's [offset, offset + count); it
 * is never asked for padding. */
typedef struct StateSource {
    void (*read)(void *context, SavedState state, int64_t offset, float *values, int64_t count);
    void *context;
} StateSource;

/* Where values from files go. Padding is not written: the model starts with it at zero. */
typedef struct StateSink {
    void (*write)(void *context, SavedState state, int64_t offset, const float *values, int64_t count);
    void *context;
} StateSink;

/* Whether some value is a NaN or an infinity, which training never gets rid of. */
static inline int state_has_non_finite(const float *values, int64_t count)
{
    uint32_t bad = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof(bits));
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return (int)bad;
}

#ifdef __cplusplus
}
#endif
#endif
