#include "llmc/comm/star.h"

#include <stdio.h>
#include <string.h>

#include "llmc/base/clock.h"
#include "llmc/base/format.h"
#include "llmc/base/memory.h"
#include "llmc/comm/star_wire.h"

enum {
    TELL_MS = 5000, /* until a rank says whom it waits for */
    TELL_AGAIN_MS = 60000,
    REPLY_MS = 5000, /* for a record to leave, or for the first to come */
    LOOK_MS = 200,   /* between looks at who has left */
    RETURN_MS = 10000,
    MISSING_NAMED = 8,
    MISSING_BYTES = 128,
    REFUSALS_TOLD = 4
};

void star_init(Star *star, int rank, int rank_count)
{
    *star = (Star){.rank = rank, .rank_count = rank_count};
    star->sockets = memory_alloc((size_t)rank_count, sizeof(*star->sockets), "connections of ranks");
    star->hosts = memory_alloc_zeroed((size_t)rank_count, sizeof(*star->hosts), "hosts of ranks");
    for (int r = 0; r < rank_count; r++) {
        star->sockets[r] = -1;
    }
    net_host_name(star->hosts[rank]);
}

void star_release(Star *star)
{
    for (int r = 0; star->sockets && r < star->rank_count; r++) {
        net_close(star->sockets[r]);
    }
    memory_free(star->sockets);
    memory_free(star->hosts);
    memset(star, 0, sizeof(*star));
}

void star_open_door(Door *door, const int *listeners, int listener_count)
{
    door_init(door, listeners, listener_count, STAR_MAGIC, sizeof(Hello));
}

/* The ranks that have come. */
typedef struct Gathering {
    Star *star;
    const StarPlan *plan;
    Hello *hellos;   /* (rank_count) */
    double *left_ms; /* (rank_count) when a rank that had come was gone again; 0 for none */
    int missing;
    int refused_count;
    Error last_refusal;
} Gathering;

static void send_reply(int descriptor, ReplyKind kind, const Error *error)
{
    Reply reply = {.magic = STAR_MAGIC, .kind = kind};
    net_host_name(reply.host);
    if (error) {
        reply.error = *error;
    }
    net_send(descriptor, &reply, sizeof(reply), clock_ms() + REPLY_MS);
}

/* Ranks say nothing while they wait: one that can be read from has left. Its place is free again. */
static void look_after(Gathering *all, int rank)
{
    Star *star = all->star;
    if (star->sockets[rank] >= 0 && net_is_readable(star->sockets[rank])) {
        net_close(star->sockets[rank]);
        star->sockets[rank] = -1;
        all->left_ms[rank] = clock_ms();
        all->missing++;
    }
}

/* Whether the hello fits: 0, or what the newcomer is told, with *error. */
static ReplyKind judge(Gathering *all, const Hello *hello, Error *error)
{
    const StarPlan *plan = all->plan;
    int r = hello->rank;
    if (hello->version != STAR_VERSION) {
        error_set(error,
                  "ranks: expected protocol %d as at rank 0, found %u at rank %d (%s); start the same "
                  "program everywhere",
                  STAR_VERSION, hello->version, r, hello->host);
    } else if (hello->rank_count != plan->rank_count) {
        error_set(error,
                  "WORLD_SIZE: expected %d as at rank 0 (%s), found %d at rank %d (%s); start all ranks "
                  "with the same",
                  plan->rank_count, all->star->hosts[0], hello->rank_count, r, hello->host);
    } else if (r < 0 || r >= plan->rank_count) {
        error_set(error, "RANK: expected 0 to %d, found %d (%s)", plan->rank_count - 1, r, hello->host);
    } else {
        look_after(all, r);
        if (r != 0 && all->star->sockets[r] < 0) {
            return 0;
        }
        error_set(error,
                  "RANK: expected each rank once, found rank %d twice (on %s and on %s); give each process "
                  "its own RANK, and each job its own MASTER_PORT",
                  r, all->star->hosts[r], hello->host);
        return REPLY_TAKEN;
    }
    return REPLY_REFUSED;
}

