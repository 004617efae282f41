#!/usr/bin/env python3
"""Writes dev/test/numpy_permutations.h: what numpy's default_rng gives, for test_numpy_random.c.

    pip install numpy
    numpy_permutations.py >dev/test/numpy_permutations.h

Of each permutation there are the first three numbers and a hash of all (FNV-1a over 32-bit words).
"""
import numpy

SEEDS = 0, 1, 2357, 2**32 - 1, 2**32, 2**63 + 12345
COUNTS = [*range(1, 35), 63, 64, 65, 127, 128, 129, 1000, 4095, 4096, 4097, 10000]
COUNTS += [65535, 65536, 65537, 1 << 17]
OPENWEBTEXT = 8013769


def fnv(values):
    result = 0xCBF29CE484222325
    for value in values.tolist():
        result = (result ^ value) * 0x100000001B3 % 2**64
    return result


def row(seed, count):
    order = numpy.random.default_rng(seed).permutation(count)
    first = ", ".join(str(v) for v in [*order[:3].tolist(), 0, 0][:3])
    return f"    {{{seed}u, {count}, {{{first}}}, 0x{fnv(order):016x}u}},"


print(f"/* Made by dev/reference/numpy_permutations.py with numpy {numpy.__version__}. */")
print("#ifndef DEV_TEST_NUMPY_PERMUTATIONS_H\n#define DEV_TEST_NUMPY_PERMUTATIONS_H\n")
print("#include <stdint.h>\n")
print("typedef struct RawRow {\n    uint64_t seed;\n    uint64_t numbers[4];\n} RawRow;\n")
print("static const RawRow raw_rows[] = {")
for seed in SEEDS:
    numbers = numpy.random.default_rng(seed).bit_generator.random_raw(4).tolist()
    print(f"    {{{seed}u,\n     {{" + ", ".join(f"0x{n:016x}u" for n in numbers) + "}},")
print("};\n")
print("typedef struct PermutationRow {\n    uint64_t seed;\n    uint32_t count;\n    uint32_t first[3];")
print("    uint64_t hash; /* FNV-1a of all, a number at a time */\n} PermutationRow;\n")
print("static const PermutationRow permutation_rows[] = {")
for count in COUNTS:
    print(row(2357, count))
for seed in SEEDS:
    print(row(seed, 777))
print(row(2357, OPENWEBTEXT))
print("};\n\n#endif")
