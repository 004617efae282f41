/* Errors: how a failure is described, carried upwards, and turned into the end of the program.
 *
 * A function that reads foreign bytes (files, options) never exits: it fills an Error, returns -1, and leaves
 * its outputs as they were. Whoever can decide calls error_exit(). Broken internal assumptions and failed
 * system calls that nobody can handle go through CHECK(), which ends the program (and, through the hook, all
 * its ranks) at once.
 */
#ifndef LLMC_BASE_ERROR_H
#define LLMC_BASE_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

/* Exit codes, a contract with supervisors. */
enum {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,     /* a rerun would fail again: bad input, bad option */
    EXIT_RUN_AGAIN = 75, /* snapshotted on a signal: run again to go on */
    EXIT_FAULT = 76      /* a rerun may pass: peer lost, time-out, device fault */
};

/* One line that names the thing, what was expected, what was found, and the way out. */
typedef struct Error {
    char text[1024];
    int may_pass; /* a rerun may not meet it: the disk or the system failed, nothing that the user gave */
} Error;

#define PRINTF_LIKE(format_index, first_argument)                                                            \
    __attribute__((format(printf, format_index, first_argument)))

/* Fill *error and return -1, so that a parser can write `return error_set(error, ...)`. error may be NULL. */
int error_set(Error *error, const char *format, ...) PRINTF_LIKE(2, 3);

/* The same, with ": " and the system's reason (an errno) at the end. Whether it may pass is told by that. */
int error_set_system(Error *error, int reason, const char *format, ...) PRINTF_LIKE(3, 4);

/* How a program ends that cannot go on: EXIT_FAULT for what may pass, else EXIT_FAILED. */
int error_exit_code(const Error *error);

/* Put "context: " before the text and return -1. */
int error_prefix(Error *error, const char *format, ...) PRINTF_LIKE(2, 3);

/* The name that starts a user's error line, set once by main ("train_gpt2"). */
void error_set_program(const char *name);

/* What lines on stderr then begin with, `program: [rank r host] `. Set once by comm when there is more than
 * one rank. */
void error_set_rank(int rank, const char *host);

/* How to go on after a fault of a device: what its line ends with. Set by the run whenever there is a newer
 * snapshot to go on from; may be called while another thread reads it. */
enum { ERROR_WAY_OUT_BYTES = 256 };
void error_set_way_out(const char *format, ...) PRINTF_LIKE(1, 2);
void error_way_out(char text[ERROR_WAY_OUT_BYTES]);

/* Called by error_exit and CHECK before the process ends; comm sets it to abort the other ranks. */
void error_set_abort_hook(void (*hook)(int exit_code));

/* Called before a line is printed on stderr, and before the program ends, from whichever thread: the run
 * removes what it keeps at the bottom of the terminal. */
void error_set_line_hook(void (*hook)(void));

/* Called once, when this process knows with which exit code it ends: by error_exit and CHECK before the abort
 * hook, and by whoever ends the process in another way, through error_tell_end. `text` says why; NULL there
 * means the line that error_print printed last. */
void error_set_end_hook(void (*hook)(int exit_code, const char *text));
void error_tell_end(int exit_code, const char *text);

/* Print `program: text` (of several ranks: `program: [rank r host] text`) as one line on stderr. */
void error_print(const char *format, ...) PRINTF_LIKE(1, 2);

/* The same, and end the program, from any thread: stdout is flushed, the hook called, and nothing that atexit
 * knows. When several threads fail, the first ends the program and the others are not heard. So it is with
 * CHECK. */
void error_exit(int exit_code, const char *format, ...) PRINTF_LIKE(2, 3) __attribute__((noreturn));

/* The same without a line, where somebody else has said why. */
void error_exit_silently(int exit_code) __attribute__((noreturn));

void check_failed(const char *file, int line, const char *format, ...) PRINTF_LIKE(3, 4)
    __attribute__((noreturn));

/* For what must hold unless the program or the system is broken. Say what happened and, where one exists, the
 * way out. */
#define CHECK(condition, ...)                                                                                \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            check_failed(__FILE__, __LINE__, __VA_ARGS__);                                                   \
        }                                                                                                    \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
