/* Each mistake that host_cuda promises to find, made on purpose; beside each, the same without the mistake,
 * which must pass. */
#include "test.h"

enum { THREADS = 128 };

/* One block of `kernel`, which works on THREADS floats of device memory, with as many in shared memory. */
template <void (*kernel)(float *, int), int mistake>
static void run(void)
{
    float *data = on_device<float>(NULL, THREADS);
    launch(kernel, 1, THREADS, THREADS * sizeof(float), 0, data, mistake);
    CUDA_CHECK(cudaDeviceSynchronize());
}

/* ---- 1: addresses ------------------------------------------------------------------------------------- */

__global__ void read_beyond(float *data, int mistake)
{
    data[threadIdx.x] += data[threadIdx.x + mistake] + 1.0f;
}

__global__ void write_before(float *data, int mistake)
{
    *(data + threadIdx.x - mistake) = 1.0f;
}

__global__ void shared_beyond(float *data, int mistake)
{
    float *shared = (float *)dynamic_shared();
    shared[threadIdx.x + mistake] = 1.0f;
    data[threadIdx.x] = shared[threadIdx.x + mistake];
}

__global__ void pairs(float *data, int mistake)
{
    if (threadIdx.x < 8) {
        *(float2 *)(data + 4 * threadIdx.x) = *(float2 *)(data + 4 * threadIdx.x + 2 - mistake);
    }
}

__global__ void fill(float *data, int)
{
    data[threadIdx.x] = 1.0f;
}

static void run_on_freed_memory(void)
{
    float *data = on_device<float>(NULL, THREADS);
    CUDA_CHECK(cudaFree(data));
    launch(fill, 1, THREADS, 0, 0, data, 0);
    CUDA_CHECK(cudaDeviceSynchronize());
}

static void run_on_host_memory(void)
{
    float *data = (float *)calloc(THREADS, sizeof(float));
    launch(fill, 1, THREADS, 0, 0, data, 0);
    CUDA_CHECK(cudaDeviceSynchronize());
}

static void run_on_pinned_memory(void)
{
    float *data;
    CUDA_CHECK(cudaHostAlloc(&data, THREADS * sizeof(float), cudaHostAllocDefault));
    launch(fill, 1, THREADS, 0, 0, data, 0);
    CUDA_CHECK(cudaDeviceSynchronize());
    EXPECT(data[5] == 1.0f, "%g", data[5]);
}

static void touch_device_memory(void)
{
    float *data = on_device<float>(NULL, THREADS);
    data[3] = 1.0f;
    EXPECT(0, "a host must not write there");
}

/* ---- 2: shared memory never written ------------------------------------------------------------------- */

__global__ void unwritten(float *data, int mistake)
{
    float *shared = (float *)dynamic_shared();
    if (!mistake || threadIdx.x != 77) {
        shared[threadIdx.x] = data[threadIdx.x];
    }
    __syncthreads();
    data[threadIdx.x] = shared[(threadIdx.x + 1) % THREADS];
}

/* The block before wrote it: that does not count. */
__global__ void unwritten_by_later_block(float *data, int mistake)
{
    float *shared = (float *)dynamic_shared();
    if (!mistake || blockIdx.x == 0) {
        shared[threadIdx.x] = data[threadIdx.x];
    }
    data[threadIdx.x] = shared[threadIdx.x];
}

__global__ void unwritten_matrix(float *data, int mistake)
{
    uint32_t *shared = (uint32_t *)dynamic_shared(), out[4];
    if (!mistake || threadIdx.x != 9) {
        shared[threadIdx.x] = threadIdx.x;
    }
    __syncthreads();
    load_matrix_x4(out, shared + threadIdx.x % 32 * 4);
    data[threadIdx.x] = (float)out[3];
}

/* Mistake 1 does not wait for the copy, 2 does not tell the other threads that it has arrived, and 3 begins
 * the next copy while others may still read. */
__global__ void copied(float *data, int mistake)
{
    float *shared = (float *)dynamic_shared();
    unsigned int thread = threadIdx.x, other = (thread + 1) % (THREADS / 4);
    if (thread < THREADS / 4) {
        for (int i = 0; i < 2; i++) {
            copy_async_16(shared + 4 * thread, data + 4 * thread, true);
            copy_async_commit();
            if (mistake != 1) {
                copy_async_wait<0>();
            }
            if (mistake != 2) {
                __syncwarp();
            }
            float sum = shared[4 * (mistake == 1 ? thread : other)];
            if (mistake != 3) {
                __syncwarp();
            }
            data[4 * thread + 3] = sum;
        }
    }
}

template <int mistake>
static void run_two_blocks(void)
{
    float *data = on_device<float>(NULL, THREADS);
    launch(unwritten_by_later_block, 2, THREADS, THREADS * sizeof(float), 0, data, mistake);
    CUDA_CHECK(cudaDeviceSynchronize());
}

/* ---- 3: meeting points that not all reach ------------------------------------------------------------- */

__global__ void half_at_barrier(float *data, int mistake)
{
    if (!mistake || threadIdx.x < THREADS / 2) {
        __syncthreads();
    }
    data[threadIdx.x] = 1.0f;
}

__global__ void early_exit(float *data, int mistake)
{
    if (mistake && threadIdx.x == 3) {
        return;
    }
    data[threadIdx.x] = 1.0f;
    __syncthreads();
}

__global__ void lane_missing(float *data, int mistake)
{
    float value = data[threadIdx.x];
    if (!mistake || threadIdx.x % 32 != 31) {
        value = __shfl_xor_sync(mistake ? 0xFFFFFFFFu : 0xFFFFFFFFu, value, 1);
    }
    data[threadIdx.x] = value;
}

