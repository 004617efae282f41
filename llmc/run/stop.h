/* Stopping in good order: SIGUSR1, SIGTERM and SIGINT ask the run to finish what it is doing, write a
 * snapshot and end; a second signal ends the program at once. A rank also takes mpirun's SIGCONT, by which
 * mpirun begins to end its ranks, as if it were SIGTERM.
 */
#ifndef LLMC_RUN_STOP_H
#define LLMC_RUN_STOP_H

#ifdef __cplusplus
extern "C" {
#endif

/* Called once, before any other thread is started: from then on no thread but one of its own takes these
 * signals, and none has a handler. A handler may not run on a thread that multiplies matrices: oneDNN's fp32
 * kernels point the stack register into a buffer of the heap, and the kernel's signal frame would overwrite
 * what lies below it (dev/notes/matmul.md). */
void stop_install(void);

/* The signal that asked for the end, or 0. Cheap: ask after every slot. */
int stop_requested(void);

/* "SIGTERM" and the like. */
const char *stop_signal_name(int signal_number);

#ifdef __cplusplus
}
#endif
#endif
