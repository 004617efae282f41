#!/usr/bin/env python3
"""What stays on a terminal of COLUMNS columns at the end of the bytes on stdin, row by row. It knows carriage
return, line feed, and ESC [ K, which clears the rest of a row. Any other control character is an error; so is
a status line (what ends with ESC [ K) that fills the last column.
    dev/test/screen.py COLUMNS <bytes >rows
"""
import re
import sys

columns = int(sys.argv[1])
text = sys.stdin.buffer.read().decode("utf-8", "replace")
rows, row, column = [], "", 0
for token in re.findall(r"\x1b\[K|[\s\S]", text):
    if token == "\n":
        rows.append(row)
        row = " " * column
    elif token == "\r":
        column = 0
    elif token == "\x1b[K":
        if len(row) >= columns and column == len(row):
            sys.exit("row %d: a line of %d columns on a terminal of %d" % (len(rows), len(row), columns))
        row = row[:column]
    elif ord(token) < 32:
        sys.exit("row %d: unexpected character %r" % (len(rows), token))
    else:
        row = row[:column] + token + row[column + 1:]
        column += 1
sys.stdout.write("".join(line.rstrip() + "\n" for line in rows + ([row] if row.strip() else [])))
