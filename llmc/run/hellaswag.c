#include "llmc/run/hellaswag.h"

#include <math.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/comm/comm.h"
#include "llmc/run/stop.h"

/* Items are far shorter than most models' rows. So batches have the model's B*T tokens, but in rows of T,
 * T/2, T/4 .. tokens, as far as these are whole: an item is in rows of the shortest width that holds its
 * endings.
 * Products have the same shapes then as in training.
 *
 * A unit is the least number of whole batches that holds whole items: four rows of each, item by item. Units
 * are dealt out to ranks; their number and contents depend on the file and on B and T alone. */
enum { WIDTHS_MAX = 32, WIDTH_MIN = 32 };

typedef struct Width {
    int row_tokens;
    int batch_rows;
    int unit_items;
    int64_t first, count; /* of the items in this width, in the layout's order */
    int64_t units;
} Width;

typedef struct Layout {
    Width widths[WIDTHS_MAX]; /* falling */
    int width_count;
    int64_t *order; /* (items) numbers of items, width by width */
    int64_t units;
} Layout;

enum { SUM_CORRECT, SUM_LOSS, SUM_BAD, SUM_STOPPED, SUMS }; /* what ranks add up */

/* Context and ending `e` without their last token, which is only a target. */
static int64_t input_tokens(const HellaSwagItem *item, int e)
{
    return (int64_t)item->context_tokens + item->ending_tokens[e] - 1;
}

static int64_t longest_input(const HellaSwagItem *item)
{
    int64_t longest = 0;
    for (int e = 0; e < HELLASWAG_ENDINGS; e++) {
        longest = input_tokens(item, e) > longest ? input_tokens(item, e) : longest;
    }
    return longest;
}

int64_t hellaswag_cut_items(const HellaSwagSet *set, int sequence_tokens)
{
    int64_t cut = 0;
    for (int64_t i = 0; i < set->count; i++) {
        cut += longest_input(&set->items[i]) > sequence_tokens;
    }
    return cut;
}

/* ---- which rows hold which items ----------------------------------------------------------------------- */

static Width width_of(int row_tokens, const HellaSwagArgs *args)
{
    int rows = args->batch_size * (args->sequence_tokens / row_tokens);
    int divisor = rows % 4 == 0 ? 4 : rows % 2 == 0 ? 2 : 1; /* that it has in common with four endings */
    return (Width){.row_tokens = row_tokens, .batch_rows = rows, .unit_items = rows / divisor};
}

/* The shortest width that holds an item, or the longest of all. */
static int find_width(const Layout *layout, const HellaSwagItem *item)
{
    int width = layout->width_count - 1;
    while (width > 0 && longest_input(item) > layout->widths[width].row_tokens) {
        width--;
    }
    return width;
}

static void layout_init(Layout *layout, const HellaSwagArgs *args)
{
    const HellaSwagSet *set = args->set;
    memset(layout, 0, sizeof(*layout));
    int row_tokens = args->sequence_tokens;
    layout->widths[layout->width_count++] = width_of(row_tokens, args);
    while (row_tokens % 2 == 0 && row_tokens / 2 >= WIDTH_MIN) {
        row_tokens /= 2;
        layout->widths[layout->width_count++] = width_of(row_tokens, args);
    }
    layout->order = memory_alloc((size_t)set->count, sizeof(*layout->order), "order of items");
    int64_t ordered = 0;
    for (int w = 0; w < layout->width_count; w++) {
        Width *width = &layout->widths[w];
        width->first = ordered;
        for (int64_t i = 0; i < set->count; i++) {
            if (find_width(layout, &set->items[i]) == w) {
                layout->order[ordered++] = i;
            }
        }
        width->count = ordered - width->first;
        width->units = (width->count + width->unit_items - 1) / width->unit_items;
        layout->units += width->units;
    }
}

/* ---- one unit ------------------------------------------------------------------------------------------ */

/* Space for a batch, (batch_rows, row_tokens) each, and for the scores of a unit. */
typedef struct Space {
    int32_t *tokens, *targets;
    float *losses;
    double *scores; /* (4 * unit_items) */
} Space;

/* A row of one batch. What is left of it has token 0, whose loss nobody reads. */
static void fill_row(int32_t *tokens, int32_t *targets, const HellaSwagSet *set, const HellaSwagItem *item,
                     int e, int row_tokens)
{
    const uint16_t *text = set->tokens.tokens + item->first_token;
    const uint16_t *ending = text + item->context_tokens;
    for (int i = 0; i < e; i++) {
        ending += item->ending_tokens[i];
    }
    int64_t inputs = input_tokens(item, e), cut = inputs > row_tokens ? inputs - row_tokens : 0;
    for (int64_t t = cut; t <= inputs; t++) {
        int token = t < item->context_tokens ? text[t] : ending[t - item->context_tokens];
        if (t < inputs) {
            tokens[t - cut] = token;
        }
        if (t > cut) {
            targets[t - cut - 1] = token;
        }
    }
    for (int64_t t = inputs - cut; t < row_tokens; t++) {
        tokens[t] = targets[t] = 0;
    }
}

/* The mean loss of an ending's tokens in its row. */
static double mean_of_ending(const float *losses, const HellaSwagItem *item, int e, int row_tokens)
{
    int64_t inputs = input_tokens(item, e), cut = inputs > row_tokens ? inputs - row_tokens : 0;
    int64_t end = inputs - cut, first = end - item->ending_tokens[e];
    double sum = 0;
    first = first < 0 ? 0 : first;
    for (int64_t t = first; t < end; t++) {
        sum += losses[t];
    }
    return sum / (double)(end - first);
}

