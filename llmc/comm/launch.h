/* Which launcher started this process, told from the environment.
 *
 *   mpirun, srun --mpi=pmix           OMPI_COMM_WORLD_SIZE, PMIX_RANK, PMI_RANK or PMI_SIZE          -> MPI
 *   torchrun and the like             RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, maybe LOCAL_RANK   -> TCP
 *   srun (--mpi=none)                 in a step of several tasks: SLURM_PROCID, SLURM_STEP_NUM_TASKS
 *                                     (or SLURM_NTASKS), SLURM_LOCALID, SLURM_STEP_NODELIST          -> TCP
 *   none: one rank
 *
 * Tasks of srun need neither MPI nor PMIx. Rank 0 is on the first node of the step, unless MASTER_ADDR says
 * where. Its port is MASTER_PORT, else one of SLURM_PORT_COUNT from SLURM_PORT_FIRST on, told from the
 * numbers of job and step, so that two jobs on one node rarely meet.
 *
 * Where both are there, MPI's variables count, unless torchrun's own (TORCHELASTIC_RUN_ID) show that it is
 * the nearer one, or the build has no MPI. An agent that keeps MASTER_PORT for itself
 * (TORCHELASTIC_USE_AGENT_STORE) leaves rank 0 the next port, MASTER_PORT + 1.
 *
 * Ranks over TCP know each other by TRAIN_GPT2_JOB, any text that is the same for all ranks and for no other
 * job; else by TORCHELASTIC_RUN_ID, unless that is torchrun's "none"; else by SLURM_JOB_ID, for tasks of srun
 * together with SLURM_STEP_ID.
 *
 * PMI's older variables (srun --mpi=pmi2) count as none there: an Open MPI that has only PMIx ends in
 * MPI_Init with them. Where PMIx's are there and MPI does not understand them, each task would train alone
 * into the same folder. Such tasks are recognised by the number of tasks in their step, and refused.
 */
#ifndef LLMC_COMM_LAUNCH_H
#define LLMC_COMM_LAUNCH_H

#include "llmc/base/error.h"
#include "llmc/comm/net.h"
#include "llmc/comm/star.h"

typedef enum LaunchKind { LAUNCH_SINGLE, LAUNCH_MPI, LAUNCH_TCP } LaunchKind;

/* The ports lie below those that Linux gives to outgoing connections (32768 and up). */
enum { RANKS_MAX = 65536, SLURM_PORT_FIRST = 20000, SLURM_PORT_COUNT = 8000 };

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

/* The first host of a list as Slurm writes it: "node01" of "node[01-03,7],login". 0, or -1 when there is none
 * or its name does not fit. */
int launch_first_host(char host[ADDRESS_BYTES], const char *list);

/* Once MPI has told the number of ranks: -1 with *error if the tasks of a Slurm step are strangers. */
int launch_check_mpi(const Launch *launch, int rank_count, Error *error);

#endif
