/* Collectives over TCP, for launchers that speak no MPI and builds that have none: the star introduces the
 * ranks, then each connects to the next, once for each channel. */
#include <stdio.h>
#include <string.h>

#include "llmc/base/clock.h"
#include "llmc/base/file.h"
#include "llmc/comm/ring.h"
#include "llmc/comm/transport.h"

/* The first bytes on a connection between neighbours. */
typedef struct Greeting {
    uint64_t token;
    int32_t rank, channel;
} Greeting;

/* One ring's ends at this rank. */
typedef struct Link {
    int to_next, from_previous;
} Link;

static Link links[CHANNEL_COUNT];
static Ring rings[CHANNEL_COUNT];

static int exchange(void *context, const void *send, size_t send_bytes, void *receive, size_t receive_bytes)
{
    const Link *link = context;
    return net_exchange(link->to_next, send, send_bytes, link->from_previous, receive, receive_bytes);
}

static int connect_next(const Membership *me, const StarAnswer *answer, const char *address,
                        double deadline_ms, Error *error)
{
    for (int channel = 0; channel < CHANNEL_COUNT; channel++) {
        int descriptor = net_connect(address, answer->next_port, deadline_ms, error);
        Greeting greeting = {.token = answer->token, .rank = me->rank, .channel = channel};
        links[channel].to_next = descriptor;
        if (descriptor < 0 || net_send(descriptor, &greeting, sizeof(greeting), deadline_ms) != 0) {
            return error_prefix(error, "rank %d cannot reach rank %d", me->rank,
                                (me->rank + 1) % me->rank_count);
        }
    }
    return 0;
}

static int accept_previous(const Membership *me, const StarAnswer *answer, int listener, double deadline_ms,
                           Error *error)
{
    enum { GREETING_MS = 5000 };
    int previous = (me->rank + me->rank_count - 1) % me->rank_count;
    int missing = CHANNEL_COUNT;
    while (missing > 0) {
        int descriptor = net_accept(listener, deadline_ms);
        if (descriptor < 0) {
            return error_set(
                error,
                "ranks: rank %d waited in vain for rank %d to connect; see whether its machine can "
                "reach %s",
                me->rank, previous, me->host);
        }
        Greeting greeting;
        if (net_receive(descriptor, &greeting, sizeof(greeting), clock_ms() + GREETING_MS) != 0 ||
            greeting.token != answer->token || greeting.rank != previous || greeting.channel < 0 ||
            greeting.channel >= CHANNEL_COUNT || links[greeting.channel].from_previous >= 0) {
            net_close(descriptor);
            continue;
        }
        links[greeting.channel].from_previous = descriptor;
        missing--;
    }
    return 0;
}

/* The star, with this rank's place in it. */
static int meet(Star *star, StarAnswer *answer, const Launch *launch, const StarPlan *plan, Error *error)
{
    if (plan->rank != 0) {
        char address[1][ADDRESS_BYTES];
        memcpy(address[0], launch->address, ADDRESS_BYTES);
        return star_join(star, answer, plan, address, 1, launch->port, error);
    }
    int port = launch->port;
    int listener = net_listen(&port, plan->rank_count, error);
    if (listener < 0) {
        return error_prefix(error, "rank 0: expected a free MASTER_PORT, choose another");
    }
    int status = star_gather(star, answer, plan, listener, error);
    net_close(listener);
    return status;
}

static int join(Membership *me, Star *star, const Launch *launch, double timeout_ms, Error *error)
{
    *me = (Membership){.rank = launch->rank, .rank_count = launch->rank_count};
    net_host_name(me->host);
    file_raise_descriptor_limit();
    StarPlan plan = {.rank = me->rank,
                     .rank_count = me->rank_count,
                     .local_rank = launch->local_rank,
                     .deadline_ms = clock_ms() + timeout_ms};
    int listener = net_listen(&plan.ring_port, 2 * CHANNEL_COUNT, error);
    if (listener < 0) {
        return -1;
    }
    for (int channel = 0; channel < CHANNEL_COUNT; channel++) {
        links[channel] = (Link){-1, -1};
    }
    StarAnswer answer;
    star_init(star, me->rank, me->rank_count);
    int status = meet(star, &answer, launch, &plan, error);
    if (status == 0) {
        const char *address = answer.next_address[0] ? answer.next_address : launch->address;
        me->local_rank = answer.local_rank;
        status = connect_next(me, &answer, address, plan.deadline_ms, error) == 0
                     ? accept_previous(me, &answer, listener, plan.deadline_ms, error)
                     : -1;
    }
    net_close(listener);
    for (int channel = 0; channel < CHANNEL_COUNT; channel++) {
        ring_init(&rings[channel], me->rank, me->rank_count);
        rings[channel].exchange = exchange;
        rings[channel].context = &links[channel];
    }
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
                                 .leave = leave,
                                 .all_reduce = all_reduce,
                                 .broadcast = broadcast,
                                 .abort = abort_job};
