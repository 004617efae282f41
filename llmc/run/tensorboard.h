/* The numbers of log.jsonl as an event file, which TensorBoard draws: one for each process,
 * out_dir/events.out.tfevents.SECONDS.HOST. `tensorboard --logdir out_dir` reads all of them as one run.
 *
 * Like the log it ends no run. Records that cannot be written (a full disk) wait in memory and follow, whole
 * and in order, once there is room; what no longer fits there is left out, and counted. A file that somebody
 * removes is made anew. Both are said on stderr.
 *
 * Format: TFRecord (length, its masked CRC-32C, data, their masked CRC-32C) around the protocol buffer
 * tensorflow.Event.  Source: tensorflow/core/lib/io/record_writer.h, core/util/event.proto.
 */
#ifndef LLMC_RUN_TENSORBOARD_H
#define LLMC_RUN_TENSORBOARD_H

#include <stdint.h>
#include <sys/types.h>

#include "llmc/base/file.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TENSORBOARD_WAITING_BYTES = 1 << 20, TENSORBOARD_VALUES_MAX = 12 };

/* Owned by the caller: tensorboard_init (or all zero for one that writes nothing), tensorboard_release. */
typedef struct TensorBoard {
    char folder[PATH_BYTES_MAX];
    char path[PATH_BYTES_MAX]; /* of the file in use */
    int descriptor;            /* -1 while there is none */
    off_t whole_bytes;         /* of the file: records that are whole */
    unsigned char
        *waiting; /* (TENSORBOARD_WAITING_BYTES) records that are not written yet; NULL: switched off */
    size_t waiting_bytes;
    int64_t left_out; /* records that did not fit */
    int is_failed;    /* the last attempt failed, which was said */
} TensorBoard;

/* One curve's point. Curves whose names share what is before a slash are shown together. */
typedef struct TensorBoardValue {
    const char *tag; /* at most 63 bytes */
    double value;    /* written as fp32 */
} TensorBoardValue;

/* A file of its own for this process, which makes the updates from first_step on: TensorBoard then forgets
 * what earlier files of out_dir say of that update and later ones. out_dir is there. Cannot fail, see above.
 */
void tensorboard_init(TensorBoard *board, const char *out_dir, int64_t first_step);
void tensorboard_release(TensorBoard *board);

/* A point of each of these curves (at most TENSORBOARD_VALUES_MAX) at `step`. Silent when switched off. */
void tensorboard_add(TensorBoard *board, int64_t step, const TensorBoardValue *values, int count);

#ifdef __cplusplus
}
#endif
#endif
