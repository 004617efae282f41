/* host_cuda does what the GPU does: each part against plain loops. */
#include <math.h>

#include "test.h"

/* ---- threads and warps -------------------------------------------------------------------------------- */

__global__ void number_threads(int *out)
{
    unsigned int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] += (int)(block * 1000 + thread);
}

static void test_indices(void)
{
    const int blocks = 2 * 3 * 4, threads = 3 * 5 * 2;
    int *out = on_device<int>(NULL, blocks * threads), found[blocks * threads];
    launch(number_threads, dim3(2, 3, 4), dim3(3, 5, 2), 0, 0, out);
    from_device(found, out, blocks * threads);
    for (int i = 0; i < blocks * threads; i++) {
        EXPECT(found[i] == i / threads * 1000 + i % threads, "element %d is %d", i, found[i]);
    }
}

template <typename T>
__global__ void shuffle(T *out, const T *in, int argument, int width)
{
    T *row = out + 4 * threadIdx.x, value = in[threadIdx.x];
    row[0] = __shfl_sync(0xFFFFFFFFu, value, argument, width);
    row[1] = __shfl_xor_sync(0xFFFFFFFFu, value, argument, width);
    row[2] = __shfl_down_sync(0xFFFFFFFFu, value, (unsigned int)argument, width);
    row[3] = __shfl_up_sync(0xFFFFFFFFu, value, (unsigned int)argument, width);
}

template <typename T>
static void test_shuffle_of(void)
{
    enum { THREADS = 96 };
    T in[THREADS], found[4 * THREADS];
    for (int i = 0; i < THREADS; i++) {
        in[i] = (T)(sizeof(T) == 8 ? 1000000007000ll : 1000003ll) * (T)(i + 1);
    }
    T *d_in = on_device(in, THREADS), *d_out = on_device<T>(NULL, 4 * THREADS);
    for (int width = 1; width <= 32; width *= 2) {
        for (int argument = 0; argument < width; argument += 3) {
            launch(shuffle<T>, 1, THREADS, 0, 0, d_out, d_in, argument, width);
            from_device(found, d_out, 4 * THREADS);
            for (int i = 0; i < THREADS; i++) {
                int first = i / width * width, place = i % width;
                int sources[4] = {first + argument, (i ^ argument) < first + width ? i ^ argument : i,
                                  place + argument < width ? i + argument : i,
                                  place >= argument ? i - argument : i};
                for (int kind = 0; kind < 4; kind++) {
                    EXPECT(found[4 * i + kind] == in[sources[kind]],
                           "kind %d, thread %d, argument %d, width %d", kind, i, argument, width);
                }
            }
        }
    }
}

static void test_shuffles(void)
{
    test_shuffle_of<int>();
    test_shuffle_of<unsigned int>();
    test_shuffle_of<float>();
    test_shuffle_of<double>();
    test_shuffle_of<long long>();
    test_shuffle_of<unsigned long long>();
}

__global__ void vote(int *out)
{
    int thread = (int)threadIdx.x, *row = out + 8 * thread;
    row[0] = (int)__ballot_sync(0xFFFFFFFFu, thread % 3 == 0);
    row[1] = __any_sync(0xFFFFFFFFu, thread == 40);
    row[2] = __all_sync(0xFFFFFFFFu, thread >= 32);
    row[3] = __syncthreads_count(thread % 5 == 0);
    row[4] = __syncthreads_or(thread == 63);
    row[5] = __syncthreads_or(thread == 64);
    row[6] = __syncthreads_and(thread < 64);
    row[7] = __syncthreads_and(thread < 63);
}

static void test_votes(void)
{
    int *out = on_device<int>(NULL, 64 * 8), found[64 * 8];
    launch(vote, 1, 64, 0, 0, out);
    from_device(found, out, 64 * 8);
    for (int i = 0; i < 64; i++) {
        unsigned int bits = 0;
        for (int lane = 0; lane < 32; lane++) {
            bits |= (i / 32 * 32 + lane) % 3 == 0 ? 1u << lane : 0;
        }
        int expected[8] = {(int)bits, i >= 32, i >= 32, 13, 1, 0, 1, 0};
        for (int j = 0; j < 8; j++) {
            EXPECT(found[8 * i + j] == expected[j], "vote %d of thread %d is %d", j, i, found[8 * i + j]);
        }
    }
}

