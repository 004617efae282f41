#include "data_prep/decode.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "llmc/base/file.h"
#include "llmc/data/characters_file.h"
#include "llmc/data/shard.h"
#include "llmc/data/shard_folder.h"
#include "llmc/text/tokenizer.h"

/* The vocabulary beside a shard. -1 with *error. */
static int find_characters(CharactersFile *file, const char *path, Error *error)
{
    char folder[PATH_BYTES_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) + 1 : 0, path);
    return characters_file_find(file, folder, error);
}

/* Print one token; -1 with *error. place: of the token in the shard, for errors. */
static int print_token(const Tokenizer *tokenizer, const Characters *characters, uint16_t token,
                       const char *path, int64_t place, Error *error)
{
    char character[CHARACTER_BYTES_MAX];
    size_t bytes;
    const char *text = character;
    if (characters) {
        bytes = (size_t)characters_token_bytes(characters, token, character);
    } else {
        text = tokenizer_token_bytes(tokenizer, token, &bytes);
    }
    if (bytes == 0) {
        return error_set(error, "%s: token %" PRId64 ": expected less than %d, found %d", path, place,
                         characters ? characters_count(characters) : TOKENIZER_VOCAB, token);
    }
    if (fwrite(text, 1, bytes, stdout) != bytes) {
        return error_set(error, "stdout: cannot write: %s", strerror(errno));
    }
    return 0;
}

int decode_shard(const char *path, Error *error)
{
    MappedFile file;
    CharactersFile vocabulary;
    ShardPaths paths; /* where tokenize is putting new shards in place, it may be elsewhere */
    int result = shard_paths_find(&paths, path, error);
    if (result == 0) {
        result = mapped_file_init(&file, paths.count == 1 ? paths.items[0].place : path, error);
    }
    shard_paths_release(&paths);
    if (result != 0) {
        return -1;
    }
    Shard shard = {0};
    result = shard_parse(&shard, file.data, file.bytes, path, error);
    vocabulary.characters = NULL;
    if (result == 0) {
        result = find_characters(&vocabulary, path, error);
    }
    Tokenizer *tokenizer = tokenizer_create();
    for (int64_t i = 0; result == 0 && i < shard.token_count; i++) {
        uint16_t token;
        memcpy(&token, file.data + shard.first_byte + i * SHARD_TOKEN_BYTES, sizeof(token));
        result = print_token(tokenizer, vocabulary.characters, token, path, i, error);
    }
    if (result == 0 && fflush(stdout) != 0) {
        result = error_set(error, "stdout: cannot write: %s", strerror(errno));
    }
    tokenizer_free(tokenizer);
    characters_free(vocabulary.characters);
    mapped_file_release(&file);
    return result;
}
