/* The GPU's own instructions, for the CPU. */
#include "instructions.cuh"

#include "runtime.h"

void *dynamic_shared(void)
{
    return block_now->shared;
}

uint32_t shared_address(const void *shared)
{
    return (uint32_t)((const unsigned char *)shared - block_now->shared);
}

/* ---- asynchronous copies ------------------------------------------------------------------------------ */

void copy_async_16(void *shared, const void *global, bool is_valid)
{
    Thread *thread = &block_now->threads[block_now->current];
    const void *where = __builtin_return_address(0);
    if ((uintptr_t)shared % 16 || (is_valid && (uintptr_t)global % 16)) {
        check_failed(where, "copy_async_16 needs addresses that are multiples of 16");
    }
    check_access(shared, 16, ACCESS_COPY_BEGIN, where);
    if (is_valid) {
        check_access(global, 16, ACCESS_READ, where);
    }
    thread->copies.push_back(Copy{shared, is_valid ? global : NULL, thread->groups});
}

void copy_async_commit(void)
{
    block_now->threads[block_now->current].groups++;
}

void host_cuda_copy_async_wait(int groups)
{
    Thread *thread = &block_now->threads[block_now->current];
    size_t count = 0;
    for (; count < thread->copies.size() && thread->copies[count].group < thread->groups - groups; count++) {
        const Copy *copy = &thread->copies[count];
        check_access(copy->to, 16, ACCESS_COPY_END, __builtin_return_address(0));
        if (copy->from) {
            memcpy(copy->to, copy->from, 16);
        } else {
            memset(copy->to, 0, 16);
        }
    }
    thread->copies.erase(thread->copies.begin(), thread->copies.begin() + (long)count);
}

/* ---- matrices ----------------------------------------------------------------------------------------- */

struct LoadMatrix {
    uint32_t *out;
    const void *row;
};

template <bool is_transposed>
static void finish_load(void *const *brought, unsigned int)
{
    uint16_t rows[32][8];
    for (int lane = 0; lane < 32; lane++) {
        memcpy(rows[lane], ((LoadMatrix *)brought[lane])->row, sizeof rows[lane]);
    }
    for (int lane = 0; lane < 32; lane++) {
        for (int matrix = 0; matrix < 4; matrix++) {
            uint16_t(*m)[8] = &rows[matrix * 8];
            int line = lane / 4, place = 2 * (lane % 4);
            uint32_t low = is_transposed ? m[place][line] : m[line][place];
            uint32_t high = is_transposed ? m[place + 1][line] : m[line][place + 1];
            ((LoadMatrix *)brought[lane])->out[matrix] = low | high << 16;
        }
    }
}

static void load_matrix(uint32_t *out, const void *row, HostWarpFinish *finish, const void *where)
{
    LoadMatrix load = {out, row};
    if ((uintptr_t)row % 16) {
        check_failed(where, "load_matrix_x4 needs rows at multiples of 16 bytes");
    }
    check_access(row, 16, ACCESS_READ_SHARED, where);
    host_cuda_warp(0xFFFFFFFFu, &load, finish, "load_matrix_x4", where);
}

void load_matrix_x4(uint32_t (&out)[4], const void *row)
{
    load_matrix(out, row, finish_load<false>, __builtin_return_address(0));
}

void load_matrix_x4_transposed(uint32_t (&out)[4], const void *row)
{
    load_matrix(out, row, finish_load<true>, __builtin_return_address(0));
}

struct Mma {
    float *d;
    const uint32_t *a;
    uint32_t b[2];
};

static void unpack(float *two, uint32_t bits)
{
    two[0] = __uint_as_float(bits << 16);
    two[1] = __uint_as_float(bits & 0xFFFF0000u);
}

/* A product of two bf16 is exact in fp32, so that one rounding a step remains, in the order of k. */
static void finish_mma(void *const *brought, unsigned int)
{
    float a[16][16], b[8][16], b_rows[16][8], d[16][8];
    for (int lane = 0; lane < 32; lane++) {
        const Mma *mma = (const Mma *)brought[lane];
        int g = lane / 4, c = 2 * (lane % 4);
        unpack(&a[g][c], mma->a[0]);
        unpack(&a[g + 8][c], mma->a[1]);
        unpack(&a[g][c + 8], mma->a[2]);
        unpack(&a[g + 8][c + 8], mma->a[3]);
        unpack(&b[g][c], mma->b[0]);
        unpack(&b[g][c + 8], mma->b[1]);
        memcpy(&d[g][c], &mma->d[0], 8);
        memcpy(&d[g + 8][c], &mma->d[2], 8);
    }
    for (int k = 0; k < 16; k++) {
        for (int n = 0; n < 8; n++) {
            b_rows[k][n] = b[n][k];
        }
    }
    for (int m = 0; m < 16; m++) {
        for (int k = 0; k < 16; k++) {
            for (int n = 0; n < 8; n++) {
                d[m][n] += a[m][k] * b_rows[k][n];
            }
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        Mma *mma = (Mma *)brought[lane];
        int g = lane / 4, c = 2 * (lane % 4);
        memcpy(&mma->d[0], &d[g][c], 8);
        memcpy(&mma->d[2], &d[g + 8][c], 8);
    }
}

void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    Mma mma = {d, a, {b0, b1}};
    host_cuda_warp(0xFFFFFFFFu, &mma, finish_mma, "mma_bf16", __builtin_return_address(0));
}
