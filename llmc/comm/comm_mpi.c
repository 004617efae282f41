/* Collectives over MPI. Each channel has a communicator of its own, so that two threads may be in collectives
 * at the same time. Errors come back as codes: the monitor knows better than MPI which rank was lost. */
#define _GNU_SOURCE
#include <errno.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "llmc/base/clock.h"
#include "llmc/base/file.h"
#include "llmc/comm/ring.h"
#include "llmc/comm/transport.h"

enum { CHUNK_ELEMENTS_MAX = 1 << 28 /* MPI counts are int */, ADDRESSES_MAX = 16, BACKLOG = 1024 };

static MPI_Comm communicators[CHANNEL_COUNT];
static Ring rings[CHANNEL_COUNT];

/* Where rank 0 waits for the others' star connections, as it tells them through MPI. */
typedef struct Meeting {
    uint8_t job[JOB_BYTES];
    int32_t port, address_count;
    char host[HOST_BYTES];
    char addresses[ADDRESSES_MAX][HOST_BYTES];
} Meeting;

static int exchange(void *context, const void *send, size_t send_bytes, void *receive, size_t receive_bytes)
{
    const Ring *ring = context;
    int next = (ring->rank + 1) % ring->rank_count;
    int previous = (ring->rank + ring->rank_count - 1) % ring->rank_count;
    int status =
        MPI_Sendrecv(send, (int)send_bytes, MPI_BYTE, send_bytes > 0 ? next : MPI_PROC_NULL, 0, receive,
                     (int)receive_bytes, MPI_BYTE, receive_bytes > 0 ? previous : MPI_PROC_NULL, 0,
                     communicators[ring - rings], MPI_STATUS_IGNORE);
    return status == MPI_SUCCESS ? 0 : -1;
}

/* Rank 0 opens its door and says where, or why not. Where all ranks run on its machine, nobody else needs to
 * reach it. Returns how many listeners; -1 with *error. */
static int announce(Meeting *meeting, int listeners[LISTENERS_MAX], const Membership *me, int is_one_machine,
                    Error *error)
{
    int count = -1;
    memset(meeting, 0, sizeof(*meeting));
    if (me->rank == 0) {
        int port = 0;
        if (is_one_machine) {
            count = net_listen_at(listeners, "127.0.0.1", &port, BACKLOG, error);
        } else {
            listeners[0] = net_listen(&port, BACKLOG, error);
            count = listeners[0] < 0 ? -1 : 1;
            meeting->address_count = net_own_addresses(meeting->addresses, ADDRESSES_MAX);
        }
        meeting->port = count < 0 ? 0 : port;
        net_random(meeting->job, sizeof(meeting->job));
        net_host_name(meeting->host);
    }
    if (MPI_Bcast(meeting, (int)sizeof(*meeting), MPI_BYTE, 0, MPI_COMM_WORLD) != MPI_SUCCESS ||
        meeting->port == 0) {
        if (me->rank != 0) {
            error_set(error, "ranks: rank 0 cannot listen for the others");
        }
        return -1;
    }
    return count;
}

/* MPI waits for ranks that do not come for as long as it takes, and no monitor watches over them yet. */
enum { TELL_S = 5, TELL_AGAIN_S = 60 };
static timer_t patience, teller;

/* "rank 3 of 8 (host)", or as much of it as the launcher says before MPI does. */
static void describe_self(char text[2 * HOST_BYTES])
{
    char host[HOST_BYTES];
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *count = getenv("OMPI_COMM_WORLD_SIZE");
    rank = rank ? rank : getenv("PMIX_RANK");
    net_host_name(host);
    snprintf(text, (size_t)2 * HOST_BYTES, "%s%.9s%s%.9s%s%.60s%s", rank ? "rank " : "", rank ? rank : "",
             rank && count ? " of " : "", rank && count ? count : "", rank ? " (" : "", host,
             rank ? ")" : "");
}

static void give_up(union sigval timeout_s)
{
    char self[2 * HOST_BYTES];
    describe_self(self);
    error_exit(
        EXIT_FAULT,
        "MPI: %s has waited %d s (join_timeout) for other ranks to start; see that all of them do, and "
        "that no firewall is between their machines, then run again",
        self, timeout_s.sival_int);
}

