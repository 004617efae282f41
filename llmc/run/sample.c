#define _GNU_SOURCE
#include "llmc/run/sample.h"

#include <errno.h>
#include <string.h>

#include "llmc/base/math.h"
#include "llmc/base/memory.h"
#include "llmc/base/random.h"
#include "llmc/run/stop.h"
#include "llmc/text/tokenizer.h"

/* Whether token a comes before token b: larger logit, then lower id. */
static int is_before(const float *logits, int a, int b)
{
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/* Restore the heap whose root is the last of the kept tokens. */
static void sift_down(int *heap, int count, int root, const float *logits)
{
    for (;;) {
        int child = 2 * root + 1;
        if (child >= count) {
            return;
        }
        if (child + 1 < count && is_before(logits, heap[child], heap[child + 1])) {
            child++; /* the one that comes last */
        }
        if (!is_before(logits, heap[root], heap[child])) {
            return;
        }
        int token = heap[root];
        heap[root] = heap[child];
        heap[child] = token;
        root = child;
    }
}

/* The `kept` tokens that come first, in that order. */
static void keep_likeliest(int *tokens, int kept, const float *logits, int count)
{
    for (int i = 0; i < kept; i++) {
        tokens[i] = i;
    }
    for (int i = kept / 2 - 1; i >= 0; i--) {
        sift_down(tokens, kept, i, logits);
    }
    for (int i = kept; i < count; i++) {
        if (is_before(logits, i, tokens[0])) {
            tokens[0] = i;
            sift_down(tokens, kept, 0, logits);
        }
    }
    for (int end = kept - 1; end > 0; end--) { /* heap sort: the last one goes to the end */
        int token = tokens[0];
        tokens[0] = tokens[end];
        tokens[end] = token;
        sift_down(tokens, end, 0, logits);
    }
}

int sample_token(const float *logits, int count, double temperature, int64_t top_k, double uniform,
                 int *scratch)
{
    int kept = temperature == 0 ? 1 : top_k == 0 || top_k > count ? count : (int)top_k;
    keep_likeliest(scratch, kept, logits, count);
    double largest = logits[scratch[0]];
    double total = 0;
    for (int i = 0; kept > 1 && i < kept; i++) {
        total += math_exp((logits[scratch[i]] - largest) / temperature);
    }
    double left = uniform * total;
    for (int i = 0; kept > 1 && i < kept; i++) {
        left -= math_exp((logits[scratch[i]] - largest) / temperature);
        if (left < 0) {
            return scratch[i];
        }
    }
    return scratch[0]; /* one kept; or rounding left nothing for the last one */
}

/* One sequence and what its model has cached of it. */
typedef struct Sampler {
    RunModel *model;
    const Options *options;
    Tokenizer *tokenizer; /* NULL where tokens are characters */
    const Prompt *prompt;
    int32_t *window; /* the tokens that the cache holds, at most block_size */
    int window_count;
    float *logits; /* (V) after the last of them */
    int *scratch;  /* (V) */
    FILE *out;
} Sampler;

static void print_token(Sampler *sampler, TextStream *stream, int token)
{
    size_t bytes;
    char text[TOKEN_BYTES_MAX + 4], character[CHARACTER_BYTES_MAX];
    if (sampler->prompt->characters) {
        bytes = (size_t)characters_token_bytes(sampler->prompt->characters, token, character);
        fwrite(character, 1, bytes, sampler->out);
        return;
    }
    const char *token_bytes = tokenizer_token_bytes(sampler->tokenizer, token, &bytes);
    fwrite(text, 1, text_stream_push(stream, text, token_bytes, bytes), sampler->out);
}

/* The model reads one more token. When the window is full, its second half becomes the first of a new one: as
 * positions are absolute, the model has to read that again. */
static void append(Sampler *sampler, int32_t token)
{
    RunModel *model = sampler->model;
    int block_size = model->table.shape.block_size;
    int cached = sampler->window_count;
    if (cached == block_size) {
        int kept = block_size / 2;
        memmove(sampler->window, sampler->window + block_size - kept, (size_t)kept * sizeof(int32_t));
        sampler->window_count = kept;
        cached = 0;
    }
    sampler->window[sampler->window_count++] = token;
    model->backend->decode(model->model, sampler->window + cached, sampler->window_count - cached, cached,
                           sampler->logits);
}

static void read_prompt(Sampler *sampler)
{
    RunModel *model = sampler->model;
    int block_size = model->table.shape.block_size;
    int count = sampler->prompt->count < block_size ? (int)sampler->prompt->count : block_size;
    memcpy(sampler->window, sampler->prompt->tokens + sampler->prompt->count - count,
           (size_t)count * sizeof(int32_t));
    sampler->window_count = count;
    model->backend->decode(model->model, sampler->window, count, 0, sampler->logits);
}

/* Told to end, or nobody reads what is drawn. */
static int is_ending(const Sampler *sampler)
{
    return stop_requested() || ferror(sampler->out);
}

static void draw_one(Sampler *sampler, int64_t index)
{
    const Options *options = sampler->options;
    int V = sampler->model->table.shape.vocab_size;
    int candidates = V < TOKENIZER_VOCAB ? V : TOKENIZER_VOCAB; /* ids beyond have no text */
    RandomKey key = {.seed = (uint64_t)options->seed, .purpose = RANDOM_SAMPLE, .step = (uint32_t)index};
    TextStream stream = {0};
    for (int64_t i = 0; i < sampler->prompt->count; i++) {
        print_token(sampler, &stream, sampler->prompt->tokens[i]);
    }
    fflush(sampler->out);
    read_prompt(sampler);
    for (int64_t i = 0; i < options->max_new_tokens && !is_ending(sampler); i++) {
        uint32_t numbers[4];
        random_block(numbers, &key, (uint64_t)i);
        double uniform = (double)((uint64_t)numbers[0] << 21 | numbers[1] >> 11) * 0x1p-53;
        int token = sample_token(sampler->logits, candidates, options->temperature, options->top_k, uniform,
                                 sampler->scratch);
        print_token(sampler, &stream, token);
        fflush(sampler->out);
        if (i + 1 < options->max_new_tokens) {
            append(sampler, token);
        }
    }
    char rest[4];
    fwrite(rest, 1, text_stream_finish(&stream, rest), sampler->out);
    fputs("\n---------------\n", sampler->out);
    fflush(sampler->out);
}

int sample(FILE *out, const Options *options, int64_t samples, const Prompt *prompt, RunModel *model,
           Error *error)
{
    const ModelShape *shape = &model->table.shape;
    Sampler sampler = {.model = model, .options = options, .prompt = prompt, .out = out};
    sampler.tokenizer = prompt->characters ? NULL : tokenizer_create();
    sampler.window = memory_alloc((size_t)shape->block_size, sizeof(int32_t), "sampling window");
    sampler.logits = memory_alloc((size_t)shape->vocab_size, sizeof(float), "logits");
    sampler.scratch = memory_alloc((size_t)shape->vocab_size, sizeof(int), "sampling scratch");
    errno = 0;
    for (int64_t i = 0; i < samples && !is_ending(&sampler); i++) {
        draw_one(&sampler, i);
    }
    int status = 0;
    if (ferror(out)) {
        status = error_set(error, "samples: cannot write to stdout: %s",
                           errno ? strerror(errno) : "an earlier line failed");
    }
    tokenizer_free(sampler.tokenizer);
    memory_free(sampler.window);
    memory_free(sampler.logits);
    memory_free(sampler.scratch);
    return status;
}
