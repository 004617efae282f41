/* Safetensors: 8 bytes of little-endian length N, N bytes of JSON that give each tensor's name, dtype, shape
 * and place, then the tensors' bytes.  Source: huggingface/safetensors, README, "Format".
 *
 * Reading is strict: duplicate names, unknown dtypes, sizes that do not follow from shapes, tensors that
 * overlap, leave holes or end before or after the file are errors. Memory stays proportional to the header
 * that is there.
 */
#ifndef LLMC_SNAPSHOT_SAFETENSORS_H
#define LLMC_SNAPSHOT_SAFETENSORS_H

#include <stdint.h>

#include "llmc/base/error.h"
#include "llmc/base/file.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SAFETENSORS_DIMENSIONS_MAX = 8,
    SAFETENSORS_LENGTH_BYTES = 8,            /* the length that opens a file */
    SAFETENSORS_HEADER_BYTES_MAX = 100000000 /* the reference implementation's limit */
};

typedef enum SafeDType {
    SAFE_BOOL,
    SAFE_U8,
    SAFE_I8,
    SAFE_F8_E5M2,
    SAFE_F8_E4M3,
    SAFE_U16,
    SAFE_I16,
    SAFE_F16,
    SAFE_BF16,
    SAFE_U32,
    SAFE_I32,
    SAFE_F32,
    SAFE_U64,
    SAFE_I64,
    SAFE_F64,
    SAFE_DTYPES
} SafeDType;

/* "F32" and the like. */
const char *safe_dtype_name(SafeDType dtype);
int safe_dtype_bytes(SafeDType dtype);

typedef struct SafeTensor {
    const char *name; /* owned by the header */
    SafeDType dtype;
    int dimensions;
    int64_t shape[SAFETENSORS_DIMENSIONS_MAX];
    int64_t count;   /* of elements */
    uint64_t offset; /* of the first byte, counted from where data begins */
    uint64_t bytes;
} SafeTensor;

/* Owned by the caller: safe_header_init, safe_header_release. */
typedef struct SafeHeader {
    SafeTensor *tensors; /* sorted by name */
    int count;
    uint64_t data_begin; /* in the file: 8 + length of the header */
    uint64_t data_bytes; /* all tensors together */
    struct json_t *json;
} SafeHeader;

/* How long the header is that these 8 bytes announce, or -1 with *error when it cannot be. `path` is for
 * messages. */
int64_t safe_header_length(const unsigned char *length_bytes, const char *path, Error *error);

/* Parse the JSON of a header. data_bytes_limit is what the file can hold after it: tensors beyond it are an
 * error. -1 with *error for a header that is wrong; SAFE_NO_MEMORY with *error when memory ran out, which
 * says nothing of the file. */
enum { SAFE_NO_MEMORY = -2 };
int safe_header_init(SafeHeader *header, const char *text, uint64_t text_bytes, uint64_t data_bytes_limit,
                     const char *path, Error *error);
void safe_header_release(SafeHeader *header);

/* NULL where there is none. */
const SafeTensor *safe_header_find(const SafeHeader *header, const char *name);
/* A value of `__metadata__`; NULL where there is none. */
const char *safe_header_metadata(const SafeHeader *header, const char *key);

/* A mapped file. Owned by the caller: safe_file_init, safe_file_release. */
typedef struct SafeFile {
    MappedFile file;
    SafeHeader header;
    char path[PATH_BYTES_MAX];
} SafeFile;

/* -1 with *error naming the file: missing, damaged, foreign, or with bytes after the last tensor. */
int safe_file_init(SafeFile *file, const char *path, Error *error);
void safe_file_release(SafeFile *file);

/* The bytes of a tensor, in the file's order; not aligned. */
const unsigned char *safe_file_data(const SafeFile *file, const SafeTensor *tensor);

/* Elements [first, first + count) of an F32, F16 or BF16 tensor as fp32. -1 for other dtypes. */
int safe_file_floats(float *out, const SafeFile *file, const SafeTensor *tensor, int64_t first,
                     int64_t count);

/* A header under construction. Owned by the caller: zero it, add, finish or release. */
typedef struct SafeHeaderWriter {
    struct json_t *json;
    uint64_t data_bytes; /* so far: where the next tensor begins */
} SafeHeaderWriter;

/* Both -1 with *error for text that is not UTF-8, for names given twice, and when memory runs out. */
int safe_header_writer_metadata(SafeHeaderWriter *writer, const char *key, const char *value, Error *error);
int safe_header_writer_tensor(SafeHeaderWriter *writer, const char *name, SafeDType dtype,
                              const int64_t *shape, int dimensions, Error *error);
/* The bytes that open the file, padded with spaces to a multiple of 8; NULL when memory runs out. The caller
 * frees with memory_free. Ends the writer. */
char *safe_header_writer_finish(SafeHeaderWriter *writer, uint64_t *bytes);
void safe_header_writer_release(SafeHeaderWriter *writer);

#ifdef __cplusplus
}
#endif
#endif