/* Keeps a rank of the job, and refuses others. -1 with *error where all must end. */
static int admit(Gathering *all, Hello *hello, int descriptor, Error *error)
{
    const StarPlan *plan = all->plan;
    hello->host[HOST_BYTES - 1] = 0;
    format_printable(hello->host);
    if (memcmp(hello->job, plan->job, JOB_BYTES) != 0) {
        Error other;
        error_set(&other,
                  "MASTER_PORT: expected rank 0 of this job, found that of another (on %s); give each "
                  "job its own MASTER_PORT",
                  all->star->hosts[0]);
        send_reply(descriptor, REPLY_REFUSED, &other);
        net_close(descriptor);
        return 0;
    }
    ReplyKind kind = judge(all, hello, error);
    if (kind == 0) {
        int r = hello->rank;
        all->star->sockets[r] = descriptor;
        memcpy(all->star->hosts[r], hello->host, HOST_BYTES);
        all->hellos[r] = *hello;
        all->left_ms[r] = 0;
        all->missing--;
        send_reply(descriptor, REPLY_WELCOME, NULL);
        return 0;
    }
    send_reply(descriptor, plan->is_secret ? REPLY_REFUSED : kind, error);
    net_close(descriptor);
    if (plan->is_secret) {
        return -1;
    }
    if (all->refused_count++ < REFUSALS_TOLD) {
        error_print("%s; refused, and waiting for the right one", error->text);
    }
    all->last_refusal = *error;
    return 0;
}

/* The ranks that have not come, as "1, 2, 5, ..". Returns how many. */
static int name_missing(char missing[MISSING_BYTES], const Star *star)
{
    int used = 0, count = 0;
    missing[0] = 0;
    for (int r = 1; r < star->rank_count; r++) {
        if (star->sockets[r] < 0 && count++ < MISSING_NAMED) {
            used += snprintf(missing + used, MISSING_BYTES - (size_t)used, "%s%d", count > 1 ? ", " : "", r);
        }
    }
    if (count > MISSING_NAMED) {
        snprintf(missing + used, MISSING_BYTES - (size_t)used, ", ..");
    }
    return count;
}

/* Whether it is time to say whom this rank waits for: after some seconds, then every minute. */
static int is_time_to_tell(double *tell_ms)
{
    if (clock_ms() < *tell_ms) {
        return 0;
    }
    *tell_ms = clock_ms() + TELL_AGAIN_MS;
    return 1;
}

static void tell_missing(const Gathering *all)
{
    char missing[MISSING_BYTES];
    int count = name_missing(missing, all->star);
    error_print("rank 0 (%s) waits for %d of %d ranks to come, for %.0f s more; missing: %s",
                all->star->hosts[0], count, all->star->rank_count,
                (all->plan->deadline_ms - clock_ms()) / 1e3, missing);
}

static int missing_error(const Gathering *all, Error *error)
{
    const Star *star = all->star;
    char missing[MISSING_BYTES];
    int count = name_missing(missing, star);
    error_set(error,
              "ranks: expected %d, found %d until time was up (join_timeout); missing: %s; see whether they "
              "were started and reach rank 0's machine (%s)%s%.400s",
              star->rank_count, star->rank_count - count, missing, star->hosts[0],
              all->refused_count > 0 ? "; refused: " : "", all->last_refusal.text);
    error->may_pass = 1;
    return -1;
}

/* A rank that has come has gone, and does not come back. Where a stranger may have been that rank, there is
 * still the right one to wait for. -1 with *error. */
static int miss_the_lost(Gathering *all, Error *error)
{
    for (int r = 1; r < all->star->rank_count; r++) {
        look_after(all, r);
        if (all->plan->is_secret && all->left_ms[r] > 0 && clock_ms() - all->left_ms[r] > RETURN_MS) {
            error_set(error, "ranks: rank %d (%s) ended while the job started; run again", r,
                      all->star->hosts[r]);
            error->may_pass = 1;
            return -1;
        }
    }
    return 0;
}

static void refuse_all(const Star *star, const Error *error)
{
    for (int r = 1; r < star->rank_count; r++) {
        if (star->sockets[r] >= 0) {
            send_reply(star->sockets[r], REPLY_REFUSED, error);
        }
    }
}

/* What the ranks on one machine are to each other: by counting, where the launcher did not say. */
static int local_rank_of(const Star *star, const Hello *hellos, int rank)
{
    int count = 0;
    for (int r = 0; r < rank; r++) {
        count += strcmp(star->hosts[r], star->hosts[rank]) == 0;
    }
    return hellos[rank].local_rank >= 0 ? hellos[rank].local_rank : count;
}

static StarAnswer answer_for(const Gathering *all, int rank, uint64_t token)
{
    int next = (rank + 1) % all->star->rank_count;
    StarAnswer answer = {.local_rank = local_rank_of(all->star, all->hellos, rank),
                         .token = token,
                         .next_port = all->hellos[next].ring_port};
    if (next != 0) {
        net_peer_address(answer.next_address, all->star->sockets[next]);
    }
    return answer;
}

