#include "llmc/comm/nccl/nccl_reducer.h"

#include <stddef.h>

/* A program built without nccl.h trains on one GPU. */
static Reducer *create(const ReducerConfig *config, Error *error)
{
    (void)config;
    error_set(
        error,
        "%d ranks: expected 1, as this program was built without NCCL; install its header (libnccl-dev), "
        "and build it again without NCCL=0",
        comm_rank_count());
    return NULL;
}

static void free_nothing(Reducer *reducer)
{
    (void)reducer;
}

const int nccl_header_version = 0;

const char *nccl_name_version(char text[NCCL_VERSION_BYTES], int version)
{
    (void)version;
    text[0] = '\0';
    return text;
}

const ReducerKind nccl_reducer = {create, free_nothing, NULL, NULL, NULL, NULL};
