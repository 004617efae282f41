#include "llmc/base/work.h"

#include <stdatomic.h>

static atomic_uint_fast64_t parts;

void work_add(void)
{
    atomic_fetch_add_explicit(&parts, 1, memory_order_relaxed);
}

uint64_t work_count(void)
{
    return atomic_load_explicit(&parts, memory_order_relaxed);
}
