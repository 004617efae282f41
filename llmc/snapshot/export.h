/* Weights for other programs. Each file appears whole or not at all. It replaces one of its name that was
 * exported before, and no other: each carries a mark that only this program writes. */
#ifndef LLMC_SNAPSHOT_EXPORT_H
#define LLMC_SNAPSHOT_EXPORT_H

#include "llmc/base/error.h"
#include "llmc/model/params.h"
#include "llmc/snapshot/state.h"
#include "llmc/text/characters.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is known of the training, for the model card. */
typedef struct ExportFacts {
    int64_t updates;       /* 0: none, or unknown */
    int64_t update_tokens; /* in each */
    double val_loss;       /* of these weights; NAN: unknown */
    double best_loss;      /* the lowest on the way; not finite: unknown */
} ExportFacts;

/* `--export_hf=DIR`: config.json and model.safetensors (F32) as transformers' GPT2LMHeadModel saves them:
 * names with `transformer.`, Conv1D weights [in,out], lm_head left out because it is tied;
 * generation_config.json; the tokenizer of GPT-2's vocabulary (characters NULL) or of these characters, so
 * that AutoTokenizer finds it; and a model card, README.md, unless there is one that somebody else has
 * written. `facts` may be NULL. The folder is made if it is missing. */
int export_hugging_face(const char *folder, const ParamTable *table, const StateSource *source,
                        const Characters *characters, const ExportFacts *facts, Error *error);

/* `--export_llmc=FILE`: llm.c's model file, version 3 (fp32), vocabulary padded with zeros to a multiple of
 * 128. */
int export_llmc(const char *path, const ParamTable *table, const StateSource *source, Error *error);

/* Whether these can be written, looked at before the run: -1 with *error when the place cannot be written, or
 * a file there was not exported by this program. The first makes the folder; both leave nothing else. */
int export_check_hugging_face(const char *folder, const ModelShape *shape, const Characters *characters,
                              Error *error);
int export_check_llmc(const char *path, Error *error);

#ifdef __cplusplus
}
#endif
#endif
