/* The command line of tokenize. */
#ifndef DATA_PREP_OPTIONS_H
#define DATA_PREP_OPTIONS_H

#include <stdint.h>

#include "llmc/base/error.h"

typedef enum InputFormat { FORMAT_AUTO, FORMAT_TEXT, FORMAT_JSONL } InputFormat;
typedef enum EotPlace { EOT_APPEND, EOT_PREPEND, EOT_NONE } EotPlace;
typedef enum HeaderKind { HEADER_LLMC, HEADER_NONE } HeaderKind;

typedef enum TokenKind { TOKENS_GPT2, TOKENS_CHAR } TokenKind;
typedef enum EotText { EOT_TEXT_PLAIN, EOT_TEXT_SPLIT } EotText;
typedef enum CleanKind { CLEAN_NONE, CLEAN_OPENWEBTEXT } CleanKind;

enum { THREADS_MAX = 256, SHUFFLE_MEMORY_MB = 256, TEXT_KEY_BYTES_MAX = 256 };

typedef struct TokenizeOptions {
    const char *output;        /* NULL with --decode and --help */
    const char *decode;        /* the shard to print, or NULL */
    const char *help;          /* "" with --help, SECTION with --help=SECTION, else NULL */
    int version;               /* --version was asked for */
    double val_fraction;       /* negative: not given */
    int64_t val_tokens;        /* negative: not given */
    int tokenizer;             /* TokenKind */
    int format;                /* InputFormat */
    const char *text_key;      /* of the document in a line of JSON */
    int eot_text;              /* EotText: what `<|endoftext|>` in a text is */
    int eot;                   /* EotPlace; negative while it is not given */
    int header;                /* HeaderKind */
    int64_t shard_tokens;      /* 0: one shard */
    int64_t shuffle_documents; /* the seed; negative: they stay in their order */
    int64_t shuffle_memory;    /* MB */
    int clean;                 /* CleanKind */
    int threads;
    const char **inputs; /* point into argv; owned */
    int inputs_count;
    const char **val_inputs; /* the same; none: validation is the end of the inputs */
    int val_inputs_count;
    int val_first; /* once folders are expanded: the inputs from this one on are for validation */
} TokenizeOptions;

/* Returns 0, or -1 with *error naming the option, what was expected and what was found. */
int tokenize_options_init(TokenizeOptions *options, int argc, char **argv, Error *error);
/* What --shuffle-documents asks of the others; it has a default of its own for --val-fraction. */
int tokenize_options_check_shuffle(TokenizeOptions *options, Error *error);
void tokenize_options_release(TokenizeOptions *options);

/* The options as they are written, "--format", in the order of the table; NULL behind the last one. */
const char *tokenize_option_name(int index);
/* What an option may be, ending with NULL; none where any value may do. */
const char *const *tokenize_option_choices(const char *name);

#endif
