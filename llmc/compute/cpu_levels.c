#include "llmc/compute/cpu_levels.h"

#include <stdlib.h>
#include <string.h>

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
