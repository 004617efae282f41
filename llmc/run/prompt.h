/* What samples begin with: the option `start`, read and checked before training, so that a wrong one is not
 * found out at the end. */
#ifndef LLMC_RUN_PROMPT_H
#define LLMC_RUN_PROMPT_H

#include "llmc/run/options.h"
#include "llmc/text/characters.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Owned by the caller: zero it or prompt_init, prompt_release. */
typedef struct Prompt {
    int32_t *tokens; /* (count), each below vocab_size */
    int64_t count;
    const Characters *characters; /* that the tokens are; NULL: GPT-2's. Borrowed */
} Prompt;

/* characters: the vocabulary, NULL for GPT-2's. -1 with *error when the text cannot be read, is empty, or
 * holds a character that is not in the vocabulary or a token that is not below the options' vocab_size. */
int prompt_init(Prompt *prompt, const Options *options, const Characters *characters, Error *error);
void prompt_release(Prompt *prompt);

#ifdef __cplusplus
}
#endif
#endif
