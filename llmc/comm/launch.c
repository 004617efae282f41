#include "llmc/comm/launch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/base/hash.h"

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

static int has_mpi_variables(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (variable(names[i])) {
            return 1;
        }
    }
    return 0;
}

/* A whole number of low .. high. */
static int read_number(int *number, const char *name, long low, long high, Error *error)
{
    const char *value = variable(name);
    if (!value) {
        return error_set(
            error,
            "environment: expected %s beside the launcher's other variables, found none; set RANK, "
            "WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or none of them",
            name);
    }
    char *end;
    errno = 0;
    long parsed = strtol(value, &end, 10);
    if (errno || *end || parsed < low || parsed > high) {
        return error_set(error, "environment: expected %s of %ld to %ld, found \"%s\"; correct or unset it",
                         name, low, high, value);
    }
    *number = (int)parsed;
    return 0;
}

static int is_true(const char *name)
{
    const char *value = variable(name);
    return value && (strcmp(value, "True") == 0 || strcmp(value, "true") == 0 || strcmp(value, "1") == 0);
}

/* What tells this job from others, where the launcher or the user says. `step` is of a Slurm step, or "". */
static void read_job(Launch *launch, const char *step)
{
    static const char *const names[] = {"TRAIN_GPT2_JOB", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"};
    enum { ELASTIC = 1, SLURM = 2 };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !launch->has_job; i++) {
        char text[512];
        const char *value = variable(names[i]);
        launch->has_job = value && (i != ELASTIC || strcmp(value, "none") != 0);
        snprintf(text, sizeof(text), "%s%s%s", value ? value : "", i == SLURM && step[0] ? "." : "",
                 i == SLURM ? step : "");
        for (uint64_t half = 0; half < 2 && launch->has_job; half++) {
            uint64_t hash = hash_bytes(text, strlen(text), i + 1 + 8 * half);
            memcpy(launch->job + half * sizeof(hash), &hash, sizeof(hash));
        }
    }
}

static int read_address(Launch *launch, const char *address, Error *error)
{
    if (!address || strlen(address) >= sizeof(launch->address)) {
        return error_set(
            error,
            "environment: expected MASTER_ADDR, the name or address of rank 0's machine, found %s; set it",
            address ? "one that is too long" : "none");
    }
    snprintf(launch->address, sizeof(launch->address), "%s", address);
    return 0;
}

static int read_tcp(Launch *launch, Error *error)
{
    launch->local_rank = -1;
    read_job(launch, "");
    if (read_number(&launch->rank_count, "WORLD_SIZE", 1, RANKS_MAX, error) != 0 ||
        read_number(&launch->rank, "RANK", 0, launch->rank_count - 1, error) != 0) {
        return -1;
    }
    if (variable("LOCAL_RANK") &&
        read_number(&launch->local_rank, "LOCAL_RANK", 0, launch->rank, error) != 0) {
        return -1;
    }
    if (launch->rank_count == 1) {
        launch->kind = LAUNCH_SINGLE;
        return 0;
    }
    int agent_ports = is_true("TORCHELASTIC_USE_AGENT_STORE");
    if (read_number(&launch->port, "MASTER_PORT", 1, 65535 - agent_ports, error) != 0) {
        return -1;
    }
    launch->port += agent_ports;
    return read_address(launch, variable("MASTER_ADDR"), error);
}

/* ---- Slurm --------------------------------------------------------------------------------------------- */

/* Of "rack[0-1]n[01-03,7],login" the first: between brackets all counts up to the first `-` or `,`. */
int launch_first_host(char host[ADDRESS_BYTES], const char *list)
{
    size_t used = 0;
    int depth = 0, is_skipping = 0;
    for (; *list && (depth > 0 || *list != ','); list++) {
        if (*list == '[' || *list == ']') {
            depth = *list == '[';
            is_skipping = 0;
        } else if (depth > 0 && (*list == '-' || *list == ',')) {
            is_skipping = 1;
        } else if (!is_skipping) {
            if (used + 1 >= ADDRESS_BYTES) {
                return -1;
            }
            host[used++] = *list;
        }
    }
    host[used] = '\0';
    return used > 0 && depth == 0 ? 0 : -1;
}

static const char *either(const char *name, const char *other_name)
{
    const char *value = variable(name);
    return value ? value : variable(other_name);
}

