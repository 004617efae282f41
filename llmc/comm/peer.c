#include "llmc/comm/peer.h"

#include <errno.h>
#include <sys/socket.h>

#include "llmc/comm/net.h"

void peer_close(Peer *peer)
{
    net_close(peer->descriptor);
    peer->descriptor = -1;
    peer->out_bytes = 0;
    peer->has_last = 0;
}

static void begin_message(Peer *peer, const Message *message)
{
    peer->out = *message;
    peer->out_bytes = sizeof(*message);
}

void peer_flush(Peer *peer)
{
    while (peer->descriptor >= 0 && peer->out_bytes > 0) {
        const char *rest = (const char *)&peer->out + sizeof(peer->out) - peer->out_bytes;
        ssize_t sent = send(peer->descriptor, rest, peer->out_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent <= 0) {
            return; /* if the connection broke, receiving tells */
        }
        peer->out_bytes -= (size_t)sent;
        if (peer->out_bytes == 0 && peer->has_last) {
            peer->has_last = 0;
            begin_message(peer, &peer->last);
        }
    }
}

void peer_send(Peer *peer, const Message *message)
{
    peer_flush(peer);
    if (peer->descriptor >= 0 && peer->out_bytes == 0) {
        begin_message(peer, message);
        peer_flush(peer);
    } else if (peer->descriptor >= 0 && message->kind != MESSAGE_BEAT) {
        peer->last = *message;
        peer->has_last = 1;
    }
}

int peer_receive(Peer *peer)
{
    while (peer->descriptor >= 0) {
        if (peer->in_bytes == sizeof(peer->in)) {
            peer->in_bytes = 0;
        }
        char *rest = (char *)&peer->in + peer->in_bytes;
        ssize_t came = recv(peer->descriptor, rest, sizeof(peer->in) - peer->in_bytes, MSG_DONTWAIT);
        if (came < 0 && errno == EINTR) {
            continue;
        }
        if (came < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return 0;
        }
        if (came <= 0) {
            return -1;
        }
        peer->in_bytes += (size_t)came;
        if (peer->in_bytes == sizeof(peer->in)) {
            peer->in.text[WATCH_TEXT_BYTES - 1] = 0;
            return 1;
        }
    }
    return 0;
}
