#!/usr/bin/env python3
"""Write llm.c's HellaSwag file of drawn items, of 2 to 20 tokens each, for models of a small vocabulary.

    make_items.py FILE COUNT VOCAB_SIZE
"""
import random
import struct
import sys

path, count, vocab_size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(7)
items = []
for number in range(count):
    words = [number & 65535, rng.randrange(4), 4]
    for tokens in [rng.randrange(1, 12)] + [rng.randrange(1, 9) for _ in range(4)]:
        words += [tokens] + [rng.randrange(vocab_size) for _ in range(tokens)]
    items.append(struct.pack(f"<{len(words) + 2}H", 65535, 2 * len(words) + 4, *words))
header = [20240522, 1, count, max(map(len, items))]
with open(path, "wb") as file:
    file.write(struct.pack("<256i", *header, *[0] * 252) + b"".join(items))
