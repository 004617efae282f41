/* Which launcher started this process, told from the environment.
 *
 *   mpirun, srun --mpi=pmix or pmi2   OMPI_COMM_WORLD_SIZE, PMIX_RANK, PMI_RANK or PMI_SIZE          -> MPI
 *   torchrun and the like             RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, maybe LOCAL_RANK   -> TCP
 *   none: one rank
 *
 * Where both are there, MPI's variables count, unless torchrun's own (TORCHELASTIC_RUN_ID) show that it is
 * the nearer one, or the build has no MPI. An agent that keeps MASTER_PORT for itself
 * (TORCHELASTIC_USE_AGENT_STORE) leaves rank 0 the next port, MASTER_PORT + 1.
 *
 * Ranks over TCP know each other by TRAIN_GPT2_JOB, any text that is the same for all ranks and for no other
 * job; else by TORCHELASTIC_RUN_ID, unless that is torchrun's "none"; else by SLURM_JOB_ID.
 *
 * srun without PMIx starts tasks that know nothing of each other; each would train alone into the same
 * folder. They are recognised by the number of tasks in their step, and refused.
 */
#ifndef LLMC_COMM_LAUNCH_H
#define LLMC_COMM_LAUNCH_H

#include "llmc/base/error.h"
#include "llmc/comm/net.h"
#include "llmc/comm/star.h"

typedef enum LaunchKind { LAUNCH_SINGLE, LAUNCH_MPI, LAUNCH_TCP } LaunchKind;

enum { RANKS_MAX = 65536 };

typedef struct Launch {
    LaunchKind kind;
    int is_mpirun;        /* MPI: mpirun says how many ranks there are, whatever Slurm's variables say */
    int slurm_task_count; /* tasks in this Slurm step; 0 outside one */
    int rank, rank_count; /* TCP */
    int local_rank;       /* TCP; -1 if the launcher does not tell */
    int port;             /* TCP: where rank 0 listens */
    char address[ADDRESS_BYTES];
    int has_job; /* TCP: the environment holds something by which this job's ranks know each other */
    uint8_t job[JOB_BYTES]; /* hash of it */
} Launch;

/* -1 with *error naming the variable. has_mpi: whether this build can join an MPI job. */
int launch_detect(Launch *launch, int has_mpi, Error *error);

/* Once MPI has told the number of ranks: -1 with *error if the tasks of a Slurm step are strangers. */
int launch_check_mpi(const Launch *launch, int rank_count, Error *error);

#endif