/* Where rank 0 is: on the step's first node, if nobody says otherwise. */
static int read_slurm_address(Launch *launch, Error *error)
{
    const char *address = variable("MASTER_ADDR"), *own = variable("SLURMD_NODENAME");
    if (address) {
        return read_address(launch, address, error);
    }
    const char *list = either("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
    if (!list || launch_first_host(launch->address, list) != 0) {
        return error_set(error,
                         "Slurm: expected SLURM_STEP_NODELIST or SLURM_JOB_NODELIST as in node[01-03], found "
                         "\"%.200s\"; set MASTER_ADDR to the name or address of rank 0's machine",
                         list ? list : "");
    }
    if (launch->rank == 0 && own && strcmp(own, launch->address) != 0) {
        return error_set(
            error,
            "Slurm: expected task 0 on %.200s, the first node of the step, found it on %.200s; set "
            "MASTER_ADDR to the name or address of that machine",
            launch->address, own);
    }
    return 0;
}

/* Tasks that srun has started without MPI. */
static int read_slurm(Launch *launch, Error *error)
{
    const char *step = either("SLURM_STEP_ID", "SLURM_STEPID"), *job = variable("SLURM_JOB_ID");
    launch->kind = LAUNCH_TCP;
    launch->rank_count = launch->slurm_task_count;
    launch->local_rank = -1;
    read_job(launch, step);
    if (read_number(&launch->rank, "SLURM_PROCID", 0, launch->rank_count - 1, error) != 0 ||
        (variable("SLURM_LOCALID") &&
         read_number(&launch->local_rank, "SLURM_LOCALID", 0, launch->rank, error) != 0)) {
        return -1;
    }
    launch->port =
        SLURM_PORT_FIRST +
        (int)((strtoul(job ? job : "0", NULL, 10) * 31 + strtoul(step, NULL, 10)) % SLURM_PORT_COUNT);
    if (variable("MASTER_PORT") && read_number(&launch->port, "MASTER_PORT", 1, 65535, error) != 0) {
        return -1;
    }
    return read_slurm_address(launch, error);
}

/* Inside a step every task has SLURM_STEP_ID; a batch script, which is no task of a step, has none. */
static int slurm_task_count(void)
{
    if (!variable("SLURM_STEP_ID") && !variable("SLURM_STEPID")) {
        return 0;
    }
    const char *count = either("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS");
    int tasks = count ? atoi(count) : 0;
    return tasks <= RANKS_MAX ? tasks : RANKS_MAX;
}

int launch_detect(Launch *launch, int has_mpi, Error *error)
{
    memset(launch, 0, sizeof(*launch));
    launch->rank_count = 1;
    launch->is_mpirun = variable("OMPI_COMM_WORLD_SIZE") != NULL;
    launch->slurm_task_count = slurm_task_count();
    int has_mpi_job = has_mpi_variables();
    int has_tcp_job = variable("RANK") || variable("WORLD_SIZE");
    if (has_tcp_job && (!has_mpi_job || !has_mpi || variable("TORCHELASTIC_RUN_ID"))) {
        launch->kind = LAUNCH_TCP;
        return read_tcp(launch, error);
    }
    int is_mpi = has_mpi && (launch->is_mpirun || variable("PMIX_RANK"));
    if (!is_mpi && !launch->is_mpirun && launch->slurm_task_count > 1) {
        return read_slurm(launch, error);
    }
    if (has_mpi_job && !has_mpi) {
        return error_set(
            error, "this program was built with MPI=0 and cannot join an MPI job; build it with MPI=1, or "
                   "use a launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (torchrun)");
    }
    if (has_mpi_job) {
        launch->kind = LAUNCH_MPI;
    }
    return 0;
}

int launch_check_mpi(const Launch *launch, int rank_count, Error *error)
{
    if (rank_count == 1 && launch->slurm_task_count > 1 && !launch->is_mpirun) {
        return error_set(error,
                         "Slurm: expected %d tasks that know each other, found one that is alone: this MPI "
                         "does not understand "
                         "the PMI that srun offers; start them with `srun --mpi=none`, `srun --mpi=pmix` "
                         "(`srun --mpi=list` "
                         "says whether there is one) or mpirun, or one task with `srun -n 1`",
                         launch->slurm_task_count);
    }
    return 0;
}
