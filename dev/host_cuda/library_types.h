/* CUDA's names for types of elements. */
#ifndef HOST_CUDA_LIBRARY_TYPES_H
#define HOST_CUDA_LIBRARY_TYPES_H

enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16BF = 14 };
typedef cudaDataType_t cudaDataType;

#endif
