#include "llmc/compute/cuda/peak_flops.cuh"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

/* The first row whose words stand in the name counts, so exceptions come first.
 *
 * Servers: NVIDIA's data sheets of A100, H100, H200, GH200 and L40S; of B200 and GB200 the tables of HGX B200
 * and GB200 in the Blackwell technical brief, for one GPU. Where a sheet states the rate with sparsity, half
 * of it. The sheets were not at hand: figures are as others quote them. GeForce: 512 operations a clock and
 * multiprocessor (NVIDIA's papers on the Ada and the RTX Blackwell architecture: bf16 with fp32 accumulate,
 * dense) at the boost clock of the reference card, which is twice the fp32 rate. A laptop's GPU of the same
 * number is another chip, and its clock is the maker's. */
static const struct {
    const char *words;
    double flops;
} peaks[] = {
    {"Laptop", 0},
    {"Max-Q", 0},
    {"RTX 4090 D", 0},
    {"RTX 5090 D", 0},
    {"GB200", 2500e12},
    {"B200", 2250e12},
    {"GH200", 989e12},
    {"H200 NVL", 835e12},
    {"H200", 989e12},
    {"H100 PCIe", 756e12},
    {"H100 NVL", 835e12},
    {"H100", 989e12},
    {"A100", 312e12},
    {"L40S", 362e12},
    {"RTX 5090", 209.5e12},
    {"RTX 5080", 112.6e12},
    {"RTX 5070 Ti", 87.9e12},
    {"RTX 5070", 61.7e12},
    {"RTX 4090", 165.2e12},
    {"RTX 4080 SUPER", 104.4e12},
    {"RTX 4080", 97.5e12},
    {"RTX 4070 Ti SUPER", 88.2e12},
    {"RTX 4070 Ti", 80.2e12},
    {"RTX 4070 SUPER", 71.0e12},
    {"RTX 4070", 58.3e12},
};

/* Whether the words stand in the name as words: A100 is not in "RTX A1000". */
static int has_words(const char *name, const char *words)
{
    size_t bytes = strlen(words);
    for (const char *at = strstr(name, words); at; at = strstr(at + 1, words)) {
        int begins = at == name || !isalnum((unsigned char)at[-1]);
        if (begins && !isalnum((unsigned char)at[bytes])) {
            return 1;
        }
    }
    return 0;
}

double peak_flops_bf16(const char *gpu_name)
{
    for (size_t i = 0; i < sizeof(peaks) / sizeof(peaks[0]); i++) {
        if (has_words(gpu_name, peaks[i].words)) {
            return peaks[i].flops;
        }
    }
    return 0;
}
