#include "llmc/comm/nccl/nccl_reducer.h"

#include <stddef.h>

/* A build without NCCL trains on one GPU. */
static Reducer *create(const ReducerConfig *config, Error *error)
{
    (void)config;
    error_set(error, "%d ranks: expected 1, as this program was built with NCCL=0; build it with NCCL=1",
              comm_rank_count());
    return NULL;
}

static void free_nothing(Reducer *reducer)
{
    (void)reducer;
}

const ReducerKind nccl_reducer = {create, free_nothing, NULL, NULL, NULL, NULL};
