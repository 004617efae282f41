#define _GNU_SOURCE
#include "llmc/comm/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "llmc/base/clock.h"
#include "llmc/base/format.h"

static int is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    }
    const struct in6_addr *six = &((const struct sockaddr_in6 *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
}

/* The system tunes the sizes of socket buffers by itself, up to more than a program may ask for: so they are
 * left alone. */
void net_set_options(int descriptor)
{
    int yes = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
}

/* 1 when ready, 0 at the deadline. */
static int wait_for(int descriptor, short events, double deadline_ms)
{
    for (;;) {
        double left_ms = deadline_ms - clock_ms();
        if (left_ms <= 0) {
            return 0;
        }
        struct pollfd one = {.fd = descriptor, .events = events};
        int ready = poll(&one, 1, left_ms < 1e6 ? (int)left_ms + 1 : 1000000);
        if (ready > 0) {
            return 1;
        }
        if (ready < 0 && errno != EINTR) {
            return 0;
        }
    }
}

static struct {
    int first, last; /* 0: any port that the system gives */
} port_range;

void net_set_port_range(int first, int last)
{
    port_range.first = first;
    port_range.last = last;
}

int net_port_range(int *first)
{
    *first = port_range.first;
    return port_range.last;
}

static int listen_once(const struct sockaddr *address, socklen_t address_bytes, int backlog)
{
    int descriptor = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) {
        return -1;
    }
    int yes = 1, no = 0;
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (address->sa_family == AF_INET6) {
        const struct in6_addr *six = &((const struct sockaddr_in6 *)address)->sin6_addr;
        setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, IN6_IS_ADDR_UNSPECIFIED(six) ? &no : &yes,
                   sizeof(no));
    }
    if (bind(descriptor, address, address_bytes) != 0 || listen(descriptor, backlog) != 0) {
        int reason = errno;
        close(descriptor);
        errno = reason;
        return -1;
    }
    return descriptor;
}

static void set_port(struct sockaddr *address, int port)
{
    if (address->sa_family == AF_INET6) {
        ((struct sockaddr_in6 *)address)->sin6_port = htons((uint16_t)port);
    } else {
        ((struct sockaddr_in *)address)->sin_port = htons((uint16_t)port);
    }
}

static int port_in(const struct sockaddr *address)
{
    return ntohs(address->sa_family == AF_INET6 ? ((const struct sockaddr_in6 *)address)->sin6_port
                                                : ((const struct sockaddr_in *)address)->sin_port);
}

/* At the address's port; where that is 0, at any of the range. Which one is tried first differs between
 * processes, so that ranks of one machine seldom meet. The descriptor, or -1 with errno. */
static int try_listen(const struct sockaddr *address, socklen_t address_bytes, int backlog)
{
    if (port_range.first == 0 || port_in(address) != 0) {
        return listen_once(address, address_bytes, backlog);
    }
    struct sockaddr_storage one = {0};
    memcpy(&one, address, address_bytes);
    int count = port_range.last - port_range.first + 1, descriptor = -1;
    for (int i = 0; i < count && descriptor < 0; i++) {
        set_port((struct sockaddr *)&one,
                 port_range.first + (int)(((unsigned)getpid() + (unsigned)i) % (unsigned)count));
        descriptor = listen_once((struct sockaddr *)&one, address_bytes, backlog);
        if (descriptor < 0 && errno != EADDRINUSE) {
            return -1;
        }
    }
    return descriptor;
}

static int port_of(int descriptor)
{
    struct sockaddr_storage bound = {0};
    socklen_t bytes = sizeof(bound);
    getsockname(descriptor, (struct sockaddr *)&bound, &bytes);
    return port_in((struct sockaddr *)&bound);
}

static int error_listen(int port, Error *error)
{
    if (port == 0 && port_range.first > 0) {
        return error_set(
            error,
            "port_range=%d-%d: cannot listen on any of these ports: %s; choose a range with more "
            "free ones (two for each rank of a machine are enough)",
            port_range.first, port_range.last, strerror(errno));
    }
    return error_set(error, "cannot listen on port %d: %s", port, strerror(errno));
}

int net_listen(int *port, int backlog, Error *error)
{
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)*port)};
    struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port)};
    int descriptor = try_listen((struct sockaddr *)&any6, sizeof(any6), backlog);
    if (descriptor < 0 && errno != EADDRINUSE) {
        descriptor = try_listen((struct sockaddr *)&any4, sizeof(any4), backlog);
    }
    if (descriptor < 0) {
        return error_listen(*port, error);
    }
    *port = port_of(descriptor);
    return descriptor;
}

int net_is_loopback(const char *address)
{
    struct sockaddr_in6 room = {.sin6_family = AF_INET6}; /* for either kind */
    struct sockaddr_in *four = (struct sockaddr_in *)&room;
    if (inet_pton(AF_INET6, address, &room.sin6_addr) != 1) {
        room.sin6_family = AF_INET;
        if (inet_pton(AF_INET, address, &four->sin_addr) != 1) {
            return strcasecmp(address, "localhost") == 0;
        }
    }
    return is_loopback((struct sockaddr *)&room);
}

