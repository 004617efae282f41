/* How a run ended, for whoever started it. A launcher's own exit code does not say: torchrun turns every code
 * into 1, mpirun may hang for a quarter of an hour when a host has vanished. So the run leaves one line in
 * out_dir/.end, the exit code and why: "76 train_gpt2: [rank 0 node1] rank 3 (node2) is lost ..".
 * scripts/supervise.sh prefers it to the launcher's code. The file is removed when a run begins; while a run
 * lives, rank 0 touches out_dir/.lock (folder_lock.h) every ENDING_BEAT_MS, so that a supervisor on another
 * machine sees that it does.
 *
 * Who writes. The process that holds out_dir's lock, rank 0, replaces what is there. Another rank writes
 * where no file is, for rank 0 may be the one that was lost. A process that has not got as far as a run (bad
 * options, ranks that do not come) writes only where no other run holds the lock: it must not speak for that
 * one.
 * Nobody makes the folder for it, and nobody waits longer than two seconds for a file system that hangs.
 */
#ifndef LLMC_RUN_ENDING_H
#define LLMC_RUN_ENDING_H

#ifdef __cplusplus
extern "C" {
#endif

#define ENDING_FILE ".end"
enum { ENDING_BEAT_MS = 2000 };

/* From here on this process leaves its end in out_dir. Called once, before ranks meet. */
void ending_init(const char *out_dir);

/* This process holds out_dir's lock, the file lock_path: what an earlier run left goes, and the file's time
 * tells from now on that this one lives. */
void ending_own(const char *lock_path);

/* All ranks have begun the run, and rank 0 holds the lock. */
void ending_join(void);

#ifdef __cplusplus
}
#endif
#endif
