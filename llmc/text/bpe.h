/* Byte-pair encoding of one word: the pair of neighbours that was merged first in training is merged first,
 * until no two neighbours are a merge.
 */
#ifndef LLMC_TEXT_BPE_H
#define LLMC_TEXT_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "llmc/text/tokenizer.h"

/* Space for long words, kept from word to word. Zero it to begin; release when done. */
typedef struct BpeScratch {
    struct BpeSymbol *symbols;
    size_t symbols_capacity;
    uint32_t *buckets;     /* MERGES_COUNT lists of pairs, by what they become */
    uint64_t *bucket_bits; /* which lists are not empty */
    uint64_t steps;        /* pairs looked at so far: what tests of linear time count */
} BpeScratch;

void bpe_scratch_release(BpeScratch *scratch);

/* Write the tokens of a word, bytes > 0, at most one for each byte. Returns how many. Scratch space does not
 * grow with the word beyond some 30 MB. */
size_t bpe_encode(BpeScratch *scratch, uint16_t *out, const Tokenizer *tokenizer, const uint8_t *word,
                  size_t bytes);

/* The same by pieces of window_bytes > TOKEN_BYTES_MAX: how bpe_encode takes a long word. */
size_t bpe_encode_windows(BpeScratch *scratch, uint16_t *out, const Tokenizer *tokenizer, const uint8_t *word,
                          size_t bytes, size_t window_bytes);

#endif
