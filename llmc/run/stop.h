/* Stopping in good order: SIGUSR1, SIGTERM and SIGINT ask the run to finish what it is doing, write a
 * snapshot and end; a second signal ends the program at once. A rank also takes mpirun's SIGCONT, by which
 * mpirun begins to end its ranks, as if it were SIGTERM.
 */
#ifndef LLMC_RUN_STOP_H
#define LLMC_RUN_STOP_H

/* Called once, before the run starts. */
void stop_install(void);

/* The signal that asked for the end, or 0. Cheap: ask after every slot. */
int stop_requested(void);

/* "SIGTERM" and the like. */
const char *stop_signal_name(int signal_number);

#endif
