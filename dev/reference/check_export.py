#!/usr/bin/env python3
"""Checks that transformers loads an exported folder as GPT-2, and that its weights equal another folder's.

    pip install torch transformers safetensors tiktoken
    check_export.py EXPORTED [ORIGINAL]

Without ORIGINAL only the loading is checked, that generating works, and that both tokenizers of transformers
give tiktoken's ids. Exit 1 and what differs on a failure.
"""
import json
import sys

import safetensors.torch
import torch
import transformers

HARD_TEXTS = [
    "",
    " ",
    "Hello world",
    "Hello world\n\n  it's 123 \u00fcber \u65e5\u672c \U0001f600",
    "I'll we've they're don't I'd I'm IT'S can''t '\u2019s",
    "   leading,  double   triple    \t\ttabs\r\n\r\nand\x0b\x0cmore \u00a0\u3000\u2003 ",
    "x=[1,2]; y={'a': \"b\\\\\"}; // 3.14e-10 0xDEADBEEF \u00b2\u00bd\u2167",
    "e\u0301 \u0915\u094d\u0937 \u0e01\u0e33 \ud55c\uad6d\uc5b4",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \ufeff\u200b \U0001d54f",
    "a" * 300 + " " * 300 + "!?" * 150 + "0123456789" * 40,
    " ".join(chr(c) for c in range(1, 0x2000, 7)),
]


def load(folder):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    problems = {key: value for key, value in info.items() if value}
    if problems:
        sys.exit(f"{folder}: {problems}")
    return model.eval()


def check_files(folder, model):
    """The same values by safetensors alone, and what other programs read in the small files."""
    state = model.state_dict()
    for name, value in safetensors.torch.load_file(f"{folder}/model.safetensors").items():
        assert torch.equal(value, state[name]), f"{name} differs by safetensors"
    with open(f"{folder}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    assert config["n_ctx"] == config["n_positions"] == model.config.n_positions, config
    assert model.generation_config.eos_token_id == model.config.eos_token_id, model.generation_config
    with open(f"{folder}/README.md", encoding="utf-8") as file:
        assert f"{model.num_parameters():,}" in file.read(), "README.md: parameters"


def check_tokenizers(folder):
    from gpt2_encoding import gpt2_encoding

    encoding = gpt2_encoding()
    for use_fast in True, False:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, use_fast=use_fast)
        name = type(tokenizer).__name__
        for text in HARD_TEXTS:
            ids = tokenizer.encode(text)
            assert ids == encoding.encode_ordinary(text), f"{name}: {text!r}: {ids}"
            assert tokenizer.decode(ids) == text, f"{name}: {text!r}: {tokenizer.decode(ids)!r}"
        assert tokenizer.encode("a<|endoftext|>b") == [64, 50256, 65], f"{name}: <|endoftext|>"
        assert tokenizer.eos_token_id == tokenizer.bos_token_id == 50256, name
        print(f"transformers {transformers.__version__}: {name} gives tiktoken's ids")


def main():
    exported = load(sys.argv[1])
    head, embedding = exported.lm_head.weight, exported.transformer.wte.weight
    assert head.data_ptr() == embedding.data_ptr(), "lm_head is not tied"
    tokens = torch.tensor([[1, 2, 3]])
    out = exported.generate(tokens, max_new_tokens=4, do_sample=False, pad_token_id=0)
    assert out.shape == (1, 7), out.shape
    check_files(sys.argv[1], exported)
    if exported.config.vocab_size >= 50257:
        check_tokenizers(sys.argv[1])
    if len(sys.argv) > 2:
        original = load(sys.argv[2])
        state, expected = exported.state_dict(), original.state_dict()
        assert state.keys() == expected.keys(), state.keys() ^ expected.keys()
        for name, value in expected.items():
            assert torch.equal(state[name], value), f"{name} differs"
        assert exported.config.n_head == original.config.n_head


try:
    main()
except AssertionError as error:
    sys.exit(f"check_export.py: {error}")