static int answer_all(const Gathering *all, StarAnswer *mine, Error *error)
{
    const Star *star = all->star;
    uint64_t token;
    net_random(&token, sizeof(token));
    *mine = answer_for(all, 0, token);
    for (int r = 1; r < star->rank_count; r++) {
        StarAnswer answer = answer_for(all, r, token);
        Reply reply = {.magic = STAR_MAGIC,
                       .kind = REPLY_ANSWER,
                       .token = token,
                       .local_rank = answer.local_rank,
                       .next_port = answer.next_port};
        memcpy(reply.host, star->hosts[0], HOST_BYTES);
        memcpy(reply.next_address, answer.next_address, HOST_BYTES);
        if (net_send(star->sockets[r], &reply, sizeof(reply), clock_ms() + REPLY_MS) != 0) {
            error_set(error, "ranks: rank %d (%s) went away while the job started; run again", r,
                      star->hosts[r]);
            error->may_pass = 1;
            return -1;
        }
    }
    return 0;
}

int star_gather(Star *star, StarAnswer *mine, const StarPlan *plan, Door *door, Error *error)
{
    Gathering all = {.star = star, .plan = plan, .missing = plan->rank_count - 1};
    all.hellos = memory_alloc_zeroed((size_t)plan->rank_count, sizeof(Hello), "ranks that have come");
    all.left_ms = memory_alloc_zeroed((size_t)plan->rank_count, sizeof(double), "ranks that have come");
    all.hellos[0] = (Hello){.ring_port = plan->ring_port, .local_rank = plan->local_rank};
    int status = 0;
    double tell_ms = clock_ms() + TELL_MS;
    while (all.missing > 0 && status == 0) {
        double now_ms = clock_ms();
        if (is_time_to_tell(&tell_ms)) {
            tell_missing(&all);
        }
        if (now_ms >= plan->deadline_ms) {
            status = missing_error(&all, error);
            break;
        }
        Hello hello;
        double look_ms = now_ms + LOOK_MS < plan->deadline_ms ? now_ms + LOOK_MS : plan->deadline_ms;
        int newcomer = door_next(door, &hello, look_ms);
        status = newcomer < 0 ? 0 : admit(&all, &hello, newcomer, error);
        if (status == 0) {
            status = miss_the_lost(&all, error); /* also before all are answered */
        }
    }
    if (status == 0) {
        status = answer_all(&all, mine, error);
    }
    if (status != 0) {
        refuse_all(star, error);
    }
    memory_free(all.hellos);
    memory_free(all.left_ms);
    return status;
}

/* ---- the other ranks ---- */

/* An attempt to join. */
typedef struct Joining {
    Star *star;
    const StarPlan *plan;
    const char *address;
    int port;
    double give_up_ms; /* another process has this rank; 0: not so */
    Error taken;
    double short_ms; /* since when this process gets no socket; 0: it does */
} Joining;

static int say_hello(const Joining *join, int descriptor, Error *error)
{
    const StarPlan *plan = join->plan;
    Hello hello = {.magic = STAR_MAGIC,
                   .version = STAR_VERSION,
                   .rank = plan->rank,
                   .rank_count = plan->rank_count,
                   .local_rank = plan->local_rank};
    memcpy(hello.job, plan->job, JOB_BYTES);
    memcpy(hello.host, join->star->hosts[plan->rank], HOST_BYTES);
    if (plan->open_ring) {
        hello.ring_port = plan->open_ring(descriptor, error);
        if (hello.ring_port < 0) {
            return -1;
        }
    }
    /* An answer that does not come, or that is none, is told by who reads it. */
    net_send(descriptor, &hello, sizeof(hello), clock_ms() + REPLY_MS);
    return 0;
}

