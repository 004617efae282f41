/* The ring of sockets. Ranks meet at rank 0, which tells each who follows it. */
#include <map>
#include <random>
#include <sys/socket.h>

extern "C" {
#include "llmc/base/clock.h"
#include "llmc/comm/net.h"
#include "llmc/comm/ring.h"
}

#include "nccl_ring.h"
#include "runtime.h"

enum { BACKLOG = 1024 };
static const double JOIN_MS = 60000, GREETING_MS = 5000;

struct NcclRing {
    Ring ring;
    int next, previous; /* sockets; -1 where there is one rank */
};

struct Type {
    const char *name;
    int type;
    CommType comm_type;
};

/* NULL for types that cannot be summed. */
static const Type *find_type(int type)
{
    static const Type types[] = {
        {"int64", ncclInt64, COMM_INT64},
        {"float", ncclFloat32, COMM_FLOAT},
        {"bf16", ncclBfloat16, COMM_BF16},
    };
    for (const Type &known : types) {
        if (known.type == type) {
            return &known;
        }
    }
    return NULL;
}

size_t nccl_type_bytes(int type)
{
    const Type *known = find_type(type);
    return known ? comm_type_bytes(known->comm_type) : 0;
}

/* ---- how ranks meet ----------------------------------------------------------------------------------- */

/* What an ncclUniqueId carries: where rank 0's process listens. */
struct Meeting {
    uint64_t secret; /* which job it is */
    int32_t port;
    char host[HOST_BYTES];
    char address[48]; /* for other machines; "" if it has none */
};
static_assert(sizeof(Meeting) <= sizeof(ncclUniqueId), "must fit");

/* What a rank tells rank 0, which tells each of the one that follows it. */
struct Greeting {
    uint64_t secret;
    int32_t rank, rank_count, port;
    char host[HOST_BYTES], address[HOST_BYTES];
};

static std::mutex listeners_mutex;
static std::map<uint64_t, int> &listeners = *new std::map<uint64_t, int>(); /* by their secret */

int nccl_ring_invite(ncclUniqueId *id)
{
    std::random_device random;
    char addresses[1][HOST_BYTES];
    Meeting meeting = {};
    meeting.secret = (uint64_t)random() << 32 | random();
    int port = 0, listener = net_listen(&port, BACKLOG, NULL);
    if (listener < 0) {
        return -1;
    }
    meeting.port = port;
    net_host_name(meeting.host);
    if (net_own_addresses(addresses, 1) > 0) {
        memcpy(meeting.address, addresses[0], sizeof meeting.address - 1); /* numbers are shorter */
    }
    std::lock_guard<std::mutex> lock(listeners_mutex);
    listeners[meeting.secret] = listener;
    *id = ncclUniqueId();
    memcpy(id, &meeting, sizeof meeting);
    return 0;
}

static int take_listener(uint64_t secret)
{
    std::lock_guard<std::mutex> lock(listeners_mutex);
    auto found = listeners.find(secret);
    if (found == listeners.end()) {
        return -1;
    }
    int listener = found->second;
    listeners.erase(found);
    return listener;
}

static int connect_to(const char *host, const char *address, int port, double deadline_ms)
{
    char here[HOST_BYTES];
    net_host_name(here);
    return net_connect(strcmp(host, here) == 0 ? "127.0.0.1" : address, port, deadline_ms, NULL);
}

/* The connection on which somebody of this job greets; -1 at the deadline. */
static int accept_greeting(Greeting *greeting, int listener, uint64_t secret, double deadline_ms)
{
    for (;;) {
        int descriptor = net_accept(listener, deadline_ms);
        if (descriptor < 0 ||
            (net_receive(descriptor, greeting, sizeof *greeting, clock_ms() + GREETING_MS * setting("TEST_TIME_SCALE", 1)) == 0 &&
             greeting->secret == secret)) {
            return descriptor;
        }
        net_close(descriptor);
    }
}

/* Rank 0: hear from all ranks, tell each who follows it. own becomes what follows rank 0. */
static int gather(Greeting *own, int listener, const Meeting *meeting, double deadline_ms)
{
    int rank_count = own->rank_count, status = 0;
    std::vector<Greeting> all(rank_count);
    std::vector<int> sockets(rank_count, -1);
    all[0] = *own;
    memcpy(all[0].address, meeting->address, sizeof meeting->address);
    for (int i = 1; i < rank_count && status == 0; i++) {
        Greeting greeting;
        int descriptor = accept_greeting(&greeting, listener, meeting->secret, deadline_ms);
        if (descriptor < 0) {
            status = -1;
            break;
        }
        if (greeting.rank_count != rank_count || greeting.rank < 1 || greeting.rank >= rank_count ||
            sockets[greeting.rank] >= 0) {
            check_failed(NULL, "ncclCommInitRank: rank %d of %d came, twice or not one of rank 0's %d",
                         greeting.rank, greeting.rank_count, rank_count);
        }
        net_peer_address(greeting.address, descriptor);
        if (!*greeting.address) { /* on rank 0's machine */
            memcpy(greeting.address, all[0].address, sizeof greeting.address);
        }
        all[greeting.rank] = greeting;
        sockets[greeting.rank] = descriptor;
    }
    for (int rank = 1; rank < rank_count; rank++) {
        if (status == 0) {
            status = net_send(sockets[rank], &all[(rank + 1) % rank_count], sizeof all[0], deadline_ms);
        }
        net_close(sockets[rank]);
    }
    *own = all[1 % rank_count];
    return status;
}

