#define _GNU_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/data/shard_folder.h"
#include "llmc/snapshot/export_files.h"

enum { ENTRY_BYTES_MAX = CHARACTER_JSON_BYTES + 16, CONFIG_BYTES_MAX = 512 };

/* A model of the library tokenizers: text is cut between any two characters, each of which is a word of the
 * vocabulary; one that is not is an error, as `[UNK]` is no word. Decoding puts words together again. */
static const char tokenizer_begin[] =
    "{\n"
    "  \"version\": \"1.0\",\n"
    "  \"truncation\": null,\n"
    "  \"padding\": null,\n"
    "  \"added_tokens\": [],\n"
    "  \"normalizer\": null,\n"
    "  \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"[\\\\s\\\\S]\"}, \"behavior\": "
    "\"Isolated\", \"invert\": false},\n"
    "  \"post_processor\": null,\n"
    "  \"decoder\": {\"type\": \"Fuse\"},\n"
    "  \"model\": {\"type\": \"WordLevel\", \"unk_token\": \"[UNK]\", \"vocab\": {";
static const char tokenizer_end[] = "}}\n}\n";

static char *tokenizer_json(const Characters *characters)
{
    int count = characters_count(characters);
    size_t room = sizeof(tokenizer_begin) + sizeof(tokenizer_end) + (size_t)count * ENTRY_BYTES_MAX;
    char *text = memory_alloc(room, 1, "tokenizer.json");
    char *next = stpcpy(text, tokenizer_begin);
    for (int token = 0; token < count; token++) {
        next = stpcpy(next, token > 0 ? ", " : "");
        next += character_print_json(next, characters_code_point(characters, token));
        next += sprintf(next, ": %d", token);
    }
    strcpy(next, tokenizer_end);
    return text;
}

static char *tokenizer_config_json(int block_size)
{
    char *text = memory_alloc(CONFIG_BYTES_MAX, 1, "tokenizer_config.json");
    snprintf(text, CONFIG_BYTES_MAX,
             "{\n"
             "  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
             "  \"clean_up_tokenization_spaces\": false,\n"
             "  \"model_max_length\": %d\n"
             "}\n",
             block_size);
    return text;
}

void export_files_add_characters(ExportFiles *files, const ModelShape *shape, const Characters *characters)
{
    export_files_add(files, CHARACTERS_FILE, characters_to_json(characters));
    export_files_add(files, "tokenizer.json", tokenizer_json(characters));
    export_files_add(files, "tokenizer_config.json", tokenizer_config_json(shape->block_size));
}
