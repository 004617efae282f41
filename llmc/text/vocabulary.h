/* What a Tokenizer holds: GPT-2's tokens, the table of merges, the pattern's classes. Read only after create.
 */
#ifndef LLMC_TEXT_VOCABULARY_H
#define LLMC_TEXT_VOCABULARY_H

#include <stdint.h>

#include "llmc/text/pattern.h"
#include "llmc/text/tokenizer.h"

enum {
    MERGES_COUNT = TOKENIZER_EOT - 256,
    MERGE_SLOTS_LOG2 = 17, /* 2.6 slots for each merge: a search mostly ends at its first slot */
    NOT_A_MERGE = 0xffff   /* no token has this id */
};

#define EMPTY_PAIR 0xffffffffu

/* Open addressing, linear probing. */
typedef struct MergeSlot {
    uint32_t pair;   /* left << 16 | right, or EMPTY_PAIR */
    uint32_t merged; /* the token that the pair becomes; merges of lower ids go first */
} MergeSlot;

struct Tokenizer {
    Pattern pattern;
    uint16_t byte_tokens[256];
    uint16_t byte_merges[256]
                        [256]; /* what two bytes become, or NOT_A_MERGE: merges of two bytes are met most */
    MergeSlot merges[1 << MERGE_SLOTS_LOG2];
    uint32_t token_begins[TOKENIZER_VOCAB + 1]; /* token t is bytes [t], [t+1) of token_text */
    char *token_text;
};

static inline uint32_t merge_slot_of(uint32_t pair)
{
    return pair * 0x9e3779b1u >> (32 - MERGE_SLOTS_LOG2);
}

/* The token that two neighbours become, or NOT_A_MERGE. */
static inline uint32_t merged_token(const Tokenizer *tokenizer, uint32_t left, uint32_t right)
{
    uint32_t pair = left << 16 | right;
    for (uint32_t slot = merge_slot_of(pair);; slot = (slot + 1) & ((1u << MERGE_SLOTS_LOG2) - 1)) {
        if (tokenizer->merges[slot].pair == pair) {
            return tokenizer->merges[slot].merged;
        }
        if (tokenizer->merges[slot].pair == EMPTY_PAIR) {
            return NOT_A_MERGE;
        }
    }
}

#endif
