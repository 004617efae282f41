#define _GNU_SOURCE
#include "llmc/comm/monitor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "llmc/base/clock.h"
#include "llmc/base/memory.h"
#include "llmc/comm/notice.h"
#include "llmc/comm/peer.h"
#include "llmc/comm/progress.h"

enum {
    BEAT_MS_MAX = 500,
    BEATS_PER_TIMEOUT = 10,
    FAREWELL_MS = 1500, /* for last words to arrive: mpirun kills a second after the first rank's end */
    VERDICT_MS = 5000
};

typedef enum Command { COMMAND_NONE, COMMAND_ABORT, COMMAND_FINISH } Command;

static struct {
    Membership me;
    Star star;
    Peer *peers; /* (rank_count); only rank 0 has more than [0], and not that */
    Watch watch; /* what is known of each rank */
    int first_peer, end_peer;
    int wake[2]; /* a byte in it wakes the thread */
    pthread_t thread;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    int is_running;
    WatchLimits limits;
    Command command;
    int exit_code;
    int is_done; /* the command */
    void (*end_hook)(void);
} monitor = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* From the moment at which this process knows that it will end. */
static atomic_int is_ending;

void monitor_hold(void)
{
    while (atomic_load(&is_ending)) {
        pause();
    }
}

void monitor_set_end_hook(void (*hook)(void))
{
    monitor.end_hook = hook;
}

void monitor_end_process(int exit_code)
{
    atomic_store(&is_ending, 1);
    error_tell_end(exit_code, NULL);
    if (monitor.end_hook) {
        monitor.end_hook();
    }
    if (ftrylockfile(stdout) == 0) { /* a thread that waits in printf keeps the lock, and we do not wait */
        fflush_unlocked(stdout);
    }
    _exit(exit_code);
}

/* ---- wires ---- */

static void send_to_all(const Message *message, int except)
{
    for (int r = monitor.first_peer; r < monitor.end_peer; r++) {
        if (r != except) {
            peer_send(&monitor.peers[r], message);
        }
    }
}

/* Wait for bytes from any peer or for a command. */
static void wait_for_any(struct pollfd *all, double wait_ms)
{
    int count = 0;
    all[count++] = (struct pollfd){.fd = monitor.wake[0], .events = POLLIN};
    for (int r = monitor.first_peer; r < monitor.end_peer; r++) {
        const Peer *peer = &monitor.peers[r];
        all[count++] = (struct pollfd){.fd = peer->descriptor,
                                       .events = (short)(POLLIN | (peer->out_bytes ? POLLOUT : 0))};
    }
    poll(all, (nfds_t)count, wait_ms > 0 ? (int)wait_ms + 1 : 0);
    if (all[0].revents) {
        char byte;
        while (read(monitor.wake[0], &byte, 1) < 0 && errno == EINTR) {
        }
    }
}

/* Last words are lost if this process ends while they have not left, or while the other's are still unread.
 * So: send them, say that no more comes, and read until the others have ended too. Ranks that are silent are
 * not waited for. */
static void take_leave(void)
{
    double end_ms = clock_ms() + FAREWELL_MS;
    int open_count = 0;
    for (int r = monitor.first_peer; r < monitor.end_peer; r++) {
        Peer *peer = &monitor.peers[r];
        if (peer->descriptor >= 0 && watch_is_quiet(&monitor.watch, r, clock_ms())) {
            peer_close(peer);
        }
        peer->is_said = 0;
        open_count += peer->descriptor >= 0;
    }
    while (open_count > 0 && clock_ms() < end_ms) {
        for (int r = monitor.first_peer; r < monitor.end_peer; r++) {
            Peer *peer = &monitor.peers[r];
            peer_flush(peer);
            if (peer->descriptor >= 0 && peer->out_bytes == 0 && !peer->is_said) {
                shutdown(peer->descriptor, SHUT_WR);
                peer->is_said = 1;
            }
            if (peer->descriptor >= 0 && peer_receive(peer) < 0) {
                peer_close(peer);
                open_count--;
            }
        }
        net_sleep_ms(1);
    }
}

/* ---- verdicts ---- */

/* Somebody is lost: say so here, tell the others (at rank 0; elsewhere rank 0, which may only have been
 * stopped), and end. */
static void end_with_fault(const char *who)
{
    char state[128];
    atomic_store(&is_ending, 1);
    progress_describe(state, sizeof(state));
    error_print("%s; this rank %s; run again to go on from the newest snapshot", who, state);
    Message message = {.kind = MESSAGE_FAULT};
    snprintf(message.text, sizeof(message.text), "%s", who);
    send_to_all(&message, -1);
    if (monitor.me.rank == 0) {
        take_leave();
    }
    monitor_end_process(EXIT_FAULT);
}

