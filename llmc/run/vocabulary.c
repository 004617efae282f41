#include "llmc/run/vocabulary.h"

#include <inttypes.h>
#include <string.h>

#include "llmc/base/file.h"
#include "llmc/base/format.h"
#include "llmc/data/shard_folder.h"

enum {
    LOOKED_TOKENS_MAX = 1 << 20,
    LOOKED_TOKENS_LEAST = 1024, /* fewer tell nothing */
    FAR_LARGER = 4              /* a vocab_size of so many times what the tokens need is told of */
};

/* ---- the model's --------------------------------------------------------------------------------------- */

static int take_json(Vocabulary *vocabulary, const char *json, const char *file, Error *error)
{
    vocabulary->characters = characters_parse_json(json, strlen(json), error);
    snprintf(vocabulary->source, sizeof(vocabulary->source), "%s", file);
    return vocabulary->characters ? 0 : error_prefix(error, "%.500s: vocabulary", file);
}

/* Beside model.safetensors, where an export puts it. */
static int take_beside_weights(Vocabulary *vocabulary, const char *path, Error *error)
{
    char folder[PATH_BYTES_MAX];
    CharactersFile file;
    const char *slash = strrchr(path, '/');
    int is_folder = path_is_folder(path);
    snprintf(folder, sizeof(folder), "%.*s",
             is_folder || !slash ? (int)strlen(path) : (int)(slash - path) + 1,
             is_folder || slash ? path : "");
    if (characters_file_find(&file, folder, error) != 0) {
        return error_prefix(error, "init_from");
    }
    vocabulary->characters = file.characters;
    strcpy(vocabulary->source, file.path);
    return 0;
}

static int take_origin(Vocabulary *vocabulary, const Options *options, const Origin *origin, Error *error)
{
    const SnapshotInfo *info =
        origin->info || !origin->weights ? origin->info : weights_snapshot_info(origin->weights);
    const char *file = origin_name(origin, options);
    if (info) {
        return info->characters ? take_json(vocabulary, info->characters, file, error) : 0;
    }
    int has_folder = origin->weights && weights_kind(origin->weights) == WEIGHTS_HUGGING_FACE;
    return has_folder ? take_beside_weights(vocabulary, file, error) : 0;
}

/* ---- the data's ---------------------------------------------------------------------------------------- */

/* That of both splits. tokenize may have replaced what was opened. */
static int find_of_sets(CharactersFile *file, const DataSet *train, const DataSet *val, Error *error)
{
    const DataSet *first = train ? train : val;
    CharactersFile other = {.characters = NULL};
    file->characters = NULL;
    if (!first) {
        return 0;
    }
    int status = characters_file_of_set(file, first, error);
    if (status == 0 && train && val) {
        status = characters_file_of_set(&other, val, error);
        if (status == 0 && !characters_are_same(file->characters, other.characters)) {
            status =
                error_set(error,
                          "%.300s: expected the vocabulary of %.300s beside it, found another one or none; "
                          "use data that were made together",
                          data_set_path(val, 0), data_set_path(train, 0));
        }
        characters_free(other.characters);
    }
    if (status == 0 && !data_set_is_current(first)) {
        status = error_set(error, "%.500s: the shards were replaced while they were opened; run again",
                           data_set_path(first, 0));
        error->may_pass = 1;
    }
    if (status != 0) {
        characters_free(file->characters);
        file->characters = NULL;
    }
    return status;
}

/* Of a run without data: where the options say that data would be. What is wrong there does not matter. */
static void find_unopened(CharactersFile *file, const Options *options)
{
    char folder[PATH_BYTES_MAX];
    const char *slash = strrchr(options->train_data, '/');
    int bytes = !options->train_data[0]
                    ? snprintf(folder, sizeof(folder), "data/%s/", options->dataset)
                    : snprintf(folder, sizeof(folder), "%.*s",
                               slash ? (int)(slash - options->train_data) + 1 : 0, options->train_data);
    Error ignored;
    if (bytes >= (int)sizeof(folder) || characters_file_find(file, folder, &ignored) != 0) {
        file->characters = NULL;
    }
}

/* ---- both ---------------------------------------------------------------------------------------------- */

