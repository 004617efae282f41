#include "llmc/data/shard.h"

#include <inttypes.h>

#include "llmc/base/format.h"

enum { LLAMA3_MAGIC = 20240801 };

static int32_t read_int32(const unsigned char *data)
{
    return (int32_t)((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                     (uint32_t)data[3] << 24);
}

/* The header's count against what the file holds. */
static int check_count(int64_t promised, uint64_t bytes, const char *path, Error *error)
{
    char promised_text[FORMAT_COUNT_BYTES];
    char found_text[FORMAT_COUNT_BYTES];
    format_count(promised_text, promised);
    if (promised < 0) {
        return error_set(
            error, "%s: expected a token count of 0 or more in the header, found %s; the file is damaged",
            path, promised_text);
    }
    uint64_t held_bytes = bytes - SHARD_HEADER_BYTES;
    format_count(found_text, (int64_t)(held_bytes / SHARD_TOKEN_BYTES));
    if (held_bytes < (uint64_t)promised * SHARD_TOKEN_BYTES) {
        return error_set(
            error,
            "%s: truncated: header promises %s tokens, file holds %s; copy it again, or make it again "
            "with data_prep/tokenize",
            path, promised_text, found_text);
    }
    if (held_bytes > (uint64_t)promised * SHARD_TOKEN_BYTES) {
        return error_set(error,
                         "%s: too long: header promises %s tokens, file holds %s%s; make it again with "
                         "data_prep/tokenize",
                         path, promised_text, found_text,
                         held_bytes % SHARD_TOKEN_BYTES ? " and an odd byte" : "");
    }
    return 0;
}

/* A file that opens with llm.c's magic. */
static int parse_with_header(Shard *shard, const unsigned char *opening, uint64_t bytes, const char *path,
                             Error *error)
{
    if (bytes < SHARD_HEADER_BYTES) {
        return error_set(error,
                         "%s: truncated: expected a header of %d bytes, found %" PRIu64
                         "; copy it again, or make it "
                         "again with data_prep/tokenize",
                         path, SHARD_HEADER_BYTES, bytes);
    }
    int32_t version = read_int32(opening + 4);
    if (version != SHARD_VERSION) {
        return error_set(
            error,
            "%s: expected version %d of llm.c's token file (GPT-2, uint16), found version %" PRId32
            "; make it with data_prep/tokenize",
            path, SHARD_VERSION, version);
    }
    int32_t count = read_int32(opening + 8);
    if (check_count(count, bytes, path, error) != 0) {
        return -1;
    }
    shard->first_byte = SHARD_HEADER_BYTES;
    shard->token_count = count;
    return 0;
}

int shard_parse(Shard *shard, const unsigned char *opening, uint64_t bytes, const char *path, Error *error)
{
    if (bytes == 0) {
        return error_set(
            error, "%s: expected tokens, found an empty file; make it again with data_prep/tokenize", path);
    }
    int32_t magic = bytes >= 4 ? read_int32(opening) : 0;
    if (magic == SHARD_MAGIC) {
        return parse_with_header(shard, opening, bytes, path, error);
    }
    if (magic == LLAMA3_MAGIC) {
        return error_set(error,
                         "%s: expected GPT-2 tokens, found llm.c's file of Llama 3 tokens; make it with "
                         "data_prep/tokenize",
                         path);
    }
    if (bytes % SHARD_TOKEN_BYTES != 0) {
        char text[FORMAT_COUNT_BYTES];
        return error_set(
            error,
            "%s: expected uint16 tokens, found an odd number of bytes (%s): truncated, or no token file; "
            "make it with data_prep/tokenize",
            path, format_count(text, (int64_t)bytes));
    }
    shard->first_byte = 0;
    shard->token_count = (int64_t)(bytes / SHARD_TOKEN_BYTES);
    return 0;
}
