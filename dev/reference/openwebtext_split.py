#!/usr/bin/env python3
"""A small OpenWebText, and what nanoGPT's data/openwebtext/prepare.py makes of it.

    openwebtext_split.py make FOLDER [DOCUMENTS]      python3's standard library only
        FOLDER/openwebtext.tar: a tar of .xz files, each a tar of texts, as the published archives are;
        FOLDER/openwebtext.jsonl: the same texts as Hugging Face's loader cleans them; FOLDER/clean.txt: one
        text with white space of all kinds, and FOLDER/cleaned.txt: what the loader makes of it
    openwebtext_split.py expect FOLDER OUTPUT [--datasets]      pip install numpy tiktoken [datasets]
        OUTPUT/train.bin and val.bin: documents split and permuted as datasets' train_test_split does with
        seed 2357 and test_size 0.0005, tokens by tiktoken. With --datasets, train_test_split itself splits

dev/test/openwebtext_split.sh compares them with what tokenize writes; dev/test/test_shuffle.sh holds the
hashes of a small instance.
"""
import io
import json
import math
import random
import re
import sys
import tarfile

SPACES = " \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2003\u200a\u2028\u2029\u202f\u205f\u3000"
NEARLY = "\u200b\u180e\ufeff\xc2\xe3\u2010\u2060\u3001\u16a0\ue000\U0001f600"
WORDS = "the of and to in that was his he it with is for as had you not be her on at by which have or".split()
WORDS += ["from", "naïve", "Ωmega", "日本語", "don't", "1,234.5", "<|endoftext|>", "e-mail"]
WORDS += ["\U0001f680", "x=[1,2]", "…"]
PER_ENTRY = 37  # documents of an inner archive


def clean(text):
    return re.sub("\n\n\n+", "\n\n", text).strip()


def documents(count):
    draw = random.Random(2357).random  # random() alone gives the same numbers in every version of Python
    for number in range(count):
        words = 3 if number % 97 == 5 else int(20 + 3000 * draw() ** 3)
        parts = [WORDS[int(draw() * len(WORDS))] + " " * (draw() < 0.9) for _ in range(words)]
        for _ in range(1 + words // 60):
            parts[int(draw() * words)] += "\n" * int(1 + 5 * draw())
        for place in (0, -1):
            parts[place] += "".join(SPACES[int(draw() * len(SPACES))] for _ in range(int(4 * draw())))
        text = "".join(parts)
        yield " \n\n \n" if number % 501 == 77 else "\n\n\n\n" + text if number % 3 == 0 else text


def spaces_text():
    draw = random.Random(1).random
    parts = []
    for _ in range(60000):
        kinds = "\n\n\n" if draw() < 0.3 else SPACES if draw() < 0.8 else SPACES + NEARLY + "ab"
        parts.append("".join(kinds[int(draw() * len(kinds))] for _ in range(int(9 * draw()))))
        parts.append("word" * (draw() < 0.5))
    return "".join(parts)


def add(archive, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def make(folder, count):
    texts = list(documents(count))
    with tarfile.open(f"{folder}/openwebtext.tar", "w") as outer:
        for begin in range(0, count, PER_ENTRY):
            inner_bytes = io.BytesIO()
            with tarfile.open(fileobj=inner_bytes, mode="w:xz", preset=0) as inner:
                for number in range(begin, min(begin + PER_ENTRY, count)):
                    add(inner, f"{number:07d}-text.txt", texts[number].encode())
            add(outer, f"openwebtext/urlsf_subset00-{begin // PER_ENTRY}_data.xz", inner_bytes.getvalue())
    with open(f"{folder}/openwebtext.jsonl", "w", encoding="utf-8") as lines:
        lines.writelines(json.dumps({"text": clean(text)}) + "\n" for text in texts)
    text = spaces_text()
    for name, content in (("clean", text), ("cleaned", clean(text))):
        with open(f"{folder}/{name}.txt", "wb") as file:
            file.write(content.encode())


def split_by_numpy(texts):
    import numpy

    order = numpy.random.default_rng(2357).permutation(len(texts))
    val_count = math.ceil(0.0005 * len(texts))
    return {"train": [texts[i] for i in order[val_count:]], "val": [texts[i] for i in order[:val_count]]}


def split_by_datasets(texts):
    import datasets

    split = datasets.Dataset.from_dict({"text": texts}).train_test_split(
        test_size=0.0005, seed=2357, shuffle=True
    )
    return {"train": split["train"]["text"], "val": split["test"]["text"]}


def expect(folder, output, split):
    import numpy
    from gpt2_encoding import gpt2_encoding

    encoding = gpt2_encoding()
    with open(f"{folder}/openwebtext.jsonl", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    for name, part in split(texts).items():
        ids = [encoding.encode_ordinary(text) + [encoding.eot_token] for text in part]
        numpy.concatenate(ids).astype("<u2").tofile(f"{output}/{name}.bin")


if sys.argv[1] == "make":
    make(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 10000)
else:
    expect(sys.argv[2], sys.argv[3], split_by_datasets if "--datasets" in sys.argv else split_by_numpy)
