/* Collectives over TCP, for launchers that speak no MPI and builds that have none: the star introduces the
 * ranks, then each connects to the next, once for each channel. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "llmc/base/clock.h"
#include "llmc/base/file.h"
#include "llmc/comm/beat.h"
#include "llmc/comm/ring.h"
#include "llmc/comm/transport.h"

#define GREETING_MAGIC UINT64_C(0x7b6c6c6d6372696e)

/* The first bytes on a connection between neighbours. */
typedef struct Greeting {
    uint64_t magic, token;
    int32_t rank, channel;
} Greeting;

/* One ring's ends at this rank. */
typedef struct Link {
    int to_next, from_previous;
} Link;

static Link links[CHANNEL_COUNT];
static Ring rings[CHANNEL_COUNT];

/* Between joining and connecting. */
static struct {
    Door door; /* for hellos, then for the neighbour */
    const Launch *launch;
    StarAnswer answer;
    char next_address[ADDRESS_BYTES];
} start;

enum {
    BACKLOG = 256,
    CONNECT_MS = 15000 /* the neighbour listens: what takes longer is a firewall, or a wrong address */
};

static atomic_int broken = -1; /* the neighbour whose connection broke */

static int broken_peer(void)
{
    return atomic_load(&broken);
}

static int exchange(void *context, const void *send, size_t send_bytes, void *receive, size_t receive_bytes)
{
    const Link *link = context;
    int status = net_exchange(link->to_next, send, send_bytes, link->from_previous, receive, receive_bytes);
    if (status != 0) {
        const Ring *ring = &rings[link - links];
        int step = status == NET_OUT_BROKE ? 1 : ring->rank_count - 1;
        atomic_store(&broken, (ring->rank + step) % ring->rank_count);
    }
    return status;
}

static int connect_next(const Membership *me, double deadline_ms, Error *error)
{
    double soon_ms = clock_ms() + CONNECT_MS;
    int next = (me->rank + 1) % me->rank_count;
    deadline_ms = soon_ms < deadline_ms ? soon_ms : deadline_ms;
    for (int channel = 0; channel < CHANNEL_COUNT; channel++) {
        int descriptor = net_connect(start.next_address, start.answer.next_port, deadline_ms, error);
        Greeting greeting = {
            .magic = GREETING_MAGIC, .token = start.answer.token, .rank = me->rank, .channel = channel};
        links[channel].to_next = descriptor;
        if (descriptor < 0 || net_send(descriptor, &greeting, sizeof(greeting), deadline_ms) != 0) {
            error_prefix(error, "rank %d (%s) cannot reach rank %d", me->rank, me->host, next);
            size_t used = strlen(error->text);
            snprintf(error->text + used, sizeof(error->text) - used,
                     "; where a firewall is between machines, open a range of ports there and give it to all "
                     "ranks: --port_range=FIRST-LAST");
            error->may_pass = 1;
            return -1;
        }
        beat_name_peer(descriptor, next);
    }
    return 0;
}

static int accept_previous(const Membership *me, double deadline_ms, Error *error)
{
    int previous = (me->rank + me->rank_count - 1) % me->rank_count;
    int missing = CHANNEL_COUNT;
    while (missing > 0) {
        Greeting greeting;
        int descriptor = door_next(&start.door, &greeting, deadline_ms);
        if (descriptor < 0) {
            error_set(error,
                      "ranks: rank %d waited in vain for rank %d to connect; see whether its machine can "
                      "reach %s",
                      me->rank, previous, me->host);
            error->may_pass = 1;
            return -1;
        }
        if (greeting.token != start.answer.token || greeting.rank != previous || greeting.channel < 0 ||
            greeting.channel >= CHANNEL_COUNT || links[greeting.channel].from_previous >= 0) {
            net_close(descriptor);
            continue;
        }
        links[greeting.channel].from_previous = descriptor;
        beat_name_peer(descriptor, previous);
        missing--;
    }
    return 0;
}

/* A rank's door for its neighbour: where it reaches rank 0, and others reach it. By a loopback address only
 * the ranks of one machine do, unless the name of rank 0's machine stands for another address elsewhere. */
