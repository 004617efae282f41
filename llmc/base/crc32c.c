#include "llmc/base/crc32c.h"

uint32_t crc32c(const void *data, size_t bytes)
{
    const uint32_t polynomial = 0x82f63b78u; /* its bits reversed, as the data's are */
    const unsigned char *next = data;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= next[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
        }
    }
    return ~crc;
}
