#include "llmc/comm/star.h"

#include <stdio.h>
#include <string.h>

#include "llmc/base/clock.h"
#include "llmc/base/memory.h"

enum { STAR_VERSION = 1, HELLO_MS = 5000, RETRY_MS = 50, CONNECT_MS = 5000, MISSING_NAMED = 8 };

#define STAR_MAGIC UINT64_C(0x7b6c6c6d63737461)

typedef struct Hello {
    uint64_t magic, token;
    uint32_t version;
    int32_t rank, rank_count, ring_port, local_rank;
    char host[HOST_BYTES];
} Hello;

typedef struct Reply {
    uint64_t magic, token;
    int32_t is_refused, local_rank, next_port, padding;
    char host[HOST_BYTES]; /* rank 0's */
    char next_address[HOST_BYTES];
    Error error; /* why it is refused */
} Reply;

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

/* A rank that has come: its hello, by rank. */
typedef struct Gathering {
    Star *star;
    const StarPlan *plan;
    Hello *hellos; /* (rank_count) */
} Gathering;

/* 1 if this is a rank of the job, now kept; 0 if it is a stranger; -1 with *error if it does not fit. */
static int admit(Gathering *all, const Hello *hello, int descriptor, Error *error)
{
    const StarPlan *plan = all->plan;
    if (hello->magic != STAR_MAGIC || (plan->token && hello->token != plan->token) ||
        !memchr(hello->host, 0, HOST_BYTES)) {
        return 0;
    }
    if (hello->version != STAR_VERSION) {
        return error_set(error,
                         "ranks: expected protocol %d as at rank 0, found %u at rank %d (%s); start the same "
                         "program everywhere",
                         STAR_VERSION, hello->version, hello->rank, hello->host);
    }
    if (hello->rank_count != plan->rank_count) {
        return error_set(
            error,
            "WORLD_SIZE: expected %d as at rank 0 (%s), found %d at rank %d (%s); start all ranks "
            "with the same",
            plan->rank_count, all->star->hosts[0], hello->rank_count, hello->rank, hello->host);
    }
    int r = hello->rank;
    if (r < 0 || r >= plan->rank_count) {
        return 0;
    }
    if (r == 0 || all->star->sockets[r] >= 0) {
        return error_set(
            error,
            "RANK: expected each rank once, found rank %d twice (on %s and on %s); give each process "
            "its own RANK",
            r, all->star->hosts[r], hello->host);
    }
    all->star->sockets[r] = descriptor;
    memcpy(all->star->hosts[r], hello->host, HOST_BYTES);
    all->hellos[r] = *hello;
    return 1;
}

static int missing_error(const Star *star, Error *error)
{
    char missing[128] = "";
    int used = 0, named = 0, count = 0;
    for (int r = 1; r < star->rank_count; r++) {
        if (star->sockets[r] < 0 && ++count && named < MISSING_NAMED) {
            used += snprintf(missing + used, sizeof(missing) - (size_t)used, "%s%d", named++ ? ", " : "", r);
        }
    }
    return error_set(
        error,
        "ranks: expected %d, found %d until time was up; missing: %s%s; see whether they were started "
        "and reach rank 0's machine (%s)",
        star->rank_count, star->rank_count - count, missing, count > named ? ", .." : "", star->hosts[0]);
}

