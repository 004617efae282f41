/* CRC-32C (Castagnoli's polynomial), the checksum of TFRecord files. */
#ifndef LLMC_BASE_CRC32C_H
#define LLMC_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bit by bit: for records of a few hundred bytes.  Source: RFC 3720, appendix B.4, which has test vectors. */
uint32_t crc32c(const void *data, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
