/* Made by dev/reference/numpy_permutations.py with numpy 2.4.6. */
#ifndef DEV_TEST_NUMPY_PERMUTATIONS_H
#define DEV_TEST_NUMPY_PERMUTATIONS_H

#include <stdint.h>

typedef struct RawRow {
    uint64_t seed;
    uint64_t numbers[4];
} RawRow;

static const RawRow raw_rows[] = {
    {0u, {0xa30febcfd9c2825fu, 0x4510bdf882d9d721u, 0x0a7d3da94ecde8b8u, 0x043b27b61342f01du}},
    {1u, {0x8306bdf37922e4ffu, 0xf35196bbc152a866u, 0x24e7a4f608ec18cdu, 0xf2dab0aed2ac6fd2u}},
    {2357u, {0x31527a4eed7596d1u, 0xf02a6a7753dd9e64u, 0x5f8626a258ee4f82u, 0x403f0a3261a24e16u}},
    {4294967295u, {0x407f5fa930d8fd9fu, 0x3814b22eb9684802u, 0x498b7dcee8d8dc95u, 0x9e758f03369e8515u}},
    {4294967296u, {0xe3c5ebe285ac1625u, 0x8ea09968fe31dbccu, 0xcd084ff84d8de9beu, 0xf4de16ec3a8b9986u}},
    {9223372036854788153u,
     {0x7e82ff06e5a17e1cu, 0x9375de147f211adbu, 0x0aee1bf0359cb9d2u, 0xdd2d13442c0ec89fu}},
};

typedef struct PermutationRow {
    uint64_t seed;
    uint32_t count;
    uint32_t first[3];
    uint64_t hash; /* FNV-1a of all, a number at a time */
} PermutationRow;

static const PermutationRow permutation_rows[] = {
    {2357u, 1, {0, 0, 0}, 0xaf63bd4c8601b7dfu},
    {2357u, 2, {0, 1, 0}, 0x08328707b4eb6e3au},
    {2357u, 3, {2, 0, 1}, 0xeaa0071875df2b5au},
    {2357u, 4, {3, 0, 2}, 0xed195787f3fe0be7u},
    {2357u, 5, {3, 4, 0}, 0x714f1824fb4c8157u},
    {2357u, 6, {5, 0, 2}, 0xc0334c0c2b5c7e40u},
    {2357u, 7, {6, 0, 3}, 0xd55e46aa4022a8f0u},
    {2357u, 8, {7, 0, 3}, 0x77f7b152f877913du},
    {2357u, 9, {0, 8, 3}, 0xa752a32fb637cb29u},
    {2357u, 10, {8, 3, 0}, 0xde4da7bf5c73369cu},
    {2357u, 11, {9, 5, 3}, 0x52580073ec0ee0acu},
    {2357u, 12, {10, 5, 3}, 0xeea0cfd7162d9255u},
    {2357u, 13, {5, 10, 11}, 0x35f1a5bab34d99c9u},
    {2357u, 14, {3, 11, 8}, 0xe67f0e4ee485d286u},
    {2357u, 15, {8, 3, 5}, 0x3c30e36993e424aau},
    {2357u, 16, {8, 3, 5}, 0x518b7710a3807121u},
    {2357u, 17, {10, 5, 9}, 0x8f1a07c7389cf8d9u},
    {2357u, 18, {10, 5, 9}, 0xc633ff8532babbd8u},
    {2357u, 19, {3, 10, 12}, 0xf1367857349cf504u},
    {2357u, 20, {10, 12, 18}, 0x87a9cfc517456c79u},
    {2357u, 21, {18, 19, 13}, 0x42f95c21db57c5c1u},
    {2357u, 22, {19, 21, 1}, 0xff7cbccd0fb1607cu},
    {2357u, 23, {20, 18, 1}, 0xd76b92a7eb0c5f54u},
    {2357u, 24, {21, 19, 1}, 0x9367513fa718195bu},
    {2357u, 25, {13, 20, 23}, 0x38f7d4e8ee66657fu},
    {2357u, 26, {24, 21, 19}, 0xeb8df0d3882ff82cu},
    {2357u, 27, {25, 21, 19}, 0x2598a6bf89c428e8u},
    {2357u, 28, {26, 6, 22}, 0x86466a93265a97e5u},
    {2357u, 29, {27, 6, 25}, 0xd7d6886ba2a5b1c9u},
    {2357u, 30, {8, 11, 24}, 0x67e07d244d79d42eu},
    {2357u, 31, {9, 8, 25}, 0xe97be8d2315e6432u},
    {2357u, 32, {28, 9, 26}, 0x20d500795cdff31bu},
    {2357u, 33, {11, 25, 27}, 0x098e3b9038badf11u},
    {2357u, 34, {11, 26, 28}, 0x6c864402d617bf88u},
    {2357u, 63, {56, 33, 11}, 0x39ab418e4b616712u},
    {2357u, 64, {12, 1, 51}, 0x87cb244cdde27e93u},
    {2357u, 65, {25, 1, 62}, 0x0e50dcb7d90b8081u},
    {2357u, 127, {35, 92, 112}, 0xba90212faa5abd88u},
    {2357u, 128, {35, 92, 113}, 0xfc382178949ba6e1u},
    {2357u, 129, {35, 93, 114}, 0x162cc7a3ff7efa87u},
    {2357u, 1000, {388, 151, 457}, 0x56e346568c37bbbdu},
    {2357u, 4095, {3222, 2714, 3952}, 0x5c482b2d1a82d1c0u},
    {2357u, 4096, {1777, 2715, 3999}, 0x1c08dda434972317u},
    {2357u, 4097, {1871, 2718, 3957}, 0x5f4c071a060e27b1u},
    {2357u, 10000, {8290, 1229, 4733}, 0xcf3528945eb01049u},
    {2357u, 65535, {61226, 29015, 13764}, 0x54e8fbbb97619b9cu},
    {2357u, 65536, {61226, 29015, 13764}, 0x11c0fef05ef57495u},
    {2357u, 65537, {51992, 29015, 13764}, 0xeea87545fc3591d3u},
    {2357u, 131072, {74480, 90914, 42892}, 0xcf0f6f62421c21b3u},
    {0u, 777, {421, 433, 751}, 0x732118feb690873fu},
    {1u, 777, {382, 622, 31}, 0xb1ddf935beff025fu},
    {2357u, 777, {81, 240, 772}, 0x398395a2f0bd3e61u},
    {4294967295u, 777, {399, 560, 481}, 0x11fbcca3609f102du},
    {4294967296u, 777, {255, 770, 86}, 0x9ba9cfbc3881cbabu},
    {9223372036854788153u, 777, {88, 525, 395}, 0x70f3f203054c5475u},
    {2357u, 8013769, {4327249, 4286500, 2184614}, 0x6f4349e5d7138ab9u},
};

#endif
