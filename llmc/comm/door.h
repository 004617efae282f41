/* A door: sockets that listen, at which ranks announce themselves by one message of a known size. Anybody may
 * knock. All visitors are heard at once; one whose first bytes are not the message's magic number is shown
 * out with the first of them, and a silent one after some seconds, while the others come in.
 */
#ifndef LLMC_COMM_DOOR_H
#define LLMC_COMM_DOOR_H

#include <stddef.h>
#include <stdint.h>

#include "llmc/comm/net.h"

enum {
    DOOR_MESSAGE_BYTES_MAX = 128,
    DOOR_VISITORS_MAX = 256,
    DOOR_SILENCE_MS = 5000,
    DOOR_PATIENCE_MS = 1000
};

/* Somebody who has not yet said the whole message. */
typedef struct Visitor {
    int descriptor;
    size_t bytes; /* said so far */
    double end_ms;
    unsigned char message[DOOR_MESSAGE_BYTES_MAX];
} Visitor;

/* Owned by the caller: door_init, door_release. */
typedef struct Door {
    int listeners[LISTENERS_MAX];
    int listener_count;
    uint64_t magic;       /* the first 8 bytes of a message */
    size_t message_bytes; /* at most DOOR_MESSAGE_BYTES_MAX */
    Visitor *visitors;    /* (DOOR_VISITORS_MAX), the one who came first first */
    int visitor_count;
} Door;

/* Takes the listeners. */
void door_init(Door *door, const int *listeners, int listener_count, uint64_t magic, size_t message_bytes);
void door_release(Door *door); /* accepts a zeroed one */

/* From now on other messages are expected; who is at the door leaves. */
void door_expect(Door *door, uint64_t magic, size_t message_bytes);

/* Waits for somebody who says a whole message: the descriptor, which is the caller's. -1 at that time. */
int door_next(Door *door, void *message, double end_ms);

#endif
