/* llm.c's model file: 256 int32 (magic, version, max_seq_len, vocab_size, layers, heads, channels, padded
 * vocabulary), then all tensors, each for all layers at once, [out,in].  Source: karpathy/llm.c,
 * train_gpt2.py, write_model. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/model/dtype.h"
#include "llmc/snapshot/import_source.h"

enum {
    HEADER_MAGIC,
    HEADER_VERSION,
    HEADER_BLOCK_SIZE,
    HEADER_VOCAB_SIZE,
    HEADER_LAYERS,
    HEADER_HEADS,
    HEADER_CHANNELS,
    HEADER_PADDED_VOCAB
};

/* Elements of tensor t of one block. */
static int64_t block_tensor_count(int64_t C, BlockTensor t)
{
    static const int in_CC[BLOCK_TENSORS] = {
        [QKV_WEIGHT] = 3, [PROJ_WEIGHT] = 1, [FC_WEIGHT] = 4, [FCPROJ_WEIGHT] = 4};
    static const int in_C[BLOCK_TENSORS] = {
        [LN1_WEIGHT] = 1, [LN1_BIAS] = 1, [QKV_BIAS] = 3, [PROJ_BIAS] = 1,
        [LN2_WEIGHT] = 1, [LN2_BIAS] = 1, [FC_BIAS] = 4,  [FCPROJ_BIAS] = 1};
    return in_CC[t] * C * C + in_C[t] * C;
}

int64_t llmc_tensor_offset(const ModelShape *shape, int padded_vocab, int index)
{
    int64_t C = shape->n_embd;
    int64_t L = shape->n_layer;
    int64_t wpe = padded_vocab * C;
    int64_t offset = wpe + shape->block_size * C;
    int first_block = params_block_index(0, (BlockTensor)0);
    if (index < first_block) {
        return index == params_wte_index() ? 0 : wpe;
    }
    int l = (index - first_block) / BLOCK_TENSORS;
    int tensor = (index - first_block) % BLOCK_TENSORS;
    for (int t = 0; t < (l < L ? tensor : BLOCK_TENSORS); t++) {
        offset += L * block_tensor_count(C, (BlockTensor)t);
    }
    return offset + (l < L ? l * block_tensor_count(C, (BlockTensor)tensor) : tensor * C);
}

int64_t llmc_tensor_total(const ModelShape *shape, int padded_vocab)
{
    int lnf_bias = params_block_index(shape->n_layer, (BlockTensor)1);
    return llmc_tensor_offset(shape, padded_vocab, lnf_bias) + shape->n_embd;
}

static int32_t header_field(const MappedFile *file, int index)
{
    int32_t value;
    memcpy(&value, file->data + 4 * index, sizeof(value));
    return value;
}

static int parse_header(LlmcWeights *weights, Error *error)
{
    const MappedFile *file = &weights->file;
    if (file->bytes < LLMC_MODEL_HEADER_BYTES) {
        return error_set(error, "%s: truncated: expected a header of %d bytes, found %" PRIu64, weights->path,
                         LLMC_MODEL_HEADER_BYTES, file->bytes);
    }
    int version = header_field(file, HEADER_VERSION);
    if (header_field(file, HEADER_MAGIC) != LLMC_MODEL_MAGIC ||
        (version != LLMC_VERSION_FP32 && version != LLMC_VERSION_BF16)) {
        return error_set(
            error, "%s: expected llm.c's model file of version %d (fp32) or %d (bf16), found version %d",
            weights->path, LLMC_VERSION_FP32, LLMC_VERSION_BF16, version);
    }
    weights->value_bytes = version == LLMC_VERSION_FP32 ? 4 : 2;
    weights->shape = (ModelShape){.block_size = header_field(file, HEADER_BLOCK_SIZE),
                                  .vocab_size = header_field(file, HEADER_VOCAB_SIZE),
                                  .n_layer = header_field(file, HEADER_LAYERS),
                                  .n_head = header_field(file, HEADER_HEADS),
                                  .n_embd = header_field(file, HEADER_CHANNELS)};
    weights->padded_vocab = header_field(file, HEADER_PADDED_VOCAB);
    if (model_shape_check(&weights->shape, error) != 0) {
        return error_prefix(error, "%s", weights->path);
    }
    if (weights->padded_vocab < weights->shape.vocab_size || weights->padded_vocab > 1 << 20) {
        return error_set(error, "%s: expected a padded vocabulary of at least vocab_size=%d, found %d",
                         weights->path, weights->shape.vocab_size, weights->padded_vocab);
    }
    return 0;
}

int llmc_weights_open(LlmcWeights *weights, const char *path, Error *error)
{
    memset(weights, 0, sizeof(*weights));
    snprintf(weights->path, sizeof(weights->path), "%s", path);
    if (mapped_file_init(&weights->file, path, error) != 0 || parse_header(weights, error) != 0) {
        llmc_weights_close(weights);
        return -1;
    }
    uint64_t expected =
        LLMC_MODEL_HEADER_BYTES +
        (uint64_t)llmc_tensor_total(&weights->shape, weights->padded_vocab) * (uint64_t)weights->value_bytes;
    if (weights->file.bytes != expected) {
        error_set(error, "%s: %s: its header promises %" PRIu64 " bytes, file holds %" PRIu64, path,
                  weights->file.bytes < expected ? "truncated" : "too long", expected, weights->file.bytes);
        llmc_weights_close(weights);
        return -1;
    }
    return 0;
}

void llmc_weights_close(LlmcWeights *weights)
{
    mapped_file_release(&weights->file);
}

void llmc_weights_floats(float *out, const LlmcWeights *weights, int index, int64_t first, int64_t count)
{
    int64_t offset = llmc_tensor_offset(&weights->shape, weights->padded_vocab, index) + first;
    const unsigned char *data = weights->file.data + LLMC_MODEL_HEADER_BYTES + offset * weights->value_bytes;
    if (weights->value_bytes == 4) {
        memcpy(out, data, (size_t)count * sizeof(float));
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        out[i] = bf16_to_float((bf16)(data[2 * i] | data[2 * i + 1] << 8));
    }
}
