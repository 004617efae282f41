/* HellaSwag's two files of any bytes: an error that names the file, or items that lie inside their tokens. */
#include <string.h>

#include "dev/fuzz/fuzz.h"
#include "llmc/run/hellaswag_file.h"

const char *const fuzz_words[] = {"\"ctx\":", "\"endings\":[", "\"label\":", "\",\"", "{",
                                  "}\n",      "\\u00e9",       "\\ud83d",    "null",  "3",
                                  "\xff\xff", "\x04\x00",      "\x01\x00",   NULL};

/* The smallest item of llm.c's file: one token in the context and in each ending. */
static size_t put_item(uint8_t *data, uint16_t number)
{
    const uint16_t words[] = {65535, 30, number, 2, 4, 1, 464, 1, 11, 1, 12, 1, 13, 1, 14};
    memcpy(data, words, sizeof(words));
    return sizeof(words);
}

size_t fuzz_seed(uint8_t *data, int index)
{
    static const char lines[] =
        "{\"ind\": 1, \"ctx\": \"A man is\", \"label\": 3, \"endings\": [\"on a roof.\", "
        "\"h\\u00e9 swims\", \"\", \"runs\"]}\n\n"
        "{\"ctx\":\"b\",\"endings\":[\"1\",\"2\",\"3\",\"4\"],\"label\":\"0\"}\n";
    static const int32_t header[4] = {HELLASWAG_MAGIC, 1, 3, 30};
    if (index == 0) {
        memcpy(data, lines, sizeof(lines) - 1);
        return sizeof(lines) - 1;
    }
    if (index > 1) {
        return 0;
    }
    size_t bytes = 1024;
    memset(data, 0, bytes);
    memcpy(data, header, sizeof(header));
    for (uint16_t i = 0; i < 3; i++) {
        bytes += put_item(data + bytes, i);
    }
    return bytes;
}

static void check_items(const HellaSwagSet *set)
{
    int64_t next = 0;
    CHECK(set->count > 0, "a file without items");
    for (int64_t i = 0; i < set->count; i++) {
        const HellaSwagItem *item = &set->items[i];
        CHECK(item->first_token == next && item->context_tokens > 0, "a gap before an item");
        CHECK(item->label >= 0 && item->label < HELLASWAG_ENDINGS, "label %d", item->label);
        next += item->context_tokens;
        for (int e = 0; e < HELLASWAG_ENDINGS; e++) {
            CHECK(item->ending_tokens[e] > 0, "an empty ending");
            next += item->ending_tokens[e];
        }
    }
    CHECK(next == (int64_t)set->tokens.count, "tokens of no item");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static Encoder *encoder;
    if (!encoder) {
        encoder = encoder_create(tokenizer_create());
    }
    HellaSwagSet set = {0};
    Error error = {.text = ""};
    if (hellaswag_parse(&set, encoder, (const char *)data, bytes, "items", &error) != 0) {
        CHECK(strncmp(error.text, "items", 5) == 0 && !set.items, "an error without its file");
        return 0;
    }
    check_items(&set);
    hellaswag_release(&set);
    return 0;
}