static void refuse(const Star *star, int newcomer, const Error *error)
{
    Reply reply = {.magic = STAR_MAGIC, .is_refused = 1, .error = *error};
    double deadline_ms = clock_ms() + HELLO_MS;
    for (int r = 1; r < star->rank_count; r++) {
        if (star->sockets[r] >= 0) {
            net_send(star->sockets[r], &reply, sizeof(reply), deadline_ms);
        }
    }
    if (newcomer >= 0) {
        net_send(newcomer, &reply, sizeof(reply), deadline_ms);
        net_close(newcomer);
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
    uint64_t token = all->plan->token ? all->plan->token : ((uint64_t)(clock_ms() * 1e6) | 1);
    *mine = answer_for(all, 0, token);
    for (int r = 1; r < star->rank_count; r++) {
        StarAnswer answer = answer_for(all, r, token);
        Reply reply = {.magic = STAR_MAGIC,
                       .token = token,
                       .local_rank = answer.local_rank,
                       .next_port = answer.next_port};
        memcpy(reply.host, star->hosts[0], HOST_BYTES);
        memcpy(reply.next_address, answer.next_address, HOST_BYTES);
        if (net_send(star->sockets[r], &reply, sizeof(reply), clock_ms() + HELLO_MS) != 0) {
            return error_set(error, "ranks: rank %d (%s) went away while the job started; run again", r,
                             star->hosts[r]);
        }
    }
    return 0;
}

int star_gather(Star *star, StarAnswer *mine, const StarPlan *plan, int listener, Error *error)
{
    Gathering all = {.star = star, .plan = plan};
    all.hellos = memory_alloc_zeroed((size_t)plan->rank_count, sizeof(Hello), "ranks that have come");
    all.hellos[0] = (Hello){.ring_port = plan->ring_port, .local_rank = plan->local_rank};
    int missing = plan->rank_count - 1, status = 0, newcomer = -1;
    while (missing > 0 && status >= 0) {
        newcomer = net_accept(listener, plan->deadline_ms);
        if (newcomer < 0) {
            status = missing_error(star, error);
            break;
        }
        Hello hello;
        int came = net_receive(newcomer, &hello, sizeof(hello), clock_ms() + HELLO_MS) == 0;
        status = came ? admit(&all, &hello, newcomer, error) : 0;
        missing -= status > 0;
        if (status == 0) {
            net_close(newcomer);
        }
        newcomer = status < 0 ? newcomer : -1;
    }
    if (status < 0) {
        refuse(star, newcomer, error);
    } else {
        status = answer_all(&all, mine, error);
    }
    memory_free(all.hellos);
    return status < 0 ? -1 : 0;
}

/* One attempt: 1 when the connection stands, 0 to try again (*error says why), -1 with *error. */
static int try_join(Star *star, StarAnswer *mine, const StarPlan *plan, const char *address, int port,
                    Error *error)
{
    double now_ms = clock_ms();
    double connect_ms = now_ms + CONNECT_MS < plan->deadline_ms ? now_ms + CONNECT_MS : plan->deadline_ms;
    int descriptor = net_connect(address, port, connect_ms, error);
    if (descriptor < 0) {
        return 0;
    }
    Hello hello = {.magic = STAR_MAGIC,
                   .token = plan->token,
                   .version = STAR_VERSION,
                   .rank = plan->rank,
                   .rank_count = plan->rank_count,
                   .ring_port = plan->ring_port,
                   .local_rank = plan->local_rank};
    memcpy(hello.host, star->hosts[plan->rank], HOST_BYTES);
    Reply reply;
    if (net_send(descriptor, &hello, sizeof(hello), plan->deadline_ms) != 0 ||
        net_receive(descriptor, &reply, sizeof(reply), plan->deadline_ms) != 0) {
        net_close(descriptor);
        error_set(error, "%s port %d: rank 0 does not answer", address, port);
        return 0;
    }
    reply.error.text[sizeof(reply.error.text) - 1] = reply.host[HOST_BYTES - 1] =
        reply.next_address[HOST_BYTES - 1] = 0;
    if (reply.magic != STAR_MAGIC || reply.is_refused) {
        net_close(descriptor);
        return reply.magic != STAR_MAGIC
                   ? error_set(
                         error,
                         "%s port %d: expected rank 0, found another program; choose another MASTER_PORT",
                         address, port)
                   : error_set(error, "%s", reply.error.text);
    }
    star->sockets[0] = descriptor;
    memcpy(star->hosts[0], reply.host, HOST_BYTES);
    *mine = (StarAnswer){.local_rank = reply.local_rank, .token = reply.token, .next_port = reply.next_port};
    memcpy(mine->next_address, reply.next_address, HOST_BYTES);
    return 1;
}

int star_join(Star *star, StarAnswer *mine, const StarPlan *plan, char addresses[][ADDRESS_BYTES],
              int address_count, int port, Error *error)
{
    for (int attempt = 0;; attempt++) {
        int status = try_join(star, mine, plan, addresses[attempt % address_count], port, error);
        if (status != 0) {
            return status < 0 ? -1 : 0;
        }
        net_sleep_ms(RETRY_MS);
        if (clock_ms() >= plan->deadline_ms) {
            return error_prefix(error, "ranks: rank %d found no rank 0 until time was up", plan->rank);
        }
    }
}
