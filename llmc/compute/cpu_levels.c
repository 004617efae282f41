#define _GNU_SOURCE
#include "llmc/compute/cpu_levels.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const Backend *cpu_backend(Error *error)
{
    const Backend *backends[CPU_LEVELS_MAX];
    int count = cpu_levels(backends);
    const char *wanted = getenv("CPU_LEVEL");
    if (!wanted || !*wanted) {
        return backends[0];
    }
    char names[256] = "";
    for (int i = 0; i < count; i++) {
        const char *level = backends[i]->name + strlen("cpu ");
        if (strcmp(level, wanted) == 0) {
            return backends[i];
        }
        strncat(names, " ", sizeof(names) - strlen(names) - 1);
        strncat(names, level, sizeof(names) - strlen(names) - 1);
    }
    error_set(error, "CPU_LEVEL=%s: expected one that this machine runs:%s", wanted, names);
    return NULL;
}

void cpu_spin_briefly(char **argv)
{
    if (!getenv("OMP_WAIT_POLICY") && !getenv("GOMP_SPINCOUNT") && setenv("GOMP_SPINCOUNT", "1000", 1) == 0) {
        execv("/proc/self/exe", argv); /* where that cannot be, threads spin for longer: only slower */
    }
}
