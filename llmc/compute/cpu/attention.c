#include "llmc/compute/cpu/attention.h"

#include <omp.h>

#include "llmc/base/math.h"
#include "llmc/compute/cpu/sums.h"
#include "llmc/compute/cpu/tile.h"

/* One head of one batch row: where its rows lie, and the padded sizes of its scratch. */
typedef struct Head {
    int T, HS;
    int padded_HS;         /* a multiple of TILE_COLUMNS; the padding is zero */
    int padded_T;          /* a multiple of ATTENTION_TILE */
    int64_t qkv_row;       /* elements from token to token */
    int64_t out_row;       /* the same for out */
    int64_t q, k, v;       /* first element of each in qkv */
    int64_t out;           /* first element in out */
    int64_t first_element; /* of this head's (T,T) probabilities, for dropout */
} Head;

static int round_up(int value, int multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

int64_t attention_scratch_count(int T, int HS)
{
    int64_t panel = (int64_t)round_up(T, ATTENTION_TILE) * round_up(HS, TILE_COLUMNS);
    int64_t tile = (int64_t)ATTENTION_TILE * (2 * ATTENTION_TILE + 2 * round_up(HS, TILE_COLUMNS) + 4);
    return 7 * panel + tile;
}

static Head head_of(const AttentionShape *shape, int64_t item)
{
    int64_t b = item / shape->NH;
    int64_t h = item % shape->NH;
    int64_t C = (int64_t)shape->NH * shape->HS;
    Head head = {.T = shape->T, .HS = shape->HS, .qkv_row = 3 * C, .out_row = C};
    head.padded_HS = round_up(shape->HS, TILE_COLUMNS);
    head.padded_T = round_up(shape->T, ATTENTION_TILE);
    head.q = b * shape->T * 3 * C + h * shape->HS;
    head.k = head.q + C;
    head.v = head.q + 2 * C;
    head.out = b * shape->T * C + h * shape->HS;
    head.first_element = item * shape->T * (int64_t)shape->T;
    return head;
}

static int at_most(int value, int limit)
{
    return value < limit ? value : limit;
}

/* Copy `rows` rows of HS elements as fp32 rows of padded_HS, scaled; zero what pads them. */
static void pack_rows(float *out, Tensor in, int64_t first, int64_t row_elements, int rows, const Head *head,
                      float scale)
{
    for (int row = 0; row < rows; row++) {
        float *values = out + (int64_t)row * head->padded_HS;
        tensor_load(values, in, first + row * row_elements, head->HS);
        for (int i = 0; i < head->HS; i++) {
            values[i] *= scale;
        }
        for (int i = head->HS; i < head->padded_HS; i++) {
            values[i] = 0;
        }
    }
}

/* Rows (T, padded_HS) to tiles of (HS, ATTENTION_TILE), one after the other; columns beyond T are zero. */
static void transpose_tiles(float *out, const float *rows, const Head *head)
{
    for (int first = 0; first < head->padded_T; first += ATTENTION_TILE) {
        float *tile = out + (int64_t)first * head->padded_HS;
        int count = at_most(head->T - first, ATTENTION_TILE);
        for (int i = 0; i < head->HS; i++) {
            const float *column = rows + (int64_t)first * head->padded_HS + i;
            for (int t = 0; t < count; t++) {
                tile[i * ATTENTION_TILE + t] = column[(int64_t)t * head->padded_HS];
            }
            for (int t = count; t < ATTENTION_TILE; t++) {
                tile[i * ATTENTION_TILE + t] = 0;
            }
        }
    }
}

/* scores (rows, ATTENTION_TILE) = a (rows, HS) times a tile of transpose_tiles. */
static void score_tile(float *scores, const float *a, const float *transposed_tile, int rows,
                       const Head *head)
{
    memset(scores, 0, (size_t)rows * ATTENTION_TILE * sizeof(float));
    TileProduct product = {.c = scores,
                           .c_stride = ATTENTION_TILE,
                           .a = a,
                           .a_row_stride = head->padded_HS,
                           .a_depth_stride = 1,
                           .b = transposed_tile,
                           .b_stride = ATTENTION_TILE,
                           .rows = rows,
                           .columns = ATTENTION_TILE,
                           .depth = head->HS};
    tile_multiply(&product);
}

/* out (rows, padded_HS) += weights (rows, depth) b (depth, padded_HS); transposed: weights is stored (depth,
 * rows). */
static void weigh_rows(float *out, const float *weights, const float *b, int rows, int depth,
                       int is_transposed, const Head *head)
{
    TileProduct product = {.c = out,
                           .c_stride = head->padded_HS,
                           .a = weights,
                           .a_row_stride = is_transposed ? 1 : ATTENTION_TILE,
                           .a_depth_stride = is_transposed ? ATTENTION_TILE : 1,
                           .b = b,
                           .b_stride = head->padded_HS,
                           .rows = rows,
                           .columns = head->padded_HS,
                           .depth = depth};
    tile_multiply(&product);
}

/* Running softmax of one query while tiles of keys go by. */
typedef struct RunningSoftmax {
    float maximum, sum;
} RunningSoftmax;

/* Scores of one row become weights relative to the new maximum; keys from `valid` on weigh nothing. Returns
 * the factor that brings what was summed before to the new maximum. */
static float softmax_step(RunningSoftmax *running, float *scores, int valid)
{
    float maximum = max_of(scores, valid, running->maximum);
    for (int k = 0; k < valid; k++) {
        scores[k] = exp_of(scores[k] - maximum);
    }
    for (int k = valid; k < ATTENTION_TILE; k++) {
        scores[k] = 0;
    }
    float sum = sum_of(scores, ATTENTION_TILE);
    float factor = exp_of(running->maximum - maximum);
    running->sum = running->sum * factor + sum;
    running->maximum = maximum;
    return factor;
}

typedef struct ForwardScratch {
    float *k_tiles, *v_rows, *staging; /* one head's keys and values */
    float *q, *scores, *sum;           /* one tile of queries */
    RunningSoftmax running[ATTENTION_TILE];
} ForwardScratch;

/* Attend from the queries first .. first+rows-1 to all keys before them. */
static void forward_tile(ForwardScratch *s, int first, int rows, const Head *head, const Dropout *dropout)
{
    memset(s->sum, 0, (size_t)rows * head->padded_HS * sizeof(float));
    for (int row = 0; row < rows; row++) {
        s->running[row] = (RunningSoftmax){-INFINITY, 0};
    }
    for (int key = 0; key <= first; key += ATTENTION_TILE) {
        int depth = at_most(head->T - key, ATTENTION_TILE);
        score_tile(s->scores, s->q, s->k_tiles + (int64_t)key * head->padded_HS, rows, head);
        for (int row = 0; row < rows; row++) {
            float *scores = s->scores + row * ATTENTION_TILE;
            int valid = at_most(first + row - key + 1, ATTENTION_TILE);
            float factor = softmax_step(&s->running[row], scores, valid);
            float *sum = s->sum + (int64_t)row * head->padded_HS;
            for (int i = 0; i < head->padded_HS; i++) {
                sum[i] *= factor;
            }
            dropout_apply(scores, dropout, head->first_element + (int64_t)(first + row) * head->T + key,
                          valid);
        }
        weigh_rows(s->sum, s->scores, s->v_rows + (int64_t)key * head->padded_HS, rows, depth, 0, head);
    }
}

static void forward_head(Tensor out, float *lse, Tensor qkv, const Head *head, const Dropout *dropout,
                         float *scratch)
{
    int64_t panel = (int64_t)head->padded_T * head->padded_HS;
    ForwardScratch s = {.k_tiles = scratch, .v_rows = scratch + panel, .staging = scratch + 2 * panel};
    s.q = scratch + 3 * panel;
    s.sum = s.q + ATTENTION_TILE * head->padded_HS;
    s.scores = s.sum + ATTENTION_TILE * head->padded_HS;
    pack_rows(s.staging, qkv, head->k, head->qkv_row, head->T, head, 1.0f);
    transpose_tiles(s.k_tiles, s.staging, head);
    pack_rows(s.v_rows, qkv, head->v, head->qkv_row, head->T, head, 1.0f);
    float scale = 1.0f / sqrtf((float)head->HS);
    for (int first = 0; first < head->T; first += ATTENTION_TILE) {
        int rows = at_most(head->T - first, ATTENTION_TILE);
        pack_rows(s.q, qkv, head->q + first * head->qkv_row, head->qkv_row, rows, head, scale);
        forward_tile(&s, first, rows, head, dropout);
        for (int row = 0; row < rows; row++) {
            float *sum = s.sum + (int64_t)row * head->padded_HS;
            float inverse = 1.0f / s.running[row].sum;
            for (int i = 0; i < head->HS; i++) {
                sum[i] *= inverse;
            }
            tensor_store(out, head->out + (first + row) * head->out_row, sum, head->HS);
            lse[first + row] = s.running[row].maximum + (float)math_log(s.running[row].sum);
        }
    }
}

void attention_forward(Tensor out, float *lse, Tensor qkv, const AttentionShape *shape,
                       const Dropout *dropout, float *scratch)
{
    int64_t heads = (int64_t)shape->B * shape->NH;
    int64_t scratch_count = attention_scratch_count(shape->T, shape->HS);
#pragma omp parallel for schedule(dynamic) num_threads(shape->threads)
    for (int64_t item = 0; item < heads; item++) {
        Head head = head_of(shape, item);
        float *own = scratch + omp_get_thread_num() * scratch_count;
        forward_head(out, lse + item * shape->T, qkv, &head, dropout, own);
    }
}

typedef struct BackwardScratch {
    float *q, *k, *d_out;      /* (T, padded_HS) rows; q is scaled */
    float *k_tiles, *v_tiles;  /* transposed */
    float *d_k, *d_v;          /* (T, padded_HS) sums; d_k holds v's rows before it is a sum */
    float *weights, *d_scores; /* one tile */
    float *d_q;                /* (ATTENTION_TILE, padded_HS) */
    float *dot;                /* (ATTENTION_TILE) sum of d_out * out for each query */
} BackwardScratch;

static BackwardScratch backward_scratch(float *scratch, const Head *head)
{
    int64_t panel = (int64_t)head->padded_T * head->padded_HS;
    BackwardScratch s = {.q = scratch,
                         .k = scratch + panel,
                         .d_out = scratch + 2 * panel,
                         .k_tiles = scratch + 3 * panel,
                         .v_tiles = scratch + 4 * panel,
                         .d_k = scratch + 5 * panel,
                         .d_v = scratch + 6 * panel};
    s.weights = scratch + 7 * panel;
    s.d_scores = s.weights + ATTENTION_TILE * ATTENTION_TILE;
    s.d_q = s.d_scores + ATTENTION_TILE * ATTENTION_TILE;
    s.dot = s.d_q + ATTENTION_TILE * head->padded_HS;
    return s;
}

static void pack_for_backward(BackwardScratch *s, const AttentionBackward *a, const Head *head)
{
    size_t panel_bytes = (size_t)head->padded_T * head->padded_HS * sizeof(float);
    pack_rows(s->q, a->qkv, head->q, head->qkv_row, head->T, head, 1.0f / sqrtf((float)head->HS));
    pack_rows(s->k, a->qkv, head->k, head->qkv_row, head->T, head, 1.0f);
    pack_rows(s->d_k, a->qkv, head->v, head->qkv_row, head->T, head, 1.0f);
    pack_rows(s->d_out, a->d_out, head->out, head->out_row, head->T, head, 1.0f);
    transpose_tiles(s->k_tiles, s->k, head);
    transpose_tiles(s->v_tiles, s->d_k, head);
    memset(s->d_k, 0, panel_bytes);
    memset(s->d_v, 0, panel_bytes);
}

/* One row of a tile: the probabilities again, then the gradient of the scores: P (dP - sum of d_out * out).
 * With dropout weights become the dropped probabilities, which is what the values saw. */
static void backward_row(float *weights, float *d_scores, float lse, float dot, int valid,
                         const Dropout *dropout, int64_t first_element)
{
    float kept[ATTENTION_TILE];
    for (int k = 0; k < valid; k++) {
        weights[k] = exp_of(weights[k] - lse);
    }
    if (dropout->probability > 0) {
        for (int k = 0; k < valid; k++) {
            kept[k] = 1.0f;
        }
        dropout_apply(kept, dropout, first_element, valid);
        for (int k = 0; k < valid; k++) {
            d_scores[k] = weights[k] * (d_scores[k] * kept[k] - dot);
            weights[k] *= kept[k];
        }
    } else {
        for (int k = 0; k < valid; k++) {
            d_scores[k] = weights[k] * (d_scores[k] - dot);
        }
    }
    for (int k = valid; k < ATTENTION_TILE; k++) {
        weights[k] = 0;
        d_scores[k] = 0;
    }
}

/* The queries first .. first+rows-1 against all keys before them: adds to d_k and d_v, makes d_q. */
static void backward_tile(BackwardScratch *s, const float *lse, int first, int rows, const Head *head,
                          const Dropout *dropout)
{
    int64_t q_offset = (int64_t)first * head->padded_HS;
    memset(s->d_q, 0, (size_t)rows * head->padded_HS * sizeof(float));
    for (int key = 0; key <= first; key += ATTENTION_TILE) {
        int64_t k_offset = (int64_t)key * head->padded_HS;
        int keys = at_most(head->T - key, ATTENTION_TILE);
        score_tile(s->weights, s->q + q_offset, s->k_tiles + k_offset, rows, head);
        score_tile(s->d_scores, s->d_out + q_offset, s->v_tiles + k_offset, rows, head);
        for (int row = 0; row < rows; row++) {
            int64_t element = head->first_element + (int64_t)(first + row) * head->T + key;
            backward_row(s->weights + row * ATTENTION_TILE, s->d_scores + row * ATTENTION_TILE,
                         lse[first + row], s->dot[row], at_most(first + row - key + 1, ATTENTION_TILE),
                         dropout, element);
        }
        weigh_rows(s->d_v + k_offset, s->weights, s->d_out + q_offset, keys, rows, 1, head);
        weigh_rows(s->d_k + k_offset, s->d_scores, s->q + q_offset, keys, rows, 1, head);
        weigh_rows(s->d_q, s->d_scores, s->k + k_offset, rows, keys, 0, head);
    }
}

static void backward_head(const AttentionBackward *a, const float *lse, const Head *head, float *scratch)
{
    BackwardScratch s = backward_scratch(scratch, head);
    pack_for_backward(&s, a, head);
    float scale = 1.0f / sqrtf((float)head->HS);
    for (int first = 0; first < head->T; first += ATTENTION_TILE) {
        int rows = at_most(head->T - first, ATTENTION_TILE);
        pack_rows(s.d_q, a->out, head->out + first * head->out_row, head->out_row, rows, head, 1.0f);
        for (int row = 0; row < rows; row++) {
            const float *out = s.d_q + (int64_t)row * head->padded_HS;
            const float *d_out = s.d_out + (int64_t)(first + row) * head->padded_HS;
            s.dot[row] = dot_of(out, d_out, head->HS);
        }
        backward_tile(&s, lse, first, rows, head, a->dropout);
        for (int row = 0; row < rows; row++) {
            float *d_q = s.d_q + (int64_t)row * head->padded_HS;
            for (int i = 0; i < head->HS; i++) {
                d_q[i] *= scale;
            }
            tensor_store(a->d_qkv, head->q + (first + row) * head->qkv_row, d_q, head->HS);
        }
    }
    for (int64_t t = 0; t < head->T; t++) {
        tensor_store(a->d_qkv, head->k + t * head->qkv_row, s.d_k + t * head->padded_HS, head->HS);
        tensor_store(a->d_qkv, head->v + t * head->qkv_row, s.d_v + t * head->padded_HS, head->HS);
    }
}

void attention_backward(const AttentionBackward *args, const AttentionShape *shape)
{
    int64_t heads = (int64_t)shape->B * shape->NH;
    int64_t scratch_count = attention_scratch_count(shape->T, shape->HS);
#pragma omp parallel for schedule(dynamic) num_threads(shape->threads)
    for (int64_t item = 0; item < heads; item++) {
        Head head = head_of(shape, item);
        float *own = args->scratch + omp_get_thread_num() * scratch_count;
        backward_head(args, args->lse + item * shape->T, &head, own);
    }
}
