#include "llmc/text/tokenizer.h"

#include <assert.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/text/vocabulary.h"

/* vocab.bpe as it is, made part of the program by the Makefile. */
extern const unsigned char vocabulary_merges[];
extern const unsigned long vocabulary_merges_bytes;

static const char eot_name[] = "<|endoftext|>";

enum { TOKEN_TEXT_BYTES_MAX = TOKENIZER_VOCAB * 16 };

/* While the vocabulary is read: token ids by their bytes. */
enum { NAME_SLOTS_LOG2 = 17 };
typedef struct NameTable {
    const Tokenizer *tokenizer;
    uint16_t *ids; /* NOT_A_MERGE where empty */
} NameTable;

/* GPT-2 writes its merges with a visible character for each byte: bytes that are printable in Latin-1 stand
 * for themselves, all others are, in order, the characters from U+0100 on. Tokens 0 to 255 are the bytes in
 * that order too: first the printable ones. */
static int is_printable(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

static void map_bytes(uint16_t byte_tokens[256], uint8_t byte_of_character[512])
{
    uint16_t printable_count = 0;
    for (int byte = 0; byte < 256; byte++) {
        printable_count += (uint16_t)is_printable(byte);
    }
    uint16_t printable = 0;
    uint16_t hidden = 0;
    for (int byte = 0; byte < 256; byte++) {
        if (is_printable(byte)) {
            byte_tokens[byte] = printable++;
            byte_of_character[byte] = (uint8_t)byte;
        } else {
            byte_tokens[byte] = printable_count + hidden;
            byte_of_character[256 + hidden] = (uint8_t)byte;
            hidden++;
        }
    }
}

static void add_token(Tokenizer *tokenizer, int token, const char *text, uint32_t bytes)
{
    uint32_t begin = tokenizer->token_begins[token];
    CHECK(begin + bytes <= TOKEN_TEXT_BYTES_MAX && bytes <= TOKEN_BYTES_MAX,
          "the embedded vocabulary is damaged: token %d is too long; build again", token);
    memcpy(tokenizer->token_text + begin, text, bytes);
    tokenizer->token_begins[token + 1] = begin + bytes;
}

/* The slot that holds the token of these bytes, or the empty one where it belongs. */
static uint16_t *name_slot(const NameTable *names, const char *text, uint32_t bytes)
{
    uint64_t hash = bytes;
    for (uint32_t i = 0; i < bytes; i++) {
        hash = (hash ^ (uint8_t)text[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    uint32_t slot = (uint32_t)hash & ((1u << NAME_SLOTS_LOG2) - 1);
    for (;; slot = (slot + 1) & ((1u << NAME_SLOTS_LOG2) - 1)) {
        uint16_t id = names->ids[slot];
        if (id == NOT_A_MERGE) {
            return &names->ids[slot];
        }
        size_t token_bytes;
        const char *token = tokenizer_token_bytes(names->tokenizer, id, &token_bytes);
        if (token_bytes == bytes && memcmp(token, text, bytes) == 0) {
            return &names->ids[slot];
        }
    }
}

/* Turn the visible characters from *text up to `end_character` into bytes; *text moves behind it. */
static uint32_t read_side(char bytes[TOKEN_BYTES_MAX], const unsigned char **text, char end_character,
                          const uint8_t byte_of_character[512])
{
    const unsigned char *end = vocabulary_merges + vocabulary_merges_bytes;
    const unsigned char *next = *text;
    uint32_t count = 0;
    while (next < end && *next != (unsigned char)end_character) {
        uint32_t character = *next++;
        if (character >= 0x80 && next < end) {
            character = (character & 0x1f) << 6 | (*next++ & 0x3fu);
        }
        CHECK(character < 512 && count < TOKEN_BYTES_MAX, "the embedded vocabulary is damaged; build again");
        bytes[count++] = (char)byte_of_character[character];
    }
    *text = next + 1;
    return count;
}

/* One line of the merges: two tokens that are there already, and become `token`. */
static void add_merge(Tokenizer *tokenizer, NameTable *names, int token, const unsigned char **text,
                      const uint8_t byte_of_character[512])
{
    char merged[2 * TOKEN_BYTES_MAX];
    uint32_t left_bytes = read_side(merged, text, ' ', byte_of_character);
    uint32_t right_bytes = read_side(merged + left_bytes, text, '\n', byte_of_character);
    uint32_t left = *name_slot(names, merged, left_bytes);
    uint32_t right = *name_slot(names, merged + left_bytes, right_bytes);
    CHECK(left != NOT_A_MERGE && right != NOT_A_MERGE,
          "the embedded vocabulary is damaged: merge %d joins what is no token; build again", token - 256);
    add_token(tokenizer, token, merged, left_bytes + right_bytes);
    *name_slot(names, merged, left_bytes + right_bytes) = (uint16_t)token;

    uint32_t slot = merge_slot_of(left << 16 | right);
    while (tokenizer->merges[slot].pair != EMPTY_PAIR) {
        slot = (slot + 1) & ((1u << MERGE_SLOTS_LOG2) - 1);
    }
    tokenizer->merges[slot] = (MergeSlot){.pair = left << 16 | right, .merged = (uint32_t)token};
}

Tokenizer *tokenizer_create(void)
{
    Tokenizer *tokenizer = memory_alloc_zeroed(1, sizeof(*tokenizer), "tokenizer");
    tokenizer->token_text = memory_alloc(TOKEN_TEXT_BYTES_MAX, 1, "tokens");
    pattern_init(&tokenizer->pattern);
    memset(tokenizer->merges, 0xff, sizeof(tokenizer->merges));

    NameTable names = {.tokenizer = tokenizer};
    names.ids = memory_alloc((size_t)1 << NAME_SLOTS_LOG2, sizeof(*names.ids), "token names");
    memset(names.ids, 0xff, sizeof(*names.ids) << NAME_SLOTS_LOG2);

    uint8_t byte_of_character[512] = {0};
    map_bytes(tokenizer->byte_tokens, byte_of_character);
    char byte_of_token[256];
    for (int byte = 0; byte < 256; byte++) {
        byte_of_token[tokenizer->byte_tokens[byte]] = (char)byte;
    }
    for (int token = 0; token < 256; token++) {
        add_token(tokenizer, token, &byte_of_token[token], 1);
        *name_slot(&names, &byte_of_token[token], 1) = (uint16_t)token;
    }
    const unsigned char *end = vocabulary_merges + vocabulary_merges_bytes;
    const unsigned char *text = memchr(vocabulary_merges, '\n', vocabulary_merges_bytes);
    CHECK(text, "the embedded vocabulary is damaged: no line of version; build again");
    text++;
    for (int token = 256; token < TOKENIZER_EOT; token++) {
        CHECK(text < end, "the embedded vocabulary is damaged: merge %d is missing; build again",
              token - 256);
        add_merge(tokenizer, &names, token, &text, byte_of_character);
    }
    for (int left = 0; left < 256; left++) {
        for (int right = 0; right < 256; right++) {
            tokenizer->byte_merges[left][right] = (uint16_t)merged_token(
                tokenizer, tokenizer->byte_tokens[left], tokenizer->byte_tokens[right]);
        }
    }
    add_token(tokenizer, TOKENIZER_EOT, eot_name, sizeof(eot_name) - 1);
    memory_free(names.ids);
    return tokenizer;
}

void tokenizer_free(Tokenizer *tokenizer)
{
    if (tokenizer) {
        memory_free(tokenizer->token_text);
        memory_free(tokenizer);
    }
}

const char *tokenizer_token_bytes(const Tokenizer *tokenizer, int token, size_t *bytes)
{
    if (token < 0 || token >= TOKENIZER_VOCAB) {
        *bytes = 0;
        return NULL;
    }
    *bytes = tokenizer->token_begins[token + 1] - tokenizer->token_begins[token];
    return tokenizer->token_text + tokenizer->token_begins[token];
}
