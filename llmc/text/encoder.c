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
    CACHE_LOG2 = 14,
    BLOCK_BYTES = 64,                    /* classified at once, a bit of a word for each byte */
    READ_AHEAD_BYTES = BLOCK_BYTES + 16, /* and a word that begins at a block's end is loaded as 16 bytes */
    STRETCH_BYTES = 1 << 16              /* space for the ids of this much text is made at once */
};

/* 32 bytes, so that one never lies on two cache lines. Key 0 is no word: every key holds its length. */
typedef struct CachedWord {
    uint64_t key[2]; /* the bytes of the word, then its length as the last byte */
    uint16_t tokens[CACHE_TOKENS];
    uint16_t tokens_count;
} CachedWord;

static_assert(sizeof(CachedWord) == 32, "two of them share a cache line");

struct Encoder {
    CachedWord cache[1 << CACHE_LOG2]
                    [2]; /* two places for words of one hash: a word that comes again moves up */
    const Tokenizer *tokenizer;
    BpeScratch scratch;
};

Encoder *encoder_create(const Tokenizer *tokenizer)
{
    Encoder *encoder = memory_alloc_zeroed(1, sizeof(*encoder), "encoder");
    encoder->tokenizer = tokenizer;
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

/* Find the ids of a word that is not in the first place of its hash, and append them. Room is reserved. */
static __attribute__((noinline)) uint16_t *encode_rare_word(Encoder *encoder, uint16_t *out,
                                                            CachedWord places[2], const uint64_t key[2])
{
    CachedWord found = places[1];
    if (found.key[0] == key[0] && found.key[1] == key[1]) {
        places[1] = places[0];
        places[0] = found;
        memcpy(out, found.tokens, CACHE_TOKENS * sizeof(*out));
        return out + found.tokens_count;
    }
    uint8_t word[16];
    memcpy(word, key, sizeof(word));
    size_t count = bpe_encode(&encoder->scratch, out, encoder->tokenizer, word, word[15]);
    if (count <= CACHE_TOKENS) {
        found.key[0] = key[0];
        found.key[1] = key[1];
        found.tokens_count = (uint16_t)count;
        memcpy(found.tokens, out, count * sizeof(*out));
        places[1] = found;
    }
    return out + count;
}

static inline uint16_t *encode_key(Encoder *encoder, uint16_t *out, const uint64_t key[2])
{
    uint64_t hash = (key[0] ^ key[1] * 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u;
    CachedWord *places = encoder->cache[hash >> (64 - CACHE_LOG2)];
    if (__builtin_expect(places->key[0] != key[0] || places->key[1] != key[1], 0)) {
        return encode_rare_word(encoder, out, places, key);
    }
    memcpy(out, places->tokens, CACHE_TOKENS * sizeof(*out)); /* more than it has: cheaper than asking */
    return out + places->tokens_count;
}

/* One bit for each byte of a block, bit i for byte i. */
typedef struct BlockMasks {
    uint64_t letters;
    uint64_t numbers;
    uint64_t white; /* ASCII white space, ' ' too */
    uint64_t spaces;
    uint64_t apostrophes;
    uint64_t not_ascii;
} BlockMasks;

/* The lowest bit of each byte as one bit of a mask. */
static inline uint64_t gather_bits(const uint8_t flags[BLOCK_BYTES])
{
    uint64_t mask = 0;
    for (int i = 0; i < BLOCK_BYTES; i += 8) {
        /* The products bring bit 8k of the eight bytes to bit 56 + k, and nothing else comes there. */
        mask |= (load_8_bytes(flags + i) * 0x0102040810204080u >> 56) << i;
    }
    return mask;
}

static inline void find_masks(BlockMasks *masks, const uint8_t *text)
{
    uint8_t letters[BLOCK_BYTES];
    uint8_t numbers[BLOCK_BYTES];
    uint8_t white[BLOCK_BYTES];
    uint8_t spaces[BLOCK_BYTES];
    uint8_t apostrophe = 0;
    uint8_t high = 0;
    for (int i = 0; i < BLOCK_BYTES; i++) {
        uint8_t c = text[i];
        letters[i] = (uint8_t)((c | 0x20) - 'a') <= 'z' - 'a';
        numbers[i] = (uint8_t)(c - '0') <= 9;
        spaces[i] = c == ' ';
        white[i] = spaces[i] | ((uint8_t)(c - '\t') <= '\r' - '\t');
        apostrophe |= c == '\'';
        high |= c;
    }
    masks->letters = gather_bits(letters);
    masks->numbers = gather_bits(numbers);
    masks->white = gather_bits(white);
    masks->spaces = gather_bits(spaces);
    masks->apostrophes = 0;
    masks->not_ascii = 0;
    if (apostrophe) {
        uint8_t flags[BLOCK_BYTES];
        for (int i = 0; i < BLOCK_BYTES; i++) {
            flags[i] = text[i] == '\'';
        }
        masks->apostrophes = gather_bits(flags);
    }
    if (high & 0x80) {
        uint8_t flags[BLOCK_BYTES];
        for (int i = 0; i < BLOCK_BYTES; i++) {
            flags[i] = text[i] >> 7;
        }
        masks->not_ascii = gather_bits(flags);
    }
}

/* Where words begin in a block that begins with a word: bit i for byte i. Only bits below the result's top,
 * which *known tells, are right: what follows the block, or its first byte that is not ASCII, decides the
 * others. White space looks one byte ahead, an apostrophe two, but then it is about bytes behind itself. */
static inline uint64_t word_begins(const uint8_t *text, int *known)
{
    BlockMasks masks;
    find_masks(&masks, text);
    uint64_t white = masks.white;
    uint64_t other = ~(white | masks.letters | masks.numbers);
    /* The last of some white space belongs to what follows, if that can be: it begins a word in any case. */
    uint64_t begins = white & (~(white << 1) | ~(white >> 1));
    begins |= masks.letters & ~(masks.letters << 1) & ~(masks.spaces << 1);
    begins |= masks.numbers & ~(masks.numbers << 1) & ~(masks.spaces << 1);
    begins |= other & ~(other << 1) & ~(masks.spaces << 1);
    begins |= 1;
    for (uint64_t left = masks.apostrophes & begins; left; left &= left - 1) {
        int i = __builtin_ctzll(left);
        int bytes = i < BLOCK_BYTES - 2 ? contraction_bytes(text + i, BLOCK_BYTES - i) : 0;
        if (bytes > 0) {
            begins &= ~((uint64_t)2 << i);
            begins |= i + bytes < BLOCK_BYTES ? (uint64_t)1 << (i + bytes) : 0;
        }
    }
    *known = masks.not_ascii ? __builtin_ctzll(masks.not_ascii) - 2 : BLOCK_BYTES - 2;
    return begins;
}

/* Append the ids of the ASCII words from text on, up to about `limit`. READ_AHEAD_BYTES must be readable
 * behind every position before the limit, and room be reserved. Returns where it stopped. */
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
    uint16_t *out = buffer->tokens + buffer->count;
    while (text < limit && !(load_8_bytes(text) & 0x8080808080808080u)) {
        int known;
        uint64_t begins = word_begins(text, &known);
        begins &= ((uint64_t)2 << known) - 2;
        if (!begins) {
            break;
        }
        int begin = 0;
        do {
            int end = __builtin_ctzll(begins);
            int bytes = end - begin;
            const uint8_t *word = text + begin;
            begins &= begins - 1;
            begin = end;
            if (__builtin_expect(bytes > CACHE_WORD_BYTES, 0)) {
                out += bpe_encode(&encoder->scratch, out, encoder->tokenizer, word, (size_t)bytes);
                continue;
            }
            uint64_t key[2] = {load_8_bytes(word) & masks[bytes][0],
                               (load_8_bytes(word + 8) & masks[bytes][1]) | (uint64_t)bytes << 56};
            out = encode_key(encoder, out, key);
        } while (begins);
        text += begin;
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
            size_t stretch = left - READ_AHEAD_BYTES;
            stretch = stretch < STRETCH_BYTES ? stretch : STRETCH_BYTES;
            token_buffer_reserve(out, stretch + BLOCK_BYTES);
            next = encode_ascii(encoder, out, next, next + stretch);
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
