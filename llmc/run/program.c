#include "llmc/run/program.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "llmc/base/help.h"
#include "llmc/base/version.h"
#include "llmc/comm/comm.h"
#include "llmc/run/agree.h"
#include "llmc/run/ending.h"
#include "llmc/run/run.h"
#include "llmc/run/stop.h"
#include "llmc/run/train.h"

/* Whether a signal may have cut an evaluation or a sample short, on any rank. Collective; rank 0 samples
 * alone. */
static int was_cut(const Options *options)
{
    int64_t signal_number =
        options->eval_only || options->sample_only || options->num_samples > 0 ? stop_requested() : 0;
    comm_await_max_int64(&signal_number);
    return signal_number != 0;
}

/* Do what the options ask for. -1 with *error. */
static int carry_out(EndReason *reason, Run *run, Error *error)
{
    *reason = END_DONE;
    error->text[0] = '\0';
    if (run->options.eval_only && run_evaluate(run, EVALUATE_ALL, -1, error) != 0) {
        *reason = END_FAILED;
    }
    if (run->is_training && train(reason, run, error) != 0) {
        return -1;
    }
    int64_t has_failed = *reason == END_DONE && (run_export(run, error) != 0 || run_sample(run, error) != 0);
    run_log_plans_notice(run, run->step); /* also of products that evaluation and samples alone make */
    comm_await_max_int64(&has_failed);    /* rank 0 does these alone */
    *reason = has_failed ? END_FAILED : *reason;
    *reason = *reason == END_DONE && was_cut(&run->options) ? END_SIGNAL : *reason;
    return 0;
}

/* What is nothing but printed: help, version, or the value of one option. Its reader may have enough of it,
 * as `head` does. */
static void print_answer(const Program *program, const Options *options)
{
    Error error;
    signal(SIGPIPE, SIG_DFL);
    if (options->asked_row > 0) {
        options_print_asked(options, stdout);
    } else if (options->is_version) {
        char mpi[COMM_LIBRARY_BYTES];
        version_print(stdout, program->name);
        program->print_build(stdout);
        printf("MPI: %s\n", comm_name_mpi(mpi));
    } else if (options_print_help(stdout, options->help_form, help_columns(stdout), &error) != 0) {
        error_exit(EXIT_FAILED, "%s", error.text);
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        error_exit(EXIT_FAILED, "stdout: cannot write: %s", strerror(errno));
    }
}

/* How ranks meet and wait for each other, which must be known before they do. */
static void set_limits(const Options *options)
{
    int first_port, last_port;
    comm_set_join_timeout((double)options->join_timeout);
    comm_set_timeout((double)options->comm_timeout);
    comm_set_heartbeat_timeout((double)options->heartbeat_timeout);
    if (options_port_range(&first_port, &last_port, options, NULL) == 0) {
        comm_set_port_range(first_port, last_port);
    }
}

int program_run(const Program *program, int argc, char **argv)
{
    Error error = {.text = ""};
    error_set_program(program->name);
    stop_install();
    static Options options; /* not on a stack that may be small; nor is the run */
    static OptionErrors errors;
    int has_options = options_parse(&options, argc, argv, &errors) == 0;
    if (has_options && (options.is_help || options.is_version || options.asked_row)) {
        print_answer(program, &options);
        return EXIT_DONE;
    }
    if (!options.eval_only && !options.sample_only) {
        ending_init(options.out_dir);
    }
    if (has_options) {
        set_limits(&options);
    }
    if (comm_init(&argc, &argv, &error) != 0) {
        error_exit(error_exit_code(&error), "%s", error.text);
    }
    if (!has_options) { /* said when ranks know each other: by one of them, which ends all */
        option_errors_exit(&errors);
    }

    /* First of all: ranks with other options would open other devices, in other conversations. */
    if (agree_on_options(&options, &error) != 0) {
        error_exit(error_exit_code(&error), "%s", error.text);
    }
    const Backend *backend = program->open_device(&options, &error);
    static Run run;
    if (!backend || run_open(&run, &options, backend, &error) != 0) {
        error_exit(error_exit_code(&error), "%s", error.text);
    }

    ending_join();
    stop_in_order();
    EndReason reason;
    if (carry_out(&reason, &run, &error) != 0) {
        error_exit(error_exit_code(&error), "%s", error.text);
    }
    int exit_code = run_finish(&run, reason, &error);
    if (error.text[0]) {
        folder_lock_release(&run.lock);
        error_exit(exit_code, "%s", error.text);
    }
    error_tell_end(exit_code, exit_code == EXIT_DONE ? "done" : "stopped by a signal, with a snapshot");
    run_close(&run);
    comm_finish();
    return exit_code;
}
