/* Instructions of the GPU that C has no words for, each as one function. This file is for nvcc;
 * dev/host_cuda/instructions.cuh has the same functions for the CPU, and the Makefile chooses.
 *
 * A kernel takes all its shared memory at launch and gets it from dynamic_shared(): no kernel declares
 * __shared__ variables of its own.
 */
#ifndef LLMC_COMPUTE_CUDA_DEVICE_INSTRUCTIONS_CUH
#define LLMC_COMPUTE_CUDA_DEVICE_INSTRUCTIONS_CUH

#include <stdint.h>

/* The block's shared memory, aligned to 128 bytes. */
static __device__ __forceinline__ void *dynamic_shared(void)
{
    extern __shared__ __align__(128) unsigned char dynamic_shared_bytes[];
    return dynamic_shared_bytes;
}

static __device__ __forceinline__ uint32_t shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* blockIdx.x, read anew: what follows from it need not wait in registers while a loop runs. */
static __device__ __forceinline__ int block_again(void)
{
    int block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    return block;
}

/* ---- copies from global to shared memory that go on while the thread does ----------------------------- */

/* Copy 16 bytes, both ends aligned to 16. If not is_valid, 16 zeros are written and `global` is not read. */
static __device__ __forceinline__ void copy_async_16(void *shared, const void *global, bool is_valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
                 "r"(is_valid ? 16 : 0)
                 : "memory");
}

/* All copies of this thread since the last commit are one group. */
static __device__ __forceinline__ void copy_async_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Wait until at most `groups` of this thread's newest groups are unfinished. A barrier shows the bytes to
 * other threads. */
template <int groups>
static __device__ __forceinline__ void copy_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

/* ---- tensor cores ------------------------------------------------------------------------------------- */

/* Four 8x8 matrices of 16-bit elements. Lane i gives the address of row i % 8 of matrix i / 8, aligned to 16
 * bytes; lane i gets from each matrix elements 2 * (i % 4) and the next of row i / 4. All lanes of the warp
 * take part. */
static __device__ __forceinline__ void load_matrix_x4(uint32_t (&out)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* The same of the matrices' transposes. */
static __device__ __forceinline__ void load_matrix_x4_transposed(uint32_t (&out)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* d (16,8) fp32 += a (16,16) bf16 times b (16,8) bf16, spread over the warp as PTX has it for
 * mma.m16n8k16: with g = lane / 4 and c = 2 * (lane % 4), a holds elements c and c + 1 of rows g and g + 8,
 * then of both again at column c + 8; b elements c and c + 1, then c + 8 and c + 9, of column g; d elements c
 * and c + 1 of row g, then of row g + 8. */
static __device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                                uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* ---- arithmetic --------------------------------------------------------------------------------------- */

/* 2^x to about 2 units in the last place; 0 for -infinity. */
static __device__ __forceinline__ float exp2_fast(float x)
{
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

/* Two fp32, rounded to nearest even, as two bf16 in one register: `low` in the lower half. */
static __device__ __forceinline__ uint32_t pack_bf16(float low, float high)
{
    uint32_t result;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    return result;
}

#endif
