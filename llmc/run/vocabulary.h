/* Which tokens a run speaks: GPT-2's, or the characters of a vocabulary that lies beside the data, or that
 * the model brings along (a snapshot, or the folder of a Hugging Face model). */
#ifndef LLMC_RUN_VOCABULARY_H
#define LLMC_RUN_VOCABULARY_H

#include <stdint.h>
#include <stdio.h>

#include "llmc/data/characters_file.h"
#include "llmc/data/dataset.h"
#include "llmc/run/options.h"
#include "llmc/run/origin.h"
#include "llmc/text/characters.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Owned by the caller: vocabulary_open, vocabulary_release. */
typedef struct Vocabulary {
    Characters *characters;      /* NULL: GPT-2's tokens */
    char source[PATH_BYTES_MAX]; /* the file that they come from */
    uint64_t data_hash;          /* of the vocabulary beside the data, 0 for none */
    int is_assumed;              /* data without a vocabulary, for a model that has one */
    int largest_token;           /* of the first looked_count of data without a vocabulary */
    int64_t looked_count;
} Vocabulary;

/* The model's vocabulary, else that of the data; train and val are NULL where no data are opened: then those
 * that the options name are asked for a vocabulary of the model's size. A new model's vocab_size is put into
 * options. -1 with *error: vocabularies that differ, or of another size than the model or the option. */
int vocabulary_open(Vocabulary *vocabulary, Options *options, const Origin *origin, const DataSet *train,
                    const DataSet *val, Error *error);
void vocabulary_release(Vocabulary *vocabulary);

/* What a user should know of it. */
void vocabulary_print(const Vocabulary *vocabulary, const Options *options, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
