#!/usr/bin/env python3
"""Checks that transformers loads an exported folder as GPT-2, and that its weights equal another folder's.

    pip install torch transformers safetensors
    check_export.py EXPORTED [ORIGINAL]

Without ORIGINAL only the loading is checked, and that generating works. Exit 1 and what differs on a failure.
"""
import sys

import torch
import transformers


def load(folder):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    problems = {key: value for key, value in info.items() if value}
    if problems:
        sys.exit(f"{folder}: {problems}")
    return model.eval()


def main():
    exported = load(sys.argv[1])
    head, embedding = exported.lm_head.weight, exported.transformer.wte.weight
    assert head.data_ptr() == embedding.data_ptr(), "lm_head is not tied"
    tokens = torch.tensor([[1, 2, 3]])
    out = exported.generate(tokens, max_new_tokens=4, do_sample=False, pad_token_id=0)
    assert out.shape == (1, 7), out.shape
    if exported.config.vocab_size >= 50257:
        tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
        text = "Hello world\n\n  it's 123 \u00fcber \u65e5\u672c \U0001f600"
        assert tokenizer.decode(tokenizer.encode(text)) == text, tokenizer.encode(text)
        assert tokenizer.encode("Hello world") == [15496, 995], tokenizer.encode("Hello world")
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
