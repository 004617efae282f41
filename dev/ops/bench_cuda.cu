/* Times each CUDA operation of a training step against its bound.
 *
 *   bench_cuda [B T C NH V] [--bandwidth=BYTES_A_SECOND] [--flops=OPERATIONS_A_SECOND] [--rounds=N]
 *
 * Without arguments GPT-2 124M, B 64, T 1024, in bf16. The bound of an operation is the larger of its bytes
 * (each input read once, each output written once) by the memory's rate, and its operations by the rate of
 * bf16 products; the rates are the maker's, unless given. Each call stands between two events; a figure is
 * the median of N. What the host build prints proves that this program runs, and nothing else.
 */
#include <algorithm>
#include <functional>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>

#include "llmc/base/random.h"
#include "llmc/compute/cuda/adamw.cuh"
#include "llmc/compute/cuda/attention.cuh"
#include "llmc/compute/cuda/classifier.cuh"
#include "llmc/compute/cuda/columns.cuh"
#include "llmc/compute/cuda/embedding.cuh"
#include "llmc/compute/cuda/exact.cuh"
#include "llmc/compute/cuda/gelu.cuh"
#include "llmc/compute/cuda/layernorm.cuh"
#include "llmc/compute/cuda/matmul.cuh"

enum { LAYERS = 12, LOGIT_ROWS_MULTIPLE = 256, PATTERN = 1 << 20 };
static const int64_t LOGIT_BYTES = 2ll << 30;

typedef struct Settings {
    int B, T, C, NH, V;
    double bandwidth, flops;
    int rounds;
} Settings;

typedef struct Operation {
    std::string name;
    int calls; /* in a step; 0: only where an epilogue is missing, or with several micro-batches */
    double bytes, flops;
    std::function<void(cudaStream_t)> run;
} Operation;

typedef std::vector<Operation> Operations;

/* ---- data: what operations read is random, as zeros are quicker; all of it lives until the end -------- */

static void *device_bytes(size_t bytes)
{
    void *memory;
    CUDA_CHECK(cudaMalloc(&memory, bytes));
    return memory;
}

/* Repeat what the first `pattern_bytes` hold. */
static void repeat(void *memory, size_t pattern_bytes, size_t bytes)
{
    for (size_t done = pattern_bytes; done < bytes; done += pattern_bytes) {
        size_t piece = bytes - done < pattern_bytes ? bytes - done : pattern_bytes;
        CUDA_CHECK(cudaMemcpy((char *)memory + done, memory, piece, cudaMemcpyDeviceToDevice));
    }
}

static Tensor random_tensor(int64_t count, DType type, float deviation = 1)
{
    static uint32_t stream = 0;
    int64_t pattern = std::min<int64_t>(count, PATTERN);
    std::vector<float> values((size_t)pattern);
    std::vector<bf16> rounded((size_t)pattern);
    RandomKey key = {1, RANDOM_TEST, 0, stream++};
    random_normal(values.data(), pattern, deviation, &key, 0);
    std::transform(values.begin(), values.end(), rounded.begin(), bf16_from_float);
    size_t element = (size_t)dtype_bytes(type);
    void *memory = device_bytes((size_t)count * element);
    const void *from = type == DTYPE_FP32 ? (const void *)values.data() : (const void *)rounded.data();
    CUDA_CHECK(cudaMemcpy(memory, from, (size_t)pattern * element, cudaMemcpyHostToDevice));
    repeat(memory, (size_t)pattern * element, (size_t)count * element);
    return Tensor{memory, type};
}

static float *random_floats(int64_t count, float deviation = 1)
{
    return (float *)random_tensor(count, DTYPE_FP32, deviation).data;
}

static std::vector<int32_t> random_tokens(int64_t count, int V)
{
    std::vector<int32_t> tokens((size_t)count);
    RandomKey key = {1, RANDOM_TEST, 1, 0};
    for (size_t i = 0; i < tokens.size(); i++) {
        uint32_t numbers[4];
        random_block(numbers, &key, i);
        double uniform = random_uniform_from(numbers[0]); /* rare and common ones, as in text */
        tokens[i] = (int32_t)(uniform * uniform * uniform * V);
    }
    return tokens;
}

