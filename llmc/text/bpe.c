#include "llmc/text/bpe.h"

#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/text/vocabulary.h"

/* tiktoken merges two neighbours whenever their bytes together are a token; here, and in GPT-2's own code,
 * they must be the very two that the token was made of in training. It is the same: let X Y be neighbours
 * whose bytes are those of a token T, made of another two. No merge crossed the ends of these bytes so far,
 * so the merges inside were those of T's bytes alone, in the same order; but alone they become T (a test
 * tries every token), and the only two symbols on the way to T are those that T was made of.
 */

/* Up to here, searching all pairs for the best one is faster than keeping them in order. */
enum { SHORT_WORD_BYTES = 48, WINDOW_BYTES = 1 << 20, BUCKET_WORDS = (MERGES_COUNT + 63) / 64 };

#define NO_SYMBOL 0xffffffffu

/* A token of a long word, at the place of its first byte. A pair is at the place of its left symbol. */
typedef struct BpeSymbol {
    uint32_t previous;
    uint32_t next;
    uint32_t bucket_previous; /* the other pairs of the same merge */
    uint32_t bucket_next;
    uint16_t token;
    uint16_t merged; /* what this and the next symbol become, or NOT_A_MERGE */
} BpeSymbol;

void bpe_scratch_release(BpeScratch *scratch)
{
    memory_free(scratch->symbols);
    memory_free(scratch->buckets);
    memory_free(scratch->bucket_bits);
    *scratch = (BpeScratch){0};
}

static size_t encode_short(BpeScratch *scratch, uint16_t *out, const Tokenizer *tokenizer,
                           const uint8_t *word, size_t bytes)
{
    uint16_t merged[SHORT_WORD_BYTES + 1]; /* what symbols i and i + 1 become */
    size_t count = bytes;
    for (size_t i = 0; i < bytes; i++) {
        out[i] = tokenizer->byte_tokens[word[i]];
    }
    for (size_t i = 0; i + 1 < bytes; i++) {
        merged[i] = tokenizer->byte_merges[word[i]][word[i + 1]];
    }
    for (;;) {
        scratch->steps += count;
        uint32_t best = (uint32_t)NOT_A_MERGE
                        << 16; /* and its place in the low bits, so that the leftmost wins */
        for (size_t i = 0; i + 1 < count; i++) {
            uint32_t pair = (uint32_t)merged[i] << 16 | (uint32_t)i;
            best = pair < best ? pair : best;
        }
        if (best >= (uint32_t)NOT_A_MERGE << 16) {
            return count;
        }
        size_t place = best & 0xffff;
        out[place] = (uint16_t)(best >> 16);
        count--;
        for (size_t i = place + 1; i < count; i++) {
            out[i] = out[i + 1];
            merged[i] = merged[i + 1];
        }
        if (place + 1 < count) {
            merged[place] = (uint16_t)merged_token(tokenizer, out[place], out[place + 1]);
        }
        if (place > 0) {
            merged[place - 1] = (uint16_t)merged_token(tokenizer, out[place - 1], out[place]);
        }
    }
}

static void bucket_remove(BpeScratch *scratch, uint32_t place)
{
    BpeSymbol *symbols = scratch->symbols;
    BpeSymbol *symbol = &symbols[place];
    if (symbol->merged == NOT_A_MERGE) {
        return;
    }
    uint32_t bucket = symbol->merged - 256u;
    if (symbol->bucket_previous != NO_SYMBOL) {
        symbols[symbol->bucket_previous].bucket_next = symbol->bucket_next;
    } else {
        scratch->buckets[bucket] = symbol->bucket_next;
        if (symbol->bucket_next == NO_SYMBOL) {
            scratch->bucket_bits[bucket / 64] &= ~((uint64_t)1 << bucket % 64);
        }
    }
    if (symbol->bucket_next != NO_SYMBOL) {
        symbols[symbol->bucket_next].bucket_previous = symbol->bucket_previous;
    }
    symbol->merged = NOT_A_MERGE;
}