__global__ void add_up(unsigned long long *sum, int *count)
{
    int *shared = (int *)dynamic_shared();
    if (threadIdx.x == 0) {
        *shared = 0;
    }
    __syncthreads();
    atomicAdd(shared, (int)threadIdx.x);
    atomicAdd(sum, (unsigned long long)threadIdx.x << 32);
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(count, *shared);
    }
}

static void test_atomics(void)
{
    unsigned long long *sum = on_device<unsigned long long>(NULL, 1), found;
    int *count = on_device<int>(NULL, 1), found_count;
    launch(add_up, 20, 100, sizeof(int), 0, sum, count);
    from_device(&found, sum, 1);
    from_device(&found_count, count, 1);
    EXPECT(found == 20ull * 4950 << 32 && found_count == 20 * 4950, "%llx, %d", found, found_count);
}

/* ---- instructions ------------------------------------------------------------------------------------- */

__global__ void copy_late(float *out, const float *in)
{
    float *shared = (float *)dynamic_shared() + 8 * threadIdx.x;
    for (int i = 0; i < 8; i++) {
        shared[i] = -1.0f;
    }
    copy_async_16(shared, in + 8 * threadIdx.x, true);
    copy_async_commit();
    copy_async_16(shared + 4, in + 8 * threadIdx.x, false);
    copy_async_commit();
    copy_async_wait<1>();
    for (int i = 0; i < 4; i++) {
        out[8 * threadIdx.x + i] = shared[i];
    }
    copy_async_wait<0>();
    for (int i = 4; i < 8; i++) {
        out[8 * threadIdx.x + i] = shared[i];
    }
}

static void test_copies(void)
{
    float in[64 * 8], found[64 * 8], *out = on_device<float>(NULL, 64 * 8);
    for (int i = 0; i < 64 * 8; i++) {
        in[i] = (float)i;
    }
    launch(copy_late, 1, 64, sizeof in, 0, out, on_device(in, 64 * 8));
    from_device(found, out, 64 * 8);
    for (int i = 0; i < 64 * 8; i++) {
        EXPECT(found[i] == (i % 8 < 4 ? in[i] : 0.0f), "element %d is %g", i, found[i]);
    }
}

__global__ void load_matrices(uint32_t *out, const uint16_t *in)
{
    uint16_t *shared = (uint16_t *)dynamic_shared();
    uint32_t straight[4], transposed[4];
    for (int i = 0; i < 8; i++) {
        shared[8 * threadIdx.x + i] = in[8 * threadIdx.x + i];
    }
    __syncwarp();
    load_matrix_x4(straight, shared + 8 * threadIdx.x);
    load_matrix_x4_transposed(transposed, shared + 8 * threadIdx.x);
    for (int i = 0; i < 4; i++) {
        out[8 * threadIdx.x + i] = straight[i];
        out[8 * threadIdx.x + 4 + i] = transposed[i];
    }
}

static void test_load_matrix(void)
{
    uint16_t in[256];
    uint32_t *out = on_device<uint32_t>(NULL, 256), found[256];
    for (int i = 0; i < 256; i++) {
        in[i] = (uint16_t)(257 * i);
    }
    launch(load_matrices, 1, 32, sizeof in, 0, out, on_device(in, 256));
    from_device(found, out, 256);
    for (int lane = 0; lane < 32; lane++) {
        for (int i = 0; i < 4; i++) {
            int r = lane / 4, c = 2 * (lane % 4), first = 64 * i;
            uint32_t straight = in[first + 8 * r + c] | (uint32_t)in[first + 8 * r + c + 1] << 16;
            uint32_t transposed = in[first + 8 * c + r] | (uint32_t)in[first + 8 * (c + 1) + r] << 16;
            EXPECT(found[8 * lane + i] == straight && found[8 * lane + 4 + i] == transposed,
                   "lane %d, matrix %d: %x and %x", lane, i, found[8 * lane + i], found[8 * lane + 4 + i]);
        }
    }
}