static int32_t *to_device(const std::vector<int32_t> &values)
{
    int32_t *memory = (int32_t *)device_bytes(values.size() * sizeof(int32_t));
    CUDA_CHECK(cudaMemcpy(memory, values.data(), values.size() * sizeof(int32_t), cudaMemcpyHostToDevice));
    return memory;
}

static int64_t rows_of(const Settings &s)
{
    return (int64_t)s.B * s.T;
}

static int padded_vocabulary(const Settings &s)
{
    return (int)div_up(s.V, 128) * 128;
}

/* How many rows of logits the model makes at once on a GPU of 80 GB, as cuda_model_logit_rows has it. */
static int logit_rows(const Settings &s)
{
    int64_t rows = LOGIT_BYTES / (padded_vocabulary(s) * 2), multiple = LOGIT_ROWS_MULTIPLE;
    if (rows >= rows_of(s) || rows <= multiple) {
        return (int)std::max<int64_t>(1, std::min(rows, rows_of(s)));
    }
    int64_t chunks = div_up(rows_of(s), rows - rows % multiple);
    return (int)(div_up(div_up(rows_of(s), chunks), multiple) * multiple);
}

/* ---- operations --------------------------------------------------------------------------------------- */

static void add_product(Operations *list, Matmuls *matmuls, const char *name, int calls, Matmul product)
{
    int64_t M = product.M, N = product.N, K = product.K, out = M * N * dtype_bytes(product.out.type);
    double bytes = 2.0 * (double)(M * K + K * N) + (double)out;
    bytes += product.epilogue >= MATMUL_BIAS_GELU ? 2.0 * (double)(M * N) : 0;
    list->push_back({name, calls, bytes, 2.0 * (double)M * (double)N * (double)K,
                     [=](cudaStream_t stream) { matmul(matmuls, &product, stream); }});
}

/* The three products of a layer over `rows` rows: inp (rows,inputs), weight (outputs,inputs). */
static void add_layer(Operations *list, Matmuls *matmuls, const char *name, int rows, int inputs, int outputs,
                      int calls)
{
    Tensor inp = random_tensor((int64_t)rows * inputs, DTYPE_BF16);
    Tensor weight = random_tensor((int64_t)outputs * inputs, DTYPE_BF16, 0.02f);
    Tensor d_out = random_tensor((int64_t)rows * outputs, DTYPE_BF16);
    Tensor out = random_tensor((int64_t)rows * outputs, DTYPE_BF16);
    Tensor before = random_tensor((int64_t)rows * std::max(inputs, outputs), DTYPE_BF16);
    Tensor d_inp = random_tensor((int64_t)rows * inputs, DTYPE_BF16);
    Matmul forward = {}, d_input = {};
    forward.out = out;
    forward.a = inp;
    forward.b = weight;
    forward.M = rows;
    forward.N = outputs;
    forward.K = inputs;
    forward.is_b_transposed = 1;
    forward.epilogue = MATMUL_BIAS;
    forward.bias = random_tensor(outputs, DTYPE_BF16).data;
    forward.before = before.data;
    d_input.out = d_inp;
    d_input.a = d_out;
    d_input.b = weight;
    d_input.M = rows;
    d_input.N = inputs;
    d_input.K = outputs;
    d_input.before = before.data;
    Matmul d_weight = {};
    d_weight.out = random_tensor((int64_t)outputs * inputs, DTYPE_FP32);
    d_weight.a = d_out;
    d_weight.b = inp;
    d_weight.M = outputs;
    d_weight.N = inputs;
    d_weight.K = rows;
    d_weight.is_a_transposed = 1;
    if (strcmp(name, "fc") == 0) {
        forward.epilogue = MATMUL_BIAS_GELU;
    } else if (strcmp(name, "fcproj") == 0) {
        d_input.epilogue = MATMUL_GELU_BACKWARD_BIAS;
        d_input.d_bias = random_floats(inputs);
        d_input.bias_partial = random_floats(matmul_bias_partial_count(rows, inputs));
    } else if (strcmp(name, "lm_head") == 0) { /* chunk by chunk */
        forward.epilogue = MATMUL_PLAIN;
        d_weight.accumulates = 1;
    }
    add_product(list, matmuls, (std::string(name) + " forward").c_str(), calls, forward);
    add_product(list, matmuls, (std::string(name) + " d_input").c_str(), calls, d_input);
    add_product(list, matmuls, (std::string(name) + " d_weight").c_str(), calls, d_weight);
}

