#include "llmc/comm/nccl/nccl_library.cuh"

#include <dlfcn.h>

/* The library's file, which every package of NCCL 2 has. */
static const char FILE_NAME[] = "libnccl.so.2";

template <typename Function>
static int find(Function *function, void *file, const char *name)
{
    *function = (Function)dlsym(file, name);
    return *function ? 0 : -1;
}

static int find_all(NcclLibrary *nccl, void *file)
{
    return find(&nccl->get_unique_id, file, "ncclGetUniqueId") |
           find(&nccl->init_rank, file, "ncclCommInitRank") | find(&nccl->destroy, file, "ncclCommDestroy") |
           find(&nccl->abort, file, "ncclCommAbort") |
           find(&nccl->async_error, file, "ncclCommGetAsyncError") |
           find(&nccl->error_string, file, "ncclGetErrorString") |
           find(&nccl->all_reduce, file, "ncclAllReduce") | find(&nccl->group_start, file, "ncclGroupStart") |
           find(&nccl->group_end, file, "ncclGroupEnd");
}

const NcclLibrary *nccl_library(Error *error)
{
    static NcclLibrary nccl;
    if (nccl.version > 0) {
        return &nccl;
    }
    void *file = dlopen(FILE_NAME, RTLD_NOW | RTLD_LOCAL);
    if (!file) {
        error_set(
            error,
            "more than one rank: expected NCCL's %s, found none (%s); install NCCL (libnccl2) or put its "
            "folder into LD_LIBRARY_PATH",
            FILE_NAME, dlerror());
        return NULL;
    }
    decltype(&ncclGetVersion) get_version;
    int version = 0;
    if (find(&get_version, file, "ncclGetVersion") != 0 || get_version(&version) != ncclSuccess ||
        find_all(&nccl, file) != 0) {
        error_set(error,
                  "%s: expected the functions of NCCL 2.4 or newer, found version %d without some of them",
                  FILE_NAME, version);
        return NULL;
    }
    nccl.version = version;
    return &nccl;
}
