/* Checks of each access that a kernel makes. The sources are compiled with -fsanitize=thread, which puts a
 * call of __tsan_...() before each access, and linked without the sanitizer's library: the calls end here.
 *
 * Global memory must lie in a live allocation. Shared memory has a shadow, byte by byte: who wrote last, and
 * who read since. Two accesses are ordered if a barrier of the block lies between (the epoch counts these), if
 * they are of one thread, or if __syncwarp orders them: for that each lane keeps what it knows of the others'
 * clocks. */
#include <algorithm>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime.h"

struct Touch {
    uint64_t thread : 10, clock : 20, is_pending : 1, is_atomic : 1, epoch : 32;
};

/* Of one byte. Two readers suffice: they are of different warps if any two are, and a writer meets one. */
struct Shadow {
    Touch write, read[2];
};

static bool is_on;
static __thread Shadow *shadow;        /* of the OS thread's shared memory */
static __thread Allocation last_found; /* of global memory, during a block */

extern "C" char __executable_start, _end;

/* ---- the line that ends the program ------------------------------------------------------------------- */

static int find_bias(struct dl_phdr_info *info, size_t, void *bias)
{
    *(uintptr_t *)bias = info->dlpi_addr;
    return 1; /* the first is the program */
}

uintptr_t code_offset(const void *code)
{
    uintptr_t bias = 0;
    dl_iterate_phdr(find_bias, &bias);
    return (uintptr_t)code - bias;
}

/* The function that holds `code`, cut at its arguments, and its line in the sources; "?" if unknown. */
static void describe_code(const void *code, char *function, size_t function_bytes, char *line,
                          size_t line_bytes)
{
    char program[512] = "", command[700];
    snprintf(function, function_bytes, "?");
    snprintf(line, line_bytes, "?");
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0) {
        return;
    }
    snprintf(command, sizeof command, "addr2line -sifCe '%s' 0x%lx 2>/dev/null", program,
             (unsigned long)code_offset(code));
    FILE *output = popen(command, "r");
    while (output && fgets(function, (int)function_bytes, output) && fgets(line, (int)line_bytes, output)) {
        char *begin = strncmp(function, "void ", 5) ? function : function + 5;
        begin[strcspn(begin, "(\n")] = 0;
        memmove(function, begin, strlen(begin) + 1);
        line[strcspn(line, " \n")] = 0;
        if (strncmp(line, "device_functions.h", 18) && strncmp(line, "instructions.cuh", 16)) {
            break; /* else the frame that these were inlined into */
        }
    }
    if (output) {
        pclose(output);
    }
}

