#include "llmc/compute/cuda/cuda_backend.h"

#include <string.h>

#include "llmc/compute/cuda/cuda_check.h"
#include "llmc/compute/cuda/cuda_model.cuh"

enum { CAPABILITY_MIN = 80 };

void cuda_fault(const char *file, int line, const char *call, const char *what)
{
    char way_out[ERROR_WAY_OUT_BYTES];
    error_way_out(way_out);
    error_exit(EXIT_FAULT, "GPU fault: %s (%s:%d, %.60s); %s", what, file, line, call, way_out);
}

/* Dense bf16 products a second as the makers' data sheets give them; others are unknown. */
static double peak_flops(const Model *model)
{
    static const struct {
        const char *name;
        double flops;
    } peaks[] = {
        {"H100 PCIe", 756e12}, {"H100 NVL", 835e12}, {"H100", 989e12}, {"H200", 989e12}, {"A100", 312e12}};
    int device;
    cudaDeviceProp properties;
    if (model->config.dtype != DTYPE_BF16 || cudaGetDevice(&device) != cudaSuccess ||
        cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
        return 0;
    }
    for (size_t i = 0; i < sizeof(peaks) / sizeof(peaks[0]); i++) {
        if (strstr(properties.name, peaks[i].name)) {
            return peaks[i].flops;
        }
    }
    return 0;
}

static void describe(ModelFacts *facts, const Model *model)
{
    *facts = ModelFacts{model->bytes, peak_flops(model), matmuls_plans(model->matmuls),
                        matmuls_notice(model->matmuls)};
}

/* A driver must be there, and know this toolkit's version. */
static int check_driver(cudaError_t status, Error *error)
{
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver > 0 && status == cudaErrorInsufficientDriver) {
        return error_set(
            error,
            "the NVIDIA driver is too old: expected one for CUDA %d.%d, found %d.%d; install a newer "
            "driver, or build with an older CUDA Toolkit",
            runtime / 1000, runtime % 1000 / 10, driver / 1000, driver % 1000 / 10);
    }
    return 0;
}

const Backend *cuda_backend(Error *error)
{
    static const Backend backend = {.name = "cuda",
                                    .create = cuda_model_create,
                                    .release = cuda_model_release,
                                    .write_state = cuda_model_write_state,
                                    .read_state = cuda_model_read_state,
                                    .train_slot = cuda_model_train_slot,
                                    .gradients = cuda_model_gradients,
                                    .update = cuda_model_update,
                                    .evaluate = cuda_model_evaluate,
                                    .decode = cuda_model_decode,
                                    .describe = describe};
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (check_driver(status, error) != 0) {
        return NULL;
    }
    if (status != cudaSuccess || count == 0) {
        error_set(error, "expected an NVIDIA GPU, found none (%s); ./train_gpt2 trains on the CPU",
                  status == cudaSuccess ? "no devices" : cudaGetErrorString(status));
        return NULL;
    }
    cudaDeviceProp properties;
    CUDA_CHECK(cudaSetDevice(0));
    CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    if (properties.major * 10 + properties.minor < CAPABILITY_MIN) {
        error_set(error, "%s: expected a GPU of compute capability 8.0 or newer, found %d.%d",
                  properties.name, properties.major, properties.minor);
        return NULL;
    }
    return &backend;
}
