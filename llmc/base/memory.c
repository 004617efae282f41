#define _GNU_SOURCE
#include "llmc/base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "llmc/base/error.h"

enum { MEMORY_ALIGNMENT = 64, HUGE_PAGE_BYTES = 2 << 20 };

/* posix_memalign takes large blocks from mmap, whose pages are zero and untouched; huge pages make them cheap
 * to walk. NULL where there is no memory. */
static void *try_alloc_aligned(size_t bytes, int zeroed)
{
    int is_large = bytes >= 4u * HUGE_PAGE_BYTES;
    if (is_large && zeroed) {
        bytes = (bytes + HUGE_PAGE_BYTES - 1) & ~(size_t)(HUGE_PAGE_BYTES - 1);
    }
    void *block = NULL;
    if (posix_memalign(&block, is_large ? (size_t)HUGE_PAGE_BYTES : MEMORY_ALIGNMENT, bytes ? bytes : 1) !=
        0) {
        return NULL;
    }
    if (is_large) {
        madvise(block, bytes, MADV_HUGEPAGE);
    }
    if (zeroed && (!is_large || madvise(block, bytes, MADV_DONTNEED) != 0)) {
        memset(block, 0, bytes);
    }
    return block;
}

static void *alloc_aligned(size_t count, size_t element_bytes, const char *what, int zeroed)
{
    size_t bytes;
    CHECK(!__builtin_mul_overflow(count, element_bytes, &bytes),
          "%s: %zu elements of %zu bytes do not fit in memory", what, count, element_bytes);
    void *block = try_alloc_aligned(bytes, zeroed);
    CHECK(block, "%s: out of memory: %zu MiB needed; lower batch_size or block_size", what, bytes >> 20);
    return block;
}

void *memory_try_alloc(size_t count, size_t element_bytes)
{
    size_t bytes;
    return __builtin_mul_overflow(count, element_bytes, &bytes) ? NULL : try_alloc_aligned(bytes, 0);
}

void *memory_alloc(size_t count, size_t element_bytes, const char *what)
{
    return alloc_aligned(count, element_bytes, what, 0);
}

void *memory_alloc_zeroed(size_t count, size_t element_bytes, const char *what)
{
    return alloc_aligned(count, element_bytes, what, 1);
}

void memory_free(void *block)
{
    free(block);
}

void *memory_grow(void *block, size_t old_count, size_t new_count, size_t element_bytes, const char *what)
{
    void *grown = memory_alloc(new_count, element_bytes, what);
    if (old_count > 0) {
        memcpy(grown, block, old_count * element_bytes);
    }
    memory_free(block);
    return grown;
}

char *memory_copy_text(const char *text, const char *what)
{
    return text ? memcpy(memory_alloc(strlen(text) + 1, 1, what), text, strlen(text) + 1) : NULL;
}

size_t memory_peak_bytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (size_t)usage.ru_maxrss * 1024;
}
