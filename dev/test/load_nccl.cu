/* Finds NCCL as the CUDA program does, without a GPU: prints its version, or why there is none. */
#include <stdio.h>

#include "llmc/comm/nccl/nccl_library.cuh"

int main(void)
{
    Error error = {};
    const NcclLibrary *nccl = nccl_library(&error);
    if (!nccl) {
        printf("%s\n", error.text);
        return 1;
    }
    printf("NCCL %d, built with the header of %d, %s\n", nccl->version, NCCL_VERSION_CODE,
           nccl->error_string(ncclInvalidUsage));
    return 0;
}
