#include "dev/reference/exact_model.h"

#include <math.h>
#include <string.h>

#include "llmc/base/memory.h"

/* What backward needs of one block. M = B*T. */
typedef struct BlockCache {
    double *inp;     /* (M,C) the residual stream that enters */
    double *normed;  /* (M,C) ln_1 */
    double *qkv;     /* (M,3C) */
    double *mixed;   /* (M,C) attention */
    double *middle;  /* (M,C) the residual stream after attention */
    double *normed2; /* (M,C) ln_2 */
    double *hidden;  /* (M,4C) before gelu */
    double *active;  /* (M,4C) after gelu */
} BlockCache;

enum { CACHE_WIDTH = 16 /* C's of one BlockCache row */ };

typedef struct Workspace {
    const ExactPass *pass;
    Rounding *rounding;
    int64_t M, C, V;
    double *weights;  /* arena, as this precision stores them */
    double *blocks;   /* L * M * CACHE_WIDTH * C */
    double *residual; /* (M,C) what leaves the last block */
    double *final;    /* (M,C) ln_f */
} Workspace;

static double *alloc(int64_t count)
{
    return memory_alloc_zeroed((size_t)count, sizeof(double), "exact model");
}

static BlockCache block_cache(const Workspace *work, int l)
{
    int64_t MC = work->M * work->C;
    double *at = work->blocks + l * CACHE_WIDTH * MC;
    return (BlockCache){at,          at + MC,     at + 2 * MC, at + 5 * MC,
                        at + 6 * MC, at + 7 * MC, at + 8 * MC, at + 12 * MC};
}

static const double *weight(const Workspace *work, int index)
{
    return work->weights + work->pass->table->specs[index].offset;
}

static double *gradient(const Workspace *work, int index)
{
    return work->pass->gradients + work->pass->table->specs[index].offset;
}

/* The layer whose weight is table row `index` and whose bias is the next. */
static Linear linear(const Workspace *work, int index)
{
    const ParamSpec *spec = &work->pass->table->specs[index];
    return (Linear){weight(work, index),       weight(work, index + 1), gradient(work, index),
                    gradient(work, index + 1), spec->columns,           spec->rows};
}

static Linear classifier(const Workspace *work)
{
    int wte = params_wte_index();
    return (Linear){weight(work, wte), NULL, gradient(work, wte), NULL, work->C, work->V};
}

/* Head number `index` of all heads of all rows. */
static Head head_at(const Workspace *work, const BlockCache *cache, double *out, double *d_qkv,
                    const double *d_out, int64_t index)
{
    int64_t T = work->pass->T, C = work->C, NH = work->pass->table->shape.n_head, HS = C / NH;
    int64_t row = index / NH * T, column = index % NH * HS;
    return (Head){cache->qkv + row * 3 * C + column,
                  out + row * C + column,
                  d_qkv ? d_qkv + row * 3 * C + column : NULL,
                  d_out ? d_out + row * C + column : NULL,
                  T,
                  C,
                  HS};
}

/* All heads, each with random numbers of its own, so that threads may share them. */
static void attention(const Workspace *work, const BlockCache *cache, double *d_qkv, const double *d_out)
{
    int64_t heads = (int64_t)work->pass->B * work->pass->table->shape.n_head;
    Rounding base = *work->rounding;
#pragma omp parallel for schedule(dynamic) if (work->M * work->pass->T > 4096)
    for (int64_t i = 0; i < heads; i++) {
        Rounding own = base;
        own.state = (base.state ^ (uint64_t)(i + 1)) * 0xd1342543de82ef95u;
        Head head = head_at(work, cache, cache->mixed, d_qkv, d_out, i);
        if (d_qkv) {
            head_backward(&head, &own);
        } else {
            head_forward(&head, &own);
        }
    }
    work->rounding->state = base.state * 0x2545f4914f6cdd1du + 1;
}

