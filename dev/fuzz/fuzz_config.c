/* Config files of any bytes: an error that names a line, or options that a run could take; never a crash. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "llmc/run/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    Options options;
    Error error;
    options_set_defaults(&options);
    int status = options_read_config(&options, "config", (const char *)data, bytes, &error);
    if (status != 0) {
        CHECK(status == -1 && strncmp(error.text, "config:", 7) == 0, "an error without its place");
        return 0;
    }
    if (options_check(&options, &error) == 0) {
        CHECK(options.batch_size >= 1 && options.n_embd % options.n_head == 0 && options.beta2 < 1,
              "a value out of range was accepted");
    }
    return 0;
}
