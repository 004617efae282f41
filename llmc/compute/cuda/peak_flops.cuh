/* What a GPU could multiply at best: what mfu refers to. */
#ifndef LLMC_COMPUTE_CUDA_PEAK_FLOPS_CUH
#define LLMC_COMPUTE_CUDA_PEAK_FLOPS_CUH

/* Dense bf16 products that are summed in fp32, in operations a second, of the GPU that cudaDeviceProp calls
 * by this name, as NVIDIA states it; 0 where it is unknown. */
double peak_flops_bf16(const char *gpu_name);

#endif
