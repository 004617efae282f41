/* Matrix products on the CPU.
 *
 * Every element of an fp32 product is one defined sum: K is cut into slices of 128, a slice is one chain of
 * fused multiply-adds in the order of k that begins with zero, and the slices are added up in order. So its
 * bits depend on nothing else: not on threads, tiles, instruction set or compiler. A product of bf16 inputs
 * is as well defined for each kernel, but kernels differ (dev/notes/matmul.md).
 */
#ifndef LLMC_COMPUTE_CPU_MATMUL_H
#define LLMC_COMPUTE_CPU_MATMUL_H

#include <stddef.h>
#include <stdint.h>

#include "llmc/compute/cpu/matmul_kernel.h"
#include "llmc/model/dtype.h"

/* Called once for each finished tile, by the thread that made it and while the tile is in cache, on several
 * threads at once: rows x columns fp32 at `tile`, `tile_stride` elements from row to row; its first element
 * is (row, column) of the product. Tiles cover each element of the product exactly once, in no order. It may
 * change the tile in place, and store results wherever it wants: bias, GELU, cast to bf16, residual. */
typedef void (*MatmulEpilogue)(float *tile, int64_t tile_stride, int row, int rows, int column, int columns,
                               void *context);

/* One product, out (M,N) = A (M,K) B (K,N). Inputs are row-major in memory; a transposed one is stored with
 * its axes exchanged: A as (K,M), B as (N,K), which is how weights [out,in] lie. */
typedef struct Matmul {
    const void *a;           /* (M,K), or (K,M) if transposed */
    const void *b;           /* (K,N), or (N,K) if transposed */
    DType in_type;           /* of both inputs; products and sums are fp32 for either */
    int64_t a_stride;        /* elements between stored rows of A */
    int64_t b_stride;        /* and of B */
    int is_a_transposed;     /* A is stored (K,M) */
    int is_b_transposed;     /* B is stored (N,K) */
    int M, N, K;             /* each at least 1 */
    float *out;              /* (M,N) fp32; NULL: only the epilogue sees the result */
    int64_t out_stride;      /* elements between rows of out; not used if out is NULL */
    int accumulates;         /* out += A B instead of out = A B; needs out */
    MatmulEpilogue epilogue; /* NULL: none. Its tile points into out, or is scratch if out is NULL */
    void *context;           /* handed to the epilogue */
} Matmul;

/* Run one product on all threads of OpenMP; inside a parallel region, on the calling thread alone. out may
 * not overlap the inputs. Scratch is kept for each thread and allocated only when a shape needs more than any
 * before it. */
void matmul(const Matmul *product);

/* The same by this kernel, whose inputs are of the product's type. */
void matmul_with(const MatmulKernel *kernel, const Matmul *product);

/* The kernel for products of bf16 inputs from now on, on all threads: matmul_widened until it is set. Not
 * while a product runs. */
void matmul_set_bf16_kernel(const MatmulKernel *kernel);

/* Bytes of scratch that each thread keeps at most. */
size_t matmul_scratch_bytes(void);

/* Whether this kernel, on this machine, computes products of odd sizes right, to the bit. On the calling
 * thread alone: an instruction that is missing raises SIGILL there. Not for several threads at once. */
int matmul_kernel_is_right(const MatmulKernel *kernel);

#endif
