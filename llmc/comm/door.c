#define _GNU_SOURCE
#include "llmc/comm/door.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "llmc/base/clock.h"
#include "llmc/base/memory.h"

void door_init(Door *door, const int *listeners, int listener_count, uint64_t magic, size_t message_bytes)
{
    *door = (Door){.listener_count = listener_count};
    for (int i = 0; i < listener_count; i++) {
        door->listeners[i] = listeners[i];
    }
    door->visitors = memory_alloc(DOOR_VISITORS_MAX, sizeof(*door->visitors), "visitors");
    door_expect(door, magic, message_bytes);
}

static void show_out(Door *door, int v)
{
    net_close(door->visitors[v].descriptor);
    door->visitor_count--;
    memmove(&door->visitors[v], &door->visitors[v + 1],
            (size_t)(door->visitor_count - v) * sizeof(*door->visitors));
}

void door_expect(Door *door, uint64_t magic, size_t message_bytes)
{
    CHECK(message_bytes >= sizeof(magic) && message_bytes <= DOOR_MESSAGE_BYTES_MAX,
          "a message of %zu bytes at the door", message_bytes);
    while (door->visitor_count > 0) {
        show_out(door, door->visitor_count - 1);
    }
    door->magic = magic;
    door->message_bytes = message_bytes;
}

void door_release(Door *door)
{
    while (door->visitor_count > 0) {
        show_out(door, door->visitor_count - 1);
    }
    for (int i = 0; i < door->listener_count; i++) {
        net_close(door->listeners[i]);
    }
    memory_free(door->visitors);
    *door = (Door){0};
}

/* The first visitor has had time to say something. A rank that has just come has not, and does not come
 * again: it is not shown out for descriptors that may be missing for a moment only. */
static int is_first_silent(const Door *door)
{
    return door->visitor_count > 0 &&
           clock_ms() > door->visitors[0].end_ms - DOOR_SILENCE_MS + DOOR_PATIENCE_MS;
}

/* Everybody who waits outside. Where there is no room, the one who has been silent for longest goes. */
static void let_in(Door *door, int listener)
{
    for (int i = 0; i < DOOR_VISITORS_MAX; i++) {
        int descriptor = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        int is_full = descriptor < 0 && (errno == EMFILE || errno == ENFILE);
        if (door->visitor_count == DOOR_VISITORS_MAX || (is_full && is_first_silent(door))) {
            show_out(door, 0);
        } else if (is_full) {
            net_sleep_ms(20);
            return;
        }
        if (descriptor >= 0) {
            net_set_options(descriptor);
            Visitor *visitor = &door->visitors[door->visitor_count++];
            *visitor = (Visitor){.descriptor = descriptor, .end_ms = clock_ms() + DOOR_SILENCE_MS};
        } else if (!is_full) {
            return; /* nobody is left, or this one has gone */
        }
    }
}

/* 1 with the whole message, 0 while some is missing, -1 for one who is no rank. */
static int listen_to(const Door *door, Visitor *visitor)
{
    for (;;) {
        ssize_t came = recv(visitor->descriptor, visitor->message + visitor->bytes,
                            door->message_bytes - visitor->bytes, MSG_DONTWAIT);
        if (came < 0 && errno == EINTR) {
            continue;
        }
        if (came < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return clock_ms() < visitor->end_ms ? 0 : -1;
        }
        if (came <= 0) {
            return -1;
        }
        visitor->bytes += (size_t)came;
        size_t known = visitor->bytes < sizeof(door->magic) ? visitor->bytes : sizeof(door->magic);
        if (memcmp(visitor->message, &door->magic, known) != 0) {
            return -1;
        }
        if (visitor->bytes == door->message_bytes) {
            return 1;
        }
    }
}

static int hear_all(Door *door, void *message)
{
    for (int v = 0; v < door->visitor_count;) {
        int status = listen_to(door, &door->visitors[v]);
        if (status > 0) {
            int descriptor = door->visitors[v].descriptor;
            memcpy(message, door->visitors[v].message, door->message_bytes);
            door->visitors[v].descriptor = -1;
            show_out(door, v);
            return descriptor;
        }
        if (status < 0) {
            show_out(door, v);
        } else {
            v++;
        }
    }
    return -1;
}

int door_next(Door *door, void *message, double end_ms)
{
    struct pollfd all[LISTENERS_MAX + DOOR_VISITORS_MAX];
    for (;;) {
        int descriptor = hear_all(door, message);
        double now_ms = clock_ms();
        if (descriptor >= 0 || now_ms >= end_ms) {
            return descriptor;
        }
        double wake_ms = end_ms;
        int count = 0;
        for (int i = 0; i < door->listener_count; i++) {
            all[count++] = (struct pollfd){.fd = door->listeners[i], .events = POLLIN};
        }
        for (int v = 0; v < door->visitor_count; v++) {
            all[count++] = (struct pollfd){.fd = door->visitors[v].descriptor, .events = POLLIN};
            wake_ms = door->visitors[v].end_ms < wake_ms ? door->visitors[v].end_ms : wake_ms;
        }
        double left_ms = wake_ms - now_ms;
        poll(all, (nfds_t)count, left_ms < 0 ? 0 : left_ms < 1e6 ? (int)left_ms + 1 : 1000000);
        for (int i = 0; i < door->listener_count; i++) {
            if (all[i].revents) {
                let_in(door, door->listeners[i]);
            }
        }
    }
}
