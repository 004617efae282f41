#define _GNU_SOURCE
#include "llmc/compute/cpu_levels.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

const char *cpu_level_name(const CpuLevel *level)
{
    return level->backend->name + strlen("cpu ");
}

void cpu_levels_print(FILE *out)
{
    const CpuLevel *levels[CPU_LEVELS_MAX];
    int count = cpu_levels(levels);
    fputs("CPU kernels that run here, best first:", out);
    for (int i = 0; i < count; i++) {
        fprintf(out, " %s", cpu_level_name(levels[i]));
    }
    putc('\n', out);
}

static sigjmp_buf missing_instruction;

static void jump_out(int signal_number)
{
    siglongjmp(missing_instruction, signal_number);
}

/* NULL, or what is wrong with this level on this machine. */
static const char *fault_of(const CpuLevel *level)
{
    struct sigaction action = {.sa_handler = jump_out}, before;
    const char *volatile fault = "an instruction of it is missing";
    sigemptyset(&action.sa_mask);
    sigaction(SIGILL, &action, &before);
    if (sigsetjmp(missing_instruction, 1) == 0) {
        fault = level->is_right() ? NULL : "its matrix products come out wrong";
    }
    sigaction(SIGILL, &before, NULL);
    return fault;
}

static const Backend *best_level(const CpuLevel *levels[], int count, Error *error)
{
    const char *fault = NULL;
    for (int i = 0; i < count; i++) {
        fault = fault_of(levels[i]);
        if (!fault) {
            return levels[i]->backend;
        }
        error_print("CPU level %s: %s on this machine; trying the next", cpu_level_name(levels[i]), fault);
    }
    error_set(error, "no CPU level works on this machine; the last: %s", fault);
    return NULL;
}

const Backend *cpu_backend(Error *error)
{
    const CpuLevel *levels[CPU_LEVELS_MAX];
    int count = cpu_levels(levels);
    const char *wanted = getenv("CPU_LEVEL");
    if (!wanted || !*wanted) {
        return best_level(levels, count, error);
    }
    char names[256] = "";
    for (int i = 0; i < count; i++) {
        if (strcmp(cpu_level_name(levels[i]), wanted) == 0) {
            const char *fault = fault_of(levels[i]);
            if (fault) {
                error_set(error, "CPU_LEVEL=%s: %s on this machine; leave CPU_LEVEL out", wanted, fault);
            }
            return fault ? NULL : levels[i]->backend;
        }
        strncat(names, " ", sizeof(names) - strlen(names) - 1);
        strncat(names, cpu_level_name(levels[i]), sizeof(names) - strlen(names) - 1);
    }
    error_set(error, "CPU_LEVEL=%s: expected one that this machine runs:%s", wanted, names);
    return NULL;
}

/* What was started by its link in /proc is called `exe` there, and `pgrep train_gpt2` does not find it. */
static void take_name_back(void)
{
    char name[16] = "";
    if (prctl(PR_GET_NAME, name) == 0 && strcmp(name, "exe") == 0) {
        prctl(PR_SET_NAME, program_invocation_short_name);
    }
}

void cpu_spin_briefly(char **argv)
{
    take_name_back();
    if (!getenv("OMP_WAIT_POLICY") && !getenv("GOMP_SPINCOUNT") && setenv("GOMP_SPINCOUNT", "1000", 1) == 0) {
        execv("/proc/self/exe", argv); /* where that cannot be, threads spin for longer: only slower */
    }
}
