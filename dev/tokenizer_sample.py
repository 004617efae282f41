#!/usr/bin/env python3
"""Write dev/test/tokenizer_sample.h: texts and their ids as tiktoken's gpt2 encoding gives them.

    python3 dev/tokenizer_sample.py > dev/test/tokenizer_sample.h

Needs tiktoken only; the vocabulary is the one of llmc/text/gpt2_vocab, so nothing is fetched.
"""
import pathlib
import random

import tiktoken
from tiktoken_ext.openai_public import r50k_pat_str

ROOT = pathlib.Path(__file__).resolve().parents[1]
SWEEP_BLOCK = 0x1000

TEXTS = {
    "prose": ["Hello, world!", "The quick brown fox jumps over the lazy dog.",
              "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak.\n",
              "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
              "a" * 40 + " " + "Donaudampfschiff" * 20],
    "contractions": ["it's they're we've I'm you'll he'd can't", "IT'S IT'Re 'S 's 't 're 've 'm 'll 'd",
                     " 's 'll", "''s '''ll x''re", "'sss 'lll 'ved 're-", "it\u2019s they\u2019re", "'", "''",
                     "a'", "'l", "'r 'v", "x'\u00e9 '\u00e9s 's\u00e9", "rock'n'roll o'clock 'tis",
                     "\n's\t'll \u00a0've  're"],
    "white space": ["", " ", "  ", "   ", "\n", "\n\n", "a ", "a  ", " a", "  a", "   a", "a \n b", "a\n \nb",
                    "a\r\nb\r\n\r\nc", "\t\tx", " \t x", "x\v\fy", "a\u00a0b", "a\u00a0\u00a0 b",
                    "\u3000x\u3000 y", "\u2003\u2003a", "a\u2028b\u2029c", "\u0085x", "x \u1680 y",
                    "\ufeffx", "a\u200bb", "\u180ex", " " * 80 + "x" + " " * 79, "\n" * 70 + "x", " \n" * 40,
                    "end \n "],
    "numbers": ["0", "1 22 333 4444 55555", "3.14159 1,000,000 -5 +7 1e-9 0x7f", "12ab34",
                "\u0663\u0664 \u00b2\u00bd\u2167 \u3007\u4e00 x\u0967", "\uff11\uff12a", "1\u0301 2",
                "9" * 100, "a1b2 c3'd4"],
    "punctuation": ["!?!?...---***", "a.b,c;d:e", "(\"quoted\") [x] {y} <z>",
                    "a_b __init__ #!/bin/sh $HOME ~ ^ `x`", "\u00abx\u00bb \u201cy\u201d \u2014 \u2026",
                    "=" * 90, "-=" * 50, "\u00d7\u00f7\u00b1 \u20ac\u00a3\u00a5",
                    "if (a<b && c>=d) { return x[i]++; } // done", "<|endoftext|> <|endoftext|>x"],
    "control": ["\0", "\0\0\0", "a\0b", "\x01\x02\x1f\x7f", "\x1c\x1d\x1e\x1f x", "\x80\x81\x9f",
                "\x1b[31mred\x1b[0m", "a\bb", "\x00 \x00a"],
    "scripts": ["\u00e9t\u00e9 na\u00efve \u0153uvre \u00c5ngstr\u00f6m stra\u00dfe \u0130stanbul",
                "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0432\u043e\u0439\u043d\u0430",
                "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u039a\u03cc\u03c3\u03bc\u03b5",
                "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd", "\u0645\u0631\u062d\u0628"
                "\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
                "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e",
                "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u4eca\u5929",
                "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c\u30ab\u30bf\u30ab\u30ca",
                "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
                "e\u0301 a\u0308 \u0915\u094d\u0937", "\U0001d400\U0001d7ce \U00010330 \U00020000\U0002a6d6",
                "\u4e2d" * 60, "\u02b0\u02b9 \u0345 \u2160 \u24b6 \U0001f130"],
    "emoji": ["\U0001f600", "\U0001f600\U0001f601 ok \U0001f44d\U0001f3fd",
              "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u2764\ufe0f \u263a",
              "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7", "x\U0001f600y \U0001f9d1\u200d\U0001f680's"],
    "edges": ["\ud7ff\ue000\ufffd\ufffe\uffff", "\U00010000\U0010ffff", "\u07ff\u0800", "a" * 15, "a" * 16,
              " " + "b" * 15, "z" * 47, "z" * 48, "z" * 49, "abc" * 30, "\u00e9" * 30, "ab\u00e9" * 25,
              "x" * 62 + "'s " + "y" * 61 + "'ll"],
}


