/* Vocabularies of any bytes: meta.pkl where the first byte is odd, else characters.json. An error, or
 * characters each of which is there once and has its token. */
#include <string.h>

#include "dev/fuzz/fuzz.h"
#include "dev/test/meta_pickles.h"
#include "llmc/base/memory.h"
#include "llmc/text/characters.h"

const char *const fuzz_words[] = {
    "\"tokenizer\"", "\"char\"", "\"characters\"", ":[", "\"a\"", ",", "]}", "\\u0000",
    "vocab_size",    "itos",     "stoi",           "}(", "K\x01", "u", "s.", NULL};

size_t fuzz_seed(uint8_t *data, int index)
{
    static const char json[] = "{\"tokenizer\":\"char\",\"characters\":[\"\\n\",\" \",\"a\",\"\\u00e9\"]}\n";
    const void *seeds[] = {json, meta_pickle_3, meta_pickle_4, meta_pickle_5};
    const size_t bytes[] = {sizeof(json) - 1, sizeof(meta_pickle_3), sizeof(meta_pickle_4),
                            sizeof(meta_pickle_5)};
    if (index >= 4) {
        return 0;
    }
    data[0] = index > 0;
    memcpy(data + 1, seeds[index], bytes[index]);
    return bytes[index] + 1;
}

static void check_vocabulary(const Characters *characters)
{
    int count = characters_count(characters);
    CHECK(count >= 1 && count <= CHARACTERS_MAX, "%d characters", count);
    for (int token = 0; token < count; token++) {
        char bytes[CHARACTER_BYTES_MAX];
        int32_t back;
        int used = characters_token_bytes(characters, token, bytes);
        CHECK(used > 0 && characters_encode(&back, characters, bytes, (size_t)used, NULL) == 1 &&
                  back == token,
              "token %d is lost", token);
    }
    char *text = characters_to_json(characters);
    Characters *again = characters_parse_json(text, strlen(text), NULL);
    CHECK(characters_are_same(characters, again), "what is written is not read");
    characters_free(again);
    memory_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    Error error = {.text = ""};
    if (bytes == 0) {
        return 0;
    }
    Characters *characters = data[0] & 1 ? characters_parse_pickle(data + 1, bytes - 1, &error)
                                         : characters_parse_json((const char *)data + 1, bytes - 1, &error);
    if (!characters) {
        CHECK(strncmp(error.text, "expected ", 9) == 0 || strncmp(error.text, "tokenizer: ", 11) == 0,
              "an error without an expectation: %s", error.text);
        return 0;
    }
    check_vocabulary(characters);
    characters_free(characters);
    return 0;
}