/* The others' part. */
static int greet(Greeting *own, const Meeting *meeting, double deadline_ms)
{
    int descriptor = connect_to(meeting->host, meeting->address, meeting->port, deadline_ms);
    int status = descriptor < 0 ? -1 : net_send(descriptor, own, sizeof *own, deadline_ms);
    status = status ? status : net_receive(descriptor, own, sizeof *own, deadline_ms);
    net_close(descriptor);
    return status;
}

static int connect(NcclRing *ring, const Meeting *meeting, int meeting_listener)
{
    double deadline_ms = clock_ms() + JOIN_MS * setting("TEST_TIME_SCALE", 1);
    Greeting self = {}, next, previous;
    int port = 0, listener = net_listen(&port, BACKLOG, NULL);
    self.secret = meeting->secret;
    self.rank = ring->ring.rank;
    self.rank_count = ring->ring.rank_count;
    self.port = port;
    net_host_name(self.host);
    next = self;
    int status = listener < 0      ? -1
                 : ring->ring.rank ? greet(&next, meeting, deadline_ms)
                                   : gather(&next, meeting_listener, meeting, deadline_ms);
    if (status == 0) {
        ring->next = connect_to(next.host, next.address, next.port, deadline_ms);
        status = ring->next < 0 ? -1 : net_send(ring->next, &self, sizeof self, deadline_ms);
    }
    if (status == 0) {
        ring->previous = accept_greeting(&previous, listener, meeting->secret, deadline_ms);
        status = ring->previous < 0 ? -1 : 0;
    }
    net_close(listener);
    return status;
}

static int exchange(void *context, const void *send, size_t send_bytes, void *receive, size_t receive_bytes)
{
    NcclRing *ring = (NcclRing *)context;
    return net_exchange(ring->next, send, send_bytes, ring->previous, receive, receive_bytes);
}

NcclRing *nccl_ring_create(const ncclUniqueId *id, int rank, int rank_count)
{
    Meeting meeting;
    memcpy(&meeting, id, sizeof meeting);
    int listener = rank == 0 ? take_listener(meeting.secret) : -1;
    if (rank == 0 && listener < 0) {
        check_failed(NULL, "ncclCommInitRank: rank 0 must be the process that called ncclGetUniqueId");
    }
    NcclRing *ring = new NcclRing{{}, -1, -1};
    ring_init(&ring->ring, rank, rank_count);
    ring->ring.exchange = exchange;
    ring->ring.context = ring;
    int status = rank_count > 1 ? connect(ring, &meeting, listener) : 0;
    net_close(listener);
    if (status) {
        nccl_ring_free(ring);
        return NULL;
    }
    return ring;
}

void nccl_ring_free(NcclRing *ring)
{
    net_close(ring->next);
    net_close(ring->previous);
    ring_release(&ring->ring);
    delete ring;
}

void nccl_ring_break(NcclRing *ring)
{
    shutdown(ring->next, SHUT_RDWR);
    shutdown(ring->previous, SHUT_RDWR);
}

int nccl_ring_all_reduce(NcclRing *ring, void *values, const NcclHeader *what)
{
    NcclHeader theirs = *what;
    if (ring->ring.rank_count > 1 && exchange(ring, what, sizeof *what, &theirs, sizeof theirs) != 0) {
        return -1;
    }
    if (what->number != theirs.number || what->count != theirs.count || what->type != theirs.type) {
        check_failed(NULL,
                     "ncclAllReduce: number %llu of rank %d is of %llu values of %s, but number %llu of rank "
                     "%d of %llu of %s",
                     (unsigned long long)what->number, what->rank, (unsigned long long)what->count,
                     find_type(what->type)->name, (unsigned long long)theirs.number, theirs.rank,
                     (unsigned long long)theirs.count, find_type(theirs.type)->name);
    }
    AllReduce all = {values, (int64_t)what->count, find_type(what->type)->comm_type, COMM_SUM};
    return ring_all_reduce(&ring->ring, &all);
}