/* Another rank has failed and said why; a machine on which that line may not be seen gets one of its own. */
static void end_with_abort(const Message *message)
{
    atomic_store(&is_ending, 1);
    if (monitor.me.local_rank == 0 && strcmp(message->text, monitor.me.host) != 0) {
        error_print("rank %d (%s) ended the run with exit code %d; its own line says why", message->rank,
                    message->text, message->exit_code);
    }
    if (monitor.me.rank == 0) {
        send_to_all(message, message->rank);
        take_leave();
    }
    monitor_end_process(message->exit_code);
}

/* Whom a rank means that knows only an address: the rank that has it, if it is the only one. */
static void name_unanswered(Beat *beat)
{
    if (beat->unanswered_ms <= 0 || beat->unanswered_rank >= 0 || monitor.me.rank != 0) {
        return;
    }
    int found = -1, count = 0;
    for (int r = monitor.first_peer; r < monitor.end_peer; r++) {
        char address[HOST_BYTES];
        net_peer_address(address, monitor.peers[r].descriptor);
        if (address[0] && strncmp(address, beat->unanswered_address, HOST_BYTES) == 0) {
            found = r;
            count++;
        }
    }
    beat->unanswered_rank = count == 1 ? found : -1;
}

static void handle_message(int rank)
{
    Peer *peer = &monitor.peers[rank];
    if (peer->in.kind == MESSAGE_BEAT) {
        notice_raise(peer->in.notice);
        name_unanswered(&peer->in.beat);
        watch_beat(&monitor.watch, rank, &peer->in.beat, clock_ms());
    } else if (peer->in.kind == MESSAGE_FAULT) {
        end_with_fault(peer->in.text);
    } else if (peer->in.kind == MESSAGE_ABORT) {
        end_with_abort(&peer->in);
    } else {
        peer->has_left = 1;
        watch_leave(&monitor.watch, rank);
    }
}

static void handle_peers(void)
{
    for (int r = monitor.first_peer; r < monitor.end_peer; r++) {
        Peer *peer = &monitor.peers[r];
        int status;
        peer_flush(peer);
        while ((status = peer_receive(peer)) > 0) {
            handle_message(r);
        }
        if (status < 0) {
            peer_close(peer);
            if (!peer->has_left) {
                char who[WATCH_TEXT_BYTES];
                snprintf(who, sizeof(who), "rank %d (%s) is lost: it ended without a word", r,
                         monitor.star.hosts[r]);
                end_with_fault(who);
            }
        }
    }
}

static void beat(const WatchLimits *limits, double now_ms)
{
    Message message = {.kind = MESSAGE_BEAT, .notice = notice_read()};
    beat_read(&message.beat, now_ms);
    name_unanswered(&message.beat);
    watch_beat(&monitor.watch, monitor.me.rank, &message.beat, now_ms);
    send_to_all(&message, -1);
    char who[WATCH_TEXT_BYTES];
    if (watch_judge(&monitor.watch, who, limits, now_ms)) {
        end_with_fault(who);
    }
}

/* ---- the thread ---- */

/* Rank 0 says goodbye when everybody has; then it is over. */
static int is_farewell_over(int *has_said)
{
    Message goodbye = {.kind = MESSAGE_GOODBYE};
    int left_count = 0;
    for (int r = monitor.first_peer; r < monitor.end_peer; r++) {
        left_count += monitor.peers[r].has_left;
    }
    int all_left = left_count == monitor.end_peer - monitor.first_peer;
    if (!*has_said && (monitor.me.rank != 0 || all_left)) {
        send_to_all(&goodbye, -1);
        *has_said = 1;
    }
    return *has_said && all_left;
}

static Command read_command(WatchLimits *limits, int *exit_code)
{
    pthread_mutex_lock(&monitor.lock);
    Command command = monitor.command;
    *limits = monitor.limits;
    *exit_code = monitor.exit_code;
    pthread_mutex_unlock(&monitor.lock);
    return command;
}

static void obey_abort(int exit_code)
{
    Message message = {.kind = MESSAGE_ABORT, .rank = monitor.me.rank, .exit_code = exit_code};
    snprintf(message.text, sizeof(message.text), "%s", monitor.me.host);
    send_to_all(&message, -1);
    take_leave();
}

static void *watch_ranks(void *unused)
{
    (void)unused;
    struct pollfd *polls = memory_alloc((size_t)monitor.me.rank_count + 1, sizeof(*polls), "monitor");
    double beat_ms = clock_ms(), last_ms = beat_ms;
    int has_said = 0, told_notice = 0;
    for (;;) {
        WatchLimits limits;
        int exit_code;
        Command command = read_command(&limits, &exit_code);
        if (command == COMMAND_ABORT) {
            obey_abort(exit_code);
            pthread_detach(pthread_self()); /* nobody joins it: the process ends */
            break;
        }
        handle_peers();
        if (command == COMMAND_FINISH && is_farewell_over(&has_said)) {
            take_leave();
            break;
        }
        double interval_ms = watch_silence_ms(&limits) / BEATS_PER_TIMEOUT;
        interval_ms = interval_ms < BEAT_MS_MAX ? interval_ms : BEAT_MS_MAX;
        double now_ms = clock_ms();
        if (now_ms - last_ms > 3 * interval_ms) { /* this process was stopped; so, maybe, were all */
            watch_excuse(&monitor.watch, now_ms - last_ms);
            progress_excuse(now_ms - last_ms);
        }
        last_ms = now_ms;
        if (now_ms >= beat_ms || told_notice != notice_read()) {
            told_notice = notice_read();
            watch_set_interval(&monitor.watch, interval_ms);
            beat(&limits, now_ms);
            beat_ms = now_ms + interval_ms;
        }
        wait_for_any(polls, beat_ms - clock_ms());
    }
    memory_free(polls);
    pthread_mutex_lock(&monitor.lock);
    monitor.is_done = 1;
    pthread_cond_broadcast(&monitor.changed);
    pthread_mutex_unlock(&monitor.lock);
    return NULL;
}

