/* GPT-2's tokenizer in the files of transformers: vocab.json and merges.txt for the class GPT2Tokenizer, and
 * tokenizer.json for the library `tokenizers`, which the fast class and most other programs use. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/snapshot/export_files.h"
#include "llmc/snapshot/export_vocabulary.h"

enum { CONFIG_BYTES_MAX = 1024 };

#define END_OF_TEXT                                                                                          \
    "{\"content\": \"<|endoftext|>\", \"lstrip\": false, \"normalized\": true, \"rstrip\": false, "          \
    "\"single_word\": false, \"special\": true"

/* Words are cut by GPT-2's pattern (use_regex), bytes are written as characters (ByteLevel), and merges are
 * made in their order. A space is not put before the text. */
static const char tokenizer_begin[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n"
    "\"added_tokens\": [" END_OF_TEXT ", \"id\": 50256}],\n"
    "\"normalizer\": null,\n"
    "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
    "\"use_regex\": true},\n"
    "\"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": false, "
    "\"use_regex\": true},\n"
    "\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, "
    "\"use_regex\": true},\n"
    "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": "
    "\"\", \"end_of_word_suffix\": \"\", \"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": "
    "false,\n\"vocab\": ";
static const char tokenizer_merges[] = ",\n\"merges\": [";
static const char tokenizer_end[] = "]}}\n";

/* Each line of the merges but the first, which is a comment, as a string of JSON. None holds a control
 * character. Returns the end. */
static char *write_merges(char *to, const char *merges, size_t bytes)
{
    const char *end = merges + bytes;
    const char *separator = "";
    for (const char *line = merges; line < end;) {
        const char *line_end = memchr(line, '\n', (size_t)(end - line));
        line_end = line_end ? line_end : end;
        if (line_end > line && strncmp(line, "#version", 8) != 0) {
            to = stpcpy(stpcpy(to, separator), "\"");
            for (; line < line_end; line++) {
                if (*line == '"' || *line == '\\') {
                    *to++ = '\\';
                }
                *to++ = *line;
            }
            *to++ = '"';
            separator = ",\n";
        }
        line = line_end + 1;
    }
    return to;
}

static char *tokenizer_json(const char *vocabulary)
{
    size_t merges_bytes;
    const char *merges = export_merges(&merges_bytes);
    /* A line gets two quotes and a comma, and each of its characters at most a backslash. */
    size_t room = sizeof(tokenizer_begin) + strlen(vocabulary) + sizeof(tokenizer_merges) + 5 * merges_bytes +
                  sizeof(tokenizer_end);
    char *text = memory_alloc(room, 1, "tokenizer.json");
    char *to = stpcpy(stpcpy(stpcpy(text, tokenizer_begin), vocabulary), tokenizer_merges);
    strcpy(write_merges(to, merges, merges_bytes), tokenizer_end);
    return text;
}

static char *tokenizer_config_json(const ModelShape *shape)
{
    char *text = memory_alloc(CONFIG_BYTES_MAX, 1, "tokenizer_config.json");
    snprintf(text, CONFIG_BYTES_MAX,
             "{\n"
             "  \"add_prefix_space\": false,\n"
             "  \"added_tokens_decoder\": {\"50256\": " END_OF_TEXT "}},\n"
             "  \"bos_token\": \"<|endoftext|>\",\n"
             "  \"clean_up_tokenization_spaces\": false,\n"
             "  \"eos_token\": \"<|endoftext|>\",\n"
             "  \"errors\": \"replace\",\n"
             "  \"model_max_length\": %d,\n"
             "  \"tokenizer_class\": \"GPT2Tokenizer\",\n"
             "  \"unk_token\": \"<|endoftext|>\"\n"
             "}\n",
             shape->block_size);
    return text;
}

void export_files_add_tokenizer(ExportFiles *files, const ModelShape *shape)
{
    size_t merges_bytes;
    const char *merges = export_merges(&merges_bytes);
    char *merges_text = memory_alloc(merges_bytes + 1, 1, "merges.txt");
    memcpy(merges_text, merges, merges_bytes);
    merges_text[merges_bytes] = '\0';
    char *vocabulary = export_vocabulary_json();
    export_files_add(files, "vocab.json", memory_copy_text(vocabulary, "vocab.json"));
    export_files_add(files, "merges.txt", merges_text);
    export_files_add(files, "tokenizer.json", tokenizer_json(vocabulary));
    export_files_add(files, "tokenizer_config.json", tokenizer_config_json(shape));
    free(vocabulary);
}
