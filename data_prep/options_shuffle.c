/* What --shuffle-documents asks of the other options. */
#include "data_prep/options.h"

static const double DEFAULT_VAL_FRACTION = 0.0005; /* nanoGPT's part of OpenWebText */

enum { SHUFFLE_MEMORY_MB_MAX = 1 << 20 };

int tokenize_options_check_shuffle(TokenizeOptions *options, Error *error)
{
    if (options->shuffle_memory < 1 || options->shuffle_memory > SHUFFLE_MEMORY_MB_MAX) {
        return error_set(error, "--shuffle-memory=%lld: expected a whole number from 1 to %d",
                         (long long)options->shuffle_memory, SHUFFLE_MEMORY_MB_MAX);
    }
    if (options->shuffle_documents < 0) {
        return 0;
    }
    if (options->tokenizer == TOKENS_CHAR || options->val_inputs_count > 0) {
        return error_set(error, "--shuffle-documents with %s: expected one of them, found both",
                         options->val_inputs_count > 0 ? "--val-input" : "--tokenizer=char");
    }
    if (options->val_tokens >= 0) {
        return error_set(error,
                         "--val-tokens with --shuffle-documents: expected --val-fraction=F, since whole "
                         "documents are kept for validation");
    }
    if (options->val_fraction < 0) {
        options->val_fraction = DEFAULT_VAL_FRACTION;
    }
    return 0;
}
