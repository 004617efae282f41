/* How fast text becomes tokens on one core: encodes a file again and again, and prints the best and the
 * middle speed. dev/bench/tokenizer.py runs it side by side with tiktoken.
 *
 *   build/mpi1/bench/tokenizer FILE [SECONDS]
 */
#include <stdio.h>
#include <stdlib.h>

#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/memory.h"
#include "llmc/text/tokenizer.h"

enum { FILE_BYTES_MAX = 1 << 30, RUNS_MAX = 1000 };

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

int main(int argc, char **argv)
{
    error_set_program("tokenizer");
    if (argc < 2) {
        error_exit(EXIT_FAILED, "usage: tokenizer FILE [SECONDS]");
    }
    double seconds = argc > 2 ? atof(argv[2]) : 3;
    Error error;
    size_t bytes;
    char *text = file_read(argv[1], FILE_BYTES_MAX, &bytes, &error);
    if (!text) {
        error_exit(EXIT_FAILED, "%s", error.text);
    }
    Tokenizer *tokenizer = tokenizer_create();
    TokenBuffer tokens = {0};
    static double megabytes_per_s[RUNS_MAX];
    int runs = 0;
    double begin_ms = clock_ms();
    while (runs < RUNS_MAX && (runs == 0 || clock_ms() - begin_ms < seconds * 1000)) {
        double run_ms = clock_ms();
        Encoder *encoder = encoder_create(tokenizer); /* remembers nothing of the run before */
        tokens.count = 0;
        encoder_encode(encoder, &tokens, text, bytes);
        encoder_free(encoder);
        megabytes_per_s[runs++] = (double)bytes / 1000 / (clock_ms() - run_ms);
    }
    qsort(megabytes_per_s, (size_t)runs, sizeof(megabytes_per_s[0]), compare);
    printf("%zu bytes %zu tokens %d runs best %.1f median %.1f MB/s\n", bytes, tokens.count, runs,
           megabytes_per_s[runs - 1], megabytes_per_s[runs / 2]);
    token_buffer_release(&tokens);
    tokenizer_free(tokenizer);
    memory_free(text);
    return EXIT_DONE;
}
