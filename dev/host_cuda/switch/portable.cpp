/* Switching fibers wherever POSIX contexts are: correct, and slower by two system calls. */
#include <ucontext.h>

#include "../runtime.h"

void fiber_prepare(Fiber *fiber, void (*entry)(void))
{
    ucontext_t *context = new ucontext_t;
    getcontext(context);
    context->uc_stack.ss_sp = fiber->stack;
    context->uc_stack.ss_size = fiber->stack_bytes;
    context->uc_link = NULL;
    makecontext(context, entry, 0);
    fiber->context = context;
}

void fiber_switch(Fiber *from, Fiber *to)
{
    if (!from->context) {
        from->context = new ucontext_t;
    }
    swapcontext((ucontext_t *)from->context, (ucontext_t *)to->context);
}
