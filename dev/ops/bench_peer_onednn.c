/* oneDNN 2 (Debian 12) as the peer: sgemm for fp32, the matmul primitive for bf16, one call a product on
 * threads of its own. A primitive is made for each shape before it is timed again.
 */
#include <oneapi/dnnl/dnnl.h>
#include <string.h>

#include "dev/ops/bench_peer.h"
#include "llmc/base/error.h"

enum { PRIMITIVES_MAX = 64 };

typedef struct Made {
    Matmul product;
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, out;
} Made;

#define DNNL_CHECK(call) CHECK((call) == dnnl_success, "oneDNN: " #call)

static dnnl_engine_t engine;
static dnnl_stream_t stream;
static Made made[PRIMITIVES_MAX];
static int made_count;

const char *peer_name(void)
{
    return "oneDNN";
}

static dnnl_memory_desc_t describe(int rows, int columns, int is_transposed, int64_t stride,
                                   dnnl_data_type_t type)
{
    dnnl_memory_desc_t description;
    dnnl_dims_t dims = {rows, columns};
    dnnl_dims_t strides = {is_transposed ? 1 : stride, is_transposed ? stride : 1};
    DNNL_CHECK(dnnl_memory_desc_init_by_strides(&description, 2, dims, type, strides));
    return description;
}

static void make(Made *m, const Matmul *p)
{
    if (!engine) {
        DNNL_CHECK(dnnl_engine_create(&engine, dnnl_cpu, 0));
        DNNL_CHECK(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
    }
    dnnl_memory_desc_t a = describe(p->M, p->K, p->is_a_transposed, p->a_stride, dnnl_bf16);
    dnnl_memory_desc_t b = describe(p->K, p->N, p->is_b_transposed, p->b_stride, dnnl_bf16);
    dnnl_memory_desc_t out = describe(p->M, p->N, 0, p->out_stride, dnnl_f32);
    dnnl_matmul_desc_t operation;
    dnnl_post_ops_t post;
    dnnl_primitive_attr_t attributes;
    dnnl_primitive_desc_t description;
    DNNL_CHECK(dnnl_matmul_desc_init(&operation, &a, &b, NULL, &out));
    DNNL_CHECK(dnnl_post_ops_create(&post));
    if (p->accumulates) {
        DNNL_CHECK(dnnl_post_ops_append_sum(post, 1.0f));
    }
    DNNL_CHECK(dnnl_primitive_attr_create(&attributes));
    DNNL_CHECK(dnnl_primitive_attr_set_post_ops(attributes, post));
    DNNL_CHECK(dnnl_primitive_desc_create(&description, &operation, attributes, engine, NULL));
    DNNL_CHECK(dnnl_primitive_create(&m->primitive, description));
    DNNL_CHECK(dnnl_memory_create(&m->a, &a, engine, (void *)(uintptr_t)p->a));
    DNNL_CHECK(dnnl_memory_create(&m->b, &b, engine, (void *)(uintptr_t)p->b));
    DNNL_CHECK(dnnl_memory_create(&m->out, &out, engine, p->out));
    DNNL_CHECK(dnnl_primitive_desc_destroy(description));
    DNNL_CHECK(dnnl_primitive_attr_destroy(attributes));
    DNNL_CHECK(dnnl_post_ops_destroy(post));
    m->product = *p;
}

static Made *made_for(const Matmul *product)
{
    for (int i = 0; i < made_count; i++) {
        if (memcmp(&made[i].product, product, sizeof(*product)) == 0) {
            return &made[i];
        }
    }
    CHECK(made_count < PRIMITIVES_MAX, "more shapes than %d", PRIMITIVES_MAX);
    make(&made[made_count], product);
    return &made[made_count++];
}

void peer_multiply(const Matmul *p)
{
    if (p->in_type == DTYPE_FP32) {
        DNNL_CHECK(dnnl_sgemm(p->is_a_transposed ? 'T' : 'N', p->is_b_transposed ? 'T' : 'N', p->M, p->N,
                              p->K, 1.0f, p->a, p->a_stride, p->b, p->b_stride, p->accumulates ? 1.0f : 0.0f,
                              p->out, p->out_stride));
        return;
    }
    Made *m = made_for(p);
    dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, m->a}, {DNNL_ARG_WEIGHTS, m->b}, {DNNL_ARG_DST, m->out}};
    DNNL_CHECK(dnnl_primitive_execute(m->primitive, stream, 3, arguments));
    DNNL_CHECK(dnnl_stream_wait(stream));
}
