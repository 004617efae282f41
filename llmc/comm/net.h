/* TCP sockets with deadlines. A deadline is a time of clock_ms(); sockets are closed on exec and send small
 * messages at once. */
#ifndef LLMC_COMM_NET_H
#define LLMC_COMM_NET_H

#include <stddef.h>

#include "llmc/base/error.h"

/* A machine's name or numeric address; what a user may give for one. */
enum { HOST_BYTES = 64, ADDRESS_BYTES = 256 };

/* What "any port" means from now on: first .. last; 0: any that the system gives. */
void net_set_port_range(int first, int last);
/* Returns the last. */
int net_port_range(int *first);

/* Listens on all interfaces; *port 0 takes any free one and returns it. The descriptor, or -1 with *error. */
int net_listen(int *port, int backlog, Error *error);

/* Listens where a name or numeric address leads to on this machine, and nowhere else: 127.0.0.1 is not
 * reached from other machines. On all interfaces where the address is not this machine's own (it is
 * forwarded), or is a machine's name that stands for a loopback address here (as Debian's /etc/hosts has
 * it) and for another one elsewhere. Returns how many sockets listen, at most LISTENERS_MAX, all at *port;
 * -1 with *error. */
enum { LISTENERS_MAX = 4 };
int net_listen_at(int listeners[LISTENERS_MAX], const char *address, int *port, int backlog, Error *error);

/* Whether a name or address stands for this machine on all machines: 127.0.0.1, ::1, localhost. */
int net_is_loopback(const char *address);

/* Listens at the address by which a connection left this machine, at any free port, which it returns. */
int net_listen_beside(int connection, int *port, int backlog, Error *error);

/* What every connection gets: small messages leave at once. */
void net_set_options(int descriptor);

/* Waits for a connection. -1 at the deadline. */
int net_accept(int listener, double deadline_ms);

/* One attempt on each address of that name. The descriptor, or -1 with *error, which may pass if this process
 * gets no socket; that nobody answers is told as one that does not. error may be NULL. */
int net_connect(const char *address, int port, double deadline_ms, Error *error);

/* Whether there is something to read, or nothing will ever be: the other end has closed it. Never waits. */
int net_is_readable(int descriptor);

/* All bytes: 0; -1 at the deadline or when the connection broke. */
int net_send(int descriptor, const void *data, size_t bytes, double deadline_ms);
int net_receive(int descriptor, void *data, size_t bytes, double deadline_ms);

/* Both ways at once; either descriptor may be -1 if its bytes are 0. Waits for as long as it takes. 0, or
 * which connection broke. */
enum { NET_OUT_BROKE = -1, NET_IN_BROKE = -2 };
int net_exchange(int out, const void *send, size_t send_bytes, int in, void *receive, size_t receive_bytes);

/* The other end's address in numbers; "" if it is on this machine. */
void net_peer_address(char address[HOST_BYTES], int descriptor);

/* Addresses by which other machines may reach this one. Returns how many, at most count_max. */
int net_own_addresses(char addresses[][HOST_BYTES], int count_max);

/* Bytes that nobody can guess. */
void net_random(void *data, size_t bytes);

void net_host_name(char host[HOST_BYTES]);

/* Accepts -1. */
void net_close(int descriptor);

void net_sleep_ms(double ms);

#endif
