#!/usr/bin/env python3
"""Writes meta_pickles.h: nanoGPT's meta.pkl of a few characters, by Python's pickle in each protocol that it
may have been written with. Once, by hand:  dev/test/meta_pickles.py >dev/test/meta_pickles.h
"""
import pickle

CHARACTERS = sorted("\n !aéÿ中😀")  # of one, two, three and four bytes


def meta(characters):
    return {
        "vocab_size": len(characters),
        "itos": dict(enumerate(characters)),
        "stoi": {character: token for token, character in enumerate(characters)},
    }


def rows(data):
    for begin in range(0, len(data), 16):
        yield "    " + ", ".join(f"0x{byte:02x}" for byte in data[begin : begin + 16]) + ","


print("/* Made by meta_pickles.py: meta.pkl of the characters")
print(" * " + " ".join(f"U+{ord(c):04X}" for c in CHARACTERS) + ". */")
print("/* clang-format off */")
for protocol in range(2, 6):
    print(f"static const unsigned char meta_pickle_{protocol}[] = {{")
    print("\n".join(rows(pickle.dumps(meta(CHARACTERS), protocol=protocol))))
    print("};")
print("/* clang-format on */")