/* Look up what the symbol at this place and its next one become, and file the pair. */
static void bucket_insert(BpeScratch *scratch, const Tokenizer *tokenizer, uint32_t place)
{
    BpeSymbol *symbols = scratch->symbols;
    BpeSymbol *symbol = &symbols[place];
    scratch->steps++;
    symbol->merged = NOT_A_MERGE;
    if (symbol->next == NO_SYMBOL) {
        return;
    }
    symbol->merged = (uint16_t)merged_token(tokenizer, symbol->token, symbols[symbol->next].token);
    if (symbol->merged == NOT_A_MERGE) {
        return;
    }
    uint32_t bucket = symbol->merged - 256u;
    symbol->bucket_previous = NO_SYMBOL;
    symbol->bucket_next = scratch->buckets[bucket];
    if (symbol->bucket_next != NO_SYMBOL) {
        symbols[symbol->bucket_next].bucket_previous = place;
    }
    scratch->buckets[bucket] = place;
    scratch->bucket_bits[bucket / 64] |= (uint64_t)1 << bucket % 64;
}

/* Make one symbol of the one at this place and its next one. */
static void merge_at(BpeScratch *scratch, const Tokenizer *tokenizer, uint32_t place)
{
    BpeSymbol *symbols = scratch->symbols;
    BpeSymbol *left = &symbols[place];
    uint32_t right_place = left->next;
    uint16_t token = left->merged;
    bucket_remove(scratch, place);
    bucket_remove(scratch, right_place);
    left->token = token;
    left->next = symbols[right_place].next;
    if (left->next != NO_SYMBOL) {
        symbols[left->next].previous = place;
    }
    bucket_insert(scratch, tokenizer, place);
    if (left->previous != NO_SYMBOL) {
        bucket_remove(scratch, left->previous);
        bucket_insert(scratch, tokenizer, left->previous);
    }
}

static void scratch_grow(BpeScratch *scratch, size_t bytes)
{
    if (!scratch->buckets) {
        scratch->buckets = memory_alloc(MERGES_COUNT, sizeof(*scratch->buckets), "merge lists");
        memset(scratch->buckets, 0xff, MERGES_COUNT * sizeof(*scratch->buckets));
        scratch->bucket_bits = memory_alloc_zeroed(BUCKET_WORDS, sizeof(uint64_t), "merge lists");
    }
    if (bytes > scratch->symbols_capacity) {
        memory_free(scratch->symbols);
        scratch->symbols_capacity = bytes + bytes / 2;
        scratch->symbols = memory_alloc(scratch->symbols_capacity, sizeof(BpeSymbol), "one long word");
    }
}

/* Every pair is in the list of its merge, and the lists are emptied in the order of the merges. A merge only
 * makes pairs of later merges, since both sides of a merge are tokens older than what it makes: so each list
 * is complete when its turn comes, and time is linear in the bytes. Pairs of one merge are independent of
 * each other, but where both sides are the same token: those are merged from the left of their run on. */
static size_t encode_long(BpeScratch *scratch, uint16_t *out, const Tokenizer *tokenizer, const uint8_t *word,
                          size_t bytes)
{
    scratch_grow(scratch, bytes);
    BpeSymbol *symbols = scratch->symbols;
    for (size_t i = 0; i < bytes; i++) {
        symbols[i].token = tokenizer->byte_tokens[word[i]];
        symbols[i].previous = i > 0 ? (uint32_t)(i - 1) : NO_SYMBOL;
        symbols[i].next = i + 1 < bytes ? (uint32_t)(i + 1) : NO_SYMBOL;
    }
    for (size_t i = 0; i < bytes; i++) {
        bucket_insert(scratch, tokenizer, (uint32_t)i);
    }
    for (uint32_t bit_word = 0; bit_word < BUCKET_WORDS; bit_word++) {
        while (scratch->bucket_bits[bit_word]) {
            uint32_t bucket = bit_word * 64 + (uint32_t)__builtin_ctzll(scratch->bucket_bits[bit_word]);
            uint32_t place = scratch->buckets[bucket];
            uint16_t left = symbols[place].token;
            if (left != symbols[symbols[place].next].token) {
                merge_at(scratch, tokenizer, place);
                continue;
            }
            while (symbols[place].previous != NO_SYMBOL && symbols[symbols[place].previous].token == left) {
                place = symbols[place].previous;
                scratch->steps++;
            }
            while (place != NO_SYMBOL && symbols[place].merged == bucket + 256) {
                merge_at(scratch, tokenizer, place);
                place = symbols[place].next;
            }
        }
    }
    size_t count = 0;
    for (uint32_t place = 0; place != NO_SYMBOL; place = symbols[place].next) {
        out[count++] = symbols[place].token;
    }
    return count;
}

