#include "llmc/data/characters_file.h"

#include <stdio.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/data/shard_folder.h"

/* Read and parse one of the two. NULL with *error naming `path`, under which users know it. */
static Characters *read_file(const char *place, const char *path, int is_pickle, Error *error)
{
    size_t bytes;
    char *data = file_read(place, CHARACTERS_FILE_BYTES_MAX, &bytes, error);
    if (!data) {
        return NULL;
    }
    Characters *characters = is_pickle ? characters_parse_pickle((unsigned char *)data, bytes, error)
                                       : characters_parse_json(data, bytes, error);
    memory_free(data);
    if (!characters && is_pickle) {
        error_prefix(error,
                     "%s: no meta.pkl as nanoGPT's prepare.py writes it (make the data again with "
                     "data_prep/tokenize --tokenizer=char)",
                     path);
    } else if (!characters) {
        error_prefix(error, "%s: damaged, or no vocabulary of data_prep/tokenize --tokenizer=char", path);
    }
    return characters;
}

/* characters.json, also while tokenize puts it in place. */
static int find_json(Characters **characters, const char *path, Error *error)
{
    ShardPaths found;
    int status = shard_paths_find(&found, path, error);
    *characters = NULL;
    if (status == 0 && found.count > 0) {
        *characters = read_file(found.items[0].place, path, 0, error);
        status = *characters ? 0 : -1;
    }
    shard_paths_release(&found);
    return status;
}

int characters_file_find(CharactersFile *file, const char *folder, Error *error)
{
    char pickle_path[PATH_BYTES_MAX];
    Characters *pickled = NULL;
    file->characters = NULL;
    folder = folder[0] ? folder : ".";
    if (path_join(file->path, folder, CHARACTERS_FILE, error) != 0 ||
        path_join(pickle_path, folder, CHARACTERS_PICKLE, error) != 0 ||
        find_json(&file->characters, file->path, error) != 0) {
        return -1;
    }
    if (!path_exists(pickle_path)) {
        return 0;
    }
    pickled = read_file(pickle_path, pickle_path, 1, error);
    if (pickled && file->characters && !characters_are_same(pickled, file->characters)) {
        error_set(error,
                  "%s and %s: expected one vocabulary of the shards beside them, found two; remove the one "
                  "that is older than the shards",
                  file->path, CHARACTERS_PICKLE);
        characters_free(pickled);
        pickled = NULL;
    }
    int status = pickled ? 0 : -1;
    if (status == 0 && !file->characters) {
        file->characters = pickled;
        strcpy(file->path, pickle_path);
        return 0;
    }
    characters_free(pickled);
    if (status != 0) {
        characters_free(file->characters);
        file->characters = NULL;
    }
    return status;
}

/* The folder of a path, with its slash; "" for none. -1 with *error. */
static int folder_of(char folder[PATH_BYTES_MAX], const char *path, Error *error)
{
    const char *slash = strrchr(path, '/');
    size_t bytes = slash ? (size_t)(slash - path) + 1 : 0;
    if (bytes >= PATH_BYTES_MAX) {
        return error_set(error, "%.200s...: the path is longer than %d bytes", path, PATH_BYTES_MAX);
    }
    memcpy(folder, path, bytes);
    folder[bytes] = '\0';
    return 0;
}

int characters_file_of_set(CharactersFile *file, const DataSet *set, Error *error)
{
    char last[PATH_BYTES_MAX], folder[PATH_BYTES_MAX];
    file->characters = NULL;
    if (folder_of(last, data_set_path(set, 0), error) != 0 || characters_file_find(file, last, error) != 0) {
        return -1;
    }
    for (int i = 1; i < data_set_shards(set); i++) {
        CharactersFile other;
        int status = folder_of(folder, data_set_path(set, i), error);
        if (status == 0 && strcmp(folder, last) == 0) { /* paths are sorted: a folder's stand together */
            continue;
        }
        status = status == 0 ? characters_file_find(&other, folder, error) : -1;
        if (status == 0 && !characters_are_same(other.characters, file->characters)) {
            status =
                error_set(error,
                          "%.300s and %.300s: expected shards of one vocabulary, found that the vocabularies "
                          "beside them differ; use data that were made together",
                          data_set_path(set, 0), data_set_path(set, i));
        }
        if (status == 0) {
            characters_free(other.characters);
        } else {
            characters_free(file->characters);
            file->characters = NULL;
            return -1;
        }
        strcpy(last, folder);
    }
    return 0;
}
