/* Text to ids. Nearly every word of real text was met before, so each encoder remembers words of up to 15
 * bytes with their ids in a table of its own, and plain ASCII is cut into words without a call for each.
 */
#include <assert.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/text/bpe.h"
#include "llmc/text/vocabulary.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are packed as little-endian integers");

enum {
    CACHE_WORD_BYTES = 15,
    CACHE_TOKENS = 7,
    CACHE_LOG2 = 15,
    BLOCK_BYTES = 1 << 16, /* space for the ids of this much text is made at once */
    READ_AHEAD_BYTES = 32  /* the fast path reads this far from the beginning of a word */
};

/* 32 bytes, so that one never lies on two cache lines. Key 0 is no word: every key holds its length. */
typedef struct CachedWord {
    uint64_t key[2]; /* the bytes of the word, then its length as the last byte */
    uint16_t tokens[CACHE_TOKENS];
    uint16_t tokens_count;
} CachedWord;

static_assert(sizeof(CachedWord) == 32, "two of them share a cache line");

struct Encoder {
    CachedWord cache[1 << CACHE_LOG2];
    const Tokenizer *tokenizer;
    BpeScratch scratch;
    uint8_t ascii_class[256]; /* CharClass, or NOT_ASCII */
};

enum { NOT_ASCII = 4 };

Encoder *encoder_create(const Tokenizer *tokenizer)
{
    Encoder *encoder = memory_alloc_zeroed(1, sizeof(*encoder), "encoder");
    encoder->tokenizer = tokenizer;
    memset(encoder->ascii_class, NOT_ASCII, sizeof(encoder->ascii_class));
    memcpy(encoder->ascii_class, tokenizer->pattern.class_of, 0x80);
    return encoder;
}

void encoder_free(Encoder *encoder)
{
    if (encoder) {
        bpe_scratch_release(&encoder->scratch);
        memory_free(encoder);
    }
}

void token_buffer_release(TokenBuffer *buffer)
{
    memory_free(buffer->tokens);
    *buffer = (TokenBuffer){0};
}

/* Make room for `count` more, and for the few that writing a cached word may touch beyond. */
static inline void token_buffer_reserve(TokenBuffer *buffer, size_t count)
{
    size_t needed = buffer->count + count + CACHE_TOKENS + 1;
    if (__builtin_expect(needed > buffer->capacity, 0)) {
        size_t capacity = needed + needed / 2;
        buffer->tokens =
            memory_grow(buffer->tokens, buffer->count, capacity, sizeof(*buffer->tokens), "token ids");
        buffer->capacity = capacity;
    }
}

static inline uint64_t load_8_bytes(const uint8_t *text)
{
    uint64_t bytes;
    memcpy(&bytes, text, sizeof(bytes));
    return bytes;
}

/* The high bit of each byte that is not an ASCII letter. */
static inline uint64_t not_letters(uint64_t bytes)
{
    const uint64_t ones = 0x0101010101010101u;
    uint64_t lower = bytes | 0x20 * ones;
    uint64_t low_bits = lower & 0x7f * ones;
    uint64_t at_least_a = low_bits + (0x80 - 'a') * ones;
    uint64_t above_z = low_bits + (0x80 - 'z' - 1) * ones;
    return (~at_least_a | above_z | lower) & 0x80 * ones;
}

