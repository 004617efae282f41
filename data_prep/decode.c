#include "data_prep/decode.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "llmc/base/file.h"
#include "llmc/text/tokenizer.h"

enum { HEADER_INTS = 256, HEADER_BYTES = HEADER_INTS * 4, SHARD_MAGIC = 20240520, SHARD_VERSION = 1 };

/* Where the tokens begin and how many there are. Returns 0, or -1 with *error set. */
static int find_tokens(uint64_t *begin, uint64_t *count, const MappedFile *file, const char *path,
                       Error *error)
{
    int32_t header[3] = {0};
    if (file->bytes >= sizeof(header)) {
        memcpy(header, file->data, sizeof(header));
    }
    if (header[0] != SHARD_MAGIC) {
        *begin = 0;
        *count = file->bytes / 2;
        if (file->bytes % 2 != 0) {
            return error_set(error, "%s: expected tokens of 2 bytes, found an odd number of bytes, %" PRIu64,
                             path, file->bytes);
        }
        return 0;
    }
    if (file->bytes < HEADER_BYTES) {
        return error_set(error, "%s: truncated: expected a header of %d bytes, file holds %" PRIu64, path,
                         HEADER_BYTES, file->bytes);
    }
    if (header[1] != SHARD_VERSION) {
        return error_set(error, "%s: expected shard version %d, found %d", path, SHARD_VERSION, header[1]);
    }
    uint64_t found = (file->bytes - HEADER_BYTES) / 2;
    if (header[2] < 0 || (uint64_t)header[2] != found || file->bytes % 2 != 0) {
        return error_set(error, "%s: header promises %d tokens, file holds %" PRIu64, path, header[2], found);
    }
    *begin = HEADER_BYTES;
    *count = found;
    return 0;
}

int decode_shard(const char *path, Error *error)
{
    MappedFile file;
    if (mapped_file_init(&file, path, error) != 0) {
        return -1;
    }
    uint64_t begin = 0;
    uint64_t count = 0;
    int result = find_tokens(&begin, &count, &file, path, error);
    Tokenizer *tokenizer = tokenizer_create();
    for (uint64_t i = 0; result == 0 && i < count; i++) {
        uint16_t token;
        memcpy(&token, file.data + begin + 2 * i, sizeof(token));
        size_t bytes;
        const char *text = tokenizer_token_bytes(tokenizer, token, &bytes);
        if (!text) {
            result = error_set(error, "%s: token %" PRIu64 ": expected less than %d, found %d", path, i,
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
