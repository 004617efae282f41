#include "llmc/run/inputs.h"

#include <stdio.h>
#include <string.h>

#include "llmc/base/file.h"
#include "llmc/data/shard_folder.h"

enum { TRIES_MAX = 100 };

/* A data set that a script makes is missing altogether: name the script. */
static int check_folder(const char *dataset, Error *error)
{
    char folder[PATH_BYTES_MAX], script[PATH_BYTES_MAX];
    if (snprintf(folder, sizeof(folder), "data/%s", dataset) >= (int)sizeof(folder) ||
        snprintf(script, sizeof(script), "data_prep/%s.sh", dataset) >= (int)sizeof(script)) {
        return error_set(error, "dataset=%.100s...: the name is too long", dataset);
    }
    int has_script = strcmp(dataset, "openwebtext") == 0 || path_exists(script);
    if (path_is_folder(folder) || !has_script) {
        return 0;
    }
    return error_set(
        error,
        "%s: expected a folder of token shards, found none; %s makes it, and data_prep/tokenize -o %s "
        "INPUT makes one from your own text",
        folder, script, folder);
}

/* One split. `path` wins over the dataset's files. */
static DataSet *open_split(const char *path, const char *dataset, const char *prefix, int T, Error *error)
{
    char pattern[PATH_BYTES_MAX];
    if (path[0]) {
        return data_set_open(path, T, error);
    }
    if (check_folder(dataset, error) != 0) {
        return NULL;
    }
    if (snprintf(pattern, sizeof(pattern), "data/%s/%s*.bin", dataset, prefix) >= (int)sizeof(pattern)) {
        error_set(error, "dataset=%.100s...: the name is too long", dataset);
        return NULL;
    }
    return data_set_open(pattern, T, error);
}

/* Whether the dataset has a split. Whatever is wrong with it is for open_split to tell. */
static int has_split(const char *dataset, const char *prefix)
{
    char pattern[PATH_BYTES_MAX];
    ShardPaths paths;
    if (snprintf(pattern, sizeof(pattern), "data/%s/%s*.bin", dataset, prefix) >= (int)sizeof(pattern)) {
        return 1;
    }
    int has = shard_paths_find(&paths, pattern, NULL) != 0 || paths.count > 0;
    shard_paths_release(&paths);
    return has;
}

typedef struct Splits {
    int train, val;
} Splits;

/* Training needs its data. An evaluation takes what there is: val_data alone, if nothing else is named; and
 * HellaSwag needs no tokens at all. */
static Splits wanted_splits(const Options *options, int needs_val)
{
    Splits wanted = {1, needs_val};
    int names_dataset = options_is_given(options, "dataset");
    if (options->eval_only && !options->train_data[0]) {
        wanted.val = options->val_data[0] || names_dataset || !options->hellaswag[0] ||
                     has_split(options->dataset, "val");
        wanted.train =
            wanted.val && (names_dataset || !options->val_data[0]) && has_split(options->dataset, "train");
    }
    return wanted;
}

/* Both splits as they are now. */
static int open_splits(DataSet **train, DataSet **val, const Options *options, Splits wanted, Error *error)
{
    int T = (int)options->block_size;
    *train = *val = NULL;
    if (wanted.train) {
        *train = open_split(options->train_data, options->dataset, "train", T, error);
    }
    if ((wanted.train && !*train) || !wanted.val) {
        return wanted.train && !*train ? -1 : 0;
    }
    *val = open_split(options->val_data, options->dataset, "val", T, error);
    if (!*val) {
        data_set_free(*train);
        *train = NULL;
        size_t used = error ? strlen(error->text) : 0;
        if (error) {
            snprintf(error->text + used, sizeof(error->text) - used, "%s",
                     options->eval_only ? options->val_data[0] ? "" : "; or --val_data=FILE names another"
                                        : "; or --eval_interval=0 trains without evaluation");
        }
        return -1;
    }
    return 0;
}

int inputs_open(DataSet **train, DataSet **val, const Options *options, int needs_val, Error *error)
{
    *train = NULL;
    *val = NULL;
    if (needs_val && options->train_data[0] && !options->val_data[0]) {
        return error_set(error,
                         "val_data: expected shards to evaluate beside train_data=%.300s, found none; give "
                         "val_data, or --eval_interval=0 to train without evaluation",
                         options->train_data);
    }
    Splits wanted = wanted_splits(options, needs_val);
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        if (open_splits(train, val, options, wanted, error) != 0) {
            return -1;
        }
        if (!*val || !*train || data_set_is_current(*train)) {
            return 0;
        }
        data_set_free(*train); /* tokenize has replaced it, and val is the new one */
        data_set_free(*val);
        *train = NULL;
        *val = NULL;
    }
    return error_set(error, "expected shards that stay, found that they are replaced all the time");
}