/* Scores of the `count` items of a unit. 0 when a signal came. */
static int score_unit(const Space *space, const HellaSwagArgs *args, const Width *width, const int64_t *items,
                      int64_t count)
{
    const HellaSwagSet *set = args->set;
    int R = width->batch_rows, T = width->row_tokens;
    int64_t rows = HELLASWAG_ENDINGS * count;
    for (int64_t first = 0; first < rows; first += R) {
        int used = rows - first < R ? (int)(rows - first) : R;
        if (stop_requested()) {
            return 0;
        }
        for (int r = 0; r < used; r++) {
            int64_t row = first + r, place = (int64_t)r * T;
            fill_row(space->tokens + place, space->targets + place, set,
                     &set->items[items[row / HELLASWAG_ENDINGS]], (int)(row % HELLASWAG_ENDINGS), T);
        }
        size_t rest_bytes = (size_t)(R - used) * (size_t)T * sizeof(int32_t);
        memset(space->tokens + (int64_t)used * T, 0, rest_bytes);
        memset(space->targets + (int64_t)used * T, 0, rest_bytes);
        RunModel *model = args->model;
        model->backend->losses(model->model, space->losses, space->tokens, space->targets, R, T);
        for (int r = 0; r < used; r++) {
            int64_t row = first + r;
            space->scores[row] =
                mean_of_ending(space->losses + (int64_t)r * T, &set->items[items[row / HELLASWAG_ENDINGS]],
                               (int)(row % HELLASWAG_ENDINGS), T);
        }
    }
    return 1;
}

static void judge_item(int64_t sums[SUMS], const HellaSwagArgs *args, int64_t number, const double *scores)
{
    const HellaSwagItem *item = &args->set->items[number];
    int chosen = -1;
    for (int e = 0; e < HELLASWAG_ENDINGS; e++) {
        if (isfinite(scores[e]) && (chosen < 0 || scores[e] < scores[chosen])) {
            chosen = e;
        }
    }
    sums[SUM_CORRECT] += chosen == item->label;
    double loss = scores[item->label];
    if (loss >= 0 && loss < EXACT_LIMIT) { /* false for a NaN */
        sums[SUM_LOSS] += llrint(loss / (double)args->set->count * EXACT_SCALE);
    } else {
        sums[SUM_BAD]++;
    }
    if (args->losses) {
        memcpy(args->losses + number * HELLASWAG_ENDINGS, scores, HELLASWAG_ENDINGS * sizeof(*scores));
    }
}

/* ---- a rank's share ------------------------------------------------------------------------------------ */

static void sum_share(int64_t sums[SUMS], const HellaSwagArgs *args, const Layout *layout, const Space *space)
{
    int64_t first = args->rank * layout->units / args->rank_count, passed = 0;
    int64_t end = (args->rank + 1) * layout->units / args->rank_count;
    for (int w = 0; w < layout->width_count; w++) {
        const Width *width = &layout->widths[w];
        for (int64_t unit = 0; unit < width->units; unit++) {
            int64_t begin = unit * width->unit_items, left = width->count - begin;
            int64_t count = left < width->unit_items ? left : width->unit_items;
            const int64_t *items = layout->order + width->first + begin;
            if (passed + unit < first || passed + unit >= end) {
                continue;
            }
            if (!score_unit(space, args, width, items, count)) {
                sums[SUM_STOPPED] = 1;
                return;
            }
            for (int64_t i = 0; i < count; i++) {
                judge_item(sums, args, items[i], space->scores + i * HELLASWAG_ENDINGS);
            }
        }
        passed += width->units;
    }
}

void hellaswag_score(HellaSwagResult *result, const HellaSwagArgs *args)
{
    int64_t sums[SUMS] = {0}, rows_max = 0;
    size_t batch_tokens = (size_t)args->batch_size * (size_t)args->sequence_tokens;
    Layout layout;
    layout_init(&layout, args);
    for (int w = 0; w < layout.width_count; w++) {
        int64_t rows = (int64_t)layout.widths[w].unit_items * HELLASWAG_ENDINGS;
        rows_max = rows > rows_max ? rows : rows_max;
    }
    Space space = {.tokens = memory_alloc(batch_tokens, sizeof(int32_t), "HellaSwag batch"),
                   .targets = memory_alloc(batch_tokens, sizeof(int32_t), "HellaSwag batch"),
                   .losses = memory_alloc(batch_tokens, sizeof(float), "HellaSwag batch"),
                   .scores = memory_alloc((size_t)rows_max, sizeof(double), "HellaSwag scores")};
    sum_share(sums, args, &layout, &space);
    memory_free(space.tokens);
    memory_free(space.targets);
    memory_free(space.losses);
    memory_free(space.scores);
    memory_free(layout.order);
    comm_sum_int64(sums, SUMS);
    *result = (HellaSwagResult){.correct = sums[SUM_CORRECT],
                                .items = args->set->count,
                                .loss = sums[SUM_BAD] > 0 ? NAN : (double)sums[SUM_LOSS] / EXACT_SCALE,
                                .is_complete = sums[SUM_STOPPED] == 0};
}
