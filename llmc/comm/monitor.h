/* The monitor: a thread on every rank that sees when another rank is lost, and ends this one instead of
 * letting it wait for ever.
 *
 * Its wires are the star: each rank beats to rank 0, and rank 0 to each, a few times within the shorter
 * limit.
 * A beat tells which collectives the rank has begun, how much work it has done, and whether the network
 * answers it (beat.h). What makes a rank lost:
 *   its connection closes without a goodbye (it was killed): seen at once;
 *   it is silent for longer than heartbeat_timeout (it is stopped, or its machine is gone);
 *   others wait in a collective for longer than comm_timeout, it has not come, and for as long it has done no
 *   work (its main thread hangs). A rank that works is waited for.
 * Between two ranks the network is cut if what one sends is not answered for longer than heartbeat_timeout.
 * Rank 0 finds out, tells the others who it is, and every rank ends with EXIT_FAULT and one line, from the
 * monitor thread, whatever its other threads are doing. If rank 0 is the one, each sees that by itself.
 *
 * A beat also carries the notice (notice.h); posting one brings the next beat forward.
 *
 * A rank that fails with an error of its own says so first: then all end with its exit code and no line but
 * its own (and one from each other machine). A rank that is done says goodbye.
 */
#ifndef LLMC_COMM_MONITOR_H
#define LLMC_COMM_MONITOR_H

#include "llmc/comm/transport.h"
#include "llmc/comm/watch.h"

/* Starts the thread, which takes the star's connections. */
void monitor_start(const Membership *me, Star *star, const WatchLimits *limits);

void monitor_set_limits(const WatchLimits *limits);

/* Raises the notice, soon on every rank. On any thread, also before monitor_start. */
void monitor_post_notice(int notice);

/* At rank 0, of any rank, once there are several. Until monitor_finish. */
const char *monitor_host(int rank);

/* Tell the others that this rank fails. Returns 0 when they know, -1 if that took too long. */
int monitor_abort(int exit_code);

/* When a connection broke: waits until the monitor, which is about to learn why, ends this process. Returns
 * if it has found nothing wrong for a while. */
void monitor_await_verdict(void);

/* Returns, unless this process is about to end because it or another rank has failed; then it never does. For
 * whoever is about to use what ranks have made together by way of a device: once one of them is told to let
 * its device go, collectives may seem to end that have summed nothing. */
void monitor_hold(void);

/* All ranks are done: waits until all have said goodbye, and ends the thread. */
void monitor_finish(void);

/* Called first by whoever ends the process. */
void monitor_set_end_hook(void (*hook)(void));

/* Flushes what can be flushed without waiting, and ends the process without anybody's exit handlers. */
void monitor_end_process(int exit_code) __attribute__((noreturn));

#endif