static void add_products(Operations *list, const Settings &s)
{
    Matmuls *matmuls = matmuls_create();
    int rows = (int)rows_of(s), chunk = logit_rows(s);
    add_layer(list, matmuls, "qkv", rows, s.C, 3 * s.C, LAYERS);
    add_layer(list, matmuls, "proj", rows, s.C, s.C, LAYERS);
    add_layer(list, matmuls, "fc", rows, s.C, 4 * s.C, LAYERS);
    add_layer(list, matmuls, "fcproj", rows, 4 * s.C, s.C, LAYERS);
    add_layer(list, matmuls, "lm_head", chunk, s.C, padded_vocabulary(s), (int)div_up(rows, chunk));
}

static void add_attention(Operations *list, const Settings &s)
{
    static const Dropout no_dropout = {};
    int64_t rows = rows_of(s), count = rows * s.C;
    CudaAttention shape = {s.B, s.T, s.NH, s.C / s.NH, DTYPE_BF16};
    Tensor qkv = random_tensor(3 * count, DTYPE_BF16), d_qkv = random_tensor(3 * count, DTYPE_BF16);
    Tensor out = random_tensor(count, DTYPE_BF16), d_out = random_tensor(count, DTYPE_BF16);
    float *lse = random_floats(rows * s.NH);
    void *scratch = device_bytes((size_t)attention_scratch_bytes(&shape));
    double flops = 2.0 * (double)count * s.T; /* the causal half of two products */
    attention_prepare();
    list->push_back({"attention forward", LAYERS, 8.0 * (double)count, flops, [=](cudaStream_t stream) {
                         attention_forward_cuda(out.data, lse, qkv.data, &shape, &no_dropout, stream);
                     }});
    CudaAttentionBackward backward = {d_qkv.data,
                                      d_out.data,
                                      qkv.data,
                                      out.data,
                                      lse,
                                      scratch,
                                      random_floats(3 * s.C),
                                      random_floats(attention_partial_count(&shape)),
                                      0,
                                      &no_dropout};
    list->push_back({"attention backward", LAYERS, 16.0 * (double)count, 2.5 * flops,
                     [=](cudaStream_t stream) { attention_backward_cuda(&backward, &shape, stream); }});
}

/* With the stream of this type; of those in bf16 a step has none unless it is asked for. */
static void add_layernorm(Operations *list, const Settings &s, DType stream_type)
{
    bool is_standard = stream_type == DTYPE_FP32;
    double stream_bytes = dtype_bytes(stream_type);
    int64_t rows = rows_of(s), count = rows * s.C;
    float *weight = random_floats(s.C), *mean = random_floats(rows, 0.1f), *rstd = random_floats(rows);
    LayernormForward forward = {};
    forward.out = random_tensor(count, DTYPE_BF16);
    forward.mean = mean;
    forward.rstd = rstd;
    forward.stream = random_tensor(count, stream_type);
    forward.residual = random_tensor(count, stream_type);
    forward.branch = random_tensor(count, DTYPE_BF16);
    forward.weight = weight;
    forward.bias = random_floats(s.C);
    forward.rows = rows;
    forward.C = s.C;
    list->push_back({is_standard ? "residual + layer norm" : "the same, residual=bf16",
                     is_standard ? 2 * LAYERS : 0, (4 + 2 * stream_bytes) * (double)count, 0,
                     [=](cudaStream_t stream) { layernorm_forward(&forward, stream); }});
    LayernormBackward backward = {};
    backward.d_stream = random_tensor(count, stream_type);
    backward.d_branch = random_tensor(count, DTYPE_BF16);
    backward.d_weight = random_floats(s.C);
    backward.d_bias = random_floats(s.C);
    backward.d_branch_bias = random_floats(s.C);
    backward.d_out = forward.branch;
    backward.inp = forward.residual;
    backward.mean = mean;
    backward.rstd = rstd;
    backward.weight = weight;
    backward.partial = random_floats(layernorm_partial_count(rows, s.C));
    backward.rows = rows;
    backward.C = s.C;
    list->push_back({is_standard ? "layer norm backward" : "the same, residual=bf16",
                     is_standard ? 2 * LAYERS + 1 : 0, (4 + 3 * stream_bytes) * (double)count, 0,
                     [=](cudaStream_t stream) { layernorm_backward(&backward, stream); }});
}