/* The size of a vocabulary against that of a model. */
static int check_size(const Vocabulary *vocabulary, const Options *options, const Origin *origin,
                      Error *error)
{
    int count = characters_count(vocabulary->characters);
    if (count == options->vocab_size) {
        return 0;
    }
    return error_set(error, "%.500s: %d characters, but %.400s has vocab_size=%" PRId64 "; %s",
                     vocabulary->source, count, origin_name(origin, options), options->vocab_size,
                     "use the data that the model was made with, or leave init_from out to make a new model");
}

/* The model has no vocabulary of its own: that of the data is taken, out of *file. */
static int take_data(Vocabulary *vocabulary, CharactersFile *file, Options *options, const Origin *origin,
                     Error *error)
{
    int64_t count = characters_count(file->characters);
    vocabulary->characters = file->characters;
    strcpy(vocabulary->source, file->path);
    file->characters = NULL;
    if (origin->info || origin->weights) {
        return check_size(vocabulary, options, origin, error);
    }
    if (options_is_given(options, "vocab_size") && options->vocab_size != count) {
        return error_set(error,
                         "vocab_size=%" PRId64 ": expected %" PRId64
                         ", the characters of %.500s, which lies beside the data; leave the option out",
                         options->vocab_size, count, vocabulary->source);
    }
    options->vocab_size = count;
    return 0;
}

static int compare_with_data(const Vocabulary *vocabulary, const CharactersFile *file, Error *error)
{
    if (characters_are_same(vocabulary->characters, file->characters)) {
        return 0;
    }
    return error_set(error,
                     "%.400s: expected the vocabulary of %.400s, found another one: its tokens are other "
                     "characters; use the data that the model was made with, or make them again from all of "
                     "its text",
                     file->path, vocabulary->source);
}

int vocabulary_open(Vocabulary *vocabulary, Options *options, const Origin *origin, const DataSet *train,
                    const DataSet *val, Error *error)
{
    CharactersFile file;
    const DataSet *first = train ? train : val;
    memset(vocabulary, 0, sizeof(*vocabulary));
    if (find_of_sets(&file, train, val, error) != 0) {
        return -1;
    }
    vocabulary->data_hash = characters_hash(file.characters);
    int status = take_origin(vocabulary, options, origin, error);
    int is_own = vocabulary->characters != NULL;
    if (status == 0 && is_own) {
        status = check_size(vocabulary, options, origin, error);
    }
    if (status == 0 && is_own && file.characters) {
        status = compare_with_data(vocabulary, &file, error);
    }
    vocabulary->is_assumed = is_own && first && !file.characters;
    if (status == 0 && !is_own && !first) {
        find_unopened(&file, options);
        if (file.characters && characters_count(file.characters) != options->vocab_size) {
            characters_free(file.characters);
            file.characters = NULL;
        }
    }
    if (status == 0 && !is_own && file.characters) {
        status = take_data(vocabulary, &file, options, origin, error);
    }
    if (status == 0 && first && !vocabulary->characters) {
        vocabulary->largest_token =
            data_set_largest_token(first, LOOKED_TOKENS_MAX, &vocabulary->looked_count, error);
        status = vocabulary->largest_token < 0 ? -1 : 0;
    }
    characters_free(file.characters);
    if (status != 0) {
        vocabulary_release(vocabulary);
    }
    return status;
}

void vocabulary_release(Vocabulary *vocabulary)
{
    characters_free(vocabulary->characters);
    vocabulary->characters = NULL;
}

void vocabulary_print(const Vocabulary *vocabulary, const Options *options, FILE *out)
{
    char looked[FORMAT_COUNT_BYTES];
    if (vocabulary->characters) {
        fprintf(out, "vocabulary: %d characters of %s\n", characters_count(vocabulary->characters),
                vocabulary->source);
    }
    if (vocabulary->is_assumed) {
        fprintf(out,
                "notice: no vocabulary lies beside the data (%s, %s): their tokens are taken for the model's "
                "characters\n",
                CHARACTERS_FILE, CHARACTERS_PICKLE);
    }
    if (vocabulary->looked_count >= LOOKED_TOKENS_LEAST &&
        (vocabulary->largest_token + 1) * (int64_t)FAR_LARGER <= options->vocab_size) {
        fprintf(out,
                "notice: vocab_size=%" PRId64
                ", but the first %s tokens of the data are all below %d: if they are "
                "characters or another tokenizer's, put their %s beside them or give their vocab_size\n",
                options->vocab_size, format_count(looked, vocabulary->looked_count),
                vocabulary->largest_token + 1, CHARACTERS_FILE);
    }
}