def gpt2():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    order = printable + [b for b in range(256) if b not in printable]
    hidden = (b for b in range(256) if b not in printable)
    byte_of = {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(hidden)}
    ranks = {bytes([b]): i for i, b in enumerate(order)}
    lines = (ROOT / "llmc/text/gpt2_vocab/vocab.bpe").read_text(encoding="utf-8").split("\n")[1:]
    for line in filter(None, lines):
        ranks[bytes(byte_of[c] for c in line.replace(" ", ""))] = len(ranks)
    return tiktoken.Encoding("gpt2", pat_str=r50k_pat_str, mergeable_ranks=ranks,
                             special_tokens={"<|endoftext|>": 50256}, explicit_n_vocab=50257)


def mixed_texts(encoding):
    """Random texts of everything above and of all characters; the seed makes them the same each time."""
    rng = random.Random(2357)
    pieces = [t for group in TEXTS.values() for t in group if 0 < len(t) < 20]
    pieces += [encoding.decode_single_token_bytes(i).decode("utf-8", "ignore") for i in range(0, 50256, 50)]
    for _ in range(120):
        yield "".join(rng.choice(pieces) if rng.random() < 0.8 else chr(rng.choice([rng.randrange(0xd800),
                      rng.randrange(0xe000, 0x110000)])) for _ in range(rng.randrange(2, 14)))


def fnv(values, state=0xCBF29CE484222325):
    for value in values:
        state = ((state ^ value) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return state


def c_string(data):
    """As a C string; octal escapes have three digits, so that no digit joins them."""
    return "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in data)


def print_array(name, kind, items, width=106):
    print(f"static const {kind} {name}[] = {{")
    line = "   "
    for item in items:
        if len(line) + len(item) + 2 > width:
            print(line)
            line = "   "
        line += f" {item},"
    print(line + "\n};\n")


def classes(encoding_of):
    every = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    table = bytearray(0x110000)
    for value, pattern in ((1, r"\p{L}"), (2, r"\p{N}"), (3, r"\s")):
        for c in bytes(encoding_of(pattern).encode_ordinary(every)).decode():
            table[ord(c)] = value
    return table


def main():
    encoding = gpt2()
    texts = [t for group in TEXTS.values() for t in group] + list(mixed_texts(encoding))
    print("/* Texts and their GPT-2 ids by tiktoken. Written by dev/tokenizer_sample.py.\n */")
    print("/* clang-format off */\n#include <stdint.h>\n")
    print("typedef struct SampleText {\n    const char *text;\n    int bytes;\n    int tokens;\n"
          "} SampleText;\n")
    ids = []
    print("static const SampleText sample_texts[] = {")
    for text in texts:
        data = text.encode()
        tokens = encoding.encode_ordinary(text)
        ids += tokens
        print(f'    {{"{c_string(data)}", {len(data)}, {len(tokens)}}},')
    print("};\n\n/* Of all texts, one after the other. */")
    print_array("sample_ids", "uint16_t", map(str, ids))
    print("/* FNV-1a over the ids of sweep_text (test_tokenizer.c) of each character, one hash for each "
          "4096. */")
    hashes = []
    for first in range(0, 0x110000, SWEEP_BLOCK):
        state = fnv([])
        for point in range(first, first + SWEEP_BLOCK):
            if not 0xD800 <= point < 0xE000:
                c = chr(point)
                state = fnv(encoding.encode_ordinary(f"a{c}'s  {c}1{c}the {c}{c}"), state)
        hashes.append(f"0x{state:016x}")
    print_array("sweep_hashes", "uint64_t", hashes)
    bytes_only = {bytes([b]): b for b in range(256)}
    table = classes(lambda p: tiktoken.Encoding("probe", pat_str=p, mergeable_ranks=bytes_only,
                                                special_tokens={}))
    print("/* FNV-1a over the class (0 other, 1 letter, 2 number, 3 white space) of each code point, "
          "surrogates too. */")
    print(f"static const uint64_t classes_hash = 0x{fnv(table):016x};")


if __name__ == "__main__":
    main()
