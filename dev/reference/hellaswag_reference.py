#!/usr/bin/env python3
"""What transformers gives for the items of dev/test/hellaswag/items.jsonl, and llm.c's file of them.

    pip install torch transformers tiktoken numpy
    dev/reference/hellaswag_reference.py [--llmc=FOLDER] [--export=FOLDER]

Writes, beside the items:
    expected.txt   for each item: the mean loss of each ending's tokens after the context, which ending is
                   chosen, and the label; by the GPT-2 below in fp64
    items.bin      the same items as llm.c's own dev/data/data_common.py writes them; only with --llmc, the
                   folder of its sources
--export saves the model as a Hugging Face folder.

The model's weights come from a formula that dev/test/test_hellaswag.c has too, so that no file of them is
needed: weight() below. Where context and ending have more than block_size + 1 tokens, the last of them count.
"""
import argparse
import json
import pathlib
import sys

import numpy
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
ITEMS = ROOT / "dev/test/hellaswag/items.jsonl"
BLOCK_SIZE, V, L, NH, C = 64, 50257, 2, 2, 16
sys.path.insert(0, str(ROOT / "dev"))
from tokenizer_sample import gpt2  # noqa: E402 (tiktoken's gpt2 encoding, of the vocabulary in this project)


def tensor_names():
    """In the order of llmc/model/params.h."""
    block = ["ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight",
             "attn.c_proj.bias", "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias",
             "mlp.c_proj.weight", "mlp.c_proj.bias"]
    blocks = [f"h.{layer}.{name}" for layer in range(L) for name in block]
    return ["wte.weight", "wpe.weight", *blocks, "ln_f.weight", "ln_f.bias"]


def uniform(tensor, count):
    """`count` numbers in [-1, 1), exact in fp32."""
    x = numpy.arange(count, dtype=numpy.uint64) * 2654435761 + (tensor + 1) * 0x9E3779B9
    mask = numpy.uint64(0xFFFFFFFF)
    x &= mask
    x ^= x >> numpy.uint64(16)
    x = x * numpy.uint64(0x85EBCA6B) & mask
    x ^= x >> numpy.uint64(13)
    x = x * numpy.uint64(0xC2B2AE35) & mask
    x ^= x >> numpy.uint64(16)
    return ((x >> numpy.uint64(8)).astype(numpy.float64) - 2**23) / 2**23


def weight(tensor, name, shape):
    """Matrices are drawn as [out,in], of which Hugging Face's Conv1D has the transpose."""
    is_matrix = len(shape) == 2
    is_conv1d = is_matrix and name.startswith("h.")
    values = uniform(tensor, int(numpy.prod(shape)))
    if name == "wte.weight":
        scale, centre = 1.0, 0.0
    elif is_matrix:
        scale, centre = 0.5, 0.0
    elif ".weight" in name:
        scale, centre = 0.25, 1.0
    else:
        scale, centre = 0.125, 0.0
    values = values * scale + centre
    return values.reshape(shape[::-1]).T if is_conv1d else values.reshape(shape)


def build_model():
    config = transformers.GPT2Config(vocab_size=V, n_positions=BLOCK_SIZE, n_embd=C, n_layer=L, n_head=NH,
                                     resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = transformers.GPT2LMHeadModel(config).double().eval()
    with torch.no_grad():
        for i, name in enumerate(tensor_names()):
            parameter = model.transformer.get_parameter(name)
            parameter.copy_(torch.from_numpy(weight(i, name, tuple(parameter.shape)).astype(numpy.float32)))
    return model


def score(model, context, ending):
    row = (context + ending)[-(BLOCK_SIZE + 1):]
    tokens = torch.tensor(row)
    with torch.no_grad():
        logits = model(tokens[:-1].unsqueeze(0)).logits[0]
    losses = torch.nn.functional.cross_entropy(logits, tokens[1:], reduction="none")
    return losses[-min(len(ending), BLOCK_SIZE):].mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llmc", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--export", type=pathlib.Path, metavar="FOLDER")
    options = parser.parse_args()
    encoding, model = gpt2(), build_model()
    lines, datas = [], []
    for line in ITEMS.read_text(encoding="utf-8").splitlines():
        item = json.loads(line)
        context = encoding.encode(item["ctx"])
        endings = [encoding.encode(" " + ending) for ending in item["endings"]]
        scores = [score(model, context, ending) for ending in endings]
        lines.append(" ".join(f"{s:.12f}" for s in scores) + f" {numpy.argmin(scores)} {item['label']}\n")
        datas.append({"label": item["label"], "ctx_tokens": context, "ending_tokens": endings})
    (ITEMS.parent / "expected.txt").write_text("".join(lines))
    if options.llmc:
        sys.path.insert(0, str(options.llmc / "dev/data"))
        from data_common import write_evalfile
        write_evalfile(str(ITEMS.parent / "items.bin"), datas)
    if options.export:
        model.float().save_pretrained(options.export)


if __name__ == "__main__":
    main()