void monitor_start(const Membership *me, Star *star, const WatchLimits *limits)
{
    int N = me->rank_count;
    monitor.me = *me;
    monitor.star = *star;
    memset(star, 0, sizeof(*star));
    monitor.first_peer = me->rank == 0 ? 1 : 0;
    monitor.end_peer = me->rank == 0 ? N : 1;
    monitor.peers = memory_alloc_zeroed((size_t)N, sizeof(*monitor.peers), "monitor");
    for (int r = 0; r < N; r++) {
        monitor.peers[r].descriptor = monitor.star.sockets[r];
        monitor.star.sockets[r] = -1;
    }
    watch_init(&monitor.watch, me->rank, N, monitor.star.hosts, clock_ms());
    monitor.limits = *limits;
    clock_condition_init(&monitor.changed);
    CHECK(pipe2(monitor.wake, O_CLOEXEC) == 0, "monitor: cannot make a pipe: %s", strerror(errno));

    sigset_t all, before; /* signals are for the main thread */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(&monitor.thread, NULL, watch_ranks, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    CHECK(status == 0, "monitor: cannot start a thread: %s", strerror(status));
    pthread_mutex_lock(&monitor.lock);
    monitor.is_running = 1;
    pthread_mutex_unlock(&monitor.lock);
}

void monitor_set_limits(const WatchLimits *limits)
{
    pthread_mutex_lock(&monitor.lock);
    monitor.limits = *limits;
    pthread_mutex_unlock(&monitor.lock);
}

const char *monitor_host(int rank)
{
    return monitor.star.hosts ? monitor.star.hosts[rank] : "";
}

static void wake_thread(void)
{
    while (write(monitor.wake[1], "", 1) < 0 && errno == EINTR) {
    }
}

void monitor_post_notice(int notice)
{
    notice_raise(notice);
    pthread_mutex_lock(&monitor.lock);
    if (monitor.is_running) {
        wake_thread();
    }
    pthread_mutex_unlock(&monitor.lock);
}

/* The thread takes the first command that it is given. */
static void give_command(Command command, int exit_code)
{
    pthread_mutex_lock(&monitor.lock);
    monitor.command = monitor.command == COMMAND_ABORT ? COMMAND_ABORT : command;
    monitor.exit_code = exit_code;
    pthread_mutex_unlock(&monitor.lock);
    wake_thread();
}

/* 0, or -1 when the command is not done by then. */
static int wait_until_done(double wait_ms)
{
    double end_ms = clock_ms() + wait_ms;
    pthread_mutex_lock(&monitor.lock);
    while (!monitor.is_done && clock_wait(&monitor.changed, &monitor.lock, end_ms) == 0) {
    }
    int is_done = monitor.is_done;
    pthread_mutex_unlock(&monitor.lock);
    return is_done ? 0 : -1;
}

/* Whether there is a thread that can be waited for. */
static int is_waitable(void)
{
    pthread_mutex_lock(&monitor.lock);
    int is_running = monitor.is_running;
    pthread_mutex_unlock(&monitor.lock);
    return is_running && !pthread_equal(pthread_self(), monitor.thread);
}

int monitor_abort(int exit_code)
{
    atomic_store(&is_ending, 1);
    if (!is_waitable()) {
        return -1;
    }
    give_command(COMMAND_ABORT, exit_code);
    return wait_until_done(2 * FAREWELL_MS);
}

void monitor_await_verdict(void)
{
    if (is_waitable()) {
        wait_until_done(VERDICT_MS);
    }
}

void monitor_finish(void)
{
    if (!is_waitable()) {
        return;
    }
    give_command(COMMAND_FINISH, 0);
    pthread_join(monitor.thread, NULL);
    pthread_mutex_lock(&monitor.lock);
    monitor.is_running = 0;
    monitor.is_done = 0;
    monitor.command = COMMAND_NONE;
    pthread_mutex_unlock(&monitor.lock);
    for (int r = 0; r < monitor.me.rank_count; r++) {
        peer_close(&monitor.peers[r]);
    }
    close(monitor.wake[0]);
    close(monitor.wake[1]);
    pthread_cond_destroy(&monitor.changed);
    watch_release(&monitor.watch);
    star_release(&monitor.star);
    memory_free(monitor.peers);
}
