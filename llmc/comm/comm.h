/* Ranks: who takes part in the run, and the collectives that training needs.
 *
 * A launcher starts the ranks (launch.h tells which); MPI or TCP sockets (transport.h) carry their data; a
 * monitor (monitor.h) sees to it that no rank waits for ever for one that is lost. Without a launcher the job
 * has one rank, and every collective is over at once.
 *
 * Collectives are called by all ranks in the same order with the same counts. There are two channels: the
 * functions of the first belong to the main thread; comm_bucket_sum is the second, and may run on another
 * thread at the same time. None returns an error: when a peer is lost, the program ends with EXIT_FAULT and
 * one line that names the peer and the collective.
 */
#ifndef LLMC_COMM_COMM_H
#define LLMC_COMM_COMM_H

#include <stdint.h>

#include "llmc/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum CommType { COMM_INT64, COMM_FLOAT, COMM_BF16 } CommType;

/* Joins the job that the launcher started, or a job of one. From here on an error_exit or a failed CHECK of
 * one rank ends all ranks with its exit code. -1 with *error. */
int comm_init(int *argc, char ***argv, Error *error);

/* Waits for all ranks, for as long as they live, takes leave of them and ends what comm_init began. */
void comm_finish(void);

/* How long ranks wait for each other. All may be set before comm_init; the last two again later. */
/* For all ranks to start and find each other; 60 s unless set. */
void comm_set_join_timeout(double seconds);
/* In a collective, for a rank that does no work (base/work.h); 600 s unless set. A rank that works is waited
 * for. */
void comm_set_timeout(double seconds);
/* For a sign of life, or for an answer of the network; 30 s unless set. Where comm_timeout is shorter, that
 * counts. */
void comm_set_heartbeat_timeout(double seconds);

/* Before comm_init: the ports at which ranks wait for each other, MASTER_PORT apart; MPI's own too where the
 * user has not set them (btl_tcp_port_min_v4). 0: any. */
void comm_set_port_range(int first, int last);

int comm_rank(void);
int comm_rank_count(void);
/* Place among the ranks of this machine. */
int comm_local_rank(void);
const char *comm_host(void);
/* On rank 0: of any rank; elsewhere, and for a rank that is none, "". Valid until comm_finish. */
const char *comm_host_of(int rank);
/* The MPI that this program was built with, "Open MPI v4.1.4", or that there is none; before or after
 * comm_init. Returns `text`. */
enum { COMM_LIBRARY_BYTES = 256 };
const char *comm_name_mpi(char text[COMM_LIBRARY_BYTES]);

/* What carries the collectives: "MPI", "TCP", "nothing" for one rank. */
const char *comm_transport_name(void);

/* In place, over all ranks. Every rank gets the same bits. */
void comm_sum_int64(int64_t *values, int64_t count);
void comm_sum_float(float *values, int64_t count);
void comm_max_int64(int64_t *values, int64_t count);
void comm_barrier(void);

/* The largest value of all ranks, for as long as it takes: one of them may have work that is its own, to
 * sample or to export. So this is no collective for the monitor, which still knows when a rank is lost. */
void comm_await_max_int64(int64_t *value);

/* Rank root's bytes to all ranks. */
void comm_broadcast(void *data, int64_t bytes, int root);

/* all (comm_rank_count) = each rank's `mine`, in the order of ranks. */
void comm_gather_uint64(uint64_t mine, uint64_t *all);

/* A number for all ranks, outside of collectives and on any thread: soon comm_notice tells on every rank the
 * largest that one of them has posted. 0 until then. */
void comm_post_notice(int notice);
int comm_notice(void);

/* Around a call of another library that waits for all ranks: it is watched like a collective of the first
 * channel, and named like this in errors ("NCCL's connecting"). */
void comm_enter(const char *what);
void comm_leave(void);

/* Sum over all ranks in place, on the second channel. bf16 elements travel as bf16; each addition is made in
 * fp32 and rounded. `what` names the collective in errors ("bucket 3"). */
void comm_bucket_sum(void *values, int64_t count, CommType type, const char *what);

#ifdef __cplusplus
}
#endif
#endif
