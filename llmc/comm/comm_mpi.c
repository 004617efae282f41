#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "llmc/comm/comm.h"

enum { CHUNK_ELEMENTS_MAX = 1 << 28 }; /* MPI counts are int */

static int is_joined;
static int rank_number;
static int rank_count = 1;

/* Launchers that speak to MPI leave one of these behind; without them a job of one needs no MPI, which saves
 * its start. */
static int has_launcher(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (getenv(names[i])) {
            return 1;
        }
    }
    return 0;
}

static void abort_ranks(int exit_code)
{
    int is_over;
    MPI_Finalized(&is_over);
    if (is_joined && !is_over && rank_count > 1) {
        fflush(stderr);
        MPI_Abort(MPI_COMM_WORLD, exit_code);
    }
}

int comm_init(int *argc, char ***argv, Error *error)
{
    if (!has_launcher()) {
        return 0;
    }
    int provided;
    if (MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) {
        return error_set(error,
                         "MPI: cannot join the job; without a launcher unset OMPI_* and PMI* variables");
    }
    is_joined = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_number);
    MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
    if (rank_count > 1) {
        char host[MPI_MAX_PROCESSOR_NAME];
        int host_bytes;
        MPI_Get_processor_name(host, &host_bytes);
        error_set_rank(rank_number, host);
        error_set_abort_hook(abort_ranks);
    }
    if (provided < MPI_THREAD_MULTIPLE) {
        return error_set(
            error, "MPI: expected MPI_THREAD_MULTIPLE, found level %d; use an MPI built with thread support",
            provided);
    }
    return 0;
}

void comm_finish(void)
{
    if (is_joined) {
        MPI_Finalize();
        is_joined = 0;
    }
}

int comm_rank(void)
{
    return rank_number;
}

int comm_rank_count(void)
{
    return rank_count;
}

static void reduce(void *values, int64_t count, size_t element_bytes, MPI_Datatype type, MPI_Op operation)
{
    char *next = values;
    while (rank_count > 1 && count > 0) {
        int some = count < CHUNK_ELEMENTS_MAX ? (int)count : CHUNK_ELEMENTS_MAX;
        int status = MPI_Allreduce(MPI_IN_PLACE, next, some, type, operation, MPI_COMM_WORLD);
        CHECK(status == MPI_SUCCESS, "MPI_Allreduce of %d elements failed with code %d", some, status);
        next += (size_t)some * element_bytes;
        count -= some;
    }
}

void comm_sum_int64(int64_t *values, int64_t count)
{
    reduce(values, count, sizeof(*values), MPI_INT64_T, MPI_SUM);
}

void comm_sum_float(float *values, int64_t count)
{
    reduce(values, count, sizeof(*values), MPI_FLOAT, MPI_SUM);
}

void comm_max_int64(int64_t *values, int64_t count)
{
    reduce(values, count, sizeof(*values), MPI_INT64_T, MPI_MAX);
}

void comm_barrier(void)
{
    if (rank_count > 1) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
}
