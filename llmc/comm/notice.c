#include "llmc/comm/notice.h"

#include <stdatomic.h>

static atomic_int largest;

int notice_read(void)
{
    return atomic_load_explicit(&largest, memory_order_relaxed);
}

void notice_raise(int notice)
{
    int known = atomic_load(&largest);
    while (known < notice && !atomic_compare_exchange_weak(&largest, &known, notice)) {
    }
}
