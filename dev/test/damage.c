/* Damage one element of one tensor of a safetensors file in place, for tests that the damage is noticed.
 *   damage FILE TENSOR HOW FACTOR
 *       HOW     a number: this element; or of all elements that are not zero, the one whose size is at this
 *               percentile: 50% is the typical one, 5% a small one
 *       FACTOR  what the value is multiplied by (F32), or what it becomes (I64)
 * Prints the element and its old and new value.
 */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "llmc/base/memory.h"
#include "llmc/snapshot/safetensors.h"

typedef struct Sized {
    float size;
    int64_t element;
} Sized;

static int compare_sizes(const void *left, const void *right)
{
    float a = ((const Sized *)left)->size, b = ((const Sized *)right)->size;
    return (a > b) - (a < b);
}

/* The element at a percentile of the sizes of those that are not zero. */
static int64_t at_percentile(const float *values, int64_t count, double percent)
{
    Sized *sized = memory_alloc((size_t)count, sizeof(*sized), "sizes");
    int64_t nonzero = 0;
    for (int64_t i = 0; i < count; i++) {
        sized[nonzero] = (Sized){fabsf(values[i]), i};
        nonzero += values[i] != 0;
    }
    CHECK(nonzero > 0, "every element is zero");
    qsort(sized, (size_t)nonzero, sizeof(*sized), compare_sizes);
    int64_t found = sized[(int64_t)((double)(nonzero - 1) * percent / 100.0)].element;
    memory_free(sized);
    return found;
}

static int64_t choose(const SafeFile *file, const SafeTensor *tensor, const char *how)
{
    if (!strchr(how, '%')) {
        return atoll(how);
    }
    float *values = memory_alloc((size_t)tensor->count, sizeof(*values), "values");
    CHECK(safe_file_floats(values, file, tensor, 0, tensor->count) == 0, "%s is not a float", tensor->name);
    int64_t element = at_percentile(values, tensor->count, atof(how));
    memory_free(values);
    return element;
}

int main(int argc, char **argv)
{
    Error error;
    SafeFile file;
    CHECK(argc == 5, "usage: damage FILE TENSOR HOW FACTOR");
    CHECK(safe_file_init(&file, argv[1], &error) == 0, "%s", error.text);
    const SafeTensor *tensor = safe_header_find(&file.header, argv[2]);
    CHECK(tensor, "%s: no tensor %s", argv[1], argv[2]);
    int64_t element = choose(&file, tensor, argv[3]);
    CHECK(element >= 0 && element < tensor->count, "%s has %lld elements", argv[2], (long long)tensor->count);
    size_t bytes = (size_t)safe_dtype_bytes(tensor->dtype);
    const unsigned char *old = safe_file_data(&file, tensor) + (size_t)element * bytes;
    unsigned char new[8];
    if (tensor->dtype == SAFE_I64) {
        int64_t value = atoll(argv[4]);
        memcpy(new, &value, bytes);
    } else {
        float value;
        CHECK(tensor->dtype == SAFE_F32, "%s is neither F32 nor I64", argv[2]);
        memcpy(&value, old, bytes);
        printf("%s[%lld]: %.9g", argv[2], (long long)element, (double)value);
        value *= strtof(argv[4], NULL);
        printf(" becomes %.9g\n", (double)value);
        memcpy(new, &value, bytes);
    }
    int descriptor = open(argv[1], O_WRONLY);
    off_t offset = (off_t)(old - file.file.data);
    CHECK(descriptor >= 0 && pwrite(descriptor, new, bytes, offset) == (ssize_t)bytes, "cannot write %s",
          argv[1]);
    CHECK(close(descriptor) == 0, "cannot write %s", argv[1]);
    safe_file_release(&file);
    return 0;
}
