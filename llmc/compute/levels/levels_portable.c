#include "llmc/compute/cpu_levels.h"

extern const CpuLevel cpu_level_portable;

int cpu_levels(const CpuLevel *levels[CPU_LEVELS_MAX])
{
    levels[0] = &cpu_level_portable;
    return 1;
}