/* What rank 0 has said: 1 welcome or all that is to be known, 0 to try again, -1 with *error. */
static int read_reply(Joining *join, Reply *reply, int descriptor, double end_ms, Error *error)
{
    if (net_receive(descriptor, reply, sizeof(*reply), end_ms) != 0) {
        error_set(error, "%s port %d: rank 0 does not answer", join->address, join->port);
        error->may_pass = 1;
        return 0;
    }
    if (reply->magic != STAR_MAGIC) {
        return error_set(error,
                         "%s port %d: expected rank 0, found another program; choose another MASTER_PORT",
                         join->address, join->port);
    }
    reply->error.text[sizeof(reply->error.text) - 1] = reply->host[HOST_BYTES - 1] =
        reply->next_address[HOST_BYTES - 1] = 0;
    format_printable(reply->error.text);
    format_printable(reply->host);
    if (reply->kind == REPLY_WELCOME || reply->kind == REPLY_ANSWER) {
        return 1;
    }
    *error = reply->error;
    if (reply->kind == REPLY_TAKEN) { /* that process may be another job's, and about to end */
        join->give_up_ms = join->give_up_ms > 0 ? join->give_up_ms : clock_ms() + RETURN_MS;
        join->taken = reply->error;
        return 0;
    }
    return -1;
}

/* 1 when all ranks are there, 0 to try again (*error says why), -1 with *error. */
static int wait_for_all(Joining *join, StarAnswer *mine, int descriptor, Error *error)
{
    const StarPlan *plan = join->plan;
    Reply reply;
    double first_ms = clock_ms() + REPLY_MS;
    int status = read_reply(join, &reply, descriptor,
                            first_ms < plan->deadline_ms ? first_ms : plan->deadline_ms, error);
    if (status <= 0) {
        return status;
    }
    if (reply.kind == REPLY_WELCOME) { /* from here on rank 0 knows this rank */
        char host[HOST_BYTES];
        memcpy(host, reply.host, HOST_BYTES);
        status = read_reply(join, &reply, descriptor, plan->deadline_ms + REPLY_MS, error);
        if (status == 0) {
            error_set(error, "ranks: rank 0 (%s) %s other ranks; run again", host,
                      clock_ms() < plan->deadline_ms ? "ended while it waited for"
                                                     : "still waited when time was up, for");
            error->may_pass = 1;
        }
        if (status <= 0) {
            return -1;
        }
    }
    memcpy(join->star->hosts[0], reply.host, HOST_BYTES);
    *mine = (StarAnswer){.local_rank = reply.local_rank, .token = reply.token, .next_port = reply.next_port};
    memcpy(mine->next_address, reply.next_address, HOST_BYTES);
    return 1;
}

enum { SHORT_MS = 3000 };

/* One attempt: as wait_for_all. */
static int try_join(Joining *join, StarAnswer *mine, Error *error)
{
    double now_ms = clock_ms(), deadline_ms = join->plan->deadline_ms;
    int descriptor = net_connect(join->address, join->port,
                                 now_ms + REPLY_MS < deadline_ms ? now_ms + REPLY_MS : deadline_ms, error);
    if (descriptor < 0) { /* others may yet come; a socket for this one, soon or not at all */
        int is_short = error->may_pass;
        join->short_ms = !is_short ? 0 : join->short_ms > 0 ? join->short_ms : now_ms;
        return is_short && now_ms - join->short_ms > SHORT_MS ? -1 : 0;
    }
    join->short_ms = 0;
    int status = say_hello(join, descriptor, error);
    if (status == 0) {
        status = wait_for_all(join, mine, descriptor, error);
    }
    if (status > 0) {
        join->star->sockets[0] = descriptor;
    } else {
        net_close(descriptor);
    }
    return status;
}

int star_join(Star *star, StarAnswer *mine, const StarPlan *plan, char addresses[][ADDRESS_BYTES],
              int address_count, int port, Error *error)
{
    enum { RETRY_MS = 50 };
    Joining join = {.star = star, .plan = plan, .port = port};
    double tell_ms = clock_ms() + TELL_MS;
    for (int attempt = 0;; attempt++) {
        join.address = addresses[attempt % address_count];
        int status = try_join(&join, mine, error);
        if (status != 0) {
            return status < 0 ? -1 : 0;
        }
        net_sleep_ms(RETRY_MS);
        double now_ms = clock_ms();
        if (is_time_to_tell(&tell_ms)) {
            error_print("rank %d (%s) waits for rank 0, for %.0f s more: %s", plan->rank,
                        star->hosts[plan->rank], (plan->deadline_ms - now_ms) / 1e3, error->text);
        }
        if (join.give_up_ms > 0 && now_ms >= join.give_up_ms) {
            *error = join.taken;
            return -1;
        }
        if (now_ms >= plan->deadline_ms) {
            error_prefix(error, "ranks: rank %d (%s) found no rank 0 until time was up (join_timeout)",
                         plan->rank, star->hosts[plan->rank]);
            error->may_pass = 1;
            return -1;
        }
    }
}
