/* Stopping in good order: SIGUSR1, SIGTERM, SIGINT and SIGHUP ask the run to finish what it is doing, write a
 * snapshot and end, on all ranks; a second signal to the same process ends it at once, if it comes at least
 * STOP_SAME_EVENT_MS after the first. One that comes sooner is the same event told twice: when a Slurm job is
 * cancelled, Slurm signals every process of the step, and torchrun, which is one of them, signals its workers
 * again some milliseconds later. A rank also takes mpirun's SIGCONT, by which mpirun begins to end its ranks,
 * as if it were SIGTERM.
 *
 * Before the run has begun there is nothing to finish: the first signal ends the program at once, with
 * EXIT_RUN_AGAIN, whatever it waits for.
 *
 * When a terminal goes away, several may send SIGHUP, and SIGTERM after it: the kernel, the shell, whoever
 * ends the session. So after the first SIGHUP others count as the same wish, and so does one SIGTERM. Who
 * has SIGHUP ignored (nohup) is not stopped by it. SIGPIPE is ignored: a console that nobody reads does not
 * end a run.
 */
#ifndef LLMC_RUN_STOP_H
#define LLMC_RUN_STOP_H

#ifdef __cplusplus
extern "C" {
#endif

/* How long after the first signal another one counts as the same event. */
enum { STOP_SAME_EVENT_MS = 5000 };

/* Keeps these signals until stop_install, which takes those that came meanwhile: blocked signals stay
 * pending, also when the program executes itself once more. Called on the first line of a main that does
 * something before program_run. */
void stop_hold(void);

/* Called once, before any other thread is started: from then on a thread of its own takes these signals,
 * every other thread blocks them, and none has a handler. So no system call of the program or of a library
 * ends early with EINTR; and what answers a signal may print, lock and call other modules, which a handler
 * may not. */
void stop_install(void);

/* The run begins: from now on the first signal asks. */
void stop_in_order(void);

/* This rank cannot go on, though its weights are whole: asks all ranks for the end, as a signal does.
 * stop_requested is then STOP_FAILED, which is larger than any signal. */
enum { STOP_FAILED = 128 };
void stop_post_failure(void);

/* The signal that asked this rank or another one for the end (the largest, if there were several), or 0.
 * Ranks learn of it one after the other. Cheap: ask after every slot. */
int stop_requested(void);

/* "SIGTERM" and the like. */
const char *stop_signal_name(int signal_number);

#ifdef __cplusplus
}
#endif
#endif