static inline CachedWord *cache_slot(Encoder *encoder, const uint64_t key[2])
{
    uint64_t hash = (key[0] ^ key[1] * 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u;
    return &encoder->cache[hash >> (64 - CACHE_LOG2)];
}

/* Find the ids of a word that is not in its slot, append them and remember them. Room is reserved. */
static __attribute__((noinline)) uint16_t *encode_new_word(Encoder *encoder, uint16_t *out, CachedWord *slot,
                                                           const uint64_t key[2])
{
    uint8_t word[16];
    memcpy(word, key, sizeof(word));
    size_t count = bpe_encode(&encoder->scratch, out, encoder->tokenizer, word, word[15]);
    if (count <= CACHE_TOKENS) {
        slot->key[0] = key[0];
        slot->key[1] = key[1];
        slot->tokens_count = (uint16_t)count;
        memcpy(slot->tokens, out, count * sizeof(*out));
    }
    return out + count;
}

static inline uint16_t *encode_key(Encoder *encoder, uint16_t *out, const uint64_t key[2])
{
    CachedWord *slot = cache_slot(encoder, key);
    if (__builtin_expect(slot->key[0] != key[0] || slot->key[1] != key[1], 0)) {
        return encode_new_word(encoder, out, slot, key);
    }
    memcpy(out, slot->tokens, CACHE_TOKENS * sizeof(*out)); /* more than it has: cheaper than asking */
    return out + slot->tokens_count;
}

static inline int run_of_class(const uint8_t *ascii_class, uint8_t class, const uint8_t *text)
{
    int count = 0;
    while (count <= CACHE_WORD_BYTES && ascii_class[text[count]] == class) {
        count++;
    }
    return count;
}

/* Bytes of the word at text when it begins, after `space` (0 or 1) spaces, with ASCII that is no letter; 0
 * leaves it to the general path. */
static inline int other_word_bytes(const uint8_t *ascii_class, const uint8_t *text, int space)
{
    uint8_t class = ascii_class[text[space]];
    if (class == CLASS_SPACE) {
        int count = run_of_class(ascii_class, CLASS_SPACE, text);
        if (count > CACHE_WORD_BYTES || ascii_class[text[count]] == NOT_ASCII) {
            return 0;
        }
        return count == 1 ? 1 : count - 1;
    }
    if (class == NOT_ASCII) {
        return 0;
    }
    if (text[space] == '\'' && !space) {
        uint8_t second = text[1];
        if (second == 's' || second == 't' || second == 'm' || second == 'd') {
            return 2;
        }
        if ((second == 'l' && text[2] == 'l') || ((second == 'r' || second == 'v') && text[2] == 'e')) {
            return 3;
        }
    }
    return space + run_of_class(ascii_class, class, text + space);
}

/* Append the ids of the words from text on, while they begin before `limit` and are plain ASCII of up to 15
 * bytes. READ_AHEAD_BYTES must be readable behind every such beginning, and room be reserved. Returns where
 * it stopped. */
static const uint8_t *encode_ascii(Encoder *encoder, TokenBuffer *buffer, const uint8_t *text,
                                   const uint8_t *limit)
{
    /* Key bytes of a word of n bytes. */
    static const uint64_t masks[CACHE_WORD_BYTES + 1][2] = {
#define LOW(n) {((uint64_t)1 << 8 * (n)) - 1, (uint64_t)0}
#define HIGH(n)                                                                                              \
    {                                                                                                        \
        ~(uint64_t)0, ((uint64_t)1 << 8 * ((n)-8)) - 1                                                       \
    }
        LOW(0),  LOW(1),  LOW(2),   LOW(3),   LOW(4),   LOW(5),   LOW(6),   LOW(7),
        HIGH(8), HIGH(9), HIGH(10), HIGH(11), HIGH(12), HIGH(13), HIGH(14), HIGH(15),
#undef LOW
#undef HIGH
    };
    const uint8_t *ascii_class = encoder->ascii_class;
    uint16_t *out = buffer->tokens + buffer->count;
    while (text < limit) {
        uint64_t first = load_8_bytes(text);
        int space = (first & 0xff) == ' ';
        uint64_t ends = not_letters(load_8_bytes(text + space));
        int bytes;
        if (__builtin_expect(ends != 0, 1)) {
            bytes = __builtin_ctzll(ends) >> 3;
        } else {
            ends = not_letters(load_8_bytes(text + space + 8));
            bytes = ends ? 8 + (__builtin_ctzll(ends) >> 3) : 16;
        }
        bytes = bytes > 0 ? bytes + space : other_word_bytes(ascii_class, text, space);
        if (bytes == 0 || bytes > CACHE_WORD_BYTES || text[bytes] >= 0x80) {
            break;
        }
        uint64_t key[2] = {first & masks[bytes][0],
                           (load_8_bytes(text + 8) & masks[bytes][1]) | (uint64_t)bytes << 56};
        out = encode_key(encoder, out, key);
        text += bytes;
    }
    buffer->count = (size_t)(out - buffer->tokens);
    return text;
}

/* Append the ids of the word at text, whatever it is. Returns its end. */
static const uint8_t *encode_any_word(Encoder *encoder, TokenBuffer *buffer, const uint8_t *text,
                                      const uint8_t *end)
{
    const uint8_t *word_end = pattern_word_end(&encoder->tokenizer->pattern, text, end);
    size_t bytes = (size_t)(word_end - text);
    token_buffer_reserve(buffer, bytes);
    uint16_t *out = buffer->tokens + buffer->count;
    if (bytes <= CACHE_WORD_BYTES) {
        uint64_t key[2] = {0, (uint64_t)bytes << 56};
        memcpy(key, text, bytes);
        out = encode_key(encoder, out, key);
    } else {
        out += bpe_encode(&encoder->scratch, out, encoder->tokenizer, text, bytes);
    }
    buffer->count = (size_t)(out - buffer->tokens);
    return word_end;
}

void encoder_encode(Encoder *encoder, TokenBuffer *out, const char *text, size_t bytes)
{
    const uint8_t *next = (const uint8_t *)text;
    const uint8_t *end = next + bytes;
    while (next < end) {
        size_t left = (size_t)(end - next);
        if (left > READ_AHEAD_BYTES) {
            size_t block = left - READ_AHEAD_BYTES < BLOCK_BYTES ? left - READ_AHEAD_BYTES : BLOCK_BYTES;
            token_buffer_reserve(out, block + READ_AHEAD_BYTES);
            next = encode_ascii(encoder, out, next, next + block);
        }
        if (next < end) {
            next = encode_any_word(encoder, out, next, end);
        }
    }
}

uint64_t encoder_steps(const Encoder *encoder)
{
    return encoder->scratch.steps;
}

size_t text_cut(const Tokenizer *tokenizer, const char *text, size_t bytes)
{
    return pattern_cut(&tokenizer->pattern, (const uint8_t *)text, bytes);
}
