#include "llmc/model/params.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/base/random.h"

enum { FIRST_BLOCK_INDEX = 2, ARENA_MULTIPLE = 16 /* floats: each tensor starts on a cache line */ };

/* How one row of the table follows from C: rows and columns are multiples of it. */
typedef struct TensorRule {
    const char *name;
    int rows_in_C; /* 0: a vector */
    int columns_in_C;
    ParamInit init;
    int is_residual; /* its output is added to the residual stream */
} TensorRule;

static const TensorRule block_rules[BLOCK_TENSORS] = {
    [LN1_WEIGHT] = {"ln_1.weight", 0, 1, INIT_ONE, 0},
    [LN1_BIAS] = {"ln_1.bias", 0, 1, INIT_ZERO, 0},
    [QKV_WEIGHT] = {"attn.c_attn.weight", 3, 1, INIT_NORMAL, 0},
    [QKV_BIAS] = {"attn.c_attn.bias", 0, 3, INIT_ZERO, 0},
    [PROJ_WEIGHT] = {"attn.c_proj.weight", 1, 1, INIT_NORMAL, 1},
    [PROJ_BIAS] = {"attn.c_proj.bias", 0, 1, INIT_ZERO, 0},
    [LN2_WEIGHT] = {"ln_2.weight", 0, 1, INIT_ONE, 0},
    [LN2_BIAS] = {"ln_2.bias", 0, 1, INIT_ZERO, 0},
    [FC_WEIGHT] = {"mlp.c_fc.weight", 4, 1, INIT_NORMAL, 0},
    [FC_BIAS] = {"mlp.c_fc.bias", 0, 4, INIT_ZERO, 0},
    [FCPROJ_WEIGHT] = {"mlp.c_proj.weight", 1, 4, INIT_NORMAL, 1},
    [FCPROJ_BIAS] = {"mlp.c_proj.bias", 0, 1, INIT_ZERO, 0},
};

/* Append a row to the table; its place in the arena follows the row before it. */
static ParamSpec *append(ParamTable *table, int64_t rows, int64_t columns, int64_t arena_rows, ParamInit init)
{
    ParamSpec *spec = &table->specs[table->count++];
    memset(spec, 0, sizeof(*spec));
    spec->offset = table->arena_count;
    spec->rows = rows > 0 ? rows : 1;
    spec->columns = columns;
    spec->dimensions = rows > 0 ? 2 : 1;
    spec->arena_count = (rows > 0 ? arena_rows : 1) * columns;
    spec->init = init;
    spec->standard_deviation = 0.02f;
    table->arena_count += (spec->arena_count + ARENA_MULTIPLE - 1) / ARENA_MULTIPLE * ARENA_MULTIPLE;
    return spec;
}

static void append_block(ParamTable *table, int l)
{
    int64_t C = table->shape.n_embd;
    for (int t = 0; t < BLOCK_TENSORS; t++) {
        const TensorRule *rule = &block_rules[t];
        ParamSpec *spec =
            append(table, rule->rows_in_C * C, rule->columns_in_C * C, rule->rows_in_C * C, rule->init);
        snprintf(spec->name, sizeof(spec->name), "h.%d.%s", l, rule->name);
        spec->is_conv1d = rule->rows_in_C > 0;
        if (rule->is_residual) {
            spec->standard_deviation = 0.02f / sqrtf(2.0f * (float)table->shape.n_layer);
        }
    }
}

static void append_named(ParamTable *table, const char *name, int64_t rows, int64_t arena_rows,
                         ParamInit init)
{
    ParamSpec *spec = append(table, rows, table->shape.n_embd, arena_rows, init);
    snprintf(spec->name, sizeof(spec->name), "%s", name);
}

void params_init(ParamTable *table, const ModelShape *shape)
{
    memset(table, 0, sizeof(*table));
    table->shape = *shape;
    int count = FIRST_BLOCK_INDEX + BLOCK_TENSORS * shape->n_layer + 2;
    table->specs = memory_alloc((size_t)count, sizeof(*table->specs), "parameter table");
    append_named(table, "wte.weight", shape->vocab_size, model_shape_padded_vocab(shape), INIT_NORMAL);
    append_named(table, "wpe.weight", shape->block_size, shape->block_size, INIT_NORMAL);
    for (int l = 0; l < shape->n_layer; l++) {
        append_block(table, l);
    }
    append_named(table, "ln_f.weight", 0, 0, INIT_ONE);
    append_named(table, "ln_f.bias", 0, 0, INIT_ZERO);
}

void params_release(ParamTable *table)
{
    memory_free(table->specs);
    memset(table, 0, sizeof(*table));
}

int params_block_index(int l, BlockTensor tensor)
{
    return FIRST_BLOCK_INDEX + l * BLOCK_TENSORS + (int)tensor;
}

int params_wte_index(void)
{
    return 0;
}

int params_wpe_index(void)
{
    return 1;
}

int params_lnf_weight_index(const ParamTable *table)
{
    return table->count - 2;
}

int params_find(const ParamTable *table, const char *name)
{
    for (int i = 0; i < table->count; i++) {
        if (strcmp(table->specs[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

void params_draw_initial(float *out, const ParamTable *table, int index, int64_t first, int64_t count,
                         uint64_t seed)
{
    const ParamSpec *spec = &table->specs[index];
    if (spec->init == INIT_NORMAL) {
        RandomKey key = {.seed = seed, .purpose = RANDOM_INIT, .slot = (uint32_t)index};
        random_normal(out, count, spec->standard_deviation, &key, (uint64_t)first);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        out[i] = spec->init == INIT_ONE ? 1.0f : 0.0f;
    }
}
