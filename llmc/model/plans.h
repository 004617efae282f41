/* Which algorithm a device takes for which matrix product, as text: what --autotune chose, in a form that
 * logs, snapshots, other ranks and tables of measured choices share. The first line names the device and
 * its library; each other line is one product and its algorithm's settings, in numbers that mean something
 * to that library only. With numbers that are made up:
 *
 *   NVIDIA H200 / cuBLASLt 13.1.0
 *   65536x2304x768 nt bf16 bf16 bias set 256 256 256: 66 20 1 0 0 0 36 0 5
 *
 * that is MxNxK; n or t for each input, plain or transposed; the types of inputs and output; the epilogue;
 * set or add; the alignment in bytes of output and inputs; the settings. The largest number as the first of
 * them says that the library multiplies with a simpler epilogue, by its plan for that, and the device's
 * kernel follows.
 */
#ifndef LLMC_MODEL_PLANS_H
#define LLMC_MODEL_PLANS_H

#include <stdint.h>

#include "llmc/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLANS_MAX = 128, PLANS_BYTES_MAX = 1 << 15, PLAN_DEVICE_BYTES = 128, PLAN_SETTINGS = 9 };

#define PLAN_IN_PARTS UINT32_MAX

/* As the text names them: plain, bias, bias_gelu, gelu_backward, gelu_backward_bias. */
enum { PLAN_EPILOGUES = 5 };

/* What decides how a product is computed: out (M,N) = a (M,K) b (K,N). Compared as bytes. */
typedef struct ProductKey {
    int M, N, K;
    int is_a_transposed, is_b_transposed;
    int in_type, out_type; /* DType */
    int epilogue;
    int accumulates;
    int out_alignment, a_alignment, b_alignment; /* bytes, powers of two */
} ProductKey;

typedef struct ProductPlan {
    ProductKey key;
    uint32_t settings[PLAN_SETTINGS];
} ProductPlan;

/* Plain data; no two plans have the same key. */
typedef struct Plans {
    char device[PLAN_DEVICE_BYTES]; /* printable */
    int count;
    ProductPlan plans[PLANS_MAX];
} Plans;

/* For any text: 0, or -1 with *error naming the line. What is accepted is exactly what plans_to_text
 * writes. */
int plans_parse(Plans *plans, const char *text, Error *error);

/* The caller frees it with memory_free. At most PLANS_BYTES_MAX bytes with the NUL. */
char *plans_to_text(const Plans *plans);

/* The plan of a product, or NULL. */
const ProductPlan *plans_find(const Plans *plans, const ProductKey *key);

/* The plan of a product among texts for many devices, of which the last is NULL: the first plan for this
 * device counts. 0 where there is none. Texts that do not parse are a programmer's error. */
int plans_look_up(ProductPlan *plan, const char *const *table, const char *device, const ProductKey *key);

#ifdef __cplusplus
}
#endif
#endif
