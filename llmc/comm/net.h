/* TCP sockets with deadlines. A deadline is a time of clock_ms(); sockets are closed on exec and send small
 * messages at once. */
#ifndef LLMC_COMM_NET_H
#define LLMC_COMM_NET_H

#include <stddef.h>

#include "llmc/base/error.h"

/* A machine's name or numeric address; what a user may give for one. */
enum { HOST_BYTES = 64, ADDRESS_BYTES = 256 };

/* Listens on all interfaces; *port 0 takes any free one and returns it. The descriptor, or -1 with *error. */
int net_listen(int *port, int backlog, Error *error);

/* Waits for a connection. -1 at the deadline. */
int net_accept(int listener, double deadline_ms);

/* One attempt on each address of that name. The descriptor, or -1 with *error. */
int net_connect(const char *address, int port, double deadline_ms, Error *error);

/* All bytes: 0; -1 at the deadline or when the connection broke. */
int net_send(int descriptor, const void *data, size_t bytes, double deadline_ms);
int net_receive(int descriptor, void *data, size_t bytes, double deadline_ms);

/* Both ways at once; either descriptor may be -1 if its bytes are 0. Waits for as long as it takes. 0, or -1
 * when a connection broke. */
int net_exchange(int out, const void *send, size_t send_bytes, int in, void *receive, size_t receive_bytes);

/* The other end's address in numbers; "" if it is on this machine. */
void net_peer_address(char address[HOST_BYTES], int descriptor);

/* Addresses by which other machines may reach this one. Returns how many, at most count_max. */
int net_own_addresses(char addresses[][HOST_BYTES], int count_max);

void net_host_name(char host[HOST_BYTES]);

/* Accepts -1. */
void net_close(int descriptor);

void net_sleep_ms(double ms);

#endif