static int has_loopback(const struct addrinfo *targets)
{
    for (; targets; targets = targets->ai_next) {
        if (is_loopback(targets->ai_addr)) {
            return 1;
        }
    }
    return 0;
}

int net_listen_at(int listeners[LISTENERS_MAX], const char *address, int *port, int backlog, Error *error)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *targets = NULL;
    int status = getaddrinfo(address, NULL, &hints, &targets);
    if (status != 0) {
        return error_set(error, "%s: cannot find its address: %s", address, gai_strerror(status));
    }
    int count = 0, reason = 0;
    const struct addrinfo *target = net_is_loopback(address) || !has_loopback(targets) ? targets : NULL;
    for (; target && count < LISTENERS_MAX && reason != EADDRINUSE; target = target->ai_next) {
        set_port(target->ai_addr, *port);
        int descriptor = try_listen(target->ai_addr, target->ai_addrlen, backlog);
        reason = descriptor < 0 ? errno : 0;
        if (descriptor >= 0) {
            listeners[count++] = descriptor;
            *port = port_of(descriptor);
        }
    }
    freeaddrinfo(targets);
    if (reason == EADDRINUSE) {
        while (count > 0) {
            close(listeners[--count]);
        }
        errno = reason;
        return error_listen(*port, error);
    }
    if (count == 0) {
        listeners[0] = net_listen(port, backlog, error);
        count = listeners[0] < 0 ? -1 : 1;
    }
    return count;
}

int net_listen_beside(int connection, int *port, int backlog, Error *error)
{
    struct sockaddr_storage here = {0};
    socklen_t bytes = sizeof(here);
    if (getsockname(connection, (struct sockaddr *)&here, &bytes) != 0) {
        return error_set(error, "cannot find the own address of a connection: %s", strerror(errno));
    }
    set_port((struct sockaddr *)&here, 0);
    int descriptor = try_listen((struct sockaddr *)&here, bytes, backlog);
    if (descriptor < 0) {
        return error_listen(0, error);
    }
    *port = port_of(descriptor);
    return descriptor;
}

int net_accept(int listener, double deadline_ms)
{
    while (wait_for(listener, POLLIN, deadline_ms)) {
        int descriptor = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (descriptor >= 0) {
            net_set_options(descriptor);
            return descriptor;
        }
        if (errno == EMFILE || errno == ENFILE) {
            net_sleep_ms(50);
        }
    }
    return -1;
}

/* A socket may be given the very port that it asks for, and then talks to itself. */
static int is_own_end(int descriptor)
{
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_bytes = sizeof(here), there_bytes = sizeof(there);
    return getsockname(descriptor, (struct sockaddr *)&here, &here_bytes) == 0 &&
           getpeername(descriptor, (struct sockaddr *)&there, &there_bytes) == 0 &&
           here_bytes == there_bytes && memcmp(&here, &there, here_bytes) == 0;
}

/* 0, or the system's reason. */
static int connect_one(int descriptor, const struct addrinfo *target, double deadline_ms)
{
    int status = connect(descriptor, target->ai_addr, target->ai_addrlen);
    if (status != 0 && errno != EINPROGRESS) {
        return errno;
    }
    if (status != 0 && !wait_for(descriptor, POLLOUT, deadline_ms)) {
        return ETIMEDOUT;
    }
    int reason = 0;
    socklen_t bytes = sizeof(reason);
    getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &reason, &bytes);
    return reason == 0 && is_own_end(descriptor) ? ECONNREFUSED : reason;
}

