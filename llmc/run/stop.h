/* Stopping in good order: SIGUSR1, SIGTERM and SIGINT ask the run to finish what it is doing, write a
 * snapshot and end, on all ranks; a second signal to the same process ends it at once. A rank also takes
 * mpirun's SIGCONT, by which mpirun begins to end its ranks, as if it were SIGTERM.
 */
#ifndef LLMC_RUN_STOP_H
#define LLMC_RUN_STOP_H

#ifdef __cplusplus
extern "C" {
#endif

/* Keeps these signals until stop_install, which takes those that came meanwhile: blocked signals stay
 * pending, also when the program executes itself once more. Called on the first line of a main that does
 * something before program_run. */
void stop_hold(void);

/* Called once, before any other thread is started: from then on a thread of its own takes these signals,
 * every other thread blocks them, and none has a handler. So no system call of the program or of a library
 * ends early with EINTR; and what answers a signal may print, lock and call other modules, which a handler
 * may not. */
void stop_install(void);

/* The signal that asked this rank or another one for the end (the largest, if there were several), or 0.
 * Ranks learn of it one after the other. Cheap: ask after every slot. */
int stop_requested(void);

/* "SIGTERM" and the like. */
const char *stop_signal_name(int signal_number);

#ifdef __cplusplus
}
#endif
#endif