static void tell(union sigval unused)
{
    char self[2 * HOST_BYTES];
    (void)unused;
    describe_self(self);
    error_print("MPI: %s waits for other ranks to start; each that is there says so: the others are missing",
                self);
}

static int start_timer(timer_t *timer, void (*act)(union sigval), int first_s, int again_s)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = act};
    event.sigev_value.sival_int = first_s - 1;
    struct itimerspec when = {.it_value.tv_sec = first_s, .it_interval.tv_sec = again_s};
    return timer_create(CLOCK_MONOTONIC, &event, timer) == 0 && timer_settime(*timer, 0, &when, NULL) == 0
               ? 0
               : -1;
}

static int begin_waiting(double timeout_ms, Error *error)
{
    if (start_timer(&teller, tell, TELL_S, TELL_AGAIN_S) != 0 ||
        start_timer(&patience, give_up, (int)(timeout_ms / 1e3) + 1, 0) != 0) {
        return error_set(error, "ranks: cannot make a timer: %s", strerror(errno));
    }
    return 0;
}

static void end_waiting(void)
{
    timer_delete(patience);
    timer_delete(teller);
}

static int meet(Star *star, const Membership *me, int is_one_machine, double timeout_ms, Error *error)
{
    Meeting meeting;
    int listeners[LISTENERS_MAX];
    int count = announce(&meeting, listeners, me, is_one_machine, error);
    end_waiting(); /* from here on there is a deadline */
    if (meeting.port == 0) {
        return -1;
    }
    StarPlan plan = {.rank = me->rank,
                     .rank_count = me->rank_count,
                     .is_secret = 1,
                     .local_rank = me->local_rank,
                     .deadline_ms = clock_ms() + timeout_ms};
    memcpy(plan.job, meeting.job, JOB_BYTES);
    StarAnswer answer;
    if (me->rank == 0) {
        Door door;
        star_open_door(&door, listeners, count);
        int status = star_gather(star, &answer, &plan, &door, error);
        door_release(&door);
        return status;
    }
    char addresses[ADDRESSES_MAX + 1][ADDRESS_BYTES];
    count = 0;
    if (strcmp(meeting.host, me->host) == 0 || meeting.address_count == 0) {
        snprintf(addresses[count++], ADDRESS_BYTES, "127.0.0.1");
    }
    for (int i = 0; i < meeting.address_count && i < ADDRESSES_MAX; i++) {
        snprintf(addresses[count++], ADDRESS_BYTES, "%.*s", HOST_BYTES - 1, meeting.addresses[i]);
    }
    return star_join(star, &answer, &plan, addresses, count, meeting.port, error);
}

/* This rank's place on its machine, and how many ranks are there. */
static int local_rank(int *local_count)
{
    MPI_Comm machine;
    int rank = 0;
    *local_count = 0;
    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine) ==
        MPI_SUCCESS) {
        MPI_Comm_rank(machine, &rank);
        MPI_Comm_size(machine, local_count);
        MPI_Comm_free(&machine);
    }
    return rank;
}

static int make_channels(const Membership *me, Error *error)
{
    for (int channel = 0; channel < CHANNEL_COUNT; channel++) {
        if (MPI_Comm_dup(MPI_COMM_WORLD, &communicators[channel]) != MPI_SUCCESS) {
            return error_set(error, "MPI: cannot duplicate the communicator of %d ranks", me->rank_count);
        }
        MPI_Comm_set_errhandler(communicators[channel], MPI_ERRORS_RETURN);
        ring_init(&rings[channel], me->rank, me->rank_count);
        rings[channel].exchange = exchange;
        rings[channel].context = &rings[channel];
    }
    return 0;
}

/* Open MPI's own connections between ranks. What the user has set wins. */
static void keep_to_port_range(void)
{
    int first, last = net_port_range(&first);
    char text[16];
    if (first == 0) {
        return;
    }
    snprintf(text, sizeof(text), "%d", first);
    setenv("OMPI_MCA_btl_tcp_port_min_v4", text, 0);
    setenv("OMPI_MCA_btl_tcp_port_min_v6", text, 0);
    snprintf(text, sizeof(text), "%d", last - first + 1);
    setenv("OMPI_MCA_btl_tcp_port_range_v4", text, 0);
    setenv("OMPI_MCA_btl_tcp_port_range_v6", text, 0);
}

