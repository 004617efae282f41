/* NCCL, found when it is asked for: a run of one rank needs none on its machine. This is the one place that
 * knows where it comes from; dev/host_cuda has a twin of it. */
#ifndef LLMC_COMM_NCCL_NCCL_LIBRARY_CUH
#define LLMC_COMM_NCCL_NCCL_LIBRARY_CUH

#include <nccl.h>

#include "llmc/base/error.h"

typedef struct NcclLibrary {
    int version; /* 22703 for 2.27.3 */
    decltype(&ncclGetUniqueId) get_unique_id;
    decltype(&ncclCommInitRank) init_rank;
    decltype(&ncclCommDestroy) destroy;
    decltype(&ncclCommAbort) abort;
    decltype(&ncclCommGetAsyncError) async_error;
    decltype(&ncclGetErrorString) error_string;
    decltype(&ncclAllReduce) all_reduce;
    decltype(&ncclGroupStart) group_start;
    decltype(&ncclGroupEnd) group_end;
} NcclLibrary;

/* The same for every call. NULL with *error where there is none, or one that is too old. */
const NcclLibrary *nccl_library(Error *error);

#endif