static size_t encode_part(BpeScratch *scratch, uint16_t *out, const Tokenizer *tokenizer, const uint8_t *text,
                          size_t bytes)
{
    return bytes <= SHORT_WORD_BYTES ? encode_short(scratch, out, tokenizer, text, bytes)
                                     : encode_long(scratch, out, tokenizer, text, bytes);
}

/* Do these two tokens stay two when their bytes are encoded? */
static int is_lasting_pair(BpeScratch *scratch, const Tokenizer *tokenizer, uint16_t left, uint16_t right)
{
    uint8_t text[2 * TOKEN_BYTES_MAX];
    uint16_t tokens[2 * TOKEN_BYTES_MAX];
    size_t left_bytes, right_bytes;
    const char *left_text = tokenizer_token_bytes(tokenizer, left, &left_bytes);
    const char *right_text = tokenizer_token_bytes(tokenizer, right, &right_bytes);
    memcpy(text, left_text, left_bytes);
    memcpy(text + left_bytes, right_text, right_bytes);
    size_t count = encode_part(scratch, tokens, tokenizer, text, left_bytes + right_bytes);
    return count == 2 && tokens[0] == left && tokens[1] == right;
}

/* The last tokens of a window depend on what comes after it and are dropped; the next window begins at a
 * token's end.
 *
 * The tokens on both sides of such an end are those of the whole word if the two next to it stay two when
 * they are encoded alone. Say not, and look at the first merge across the end. Merges are done in the order
 * of training, so before it both sides were merged as if they were alone; the two symbols that it joins lie
 * inside the two tokens next to the end, whose symbols at that time depend on their own bytes only, since no
 * merge crosses a token's end. So the two tokens, encoded alone, are merged across the end as well. */
size_t bpe_encode_windows(BpeScratch *scratch, uint16_t *out, const Tokenizer *tokenizer, const uint8_t *word,
                          size_t bytes, size_t window_bytes)
{
    size_t count = 0; /* tokens of word[0, done) */
    size_t done = 0;
    size_t window = window_bytes;
    while (done < bytes) {
        window = bytes - done < window ? bytes - done : window;
        size_t found = encode_part(scratch, out + count, tokenizer, word + done, window);
        size_t token_bytes;
        if (count > 0 && !is_lasting_pair(scratch, tokenizer, out[count - 1], out[count])) {
            tokenizer_token_bytes(tokenizer, out[--count], &token_bytes);
            done -= token_bytes; /* begin one token earlier, and take more */
            window += window_bytes;
            continue;
        }
        size_t end = done + window;
        for (size_t dropped = 0; end < bytes && dropped < window_bytes / 16 && found > 1;) {
            tokenizer_token_bytes(tokenizer, out[count + --found], &token_bytes);
            dropped += token_bytes;
            end -= token_bytes;
        }
        count += found;
        done = end;
        window = window_bytes;
    }
    return count;
}

size_t bpe_encode(BpeScratch *scratch, uint16_t *out, const Tokenizer *tokenizer, const uint8_t *word,
                  size_t bytes)
{
    return bytes <= WINDOW_BYTES + WINDOW_BYTES / 2
               ? encode_part(scratch, out, tokenizer, word, bytes)
               : bpe_encode_windows(scratch, out, tokenizer, word, bytes, WINDOW_BYTES);
}
