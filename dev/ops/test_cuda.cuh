/* What the tests of CUDA operations share: device memory, seeded values, and comparison element by element
 * with bounds that are summed from the roundings on the way. They run on a GPU and on dev/host_cuda alike:
 * the host never touches device memory but by copies.
 */
#ifndef DEV_OPS_TEST_CUDA_CUH
#define DEV_OPS_TEST_CUDA_CUH

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include <cmocka.h>
}

#include <vector>

#include "llmc/base/random.h"
#include "llmc/compute/cuda/values.cuh"
#include "llmc/compute/dropout.h"

typedef std::vector<float> Floats;
typedef std::vector<double> Doubles;

/* The largest relative error of one rounding. */
static const double FP32_ROUNDING = 0x1p-24, BF16_ROUNDING = 0x1p-8;

static inline double rounding_of(DType type)
{
    return type == DTYPE_FP32 ? FP32_ROUNDING : BF16_ROUNDING;
}

static inline const char *type_name(DType type)
{
    return type == DTYPE_FP32 ? "fp32" : "bf16";
}

/* An array on the device, filled with bytes that are no number unless values are given. */
template <typename T>
struct Device {
    T *data;
    size_t count;

    explicit Device(size_t count) : data(NULL), count(count)
    {
        CUDA_CHECK(cudaMalloc((void **)&data, count * sizeof(T) + !count));
        CUDA_CHECK(cudaMemset(data, 0xff, count * sizeof(T)));
    }
    explicit Device(const std::vector<T> &values) : Device(values.size())
    {
        CUDA_CHECK(cudaMemcpy(data, values.data(), count * sizeof(T), cudaMemcpyHostToDevice));
    }
    Device(const Device &) = delete;
    ~Device()
    {
        cudaFree(data);
    }
    /* Waits for everything that is under way. */
    std::vector<T> read() const
    {
        std::vector<T> values(count);
        CUDA_CHECK(cudaDeviceSynchronize());
        CUDA_CHECK(cudaMemcpy(values.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost));
        return values;
    }
};

/* The same of a type known at run time; `values` has what it holds, in fp32. `shift` elements lie before. */
struct DeviceTensor {
    Device<unsigned char> bytes;
    Tensor tensor;
    size_t count;

    DeviceTensor(size_t count, DType type, int shift = 0)
        : bytes((count + (size_t)shift) * (size_t)dtype_bytes(type)),
          tensor(tensor_at(Tensor{bytes.data, type}, shift)), count(count)
    {
    }
    DeviceTensor(Floats *values, DType type, int shift = 0) : DeviceTensor(values->size(), type, shift)
    {
        std::vector<bf16> rounded(count);
        for (size_t i = 0; i < count && type == DTYPE_BF16; i++) {
            rounded[i] = bf16_from_float((*values)[i]);
            (*values)[i] = bf16_to_float(rounded[i]);
        }
        const void *from = type == DTYPE_BF16 ? (const void *)rounded.data() : (const void *)values->data();
        CUDA_CHECK(cudaMemcpy(tensor.data, from, count * (size_t)dtype_bytes(type), cudaMemcpyHostToDevice));
    }
    Floats read() const
    {
        Floats values(count);
        std::vector<bf16> rounded(count);
        void *to = tensor.type == DTYPE_BF16 ? (void *)rounded.data() : (void *)values.data();
        CUDA_CHECK(cudaDeviceSynchronize());
        CUDA_CHECK(
            cudaMemcpy(to, tensor.data, count * (size_t)dtype_bytes(tensor.type), cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < count && tensor.type == DTYPE_BF16; i++) {
            values[i] = bf16_to_float(rounded[i]);
        }
        return values;
    }
};

static inline Floats normal_values(size_t count, float deviation, uint32_t stream)
{
    Floats values(count);
    RandomKey key = {42, RANDOM_TEST, 0, stream};
    random_normal(values.data(), (int64_t)count, deviation, &key, 0);
    return values;
}

/* Dropout's factor of an element as llmc/base/random.h and llmc/compute/dropout.h have it. */
static inline float expected_factor(const Dropout *dropout, uint64_t element)
{
    uint32_t numbers[4];
    if (dropout->probability == 0) {
        return 1;
    }
    random_block(numbers, &dropout->key, dropout_block(dropout->site, element));
    bool is_kept = random_uniform_from(numbers[element % 4]) >= dropout->probability;
    return is_kept ? 1.0f / (1.0f - dropout->probability) : 0.0f;
}

static inline Dropout test_dropout(float probability)
{
    return Dropout{probability, {0x123456789abcdefull, RANDOM_DROPOUT, 3, 2}, 7};
}

/* A tensor in double, with the bound of each element's error. */
struct Expected {
    Doubles value, bound;

    explicit Expected(size_t count) : value(count), bound(count)
    {
    }
    void set(size_t i, double expected, double error)
    {
        value[i] = expected;
        bound[i] = error;
    }
};

/* The bounds are first-order sums: a twentieth more is room for products of errors. What is smaller than any
 * normal fp32 may be lost. */
static inline void check_close(const char *where, const char *tensor, size_t i, double found, double expected,
                               double bound)
{
    if (!(fabs(found - expected) <= 1.05 * bound + 0x1p-126)) {
        fail_msg("%s: %s[%zu]: expected %.9g, found %.9g, bound %.3g", where, tensor, i, expected, found,
                 bound);
    }
}

static inline void check_tensor(const char *where, const char *tensor, const Floats &found,
                                const Expected &expected)
{
    assert_int_equal(found.size(), expected.value.size());
    for (size_t i = 0; i < found.size(); i++) {
        check_close(where, tensor, i, found[i], expected.value[i], expected.bound[i]);
    }
}

/* Bit for bit. */
template <typename T>
static void check_same(const char *where, const char *tensor, const std::vector<T> &found,
                       const std::vector<T> &expected)
{
    assert_int_equal(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); i++) {
        if (memcmp(&found[i], &expected[i], sizeof(T)) != 0) {
            fail_msg("%s: %s[%zu]: expected %.17g, found %.17g", where, tensor, i, (double)expected[i],
                     (double)found[i]);
        }
    }
}

#endif
