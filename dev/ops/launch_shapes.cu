/* Launches every kernel of the CUDA model in the shapes in which it takes most threads and shared memory. For
 * dev/test/cuda_limits.py, under dev/host_cuda with HOST_CUDA_LAUNCHES and HOST_CUDA_DRY: pointers are none.
 *
 *   launch_shapes SHARED_BYTES_MAX        what a block may have on the GPU in question
 */
#include <stdio.h>
#include <stdlib.h>
#include <vector>

#include "llmc/compute/cuda/classifier.cuh"
#include "llmc/compute/cuda/columns.cuh"
#include "llmc/compute/cuda/cuda_model.cuh"
#include "llmc/compute/cuda/embedding.cuh"
#include "llmc/compute/cuda/gelu.cuh"
#include "llmc/compute/cuda/layernorm.cuh"

static const int64_t ROWS = 65536;

static Dropout dropout_of(float probability)
{
    Dropout dropout = {};
    dropout.probability = probability;
    return dropout;
}

static void launch_layernorms(int C, DType type, DType stream, float probability)
{
    static char some;
    LayernormForward forward = {};
    forward.out.type = type;
    forward.stream.type = forward.residual.type = stream;
    forward.dropout = dropout_of(probability);
    forward.rows = ROWS;
    forward.C = C;
    layernorm_forward(&forward, 0);
    LayernormBackward backward = {};
    backward.d_out.type = type;
    backward.d_stream.type = backward.inp.type = stream;
    backward.d_branch = Tensor{&some, type};
    backward.dropout = forward.dropout;
    backward.rows = ROWS;
    backward.C = C;
    layernorm_backward(&backward, 0);
}

static void launch_attention(int HS, DType type, float probability)
{
    CudaAttention shape = {2, 1024, 3, HS, type};
    Dropout dropout = dropout_of(probability);
    attention_forward_cuda(NULL, NULL, NULL, &shape, &dropout, 0);
    CudaAttentionBackward backward = {};
    backward.dropout = &dropout;
    attention_backward_cuda(&backward, &shape, 0);
}

static void launch_classifier(int V, DType type, int64_t shared_bytes_max)
{
    Classifier classifier = {};
    classifier.logits.type = type;
    classifier.rows = ROWS;
    classifier.V = V;
    classifier.Vp = (V + 127) / 128 * 128;
    classifier.shared_bytes_max = shared_bytes_max;
    classifier_rows(&classifier, 0);
}

/* What has one shape whatever the model's is. */
static void launch_rest(DType type)
{
    Tensor none = {NULL, type};
    gelu_forward(none, none, 4 * ROWS, 0);
    gelu_backward(none, none, 4 * ROWS, 0);
    gelu_backward_bias(NULL, none, none, ROWS, 3072, 0, NULL, 0);
    column_sums(NULL, none, ROWS, 3072, 0, NULL, 0);
    column_sums(NULL, none, ROWS, 3071, 0, NULL, 0);
    for (int C : {768, 767}) {
        EmbeddingForward forward = {};
        forward.out.type = type;
        forward.T = EMBEDDING_T_MAX;
        forward.rows = forward.T;
        forward.C = C;
        embedding_forward(&forward, 0);
    }
}

/* The gradients of tokens' rows, for a batch in which some are frequent. */
static void launch_tokens(void)
{
    TokenBins bins = {};
    TokenGradients out = {};
    bins.count_max = (int)token_bins_count_max(ROWS, 50257, EMBEDDING_BIN_MAX);
    bins.split_max = (int)token_bins_split_max(ROWS, EMBEDDING_BIN_MAX);
    for (DType type : {DTYPE_FP32, DTYPE_BF16}) {
        embedding_backward_tokens(&out, &bins, Tensor{NULL, type}, 768, NULL, 0);
    }
}

/* Training, decoding and the choice of algorithms, of a small model. */
static void launch_model(DType dtype, DType residual, int slots, int C)
{
    Error error = {};
    ModelConfig config = {};
    config.shape = ModelShape{16, 40, 1, 3, C};
    config.batch_size = 2;
    config.sequence_tokens = 16;
    config.slots_per_step = slots;
    config.dtype = dtype;
    config.residual = residual;
    config.autotunes = slots == 1 && C == 24;
    config.dropout = 0.1f;
    Model *model = cuda_model_create(&config, &error);
    if (!model) {
        error_exit(EXIT_FAILED, "%s", error.text);
    }
    std::vector<int32_t> tokens(32, 3);
    std::vector<float> values(64);
    SlotContext context = {};
    context.is_first = context.is_last = 1;
    cuda_model_train_slot(model, tokens.data(), tokens.data(), &context);
    UpdateArgs update = {1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 1, 1};
    cuda_model_update(model, &update, NULL);
    cuda_model_write_state(model, STATE_WEIGHTS, 0, values.data(), 64);
    cuda_model_read_state(model, STATE_GRADIENTS, 0, values.data(), 64);
    cuda_model_evaluate(model, tokens.data(), tokens.data(), NULL);
    cuda_model_decode(model, tokens.data(), 16, 0, values.data());
    cuda_model_release(model);
}

int main(int argc, char **argv)
{
    error_set_program("launch_shapes");
    int64_t shared_bytes_max = argc == 2 ? atoll(argv[1]) : 0;
    if (shared_bytes_max <= 0) {
        error_exit(EXIT_FAILED, "expected the bytes of shared memory that a block may have");
    }
    classifier_prepare(shared_bytes_max);
    attention_prepare();
    launch_tokens();
    for (DType type : {DTYPE_FP32, DTYPE_BF16}) {
        for (float probability : {0.0f, 0.1f}) {
            for (int C : {7, 64, 768, 1024, 1280, 1600, 1664, 2047, 2048, 2052, 4096, 6140, 6143, 6144}) {
                launch_layernorms(C, type, DTYPE_FP32, probability);
                if (type == DTYPE_BF16) {
                    launch_layernorms(C, type, DTYPE_BF16, probability);
                }
            }
            for (int HS : {5, 8, 32, 48, 64, 80, 96, 112, 128, 136, 256}) {
                launch_attention(HS, type, probability);
            }
        }
        for (int V : {40, 24000, 30000, 50257, 60000, 128256}) {
            launch_classifier(V, type, shared_bytes_max);
        }
        launch_rest(type);
        for (int slots : {1, 2}) {
            launch_model(type, DTYPE_FP32, slots, 24);
            launch_model(type, DTYPE_FP32, slots, 21);
            launch_model(type, type, slots, 24);
        }
    }
    CUDA_CHECK(cudaDeviceSynchronize());
    return 0;
}