static void block_forward(const Workspace *work, int l, double *out)
{
    Rounding *rounding = work->rounding;
    int64_t M = work->M, C = work->C;
    BlockCache cache = block_cache(work, l);
    int first = params_block_index(l, LN1_WEIGHT);
    Linear qkv = linear(work, first + QKV_WEIGHT), proj = linear(work, first + PROJ_WEIGHT);
    Linear fc = linear(work, first + FC_WEIGHT), fcproj = linear(work, first + FCPROJ_WEIGHT);
    norm_forward(cache.normed, cache.inp, weight(work, first + LN1_WEIGHT), weight(work, first + LN1_BIAS), M,
                 C, rounding);
    linear_forward(cache.qkv, cache.normed, &qkv, M, rounding);
    round_stored(cache.qkv, M * 3 * C, rounding);
    attention(work, &cache, NULL, NULL);
    linear_forward(cache.middle, cache.mixed, &proj, M, rounding);
    round_stored(cache.middle, M * C, rounding);
    for (int64_t i = 0; i < M * C; i++) {
        cache.middle[i] += cache.inp[i];
    }
    round_stored(cache.middle, M * C, rounding);
    norm_forward(cache.normed2, cache.middle, weight(work, first + LN2_WEIGHT),
                 weight(work, first + LN2_BIAS), M, C, rounding);
    linear_forward(cache.hidden, cache.normed2, &fc, M, rounding);
    round_stored(cache.hidden, M * 4 * C, rounding);
    gelu_forward_exact(cache.active, cache.hidden, M * 4 * C, rounding);
    linear_forward(out, cache.active, &fcproj, M, rounding);
    round_stored(out, M * C, rounding);
    for (int64_t i = 0; i < M * C; i++) {
        out[i] += cache.middle[i];
    }
    round_stored(out, M * C, rounding);
}

/* Back through one norm into the residual gradient d_x (M,C). d_out is not needed afterwards. */
static void norm_to_residual(const Workspace *work, double *d_x, const double *d_out, const double *inp,
                             int index)
{
    NormBackward norm = {
        d_x,    gradient(work, index), gradient(work, index + 1), d_out, inp, weight(work, index), work->M,
        work->C};
    norm_backward(&norm, work->rounding);
    round_stored(d_x, work->M * work->C, work->rounding);
}

/* d_x (M,C): gradient of what leaves the block, then of what enters it. */
static void block_backward(const Workspace *work, int l, double *d_x)
{
    Rounding *rounding = work->rounding;
    int64_t M = work->M, C = work->C;
    BlockCache cache = block_cache(work, l);
    int first = params_block_index(l, LN1_WEIGHT);
    Linear qkv = linear(work, first + QKV_WEIGHT), proj = linear(work, first + PROJ_WEIGHT);
    Linear fc = linear(work, first + FC_WEIGHT), fcproj = linear(work, first + FCPROJ_WEIGHT);
    double *d_wide = alloc(M * 4 * C), *d_normed = alloc(M * C), *d_mixed = alloc(M * C);
    linear_backward(d_wide, d_x, cache.active, &fcproj, M, rounding);
    round_stored(d_wide, M * 4 * C, rounding);
    gelu_backward_exact(d_wide, d_wide, cache.hidden, M * 4 * C, rounding);
    linear_backward(d_normed, d_wide, cache.normed2, &fc, M, rounding);
    round_stored(d_normed, M * C, rounding);
    norm_to_residual(work, d_x, d_normed, cache.middle, first + LN2_WEIGHT);
    linear_backward(d_mixed, d_x, cache.mixed, &proj, M, rounding);
    round_stored(d_mixed, M * C, rounding);
    memset(d_wide, 0, (size_t)(M * 3 * C) * sizeof(*d_wide));
    memset(d_normed, 0, (size_t)(M * C) * sizeof(*d_normed));
    attention(work, &cache, d_wide, d_mixed);
    linear_backward(d_normed, d_wide, cache.normed, &qkv, M, rounding);
    round_stored(d_normed, M * C, rounding);
    norm_to_residual(work, d_x, d_normed, cache.inp, first + LN1_WEIGHT);
    memory_free(d_mixed);
    memory_free(d_normed);
    memory_free(d_wide);
}

static void embedding_forward(const Workspace *work, double *out)
{
    const ExactPass *pass = work->pass;
    const double *wte = weight(work, params_wte_index()), *wpe = weight(work, params_wpe_index());
    for (int64_t m = 0; m < work->M; m++) {
        for (int64_t c = 0; c < work->C; c++) {
            out[m * work->C + c] = wte[pass->tokens[m] * work->C + c] + wpe[m % pass->T * work->C + c];
        }
    }
    round_stored(out, work->M * work->C, work->rounding);
}

