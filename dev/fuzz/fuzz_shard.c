/* Token files of any bytes: an error that names the file, or tokens that all lie inside it. */
#include <string.h>

#include "dev/fuzz/fuzz.h"
#include "llmc/data/dataset.h"
#include "llmc/data/shard.h"

enum { WINDOW_TOKENS = 3, VOCAB = 50257 };

size_t fuzz_seed(uint8_t *data, int index)
{
    static const int32_t header[3] = {SHARD_MAGIC, SHARD_VERSION, 50};
    memset(data, 0, 2000);
    memcpy(data, header, index == 1 ? 0 : sizeof(header));
    return index == 0 ? SHARD_HEADER_BYTES + 100 : index == 1 ? 100 : 0;
}

/* Every window of a file that opens. */
static void read_windows(const uint8_t *data, size_t bytes)
{
    Error error;
    DataSet *set = data_set_open(fuzz_file(data, bytes), WINDOW_TOKENS, &error);
    if (!set) {
        return;
    }
    int32_t tokens[WINDOW_TOKENS];
    int32_t targets[WINDOW_TOKENS];
    for (int64_t w = 0; w < data_set_windows(set); w++) {
        if (data_set_window(set, w, VOCAB, tokens, targets, &error) != 0) {
            CHECK(strstr(error.text, "token "), "an error without its token");
            continue;
        }
        for (int t = 0; t < WINDOW_TOKENS; t++) {
            CHECK(tokens[t] >= 0 && tokens[t] < VOCAB && targets[t] >= 0 && targets[t] < VOCAB, "token %d",
                  tokens[t]);
        }
    }
    data_set_free(set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    Shard shard;
    Error error = {.text = ""};
    int status = shard_parse(&shard, data, bytes, "shard", &error);
    if (status != 0) {
        CHECK(status == -1 && strncmp(error.text, "shard: ", 7) == 0, "an error without its file");
        return 0;
    }
    CHECK(shard.first_byte >= 0 && shard.token_count >= 0 &&
              (uint64_t)(shard.first_byte + shard.token_count * SHARD_TOKEN_BYTES) == bytes,
          "tokens outside the file");
    read_windows(data, bytes);
    return 0;
}
