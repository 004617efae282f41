#include "data_prep/decode.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "llmc/base/file.h"
#include "llmc/data/shard.h"
#include "llmc/data/shard_folder.h"
#include "llmc/text/tokenizer.h"

int decode_shard(const char *path, Error *error)
{
    MappedFile file;
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
    Tokenizer *tokenizer = tokenizer_create();
    for (int64_t i = 0; result == 0 && i < shard.token_count; i++) {
        uint16_t token;
        memcpy(&token, file.data + shard.first_byte + i * SHARD_TOKEN_BYTES, sizeof(token));
        size_t bytes;
        const char *text = tokenizer_token_bytes(tokenizer, token, &bytes);
        if (!text) {
            result = error_set(error, "%s: token %" PRId64 ": expected less than %d, found %d", path, i,
                               TOKENIZER_VOCAB, token);
        } else if (fwrite(text, 1, bytes, stdout) != bytes) {
            result = error_set(error, "stdout: cannot write: %s", strerror(errno));
        }
    }
    if (result == 0 && fflush(stdout) != 0) {
        result = error_set(error, "stdout: cannot write: %s", strerror(errno));
    }
    tokenizer_free(tokenizer);
    mapped_file_release(&file);
    return result;
}
