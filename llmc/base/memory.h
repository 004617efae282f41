/* Checked memory. Every allocation either succeeds or ends the program with the number of bytes that were
 * asked for. Parsers of foreign bytes check sizes against the file before they allocate, so that no input can
 * ask for too much.
 */
#ifndef LLMC_BASE_MEMORY_H
#define LLMC_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 64-byte aligned, uninitialised. `what` names the buffer in the error. The caller frees with memory_free. */
void *memory_alloc(size_t count, size_t element_bytes, const char *what);

/* NULL where there is no memory; for what can be done without. */
void *memory_try_alloc(size_t count, size_t element_bytes);

/* As memory_alloc, zeroed; large blocks come from the kernel as untouched pages, so they cost nothing
 * until they are used. */
void *memory_alloc_zeroed(size_t count, size_t element_bytes, const char *what);

/* Accepts NULL. */
void memory_free(void *block);

/* Grow a block from memory_alloc to new_count elements, keeping old_count of them. Returns the new block. */
void *memory_grow(void *block, size_t old_count, size_t new_count, size_t element_bytes, const char *what);

/* A copy of a text; NULL stays NULL. The caller frees it with memory_free. */
char *memory_copy_text(const char *text, const char *what);

/* Peak resident bytes of this process so far. */
size_t memory_peak_bytes(void);

#ifdef __cplusplus
}
#endif
#endif
