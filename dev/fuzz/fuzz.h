/* What a fuzzer gives to driver.c, and what it gets. A fuzzer defines LLVMFuzzerTestOneInput, so that
 * libFuzzer can drive it as well; the other functions are optional. */
#ifndef DEV_FUZZ_FUZZ_H
#define DEV_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

enum { FUZZ_INPUT_BYTES_MAX = 1 << 17 };

/* Must return 0, whatever the bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Good input number `index`, at most FUZZ_INPUT_BYTES_MAX bytes of it; 0 where there are no more. */
size_t fuzz_seed(uint8_t *data, int index) __attribute__((weak));

/* Pieces of text that mutations put in; ends with NULL. */
extern const char *const fuzz_words[] __attribute__((weak));

/* A path under which these bytes can be opened as a file, until the next call. Lies in memory. */
const char *fuzz_file(const uint8_t *data, size_t bytes);

#endif
