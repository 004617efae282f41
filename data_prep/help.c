#include "data_prep/help.h"

#include <string.h>

#include "data_prep/options.h"
#include "llmc/base/help.h"
#include "llmc/base/version.h"

enum { CHOICES_BYTES = 64 };

static const HelpText before[] = {
    {"",
     "Turns text into tokens, ready for training: PREFIX/train.bin and PREFIX/val.bin.\n"
     "\n"
     "An INPUT is a file, a folder, or - for what comes through a pipe. Of a folder all files are read, "
     "those of "
     "its folders too, sorted by name; hidden files and what is no text are skipped, and named. tar, zip, "
     "gz, xz, "
     "zst and bz2 are known by their content and unpacked on the way, also inside each other; each file in "
     "them "
     "is taken like one given by name. Bytes that are not UTF-8 are tokens like any others; what begins as "
     "UTF-16, Parquet, PDF or another binary format is refused. Memory grows with the longest word and the "
     "number of files in folders, not with the input.\n"
     "\n"
     "--name VALUE is --name=VALUE. What follows -- is an INPUT, whatever it begins with."},
    {NULL, NULL}};

static const HelpText after[] = {
    {"Examples", "  tokenize -o data/mine --val-fraction=0.01 texts.tar.xz\n"
                 "  zstdcat pages.jsonl.zst | tokenize -o data/pages --format=jsonl -\n"
                 "  tokenize --decode data/mine/val.bin | less"},
    {"Exit status", "0: done. 1: an error; the files of an earlier run are all as they were."},
    {NULL, NULL}};

/* The choices are filled in from the table of options. */
static const HelpRow help_rows[] = {
    {"output", "-o", HELP_FOLDER, "PREFIX", NULL, "",
     "the folder to write to; made if it is missing. Shards of an earlier run in it are replaced all "
     "together, at "
     "the very end: a run that fails or is stopped, or killed at any moment, leaves all the old ones or all "
     "the "
     "new ones"},
    {"output", "--tokenizer", HELP_CHOICE, "NAME", NULL, "",
     "gpt2: GPT-2's 50,257 tokens (default); char: each character is a token. The characters, sorted, are "
     "written to "
     "PREFIX/characters.json, where train_gpt2 finds them; the text must be UTF-8"},
    {"output", "--eot", HELP_CHOICE, "PLACE", NULL, "",
     "put the token <|endoftext|> after each document (append, the default), before it (prepend), or nowhere "
     "(none). "
     "With --tokenizer=char there is no such token"},
    {"output", "--header", HELP_CHOICE, "HEADER", NULL, "",
     "llmc: llm.c's shards, 256 int32 and then the tokens (default); none: tokens only, as nanoGPT reads "
     "them"},
    {"output", "--shard-tokens", HELP_WORD, "N", NULL, "",
     "write train_000001.bin, train_000002.bin .. (val_000001.bin ..) of N tokens each"},
    {"validation", "--val-fraction", HELP_WORD, "F", NULL, "",
     "keep the last F of all tokens (0 <= F < 1) out of training, in val.bin. Rounded to the nearest token; "
     "characters "
     "are cut as nanoGPT cuts them, after int(n * (1 - F))"},
    {"validation", "--val-tokens", HELP_WORD, "N", NULL, "",
     "keep the last N tokens; 0: no val.bin. Without either option: the last tenth, but at most 4,194,304 "
     "tokens"},
    {"validation", "--val-input", HELP_FILE, "INPUT", NULL, "",
     "what is for validation comes from here instead; may be given several times"},
    {"input", "--format", HELP_CHOICE, "FORMAT", NULL, "",
     "what the files hold: text (each file is a document), jsonl (each line is an object whose \"text\" is a "
     "document), auto (the default: jsonl if the name ends in .jsonl or .ndjson, else text)"},
    {"input", "--text-key", HELP_WORD, "KEY", NULL, "",
     "the key of the document in a line of JSON, instead of text"},
    {"input", "--eot-in-text", HELP_CHOICE, "USE", NULL, "",
     "<|endoftext|> in a text is ordinary text (plain, the default), or ends a document and is no text "
     "itself (split)"},
    {"input", "--clean", HELP_CHOICE, "HOW", NULL, "",
     "openwebtext: as Hugging Face's openwebtext has it, at most two newlines in a row and no white space at "
     "a "
     "document's ends; default none"},
    {"order", "--shuffle-documents", HELP_WORD, "SEED", NULL, "",
     "put the documents in random order, as numpy's default_rng(SEED) permutes them; and let --val-fraction "
     "count "
     "documents: the first F of them, rounded up, are val.bin (default 0.0005). With seed 2357 that is "
     "nanoGPT's "
     "split of OpenWebText. A run that was stopped goes on where it was when the same command is given "
     "again"},
    {"order", "--shuffle-memory", HELP_WORD, "MB", NULL, "",
     "memory for that, besides 10 bytes for each document; default 256"},
    {"other", "--threads", HELP_WORD, "N", NULL, "",
     "encode with N threads; default: one for each processor. The output is the same"},
    {"other", "--decode", HELP_FILE, "FILE", NULL, "", "print the text of a shard, of either kind"},
    {"other", "--help", HELP_NOTHING, "", NULL, "", "print this; --help=SECTION prints one section of it"},
    {"other", "--version", HELP_NOTHING, "", NULL, "", "print the version, and how the program was built"},
};

enum { ROW_COUNT = sizeof(help_rows) / sizeof(help_rows[0]) };

static const char *join_choices(char out[CHOICES_BYTES], const char *const *choices)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; choices[i]; i++) {
        used += (size_t)snprintf(out + used, CHOICES_BYTES - used, "%s%s", i ? "|" : "", choices[i]);
        CHECK(used < CHOICES_BYTES, "raise CHOICES_BYTES");
    }
    return out;
}

/* Every option has its row here, and the other way round. */
static void check_rows(void)
{
    int count = 0;
    for (const char *name; (name = tokenize_option_name(count)) != NULL; count++) {
        int is_explained = 0;
        for (int i = 0; i < ROW_COUNT; i++) {
            is_explained |= strcmp(help_rows[i].name, name) == 0;
        }
        CHECK(is_explained, "%s stands in options.c, and not in help.c", name);
    }
    CHECK(count + 2 == ROW_COUNT, "help.c has %d rows, options.c %d, besides --help and --version",
          ROW_COUNT - 2, count);
}

int tokenize_print_help(FILE *out, const char *form, int columns, Error *error)
{
    HelpRow rows[ROW_COUNT];
    char choices[ROW_COUNT][CHOICES_BYTES];
    check_rows();
    for (int i = 0; i < ROW_COUNT; i++) {
        rows[i] = help_rows[i];
        if (rows[i].value == HELP_CHOICE) {
            rows[i].choices = join_choices(choices[i], tokenize_option_choices(rows[i].name));
        }
    }
    const HelpPage page = {.programs = "tokenize",
                           .version = PROGRAM_VERSION,
                           .purpose = "turn text into tokens for training GPT-2",
                           .synopsis = "tokenize -o PREFIX [OPTION]... INPUT...\n"
                                       "tokenize --decode FILE",
                           .before = before,
                           .after = after,
                           .rows = rows,
                           .row_count = ROW_COUNT};
    return help_print(out, &page, form, columns, error);
}