static void embedding_backward(const Workspace *work, const double *d_x)
{
    const ExactPass *pass = work->pass;
    double *d_wte = gradient(work, params_wte_index()), *d_wpe = gradient(work, params_wpe_index());
    for (int64_t m = 0; m < work->M; m++) {
        for (int64_t c = 0; c < work->C; c++) {
            double value = d_x[m * work->C + c];
            double *token = &d_wte[pass->tokens[m] * work->C + c], *place = &d_wpe[m % pass->T * work->C + c];
            *token = added(*token, value, work->rounding);
            *place = added(*place, value, work->rounding);
        }
    }
}

/* Loss of one row of logits (V), and its gradient / M. */
static double cross_entropy(double *d_logits, const double *logits, int64_t target, const Workspace *work)
{
    int64_t V = work->V;
    Rounding *rounding = work->rounding;
    double largest = -INFINITY, sum = 0, unit = 4.0 * rounding->sum_unit;
    for (int64_t v = 0; v < V; v++) {
        largest = logits[v] > largest ? logits[v] : largest;
    }
    for (int64_t v = 0; v < V; v++) {
        double distance = rounded(logits[v] - largest, rounding->sum_unit, rounding);
        d_logits[v] = rounded(exp(distance), unit, rounding);
        sum = added(sum, d_logits[v], rounding);
    }
    sum = rounded(sum, unit, rounding);
    for (int64_t v = 0; v < V; v++) {
        double p = rounded(d_logits[v] / sum, rounding->sum_unit, rounding);
        d_logits[v] = (p - (v == target ? 1.0 : 0.0)) / (double)work->M;
    }
    round_stored(d_logits, V, rounding);
    double loss = rounded(log(sum), unit, rounding) - (logits[target] - largest);
    return loss + rounded(largest, rounding->sum_unit, rounding) - largest;
}

/* Logits, losses and, in d_x (M,C), the gradient of what leaves the last block. */
static void head_of_model(const Workspace *work, double *d_x)
{
    const ExactPass *pass = work->pass;
    Rounding *rounding = work->rounding;
    int64_t M = work->M, C = work->C, V = work->V;
    int lnf = params_lnf_weight_index(pass->table);
    Linear layer = classifier(work);
    double *d_logits = alloc(M * V), *d_final = alloc(M * C);
    norm_forward(work->final, work->residual, weight(work, lnf), weight(work, lnf + 1), M, C, rounding);
    linear_forward(pass->logits, work->final, &layer, M, rounding);
    for (int64_t m = 0; m < M; m++) {
        pass->token_losses[m] = cross_entropy(d_logits + m * V, pass->logits + m * V, pass->targets[m], work);
    }
    linear_backward(d_final, d_logits, work->final, &layer, M, rounding);
    round_stored(d_final, M * C, rounding);
    norm_to_residual(work, d_x, d_final, work->residual, lnf);
    memory_free(d_final);
    memory_free(d_logits);
}

void exact_pass(const ExactPass *pass, Rounding *rounding)
{
    int64_t M = (int64_t)pass->B * pass->T, C = pass->table->shape.n_embd;
    int L = pass->table->shape.n_layer;
    Workspace work = {.pass = pass, .rounding = rounding, .M = M, .C = C, .V = pass->table->shape.vocab_size};
    work.weights = alloc(pass->table->arena_count);
    work.blocks = alloc(L * CACHE_WIDTH * M * C);
    work.residual = alloc(M * C);
    work.final = alloc(M * C);
    double *d_x = alloc(M * C);
    memset(pass->gradients, 0, (size_t)pass->table->arena_count * sizeof(double));
    double unit = rounding->storage_unit > rounding->sum_unit ? rounding->storage_unit : 0;
    for (int64_t i = 0; i < pass->table->arena_count; i++) {
        work.weights[i] = rounded(pass->weights[i], unit, rounding);
    }
    embedding_forward(&work, block_cache(&work, 0).inp);
    for (int l = 0; l < L; l++) {
        block_forward(&work, l, l + 1 < L ? block_cache(&work, l + 1).inp : work.residual);
    }
    head_of_model(&work, d_x);
    for (int l = L - 1; l >= 0; l--) {
        block_backward(&work, l, d_x);
    }
    embedding_backward(&work, d_x);
    memory_free(d_x);
    memory_free(work.final);
    memory_free(work.residual);
    memory_free(work.blocks);
    memory_free(work.weights);
}