static int open_ring(int connection, Error *error)
{
    char address[HOST_BYTES];
    int port = 0, listener;
    net_peer_address(address, connection);
    if (address[0] || net_is_loopback(start.launch->address)) {
        listener = net_listen_beside(connection, &port, BACKLOG, error);
    } else {
        listener = net_listen(&port, BACKLOG, error);
    }
    if (listener < 0) {
        return -1;
    }
    door_release(&start.door); /* that of an attempt before */
    door_init(&start.door, &listener, 1, GREETING_MAGIC, sizeof(Greeting));
    return port;
}

/* Rank 0's neighbour comes to the same door as everybody. */
static int gather(Star *star, StarPlan *plan, Error *error)
{
    int listeners[LISTENERS_MAX], port = start.launch->port;
    int count = net_listen_at(listeners, start.launch->address, &port, BACKLOG, error);
    if (count < 0) {
        return error_prefix(error, "rank 0: expected a free MASTER_PORT, choose another");
    }
    plan->ring_port = port;
    star_open_door(&start.door, listeners, count);
    if (star_gather(star, &start.answer, plan, &start.door, error) != 0) {
        return -1;
    }
    door_expect(&start.door, GREETING_MAGIC, sizeof(Greeting));
    return 0;
}

static int join(Membership *me, Star *star, const Launch *launch, double timeout_ms, Error *error)
{
    *me = (Membership){.rank = launch->rank, .rank_count = launch->rank_count};
    net_host_name(me->host);
    file_raise_descriptor_limit();
    StarPlan plan = {.rank = me->rank,
                     .rank_count = me->rank_count,
                     .is_secret = launch->has_job,
                     .local_rank = launch->local_rank,
                     .deadline_ms = clock_ms() + timeout_ms,
                     .open_ring = open_ring};
    memcpy(plan.job, launch->job, JOB_BYTES);
    char address[1][ADDRESS_BYTES];
    memcpy(address[0], launch->address, ADDRESS_BYTES);
    start.launch = launch;
    star_init(star, me->rank, me->rank_count);
    int status = me->rank == 0 ? gather(star, &plan, error)
                               : star_join(star, &start.answer, &plan, address, 1, launch->port, error);
    if (status != 0) {
        door_release(&start.door);
        return -1;
    }
    me->local_rank = start.answer.local_rank;
    snprintf(start.next_address, ADDRESS_BYTES, "%s",
             start.answer.next_address[0] ? start.answer.next_address : launch->address);
    return 0;
}

static int connect_ring(const Membership *me, double timeout_ms, Error *error)
{
    double deadline_ms = clock_ms() + timeout_ms;
    for (int channel = 0; channel < CHANNEL_COUNT; channel++) {
        links[channel] = (Link){-1, -1};
        ring_init(&rings[channel], me->rank, me->rank_count);
        rings[channel].exchange = exchange;
        rings[channel].context = &links[channel];
    }
    int status = connect_next(me, deadline_ms, error);
    if (status == 0) {
        status = accept_previous(me, deadline_ms, error);
    }
    door_release(&start.door);
    return status;
}

static void leave(void)
{
    for (int channel = 0; channel < CHANNEL_COUNT; channel++) {
        net_close(links[channel].to_next);
        net_close(links[channel].from_previous);
        ring_release(&rings[channel]);
    }
}

static int all_reduce(const AllReduce *what, CommChannel channel)
{
    return ring_all_reduce(&rings[channel], what);
}

static int broadcast(void *data, int64_t bytes, int root)
{
    return ring_broadcast(&rings[CHANNEL_MAIN], data, bytes, root);
}

/* The connections close with the process. */
static void abort_job(int exit_code)
{
    (void)exit_code;
}

const Transport transport_tcp = {.is_built = 1,
                                 .join = join,
                                 .connect = connect_ring,
                                 .leave = leave,
                                 .all_reduce = all_reduce,
                                 .broadcast = broadcast,
                                 .abort = abort_job,
                                 .broken_peer = broken_peer};