static int join(Membership *me, Star *star, const Launch *launch, double timeout_ms, Error *error)
{
    int provided;
    /* A rank that waits yields its core: Open MPI does so by itself only where it starts more ranks than
     * there are cores, and sees neither other programs nor the threads that compute. The user's own setting
     * wins. */
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    keep_to_port_range();
    if (begin_waiting(timeout_ms, error) != 0) {
        return -1;
    }
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) {
        return error_set(error,
                         "MPI: cannot join the job; without a launcher unset OMPI_* and PMI* variables");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &me->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &me->rank_count);
    net_host_name(me->host);
    if (launch_check_mpi(launch, me->rank_count, error) != 0) {
        return -1;
    }
    if (me->rank_count == 1) {
        end_waiting();
        return 0;
    }
    if (provided < MPI_THREAD_MULTIPLE) {
        return error_set(
            error, "MPI: expected MPI_THREAD_MULTIPLE, found level %d; use an MPI built with thread support",
            provided);
    }
    file_raise_descriptor_limit();
    int local_count;
    me->local_rank = local_rank(&local_count);
    int is_one_machine = local_count == me->rank_count;
    star_init(star, me->rank, me->rank_count);
    return make_channels(me, error) == 0 ? meet(star, me, is_one_machine, timeout_ms, error) : -1;
}

static void leave(void)
{
    for (int channel = 0; channel < CHANNEL_COUNT; channel++) {
        if (rings[channel].arrived) {
            MPI_Comm_free(&communicators[channel]);
            ring_release(&rings[channel]);
        }
    }
    MPI_Finalize();
}

/* bf16 is no type of MPI's: it goes around the ring, whose order of additions is known. */
static int all_reduce(const AllReduce *what, CommChannel channel)
{
    if (what->type == COMM_BF16) {
        return ring_all_reduce(&rings[channel], what);
    }
    char *next = what->values;
    int64_t count = what->count;
    int status = MPI_SUCCESS;
    while (count > 0 && status == MPI_SUCCESS) {
        int some = count < CHUNK_ELEMENTS_MAX ? (int)count : CHUNK_ELEMENTS_MAX;
        status = MPI_Allreduce(MPI_IN_PLACE, next, some, what->type == COMM_INT64 ? MPI_INT64_T : MPI_FLOAT,
                               what->operation == COMM_MAX ? MPI_MAX : MPI_SUM, communicators[channel]);
        next += (size_t)some * comm_type_bytes(what->type);
        count -= some;
    }
    return status == MPI_SUCCESS ? 0 : -1;
}

static int broadcast(void *data, int64_t bytes, int root)
{
    char *next = data;
    int status = MPI_SUCCESS;
    while (bytes > 0 && status == MPI_SUCCESS) {
        int some = bytes < CHUNK_ELEMENTS_MAX ? (int)bytes : CHUNK_ELEMENTS_MAX;
        status = MPI_Bcast(next, some, MPI_BYTE, root, communicators[CHANNEL_MAIN]);
        next += some;
        bytes -= some;
    }
    return status == MPI_SUCCESS ? 0 : -1;
}

static void abort_job(int exit_code)
{
    int is_over = 0;
    MPI_Finalized(&is_over);
    if (!is_over) {
        MPI_Abort(MPI_COMM_WORLD, exit_code);
    }
}

/* Open MPI says more behind a comma: who has packed it, and when. */
const char *comm_name_mpi(char text[COMM_LIBRARY_BYTES])
{
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int bytes;
    if (MPI_Get_library_version(library, &bytes) != MPI_SUCCESS) {
        strcpy(library, "of an unknown version");
    }
    snprintf(text, COMM_LIBRARY_BYTES, "%.*s", (int)strcspn(library, ",\n"), library);
    return text;
}

const Transport transport_mpi = {.is_built = 1,
                                 .join = join,
                                 .leave = leave,
                                 .all_reduce = all_reduce,
                                 .broadcast = broadcast,
                                 .abort = abort_job};