static void add_embedding(Operations *list, const Settings &s)
{
    int64_t rows = rows_of(s), count = rows * s.C, V = s.V;
    float *wte = random_floats(V * s.C), *wpe = random_floats((int64_t)s.T * s.C);
    Tensor values = random_tensor(count, DTYPE_FP32);
    std::vector<int32_t> tokens = random_tokens(rows, s.V), starts((size_t)rows + 1),
                         positions((size_t)rows + 1);
    std::vector<int32_t> distinct((size_t)rows + 1), counters((size_t)V + 1);
    TokenBins bins = {distinct.data(), starts.data(), positions.data(), counters.data(), 0, 0, NULL, 0, 0};
    token_bins_fill(&bins, tokens.data(), rows, s.V, EMBEDDING_BIN_MAX);
    double distinct_bytes = (double)bins.count * s.C;
    EmbeddingForward forward = {values, to_device(tokens), wte, wpe, rows, s.T, s.C, 0, Dropout{}};
    list->push_back({"embedding", 1, 4.0 * (double)count + 4.0 * distinct_bytes, 0,
                     [=](cudaStream_t stream) { embedding_forward(&forward, stream); }});
    list->push_back({"embedding d_wpe", 1, 4.0 * (double)count, 0, [=](cudaStream_t stream) {
                         embedding_backward_positions(wpe, values, s.B, s.T, s.C, 0, stream);
                     }});
    TokenBins on_device = bins;
    on_device.tokens = to_device(distinct);
    on_device.starts = to_device(starts);
    on_device.positions = to_device(positions);
    on_device.device_counts = to_device({bins.count, bins.split_count});
    on_device.count_max = (int)token_bins_count_max(rows, s.V, EMBEDDING_BIN_MAX);
    on_device.split_max = (int)token_bins_split_max(rows, EMBEDDING_BIN_MAX);
    float *partial = random_floats(embedding_partial_count(rows, s.C));
    TokenGradients out = {NULL, random_floats(V * s.C), NULL, 0, NULL};
    list->push_back(
        {"embedding d_wte", 1, 4.0 * (double)count + 8.0 * distinct_bytes, 0, [=](cudaStream_t stream) {
             embedding_backward_tokens(&out, &on_device, values, s.C, partial, stream);
         }});
}

