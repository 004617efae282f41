/* Text to GPT-2 tokens, ready for training. The parts, in the order in which text passes them:
 * options.c  input_files.c  layers.c (files, archives)  json_lines.c  documents.c (chunks)
 * pipeline.c (threads)  character_table.c  shards.c
 */
#include <archive.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "data_prep/decode.h"
#include "data_prep/help.h"
#include "data_prep/options.h"
#include "data_prep/pipeline.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/format.h"
#include "llmc/base/help.h"
#include "llmc/base/version.h"
#include "llmc/data/shard_folder.h"

static void print_totals(const TokenizeOptions *options, const TokenizeTotals *totals)
{
    char train[FORMAT_COUNT_BYTES];
    char val[FORMAT_COUNT_BYTES];
    char documents[FORMAT_COUNT_BYTES];
    format_count(train, totals->tokens - totals->val_tokens);
    format_count(val, totals->val_tokens);
    format_count(documents, totals->documents);
    double seconds = totals->ms / 1000;
    double megabytes = (double)totals->text_bytes / 1e6;
    fprintf(stderr, "tokenize: %s: %s tokens for training, %s for validation; ", options->output, train, val);
    fprintf(stderr, "%s document%s, %.1f MB of text in %.2f s, %.1f MB/s\n", documents,
            totals->documents == 1 ? "" : "s", megabytes, seconds, megabytes / seconds);
    if (totals->characters > 0) {
        fprintf(stderr, "tokenize: %s: a vocabulary of %d characters in %s\n", options->output,
                totals->characters, CHARACTERS_FILE);
    }
    if (totals->removed_shards > 0) {
        fprintf(stderr, "tokenize: %s: removed %d shards of an earlier run\n", options->output,
                totals->removed_shards);
    }
}

static void print_answer(const TokenizeOptions *options)
{
    Error error;
    if (options->version) {
        version_print(stdout, "tokenize");
        printf("archives: %s\n", archive_version_details());
    } else if (tokenize_print_help(stdout, options->help, help_columns(stdout), &error) != 0) {
        error_exit(EXIT_FAILED, "%s", error.text);
    }
    if (fflush(stdout) != 0) {
        error_exit(EXIT_FAILED, "stdout: cannot write: %s", strerror(errno));
    }
}

int main(int argc, char **argv)
{
    file_reserve_standard();
    error_set_program("tokenize");
    signal(SIGXFSZ, SIG_IGN); /* a file size limit then fails a write, which is reported */
    Error error;
    TokenizeOptions options;
    if (tokenize_options_init(&options, argc, argv, &error) != 0) {
        error_exit(EXIT_FAILED, "%s", error.text);
    }
    if (options.help || options.version) {
        print_answer(&options);
    } else if (options.decode) {
        if (decode_shard(options.decode, &error) != 0) {
            error_exit(EXIT_FAILED, "%s", error.text);
        }
    } else {
        signal(SIGPIPE, SIG_IGN); /* who reads what is told of progress does not end the work */
        TokenizeTotals totals;
        if (pipeline_run(&totals, &options, &error) != 0) {
            error_exit(EXIT_FAILED, "%s", error.text);
        }
        print_totals(&options, &totals);
    }
    tokenize_options_release(&options);
    return EXIT_DONE;
}