__global__ void lanes_differ(float *data, int mistake)
{
    unsigned int lower = threadIdx.x % 32 < 16;
    unsigned int vote = lower ? __ballot_sync(mistake ? 0xFFFFFFFFu : 0x0000FFFFu, 1) : 0;
    vote |= lower ? 0 : __ballot_sync(0xFFFF0000u, 1);
    data[threadIdx.x] = (float)vote;
}

__global__ void absent_source(float *data, int mistake)
{
    if (threadIdx.x % 32 < 16) {
        data[threadIdx.x] = __shfl_sync(0x0000FFFFu, data[threadIdx.x], mistake ? 16 : 15);
    }
}

/* ---- 4: missing barriers ------------------------------------------------------------------------------ */

/* Two warps: only a barrier of the block orders them. */
__global__ void reversed(float *data, int mistake)
{
    float *shared = (float *)dynamic_shared();
    shared[threadIdx.x] = (float)threadIdx.x;
    if (mistake != 1) {
        __syncthreads();
    } else {
        __syncwarp();
    }
    float value = shared[THREADS - 1 - threadIdx.x];
    if (mistake != 2) {
        __syncthreads();
    }
    shared[threadIdx.x] = value;
    data[threadIdx.x] = value;
}

/* One warp: __syncwarp orders its lanes, a shuffle does not. */
__global__ void rotated(float *data, int mistake)
{
    float *shared = (float *)dynamic_shared() + threadIdx.x / 32 * 32;
    unsigned int lane = threadIdx.x % 32;
    shared[lane] = (float)lane;
    if (mistake == 1) {
        data[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFu, 1.0f, 1);
    } else {
        __syncwarp(mistake == 2 ? 0xFFFFu << (lane & 16) : 0xFFFFFFFFu);
    }
    data[threadIdx.x] = shared[(lane + 16) % 32];
}

__global__ void counted(float *data, int mistake)
{
    int *count = (int *)dynamic_shared();
    if (threadIdx.x == 0) {
        *count = 0;
    }
    __syncthreads();
    if (mistake) {
        *count += 1;
    } else {
        atomicAdd(count, 1);
    }
    __syncthreads();
    data[threadIdx.x] = (float)*count;
}

static const Test tests[] = {
    {"read_beyond passes", run<read_beyond, 0>, NULL},
    {"read_beyond, mistake 128", run<read_beyond, THREADS>, "outside every live allocation"},
    {"write_before passes", run<write_before, 0>, NULL},
    {"write_before, mistake 1", run<write_before, 1>,
     "kernel write_before, block (0,0,0), thread (0,0,0), test_faults.cu:"},
    {"shared_beyond passes", run<shared_beyond, 0>, NULL},
    {"shared_beyond, mistake 1", run<shared_beyond, 1>, "touches shared bytes 512 to 516 of 512 asked for"},
    {"pairs passes", run<pairs, 0>, NULL},
    {"pairs, mistake 1", run<pairs, 1>, "which is not a multiple of 8"},
    {"freed memory", run_on_freed_memory, "outside every live allocation"},
    {"host memory", run_on_host_memory, "outside every live allocation"},
    {"device memory in host code", touch_device_memory, "host code writes 4 bytes of device memory"},
    {"pinned memory is the device's as well", run_on_pinned_memory, NULL},
    {"unwritten passes", run<unwritten, 0>, NULL},
    {"unwritten, mistake 1", run<unwritten, 1>, "reads shared byte 308, never written"},
    {"two blocks pass", run_two_blocks<0>, NULL},
    {"two blocks, mistake 1", run_two_blocks<1>, "never written"},
    {"unwritten_matrix passes", run<unwritten_matrix, 0>, NULL},
    {"unwritten_matrix, mistake 1", run<unwritten_matrix, 1>, "never written"},
    {"copied passes", run<copied, 0>, NULL},
    {"copied, mistake 1", run<copied, 1>, "has not waited"},
    {"copied, mistake 2", run<copied, 2>, "shared byte"},
    {"copied, mistake 3", run<copied, 3>, "with no barrier between"},
    {"half_at_barrier passes", run<half_at_barrier, 0>, NULL},
    {"half_at_barrier, mistake 1", run<half_at_barrier, 1>,
     "waits in __syncthreads, which not all threads reach"},
    {"early_exit passes", run<early_exit, 0>, NULL},
    {"early_exit, mistake 1", run<early_exit, 1>, "of the block's 128, 1 ended"},
    {"lane_missing passes", run<lane_missing, 0>, NULL},
    {"lane_missing, mistake 1", run<lane_missing, 1>, "waits in a shuffle, which not all threads reach"},
    {"lanes_differ passes", run<lanes_differ, 0>, NULL},
    {"lanes_differ, mistake 1", run<lanes_differ, 1>, "a warp vote"},
    {"absent_source passes", run<absent_source, 0>, NULL},
    {"absent_source, mistake 1", run<absent_source, 1>, "a shuffle reads lane 16"},
    {"reversed passes", run<reversed, 0>, NULL},
    {"reversed, mistake 1", run<reversed, 1>, "with no barrier between"},
    {"reversed, mistake 2", run<reversed, 2>, "with no barrier between"},
    {"rotated passes", run<rotated, 0>, NULL},
    {"rotated, mistake 1", run<rotated, 1>, "with no barrier between"},
    {"rotated, mistake 2", run<rotated, 2>, "with no barrier between"},
    {"counted passes", run<counted, 0>, NULL},
    {"counted, mistake 1", run<counted, 1>, "with no barrier between"},
};

int main(void)
{
    return run_tests(tests, sizeof tests / sizeof *tests);
}
