#include "llmc/comm/comm.h"

#include <stdio.h>
#include <string.h>

#include "llmc/comm/launch.h"
#include "llmc/comm/monitor.h"
#include "llmc/comm/notice.h"
#include "llmc/comm/progress.h"
#include "llmc/comm/transport.h"

#define TIMEOUT_S_DEFAULT 600.0
#define HEARTBEAT_S_DEFAULT 30.0
#define JOIN_S_DEFAULT 60.0

/* The job that this process is in: there is one, as there is one environment that it came with. */
static struct {
    const Transport *transport; /* NULL: one rank, and nothing to end */
    Membership me;
    double join_ms;
    WatchLimits limits;
} comm = {.me = {.rank_count = 1},
          .join_ms = JOIN_S_DEFAULT * 1e3,
          .limits = {.collective_ms = TIMEOUT_S_DEFAULT * 1e3, .heartbeat_ms = HEARTBEAT_S_DEFAULT * 1e3}};

/* The others end with the same code. This process runs no exit handlers: its other threads may be in a
 * collective. */
static void abort_ranks(int exit_code)
{
    if (monitor_abort(exit_code) != 0) {
        comm.transport->abort(exit_code);
    }
    monitor_end_process(exit_code);
}

int comm_init(int *argc, char ***argv, Error *error)
{
    (void)argc;
    (void)argv;
    Launch launch;
    if (launch_detect(&launch, transport_mpi.is_built, error) != 0) {
        return -1;
    }
    if (launch.kind == LAUNCH_SINGLE) {
        return 0;
    }
    const Transport *transport = launch.kind == LAUNCH_MPI ? &transport_mpi : &transport_tcp;
    Star star = {0};
    if (transport->join(&comm.me, &star, &launch, comm.join_ms, error) != 0) {
        star_release(&star);
        return -1;
    }
    comm.transport = transport;
    if (comm.me.rank_count > 1) {
        error_set_rank(comm.me.rank, comm.me.host);
        monitor_start(&comm.me, &star, &comm.limits);
        error_set_abort_hook(abort_ranks);
        if (transport->connect && transport->connect(&comm.me, comm.join_ms, error) != 0) {
            monitor_await_verdict(); /* it knows if a rank was lost, which is why */
            return -1;
        }
    }
    return 0;
}

void comm_set_join_timeout(double seconds)
{
    comm.join_ms = seconds * 1e3;
}

void comm_set_timeout(double seconds)
{
    comm.limits.collective_ms = seconds * 1e3;
    monitor_set_limits(&comm.limits);
}

void comm_set_heartbeat_timeout(double seconds)
{
    comm.limits.heartbeat_ms = seconds * 1e3;
    monitor_set_limits(&comm.limits);
}

void comm_set_port_range(int first, int last)
{
    net_set_port_range(first, last);
}

int comm_rank(void)
{
    return comm.me.rank;
}

int comm_rank_count(void)
{
    return comm.me.rank_count;
}

int comm_local_rank(void)
{
    return comm.me.local_rank;
}

const char *comm_host(void)
{
    return comm.me.host;
}

const char *comm_host_of(int rank)
{
    return comm.transport && comm.me.rank == 0 && rank >= 0 && rank < comm.me.rank_count ? monitor_host(rank)
                                                                                         : "";
}

const char *comm_transport_name(void)
{
    return comm.transport == &transport_mpi ? "MPI" : comm.transport == &transport_tcp ? "TCP" : "nothing";
}

/* The monitor knows which rank it was. If it finds all of them well, the network is what failed. */
static void end_broken(const char *name)
{
    monitor_await_verdict();
    int peer = comm.transport->broken_peer ? comm.transport->broken_peer() : -1;
    char who[32] = "a neighbour";
    if (peer >= 0) {
        snprintf(who, sizeof(who), "rank %d", peer);
    }
    error_exit(EXIT_FAULT,
               "%s: the connection between rank %d (%s) and %s broke; run again to go on from the newest "
               "snapshot",
               name, comm.me.rank, comm.me.host, who);
}

void comm_await_max_int64(int64_t *value)
{
    AllReduce what = {value, 1, COMM_INT64, COMM_MAX};
    if (comm.transport && comm.me.rank_count > 1 && comm.transport->all_reduce(&what, CHANNEL_MAIN) != 0) {
        end_broken("waiting for all ranks");
    }
}

void comm_finish(void)
{
    if (comm.transport) {
        int64_t nothing = 0;
        comm_await_max_int64(&nothing);
        comm.transport->leave();
        monitor_finish();
        error_set_abort_hook(NULL);
        comm.transport = NULL;
    }
}

static void all_reduce(CommChannel channel, AllReduce what, const char *name)
{
    if (comm.transport && comm.me.rank_count > 1 && what.count > 0) {
        progress_enter(channel, name, what.count);
        if (comm.transport->all_reduce(&what, channel) != 0) {
            end_broken(name);
        }
        progress_leave(channel);
    }
}

void comm_sum_int64(int64_t *values, int64_t count)
{
    all_reduce(CHANNEL_MAIN, (AllReduce){values, count, COMM_INT64, COMM_SUM}, "sum of int64");
}

void comm_sum_float(float *values, int64_t count)
{
    all_reduce(CHANNEL_MAIN, (AllReduce){values, count, COMM_FLOAT, COMM_SUM}, "sum of float");
}

void comm_max_int64(int64_t *values, int64_t count)
{
    all_reduce(CHANNEL_MAIN, (AllReduce){values, count, COMM_INT64, COMM_MAX}, "maximum of int64");
}

void comm_barrier(void)
{
    int64_t nothing = 0;
    all_reduce(CHANNEL_MAIN, (AllReduce){&nothing, 1, COMM_INT64, COMM_MAX}, "barrier");
}

void comm_bucket_sum(void *values, int64_t count, CommType type, const char *what)
{
    all_reduce(CHANNEL_BUCKET, (AllReduce){values, count, type, COMM_SUM}, what);
}

void comm_post_notice(int notice)
{
    monitor_post_notice(notice);
}

int comm_notice(void)
{
    return notice_read();
}

void comm_enter(const char *what)
{
    progress_enter(CHANNEL_MAIN, what, 0);
}

void comm_leave(void)
{
    progress_leave(CHANNEL_MAIN);
}

void comm_broadcast(void *data, int64_t bytes, int root)
{
    if (comm.transport && comm.me.rank_count > 1 && bytes > 0) {
        progress_enter(CHANNEL_MAIN, "broadcast", bytes);
        if (comm.transport->broadcast(data, bytes, root) != 0) {
            end_broken("broadcast");
        }
        progress_leave(CHANNEL_MAIN);
    }
}

/* A sum to which every rank adds its own element alone. */
void comm_gather_uint64(uint64_t mine, uint64_t *all)
{
    memset(all, 0, (size_t)comm.me.rank_count * sizeof(*all));
    all[comm.me.rank] = mine;
    all_reduce(CHANNEL_MAIN, (AllReduce){all, comm.me.rank_count, COMM_INT64, COMM_SUM}, "gathering");
}
