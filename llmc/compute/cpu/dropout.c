#include "llmc/compute/cpu/dropout.h"

void dropout_apply(float *values, const Dropout *dropout, int64_t first, int64_t count)
{
    if (dropout->probability == 0) {
        return;
    }
    float scale = 1.0f / (1.0f - dropout->probability);
    uint32_t numbers[4];
    int64_t block = -1;
    for (int64_t i = 0; i < count; i++) {
        int64_t element = first + i;
        if (element / 4 != block) {
            block = element / 4;
            random_block(numbers, &dropout->key, dropout_block(dropout->site, (uint64_t)element));
        }
        int is_kept = random_uniform_from(numbers[element & 3]) >= dropout->probability;
        values[i] = is_kept ? values[i] * scale : 0.0f;
    }
}
