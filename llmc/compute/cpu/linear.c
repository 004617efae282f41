#include "llmc/compute/cpu/linear.h"

#include "llmc/compute/cpu/gelu.h"
#include "llmc/compute/cpu/matmul.h"

/* What an epilogue does with a finished tile; unused fields are zero. */
typedef struct Finish {
    Tensor out;
    Tensor before; /* GELU's input */
    const float *bias;
    const float *residual;
    const Dropout *dropout;
    int64_t columns; /* of out, before and residual */
} Finish;

static void add_bias(float *row, const float *bias, int columns)
{
    if (bias) {
        for (int i = 0; i < columns; i++) {
            row[i] += bias[i];
        }
    }
}

static const float *bias_at(const Finish *f, int column)
{
    return f->bias ? f->bias + column : NULL;
}

static void store_tile(float *tile, int64_t stride, int row, int rows, int column, int columns, void *context)
{
    const Finish *f = context;
    for (int r = 0; r < rows; r++) {
        float *values = tile + r * stride;
        add_bias(values, bias_at(f, column), columns);
        tensor_store(f->out, (row + r) * f->columns + column, values, columns);
    }
}

static void gelu_tile(float *tile, int64_t stride, int row, int rows, int column, int columns, void *context)
{
    const Finish *f = context;
    for (int r = 0; r < rows; r++) {
        float *values = tile + r * stride;
        int64_t offset = (row + r) * f->columns + column;
        add_bias(values, bias_at(f, column), columns);
        tensor_store(f->before, offset, values, columns);
        if (f->before.type == DTYPE_BF16) {
            tensor_load(values, f->before, offset,
                        columns); /* backward sees the rounded value: so does GELU */
        }
        for (int i = 0; i < columns; i++) {
            values[i] = gelu_of(values[i]);
        }
        tensor_store(f->out, offset, values, columns);
    }
}

static void residual_tile(float *tile, int64_t stride, int row, int rows, int column, int columns,
                          void *context)
{
    const Finish *f = context;
    float *out = f->out.data;
    for (int r = 0; r < rows; r++) {
        float *values = tile + r * stride;
        int64_t offset = (row + r) * f->columns + column;
        add_bias(values, bias_at(f, column), columns);
        dropout_apply(values, f->dropout, offset, columns);
        for (int i = 0; i < columns; i++) {
            out[offset + i] = f->residual[offset + i] + values[i];
        }
    }
}

static void gelu_slope_tile(float *tile, int64_t stride, int row, int rows, int column, int columns,
                            void *context)
{
    enum { CHUNK = 256 };
    const Finish *f = context;
    float scratch[CHUNK];
    for (int r = 0; r < rows; r++) {
        float *values = tile + r * stride;
        int64_t offset = (row + r) * f->columns + column;
        for (int first = 0; first < columns; first += CHUNK) {
            int count = columns - first < CHUNK ? columns - first : CHUNK;
            const float *before = tensor_row(f->before, offset + first, count, scratch);
            for (int i = 0; i < count; i++) {
                values[first + i] *= gelu_slope_of(before[i]);
            }
        }
        tensor_store(f->out, offset, values, columns);
    }
}

/* Without an epilogue the product is stored as it is, in fp32. */
static void multiply_forward(const Linear *linear, MatmulEpilogue epilogue, Finish *finish)
{
    finish->bias = linear->bias;
    finish->columns = linear->outputs;
    Matmul product = {.a = linear->inp.data,
                      .b = linear->weight.data,
                      .in_type = linear->inp.type,
                      .a_stride = linear->inputs,
                      .b_stride = linear->inputs,
                      .is_b_transposed = 1,
                      .M = (int)linear->rows,
                      .N = linear->outputs,
                      .K = linear->inputs,
                      .epilogue = epilogue,
                      .context = finish};
    if (epilogue == NULL) {
        product.out = finish->out.data;
        product.out_stride = linear->outputs;
    }
    matmul(&product);
}

void linear_forward(Tensor out, const Linear *linear)
{
    Finish finish = {.out = out};
    int is_stored_as_it_is = out.type == DTYPE_FP32 && linear->bias == NULL; /* logits */
    multiply_forward(linear, is_stored_as_it_is ? NULL : store_tile, &finish);
}

void linear_gelu_forward(Tensor before, Tensor after, const Linear *linear)
{
    Finish finish = {.out = after, .before = before};
    multiply_forward(linear, gelu_tile, &finish);
}

void linear_residual_forward(float *out, const float *residual, const Dropout *dropout, const Linear *linear)
{
    Finish finish = {.out = {out, DTYPE_FP32}, .residual = residual, .dropout = dropout};
    multiply_forward(linear, residual_tile, &finish);
}

static Matmul input_product(Tensor d_out, Tensor weight, int64_t rows, int inputs, int outputs)
{
    return (Matmul){.a = d_out.data,
                    .b = weight.data,
                    .in_type = d_out.type,
                    .a_stride = outputs,
                    .b_stride = inputs,
                    .M = (int)rows,
                    .N = inputs,
                    .K = outputs};
}

void linear_backward_input(float *d_inp, Tensor d_out, Tensor weight, int64_t rows, int inputs, int outputs)
{
    Matmul product = input_product(d_out, weight, rows, inputs, outputs);
    product.out = d_inp;
    product.out_stride = inputs;
    matmul(&product);
}

void linear_backward_input_as(Tensor d_inp, Tensor d_out, Tensor weight, int64_t rows, int inputs,
                              int outputs)
{
    Matmul product = input_product(d_out, weight, rows, inputs, outputs);
    Finish finish = {.out = d_inp, .columns = inputs};
    product.epilogue = store_tile;
    product.context = &finish;
    matmul(&product);
}

void linear_backward_gelu(Tensor d_before, Tensor before, Tensor d_out, Tensor weight, int64_t rows,
                          int inputs, int outputs)
{
    Matmul product = input_product(d_out, weight, rows, inputs, outputs);
    Finish finish = {.out = d_before, .before = before, .columns = inputs};
    product.epilogue = gelu_slope_tile;
    product.context = &finish;
    matmul(&product);
}

void linear_backward_weight(float *d_weight, Tensor d_out, Tensor inp, int64_t rows, int inputs, int outputs,
                            int accumulates)
{
    Matmul product = {.a = d_out.data,
                      .b = inp.data,
                      .in_type = d_out.type,
                      .a_stride = outputs,
                      .b_stride = inputs,
                      .is_a_transposed = 1,
                      .M = outputs,
                      .N = inputs,
                      .K = (int)rows,
                      .out = d_weight,
                      .out_stride = inputs,
                      .accumulates = accumulates};
    matmul(&product);
}