int net_connect(const char *address, int port, double deadline_ms, Error *error)
{
    char service[16];
    snprintf(service, sizeof(service), "%d", port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *targets = NULL;
    int status = getaddrinfo(address, service, &hints, &targets);
    if (status != 0) {
        return error_set(error, "%s: cannot find its address: %s", address, gai_strerror(status));
    }
    int descriptor = -1, reason = 0, has_socket = 0;
    for (const struct addrinfo *target = targets; target && descriptor < 0; target = target->ai_next) {
        descriptor = socket(target->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        has_socket |= descriptor >= 0;
        reason = descriptor < 0 ? errno : connect_one(descriptor, target, deadline_ms);
        if (reason != 0 && descriptor >= 0) {
            close(descriptor);
            descriptor = -1;
        }
    }
    freeaddrinfo(targets);
    if (descriptor < 0 && !has_socket) {
        error_set(error, "%s port %d: this process gets no socket: %s", address, port, strerror(reason));
        if (error) {
            error->may_pass = 1;
        }
        return -1;
    }
    if (descriptor < 0) {
        return error_set(error, "%s port %d: cannot connect: %s", address, port, strerror(reason));
    }
    net_set_options(descriptor);
    return descriptor;
}

/* What one send or recv returned: > 0 bytes moved, 0 try again later, -1 broken. */
static ssize_t outcome(ssize_t moved)
{
    if (moved > 0) {
        return moved;
    }
    return moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? 0 : -1;
}

int net_is_readable(int descriptor)
{
    struct pollfd one = {.fd = descriptor, .events = POLLIN};
    return poll(&one, 1, 0) > 0 && one.revents != 0;
}

int net_send(int descriptor, const void *data, size_t bytes, double deadline_ms)
{
    const char *next = data;
    while (bytes > 0) {
        ssize_t moved = outcome(send(descriptor, next, bytes, MSG_NOSIGNAL | MSG_DONTWAIT));
        if (moved < 0 || (moved == 0 && !wait_for(descriptor, POLLOUT, deadline_ms))) {
            return -1;
        }
        next += moved;
        bytes -= (size_t)moved;
    }
    return 0;
}

int net_receive(int descriptor, void *data, size_t bytes, double deadline_ms)
{
    char *next = data;
    while (bytes > 0) {
        ssize_t moved = outcome(recv(descriptor, next, bytes, MSG_DONTWAIT));
        if (moved < 0 || (moved == 0 && !wait_for(descriptor, POLLIN, deadline_ms))) {
            return -1;
        }
        next += moved;
        bytes -= (size_t)moved;
    }
    return 0;
}

int net_exchange(int out, const void *send_data, size_t send_bytes, int in, void *receive_data,
                 size_t receive_bytes)
{
    const char *send_next = send_data;
    char *receive_next = receive_data;
    while (send_bytes > 0 || receive_bytes > 0) {
        ssize_t sent = 0, received = 0;
        if (send_bytes > 0) {
            sent = outcome(send(out, send_next, send_bytes, MSG_NOSIGNAL | MSG_DONTWAIT));
        }
        if (receive_bytes > 0) {
            received = outcome(recv(in, receive_next, receive_bytes, MSG_DONTWAIT));
        }
        if (sent < 0 || received < 0) {
            return sent < 0 ? NET_OUT_BROKE : NET_IN_BROKE;
        }
        send_next += sent;
        send_bytes -= (size_t)sent;
        receive_next += received;
        receive_bytes -= (size_t)received;
        if (sent == 0 && received == 0) {
            struct pollfd both[2] = {{.fd = send_bytes > 0 ? out : -1, .events = POLLOUT},
                                     {.fd = receive_bytes > 0 ? in : -1, .events = POLLIN}};
            if (poll(both, 2, -1) < 0 && errno != EINTR) {
                return NET_OUT_BROKE;
            }
        }
    }
    return 0;
}

/* An IPv4 address that came in on an IPv6 socket is written as what it is. */
static int address_text(char text[HOST_BYTES], const struct sockaddr *address)
{
    socklen_t bytes =
        address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    if (getnameinfo(address, bytes, text, HOST_BYTES, NULL, 0, NI_NUMERICHOST) != 0) {
        return -1;
    }
    static const char mapped[] = "::ffff:";
    if (strncmp(text, mapped, sizeof(mapped) - 1) == 0 && strchr(text, '.')) {
        memmove(text, text + sizeof(mapped) - 1, strlen(text) - sizeof(mapped) + 2);
    }
    return 0;
}

void net_peer_address(char address[HOST_BYTES], int descriptor)
{
    struct sockaddr_storage peer;
    socklen_t bytes = sizeof(peer);
    address[0] = 0;
    if (getpeername(descriptor, (struct sockaddr *)&peer, &bytes) == 0 &&
        !is_loopback((struct sockaddr *)&peer) && address_text(address, (struct sockaddr *)&peer) != 0) {
        address[0] = 0;
    }
}

int net_own_addresses(char addresses[][HOST_BYTES], int count_max)
{
    struct ifaddrs *all = NULL;
    int count = 0;
    if (getifaddrs(&all) != 0) {
        return 0;
    }
    for (const struct ifaddrs *one = all; one && count < count_max; one = one->ifa_next) {
        const struct sockaddr *address = one->ifa_addr;
        if (!address || !(one->ifa_flags & IFF_UP) ||
            (address->sa_family != AF_INET && address->sa_family != AF_INET6) || is_loopback(address)) {
            continue;
        }
        int is_link_local = address->sa_family == AF_INET6 &&
                            IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)address)->sin6_addr);
        if (!is_link_local && address_text(addresses[count], address) == 0) {
            count++;
        }
    }
    freeifaddrs(all);
    return count;
}

void net_random(void *data, size_t bytes)
{
    unsigned char *next = data;
    while (bytes > 0) {
        ssize_t got = getrandom(next, bytes < 256 ? bytes : 256, 0);
        CHECK(got >= 0 || errno == EINTR, "no random numbers: %s", strerror(errno));
        next += got > 0 ? got : 0;
        bytes -= got > 0 ? (size_t)got : 0;
    }
}

void net_host_name(char host[HOST_BYTES])
{
    if (gethostname(host, HOST_BYTES) != 0) {
        snprintf(host, HOST_BYTES, "unknown");
    }
    host[HOST_BYTES - 1] = 0;
    format_printable(host);
}

void net_close(int descriptor)
{
    if (descriptor >= 0) {
        close(descriptor);
    }
}

void net_sleep_ms(double ms)
{
    struct timespec time = {.tv_sec = (time_t)(ms / 1e3), .tv_nsec = (long)(ms * 1e6) % 1000000000};
    nanosleep(&time, NULL);
}
