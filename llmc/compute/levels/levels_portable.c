#include "llmc/compute/cpu_levels.h"

extern const Backend cpu_backend_portable;

int cpu_levels(const Backend *backends[CPU_LEVELS_MAX])
{
    backends[0] = &cpu_backend_portable;
    return 1;
}
