/* Switching fibers on x86-64: what a call must preserve goes to the stack, and the stack pointer changes. */
#include "../runtime.h"

extern "C" void host_cuda_switch(void **from, void *to);

asm(R"(
    .text
    .globl host_cuda_switch
    .type host_cuda_switch, @function
host_cuda_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size host_cuda_switch, . - host_cuda_switch
)");

void fiber_prepare(Fiber *fiber, void (*entry)(void))
{
    void **top = (void **)(fiber->stack + fiber->stack_bytes);
    *--top = NULL;          /* entry()'s own return address, which makes the stack aligned as after a call */
    *--top = (void *)entry; /* where the first switch returns to */
    for (int saved = 0; saved < 6; saved++) {
        *--top = NULL;
    }
    fiber->context = top;
}

void fiber_switch(Fiber *from, Fiber *to)
{
    host_cuda_switch(&from->context, to->context);
}
