#!/usr/bin/env python3
"""Write llmc/text/unicode_tables.c: which code points are letters, numbers and white space.

The reference is tiktoken: its regular expression engine, not Python's, decides what GPT-2's pattern matches,
so each class is asked of it directly. Needs a tiktoken with the Unicode version named below (0.14 is one);
the script refuses another, because new letters would silently change ids.

    python3 dev/unicode_tables.py > llmc/text/unicode_tables.c
"""
import sys

import tiktoken

UNICODE_VERSION = "16.0.0"
EXPECTED_COUNTS = {"LETTER": 141028, "NUMBER": 1911, "SPACE": 25}
PATTERNS = {"LETTER": r"\p{L}", "NUMBER": r"\p{N}", "SPACE": r"\s"}


def members(pattern, every_character):
    """The code points that the pattern matches. What a pattern does not match, tiktoken drops."""
    bytes_only = {bytes([b]): b for b in range(256)}
    encoding = tiktoken.Encoding("probe", pat_str=pattern, mergeable_ranks=bytes_only, special_tokens={})
    return [ord(c) for c in bytes(encoding.encode_ordinary(every_character)).decode()]


def ranges(points):
    first = last = points[0]
    for point in points[1:]:
        if point != last + 1:
            yield first, last
            first = point
        last = point
    yield first, last


def main():
    every_character = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    table = []
    for name, pattern in PATTERNS.items():
        points = members(pattern, every_character)
        if len(points) != EXPECTED_COUNTS[name]:
            sys.exit(f"unicode_tables.py: {pattern}: expected {EXPECTED_COUNTS[name]} characters as "
                     f"in Unicode "
                     f"{UNICODE_VERSION}, tiktoken {tiktoken.__version__} matches {len(points)}")
        table += [(first, last, name) for first, last in ranges(points)]
    table.sort()
    print(f"/* Letters, numbers and white space of Unicode {UNICODE_VERSION}, as tiktoken matches them.\n"
          " * Written by dev/unicode_tables.py.\n */\n"
          '#include "llmc/text/pattern.h"\n\n'
          "/* clang-format off */\n"
          "const ClassRange class_ranges[] = {")
    line = "   "
    for first, last, name in table:
        item = f" {{0x{first:x}, 0x{last:x}, CLASS_{name}}},"
        if len(line) + len(item) > 108:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};\n/* clang-format on */\n"
          "const int class_ranges_count = sizeof(class_ranges) / sizeof(class_ranges[0]);")


if __name__ == "__main__":
    main()
