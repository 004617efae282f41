/* What the formats of weights have in common: each opens a file, says its shape, and hands over one tensor of
 * the parameter table at a time. */
#ifndef LLMC_SNAPSHOT_IMPORT_SOURCE_H
#define LLMC_SNAPSHOT_IMPORT_SOURCE_H

#include "llmc/base/error.h"
#include "llmc/model/params.h"
#include "llmc/snapshot/safetensors.h"

/* One or several safetensors files that make up one model. */
typedef struct HuggingFaceWeights {
    SafeFile *files;
    int file_count;
    ModelShape shape;
} HuggingFaceWeights;

/* `path` is a folder or a .safetensors file. */
int hugging_face_open(HuggingFaceWeights *weights, const char *path, Error *error);
void hugging_face_close(HuggingFaceWeights *weights);

/* Where a tensor's values lie: in which file, and whether rows and columns are exchanged. NULL where there is
 * none. name is the table's. */
const SafeTensor *hugging_face_find(const SafeFile **file, const HuggingFaceWeights *weights,
                                    const char *name);

/* config.json against the shape that the tensors have. Sets shape->n_head. */
int hugging_face_check_config(ModelShape *shape, const char *path, Error *error);

/* llm.c's model file. */
typedef struct LlmcWeights {
    MappedFile file;
    char path[PATH_BYTES_MAX];
    ModelShape shape;
    int padded_vocab;
    int value_bytes; /* 4: fp32, 2: bf16 */
} LlmcWeights;

enum {
    LLMC_MODEL_MAGIC = 20240326,
    LLMC_MODEL_HEADER_BYTES = 1024,
    LLMC_VERSION_FP32 = 3,
    LLMC_VERSION_BF16 = 5
};

int llmc_weights_open(LlmcWeights *weights, const char *path, Error *error);
void llmc_weights_close(LlmcWeights *weights);
/* Elements [first, first + count) of tensor `index` of a table of the file's shape. */
void llmc_weights_floats(float *out, const LlmcWeights *weights, int index, int64_t first, int64_t count);

/* Place of the table's tensor `index` in llm.c's order, in elements from the first; the order is all layers
 * of one tensor after another. padded_vocab: rows of wte there. */
int64_t llmc_tensor_offset(const ModelShape *shape, int padded_vocab, int index);
/* All elements of such a file. */
int64_t llmc_tensor_total(const ModelShape *shape, int padded_vocab);

#endif
