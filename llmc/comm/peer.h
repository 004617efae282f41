/* One of the monitor's wires: messages of one size to another rank and from it, without ever waiting. */
#ifndef LLMC_COMM_PEER_H
#define LLMC_COMM_PEER_H

#include <stddef.h>
#include <stdint.h>

#include "llmc/comm/beat.h"
#include "llmc/comm/watch.h"

typedef enum MessageKind { MESSAGE_BEAT, MESSAGE_FAULT, MESSAGE_ABORT, MESSAGE_GOODBYE } MessageKind;

typedef struct Message {
    int32_t kind;
    int32_t rank, exit_code; /* of an abort: whose, and its code */
    int32_t notice;          /* of a beat, as is the next */
    Beat beat;
    char text[WATCH_TEXT_BYTES]; /* of a fault: who is lost; of an abort: the rank's host */
} Message;

/* The other end of one wire. Owned by the monitor. */
typedef struct Peer {
    int descriptor; /* -1: closed */
    int has_left;   /* said goodbye */
    int is_said;    /* all that is to be said to it has left */
    Message in, out;
    size_t in_bytes;  /* of the message that is arriving */
    size_t out_bytes; /* still to go of the one that is leaving */
    Message last;     /* what follows it; see has_last */
    int has_last;
} Peer;

void peer_close(Peer *peer); /* accepts a closed one */

/* Send on what is left of messages. A peer that takes nothing is stopped or gone, and watched for that. */
void peer_flush(Peer *peer);

/* While an older message still waits to leave, a beat is dropped; other messages are the last, and follow. */
void peer_send(Peer *peer, const Message *message);

/* 1 with a whole message in peer->in, 0 if none has arrived, -1 when the connection is closed. */
int peer_receive(Peer *peer);

#endif