static void add_elements(Operations *list, const Settings &s)
{
    int chunk = logit_rows(s), Vp = padded_vocabulary(s);
    int64_t rows = rows_of(s), wide = 4 * rows * s.C;
    Tensor a = random_tensor(wide, DTYPE_BF16), b = random_tensor(wide, DTYPE_BF16);
    int shared_bytes_max;
    CUDA_CHECK(cudaDeviceGetAttribute(&shared_bytes_max, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    classifier_prepare(shared_bytes_max);
    Classifier classifier = {random_floats(rows),
                             random_tensor((int64_t)chunk * Vp, DTYPE_BF16),
                             to_device(random_tokens(chunk, s.V)),
                             chunk,
                             s.V,
                             Vp,
                             1.0f,
                             1,
                             shared_bytes_max};
    list->push_back({"classifier", (int)div_up(rows, chunk), 4.0 * chunk * Vp, 0,
                     [=](cudaStream_t stream) { classifier_rows(&classifier, stream); }});
    list->push_back(
        {"GELU", 0, 4.0 * (double)wide, 0, [=](cudaStream_t stream) { gelu_forward(b, a, wide, stream); }});
    list->push_back({"GELU backward", 0, 6.0 * (double)wide, 0,
                     [=](cudaStream_t stream) { gelu_backward(b, a, wide, stream); }});
    float *sums = random_floats(4 * s.C), *partial = random_floats(column_partial_count(rows, 4 * s.C));
    list->push_back({"GELU backward with sums", 0, 6.0 * (double)wide, 0, [=](cudaStream_t stream) {
                         gelu_backward_bias(sums, b, a, rows, 4 * s.C, 0, partial, stream);
                     }});
    list->push_back({"column sums of 4C", 0, 2.0 * (double)wide, 0,
                     [=](cudaStream_t stream) { column_sums(sums, a, rows, 4 * s.C, 0, partial, stream); }});
    LossFold loss = {(int64_t *)device_bytes(GRADIENT_TAIL * sizeof(int64_t)), random_floats(rows), rows, 1};
    CUDA_CHECK(cudaMemset(loss.tail, 0, GRADIENT_TAIL * sizeof(int64_t)));
    list->push_back(
        {"loss", 1, 4.0 * (double)rows, 0, [=](cudaStream_t stream) { exact_fold_loss(&loss, stream); }});
}

/* The weights as one tensor. */
static void add_update(Operations *list, const Settings &s)
{
    int64_t C = s.C, count = (padded_vocabulary(s) + s.T) * C + LAYERS * (12 * C * C + 13 * C) + 2 * C;
    std::vector<ArenaChunk> chunks;
    for (int64_t offset = 0; offset < count; offset += ARENA_CHUNK) {
        chunks.push_back({offset, (int)std::min<int64_t>(ARENA_CHUNK, count - offset), 1});
    }
    size_t chunk_bytes = chunks.size() * sizeof(ArenaChunk), sums_bytes = (size_t)count * sizeof(int64_t);
    ArenaChunk *on_device = (ArenaChunk *)device_bytes(chunk_bytes);
    CUDA_CHECK(cudaMemcpy(on_device, chunks.data(), chunk_bytes, cudaMemcpyHostToDevice));
    int64_t *tail = (int64_t *)device_bytes(GRADIENT_TAIL * sizeof(int64_t)),
            *sums = (int64_t *)device_bytes(sums_bytes);
    CUDA_CHECK(cudaMemset(tail, 0, GRADIENT_TAIL * sizeof(int64_t)));
    CUDA_CHECK(cudaMemset(sums, 0x01, sums_bytes));
    float *gradients = random_floats(count, 0.01f);
    ExactFold fold = {sums, gradients, count, 1024, tail + TAIL_BAD, 0, NULL};
    list->push_back({"exact fold, first slot", 0, 12.0 * (double)count, 0, [=](cudaStream_t stream) {
                         ExactFold first = fold;
                         first.is_first = 1;
                         exact_fold(&first, stream);
                     }});
    list->push_back(
        {"exact fold", 0, 20.0 * (double)count, 0, [=](cudaStream_t stream) { exact_fold(&fold, stream); }});
    AdamwUpdate update = {};
    update.weights = random_floats(count, 0.02f);
    update.moment1 = random_floats(count, 0.01f);
    update.moment2 = random_floats(count, 0);
    update.weights_low = (__nv_bfloat16 *)random_tensor(count, DTYPE_BF16).data;
    update.gradients = Gradients{NULL, gradients, 1, 1024};
    update.chunks = on_device;
    update.chunk_count = (int)chunks.size();
    update.norm_partial = (double *)device_bytes(chunks.size() * sizeof(double));
    update.bad_partial = (int64_t *)device_bytes(chunks.size() * sizeof(int64_t));
    update.tail = tail;
    update.outcome = (StepOutcome *)device_bytes(sizeof(StepOutcome));
    update.grad_clip = update.decay = update.inverse_root = 1;
    update.beta1 = 0.9f;
    update.beta2 = 0.95f;
    update.step = 1e-4f;
    update.epsilon = 1e-8f;
    list->push_back({"norm, AdamW", 1, (4.0 + 30.0) * (double)count, 0,
                     [=](cudaStream_t stream) { adamw_update(&update, stream); }});
}

/* ---- measuring ---------------------------------------------------------------------------------------- */

static double median_ms(const Operation &operation, int rounds, cudaStream_t stream)
{
    std::vector<double> ms;
    cudaEvent_t start, end;
    CUDA_CHECK(cudaEventCreateWithFlags(&start, cudaEventDefault));
    CUDA_CHECK(cudaEventCreateWithFlags(&end, cudaEventDefault));
    for (int round = -2; round < rounds; round++) { /* two to warm up */
        float elapsed;
        CUDA_CHECK(cudaEventRecord(start, stream));
        operation.run(stream);
        CUDA_CHECK(cudaEventRecord(end, stream));
        CUDA_CHECK(cudaEventSynchronize(end));
        CUDA_CHECK(cudaEventElapsedTime(&elapsed, start, end));
        if (round >= 0) {
            ms.push_back(elapsed);
        }
    }
    CUDA_CHECK(cudaEventDestroy(start));
    CUDA_CHECK(cudaEventDestroy(end));
    std::sort(ms.begin(), ms.end());
    return ms[ms.size() / 2];
}

static void measure(const Operations &list, const Settings &s)
{
    double step_ms = 0, step_bound_ms = 0;
    cudaStream_t stream;
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    /* What was set up on the null stream, for which this one does not wait. */
    CUDA_CHECK(cudaDeviceSynchronize());
    printf("%-24s %6s %10s %10s %6s %10s\n", "operation", "calls", "ms", "bound ms", "share", "ms a step");
    for (const Operation &operation : list) {
        double ms = median_ms(operation, s.rounds, stream);
        double bound_ms = 1e3 * std::max(operation.bytes / s.bandwidth, operation.flops / s.flops);
        printf("%-24s %6d %10.4f %10.4f %5.0f%% %10.3f\n", operation.name.c_str(), operation.calls, ms,
               bound_ms, 100 * bound_ms / ms, operation.calls * ms);
        step_ms += operation.calls * ms;
        step_bound_ms += operation.calls * bound_ms;
    }
    printf("%-24s %6s %10s %10.3f %5.0f%% %10.3f\n", "all of a step", "", "", step_bound_ms,
           100 * step_bound_ms / step_ms, step_ms);
}

/* The makers' rates of memory and of dense bf16 products. */
static void known_rates(Settings *s, const char *name)
{
    static const struct {
        const char *name;
        double bandwidth, flops;
    } cards[] = {{"H200", 4.8e12, 989e12},
                 {"H100 PCIe", 2.0e12, 756e12},
                 {"H100", 3.35e12, 989e12},
                 {"A100", 2.0e12, 312e12}};
    for (const auto &card : cards) {
        if (strstr(name, card.name)) {
            s->bandwidth = s->bandwidth > 0 ? s->bandwidth : card.bandwidth;
            s->flops = s->flops > 0 ? s->flops : card.flops;
            return;
        }
    }
}

static Settings parse(int argc, char **argv)
{
    Settings s = {64, 1024, 768, 12, 50257, 0, 0, 20};
    int *shape[] = {&s.B, &s.T, &s.C, &s.NH, &s.V}, shape_count = 0;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--bandwidth=", 12) == 0) {
            s.bandwidth = atof(argv[i] + 12);
        } else if (strncmp(argv[i], "--flops=", 8) == 0) {
            s.flops = atof(argv[i] + 8);
        } else if (strncmp(argv[i], "--rounds=", 9) == 0) {
            s.rounds = atoi(argv[i] + 9);
        } else if (shape_count < 5 && atoi(argv[i]) > 0) {
            *shape[shape_count++] = atoi(argv[i]);
        } else {
            error_exit(EXIT_FAILED,
                       "%s: expected numbers B T C NH V, --bandwidth=, --flops= or --rounds=", argv[i]);
        }
    }
    if (s.C % s.NH != 0 || s.rounds < 1) {
        error_exit(EXIT_FAILED,
                   "expected C a multiple of NH and at least one round, found C %d, NH %d, %d rounds", s.C,
                   s.NH, s.rounds);
    }
    return s;
}

int main(int argc, char **argv)
{
    error_set_program("bench_cuda");
    Settings s = parse(argc, argv);
    cudaDeviceProp properties;
    CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    known_rates(&s, properties.name);
    if (s.bandwidth <= 0 || s.flops <= 0) {
        error_exit(EXIT_FAILED, "%s: unknown rates; give --bandwidth=4.8e12 --flops=989e12 or what it has",
                   properties.name);
    }
    printf("%s, %.2f TB/s, %.0f TFLOP/s; B %d, T %d, C %d, NH %d, V %d, bf16, median of %d\n",
           properties.name, s.bandwidth * 1e-12, s.flops * 1e-12, s.B, s.T, s.C, s.NH, s.V, s.rounds);
    Operations list;
    add_products(&list, s);
    add_attention(&list, s);
    add_layernorm(&list, s, DTYPE_FP32);
    add_layernorm(&list, s, DTYPE_BF16);
    add_embedding(&list, s);
    add_elements(&list, s);
    add_update(&list, s);
    measure(list, s);
    return 0;
}