/* out (16,8) = in + a (16,16) b (16,8), with fragments gathered as the PTX manual's tables have them. */
__global__ void multiply_tile(float *out, const float *in, const float *a, const float *b)
{
    int g = (int)threadIdx.x / 4, c = 2 * ((int)threadIdx.x % 4);
    uint32_t a_bits[4], b_bits[2];
    float d[4];
    for (int i = 0; i < 4; i++) {
        const float *at = a + 16 * (g + 8 * (i % 2)) + c + 8 * (i / 2);
        a_bits[i] = pack_bf16(at[0], at[1]);
        d[i] = in[8 * (g + 8 * (i / 2)) + c + i % 2];
    }
    for (int i = 0; i < 2; i++) {
        b_bits[i] = pack_bf16(b[8 * (c + 8 * i) + g], b[8 * (c + 8 * i + 1) + g]);
    }
    mma_bf16(d, a_bits, b_bits[0], b_bits[1]);
    for (int i = 0; i < 4; i++) {
        out[8 * (g + 8 * (i / 2)) + c + i % 2] = d[i];
    }
}

static void test_mma(void)
{
    float a[256], b[128], in[128], found[128], *out = on_device<float>(NULL, 128);
    unsigned int state = 1;
    for (int i = 0; i < 256; i++) {
        a[i] = (float)(random_test(&state) % 256) - 128.0f; /* exact in bf16 */
    }
    for (int i = 0; i < 128; i++) {
        b[i] = (float)(random_test(&state) % 256) / 64.0f;
        in[i] = (float)(random_test(&state) % 1000);
    }
    launch(multiply_tile, 1, 32, 0, 0, out, on_device(in, 128), on_device(a, 256), on_device(b, 128));
    from_device(found, out, 128);
    for (int i = 0; i < 128; i++) {
        double sum = in[i];
        for (int k = 0; k < 16; k++) {
            sum += (double)a[16 * (i / 8) + k] * b[8 * k + i % 8];
        }
        EXPECT(found[i] == sum, "element %d is %g, expected %g", i, found[i], sum);
    }
}

static void test_bf16(void)
{
    static const struct {
        uint32_t bits;
        uint16_t expected;
    } cases[] = {{0x3F800000, 0x3F80}, {0x3F808000, 0x3F80}, {0x3F818000, 0x3F82}, {0x3F808001, 0x3F81},
                 {0x7F7FFFFF, 0x7F80}, {0x7F800000, 0x7F80}, {0xFF800000, 0xFF80}, {0x7F800001, 0x7FFF},
                 {0x80000000, 0x8000}, {0x00008001, 0x0001}};
    for (auto &c : cases) {
        float value = __uint_as_float(c.bits);
        EXPECT(__bfloat16_as_ushort(__float2bfloat16_rn(value)) == c.expected, "of %08x", c.bits);
        EXPECT(pack_bf16(1.0f, value) == (0x3F80u | (uint32_t)c.expected << 16), "of %08x", c.bits);
    }
    EXPECT(exp2_fast(-INFINITY) == 0.0f && exp2_fast(-130.0f) == 0.0f && exp2_fast(3.0f) == 8.0f,
           "exp2_fast");
}

static const Test tests[] = {
    {"indices of blocks and threads", test_indices, NULL},
    {"shuffles", test_shuffles, NULL},
    {"votes", test_votes, NULL},
    {"atomic sums", test_atomics, NULL},
    {"asynchronous copies come as late as they may", test_copies, NULL},
    {"matrices from shared memory", test_load_matrix, NULL},
    {"matrix products of a warp", test_mma, NULL},
    {"rounding to bf16", test_bf16, NULL},
};

int main(void)
{
    return run_tests(tests, sizeof tests / sizeof *tests);
}