void check_failed(const void *where, const char *format, ...)
{
    static std::mutex only_once;
    char what[512], name[256], line[256], ignored[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    only_once.lock(); /* and never unlocked: one line, whatever other threads find */
    if (where) {
        describe_code((const char *)where - 1, name, sizeof name, line, sizeof line);
    }
    const char *place = where && !strchr(line, '?') ? line : "", *comma = *place ? ", " : "";
    if (!block_now) {
        fprintf(stderr, "host_cuda: %s%s%s\n", place, *place ? ": " : "", what);
        _exit(1);
    }
    describe_code(block_now->launch->kernel, name, sizeof name, ignored, sizeof ignored);
    fprintf(stderr, "host_cuda: kernel %s, block (%u,%u,%u), thread (%u,%u,%u)%s%s: %s\n", name, blockIdx.x,
            blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, comma, place, what);
    _exit(1);
}

/* ---- order -------------------------------------------------------------------------------------------- */

void check_block_begin(Block *block)
{
    block->first_epoch = ++block->epoch;
    last_found = Allocation{0, 0, MEMORY_NONE};
    if (!is_on) {
        return;
    }
    if (!shadow) {
        shadow = (Shadow *)calloc(HOST_CUDA_SHARED_BYTES_MAX, sizeof(Shadow));
    }
    for (int i = 0; i * 32 < block->thread_count; i++) {
        memset(block->warps[i].clocks, 0, sizeof block->warps[i].clocks);
        for (int lane = 0; lane < 32; lane++) {
            block->warps[i].clocks[lane][lane] = 1;
        }
    }
}

void check_barrier_passed(Block *block)
{
    block->epoch++;
}

void check_warp_synced(Block *, Warp *warp, unsigned int mask)
{
    uint32_t known[32] = {};
    if (!is_on) {
        return;
    }
    for (unsigned int rest = mask; rest; rest &= rest - 1) {
        const uint32_t *clocks = warp->clocks[__builtin_ctz(rest)];
        for (int lane = 0; lane < 32; lane++) {
            known[lane] = std::max(known[lane], clocks[lane]);
        }
    }
    for (unsigned int rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        memcpy(warp->clocks[lane], known, sizeof known);
        warp->clocks[lane][lane]++;
    }
}

/* Touches by other threads since the last barrier that nothing orders before what the running thread does. */
static bool is_unordered(const Block *block, Touch touch)
{
    int thread = block->current;
    if (touch.epoch != block->epoch || (int)touch.thread == thread) {
        return false;
    }
    return (int)touch.thread / 32 != thread / 32 ||
           block->warps[thread / 32].clocks[thread % 32][touch.thread % 32] < touch.clock;
}

/* ---- shared memory ------------------------------------------------------------------------------------ */

[[noreturn]] static void race(const void *where, const char *does, size_t offset, const char *did,
                              Touch touch)
{
    check_failed(where, "%s shared byte %zu, which thread %d %s, with no barrier between", does, offset,
                 (int)touch.thread, did);
}

/* Keep two reads that a later write must be ordered after. */
static void remember_read(const Block *block, Shadow *byte, Touch now)
{
    for (Touch &read : byte->read) {
        if (!is_unordered(block, read)) {
            read = now; /* it comes after that one, and so stands for both */
            return;
        }
    }
    if (byte->read[0].thread / 32 == byte->read[1].thread / 32) {
        byte->read[1] = now;
    }
}

static void check_shared_byte(const Block *block, size_t offset, Access access, Touch now, const void *where)
{
    Shadow *byte = &shadow[offset];
    Touch write = byte->write;
    bool is_written = write.epoch >= block->first_epoch;
    bool reads = access == ACCESS_READ || access == ACCESS_ATOMIC;
    if (access == ACCESS_COPY_END) {
        byte->write = now;
        return;
    }
    if (is_written && write.is_pending) {
        check_failed(where, "touches shared byte %zu, for whose asynchronous copy thread %d has not waited",
                     offset, (int)write.thread);
    }
    if (reads && !is_written) {
        check_failed(where, "reads shared byte %zu, never written since the block started", offset);
    }
    if (is_unordered(block, write) && !(write.is_atomic && now.is_atomic)) {
        race(where, access == ACCESS_READ ? "reads" : "writes", offset, "wrote", write);
    }
    if (access == ACCESS_READ) {
        remember_read(block, byte, now);
        return;
    }
    for (const Touch &read : byte->read) {
        if (is_unordered(block, read)) {
            race(where, "writes", offset, "read", read);
        }
    }
    byte->write = now;
    byte->read[0] = byte->read[1] = Touch();
}

static void check_shared(const Block *block, size_t offset, size_t bytes, Access access, const void *where)
{
    if (offset + bytes > block->launch->shared_bytes) {
        check_failed(where, "touches shared bytes %zu to %zu of %zu asked for at launch", offset,
                     offset + bytes, block->launch->shared_bytes);
    }
    int thread = block->current;
    Touch now;
    now.thread = (unsigned int)thread;
    now.clock = block->warps[thread / 32].clocks[thread % 32][thread % 32];
    now.is_pending = access == ACCESS_COPY_BEGIN;
    now.is_atomic = access == ACCESS_ATOMIC;
    now.epoch = block->epoch;
    for (size_t i = 0; i < bytes; i++) {
        check_shared_byte(block, offset + i, access == ACCESS_READ_SHARED ? ACCESS_READ : access, now, where);
    }
}

/* ---- all memory --------------------------------------------------------------------------------------- */

static bool is_place(uintptr_t address)
{
    const uint3 *places[] = {&threadIdx, &blockIdx, &blockDim, &gridDim};
    for (const uint3 *place : places) {
        if (address - (uintptr_t)place < sizeof *place) {
            return true;
        }
    }
    return address == (uintptr_t)&host_cuda_thread;
}

/* The kernel's arguments and the program's constants, which may be read. */
static bool is_constant(const Block *block, uintptr_t address)
{
    const HostCall *call = &block->launch->call;
    return address - (uintptr_t)call->arguments < call->arguments_bytes ||
           (address >= (uintptr_t)&__executable_start && address < (uintptr_t)&_end) || is_place(address);
}

void check_access(const void *memory, size_t bytes, Access access, const void *where)
{
    const Block *block = block_now;
    uintptr_t address = (uintptr_t)memory;
    if (!is_on || !block) {
        return;
    }
    size_t offset = address - (uintptr_t)block->shared;
    if (offset < HOST_CUDA_SHARED_BYTES_MAPPED) {
        check_shared(block, offset, bytes, access, where);
        return;
    }
    if (access == ACCESS_READ_SHARED || access == ACCESS_COPY_BEGIN) {
        check_failed(where, "takes %p for shared memory", memory);
    }
    const Fiber *fiber = block->threads[block->current].fiber;
    if (address - (uintptr_t)fiber->stack < fiber->stack_bytes) {
        return;
    }
    if (address >= last_found.begin && address + bytes <= last_found.end) {
        return;
    }
    if (access == ACCESS_READ && is_constant(block, address)) {
        return;
    }
    last_found = *memory_find(memory, bytes);
    if (last_found.kind == MEMORY_NONE) {
        check_failed(where, "%s %zu bytes at %p, outside every live allocation",
                     access == ACCESS_READ ? "reads" : "writes", bytes, memory);
    }
}

/* ---- atomic operations -------------------------------------------------------------------------------- */

#define ATOMIC_ADD(type)                                                                                     \
    type atomicAdd(type *address, type value)                                                                \
    {                                                                                                        \
        check_access(address, sizeof *address, ACCESS_ATOMIC, __builtin_return_address(0));                  \
        return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);                                         \
    }
