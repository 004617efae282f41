#include "llmc/model/shape.h"

#include <limits.h>

static int check_range(const char *name, int value, int least, int most, Error *error)
{
    if (value < least || value > most) {
        return error_set(error, "%s: expected %d to %d, found %d", name, least, most, value);
    }
    return 0;
}

int model_shape_check(const ModelShape *shape, Error *error)
{
    if (check_range("block_size", shape->block_size, 1, 1 << 20, error) ||
        check_range("vocab_size", shape->vocab_size, 1, 1 << 16, error) ||
        check_range("n_layer", shape->n_layer, 1, MODEL_LAYERS_MAX, error) ||
        check_range("n_head", shape->n_head, 1, 1 << 12, error) ||
        check_range("n_embd", shape->n_embd, 1, 1 << 16, error)) {
        return -1;
    }
    if (shape->n_embd % shape->n_head != 0) {
        return error_set(error, "n_embd=%d: expected a multiple of n_head=%d", shape->n_embd, shape->n_head);
    }
    return 0;
}

int model_shape_padded_vocab(const ModelShape *shape)
{
    return (shape->vocab_size + VOCAB_MULTIPLE - 1) / VOCAB_MULTIPLE * VOCAB_MULTIPLE;
}

int64_t model_shape_parameters(const ModelShape *shape)
{
    int64_t C = shape->n_embd;
    int64_t block = 12 * C * C + 13 * C;
    return (shape->vocab_size + (int64_t)shape->block_size) * C + shape->n_layer * block + 2 * C;
}

double model_shape_flops_per_token(const ModelShape *shape, int T)
{
    double C = shape->n_embd;
    double parameters = (double)model_shape_parameters(shape) - shape->block_size * C;
    return 6.0 * parameters + 12.0 * shape->n_layer * C * T;
}
