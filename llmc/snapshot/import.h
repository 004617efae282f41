/* `--init_from=PATH`: the weights of a model from a file or folder, told apart by content.
 *   snapshot            a .snap file of ours
 *   Hugging Face        a folder with config.json and model.safetensors (or model.safetensors.index.json and
 * the files that it names) safetensors         such a model.safetensors alone: config.json is read where it
 * lies beside it; without one the number of heads is n_embd / 64 llm.c               a model .bin: magic
 * 20240326, version 3 (fp32) or 5 (bf16)
 */
#ifndef LLMC_SNAPSHOT_IMPORT_H
#define LLMC_SNAPSHOT_IMPORT_H

#include "llmc/base/error.h"
#include "llmc/model/params.h"
#include "llmc/snapshot/snapshot.h"
#include "llmc/snapshot/state.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum WeightsKind { WEIGHTS_SNAPSHOT, WEIGHTS_HUGGING_FACE, WEIGHTS_LLMC } WeightsKind;

typedef struct WeightsFile WeightsFile;

/* Open and check everything but the values: format, architecture, that every tensor is there with its shape
 * and a known dtype (F32, F16, BF16), and none that a GPT-2 does not have. NULL with *error naming file, what
 * was expected and found. The caller closes. */
WeightsFile *weights_open(const char *path, Error *error);
void weights_close(WeightsFile *weights);

WeightsKind weights_kind(const WeightsFile *weights);
/* "snapshot", "Hugging Face", "llm.c": for logs. */
const char *weights_kind_name(const WeightsFile *weights);
/* The shape that the file brings. */
ModelShape weights_shape(const WeightsFile *weights);
/* What a snapshot says of its run; NULL for other kinds. Belongs to the file. */
const SnapshotInfo *weights_snapshot_info(const WeightsFile *weights);

/* Hand all weights to the sink (SAVED_WEIGHTS only) as [out,in]. table: of weights_shape, but for a lower
 * block_size, which takes the first positions. -1 with *error when the shapes differ, or when a value is not
 * finite. */
int weights_load(WeightsFile *weights, const ParamTable *table, const StateSink *sink, Error *error);

#ifdef __cplusplus
}
#endif
#endif