ATOMIC_ADD(int)
ATOMIC_ADD(unsigned int)
ATOMIC_ADD(unsigned long long)

/* ---- what the compiler calls -------------------------------------------------------------------------- */

static inline void touched(const void *memory, size_t bytes, Access access, bool is_aligned,
                           const void *where)
{
    if (!block_now) {
        if (memory_is_device(memory)) {
            check_failed(where, "host code %s %zu bytes of device memory at %p",
                         access == ACCESS_READ ? "reads" : "writes", bytes, memory);
        }
        return;
    }
    if (is_aligned && (uintptr_t)memory % bytes) {
        check_failed(where, "touches %zu bytes at %p, which is not a multiple of %zu", bytes, memory, bytes);
    }
    check_access(memory, bytes, access, where);
}

#define TSAN(name, bytes, access, is_aligned)                                                                \
    void __tsan_##name(void *memory)                                                                         \
    {                                                                                                        \
        touched(memory, bytes, access, is_aligned, __builtin_return_address(0));                             \
    }
#define TSAN_SIZE(bytes)                                                                                     \
    TSAN(read##bytes, bytes, ACCESS_READ, true)                                                              \
    TSAN(write##bytes, bytes, ACCESS_WRITE, true)                                                            \
    TSAN(unaligned_read##bytes, bytes, ACCESS_READ, false)                                                   \
    TSAN(unaligned_write##bytes, bytes, ACCESS_WRITE, false)

extern "C" {
TSAN_SIZE(1)
TSAN_SIZE(2)
TSAN_SIZE(4)
TSAN_SIZE(8)
TSAN_SIZE(16)

void __tsan_read_range(void *memory, size_t bytes)
{
    touched(memory, bytes, ACCESS_READ, false, __builtin_return_address(0));
}

void __tsan_write_range(void *memory, size_t bytes)
{
    touched(memory, bytes, ACCESS_WRITE, false, __builtin_return_address(0));
}

/* clang's, for copies that it does not expand. */
void *__tsan_memcpy(void *to, const void *from, size_t bytes)
{
    __tsan_read_range((void *)from, bytes);
    __tsan_write_range(to, bytes);
    return memcpy(to, from, bytes);
}

void *__tsan_memset(void *to, int value, size_t bytes)
{
    __tsan_write_range(to, bytes);
    return memset(to, value, bytes);
}

void __tsan_init(void)
{
    is_on = true;
}

void __tsan_func_entry(void *)
{
}

void __tsan_func_exit(void)
{
}

void __tsan_vptr_update(void **, void *)
{
}

void __tsan_vptr_read(void **)
{
}

/* The guards of static variables in host code. */
unsigned char __tsan_atomic8_load(const volatile unsigned char *address, int)
{
    return __atomic_load_n(address, __ATOMIC_SEQ_CST);
}
}
