#!/usr/bin/env python3
"""Checks scripts/convert_checkpoint.py with models that nanoGPT's own model.py and transformers make.

    pip install torch transformers safetensors
    check_conversion.py NANOGPT WORK        (nanoGPT's folder; WORK is made)
    ./test_gpt2 WORK/*/reference            then compares this program's logits, loss and gradients

Each reference folder holds a converted checkpoint beside what the model that it came from computed.
"""
import json
import pathlib
import subprocess
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/convert_checkpoint.py"
SIZES = {"block_size": 16, "vocab_size": 131, "n_layer": 2, "n_head": 3, "n_embd": 24}


def nanogpt_model(**changes):
    import model as nanogpt

    torch.manual_seed(1)
    args = {**SIZES, "bias": True, "dropout": 0.0, **changes}
    model = nanogpt.GPT(nanogpt.GPTConfig(**args)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    for block in model.transformer.h:
        block.mlp.gelu = torch.nn.GELU(approximate="tanh")  # GPT-2's own; nanoGPT has the exact one
    return model, args


def save_nanogpt(path, model, args, prefix=""):
    state = {prefix + name: value for name, value in model.state_dict().items()}
    path.parent.mkdir(parents=True)
    checkpoint = {"model": state, "optimizer": {"state": {}}, "model_args": args, "iter_num": 5}
    torch.save({**checkpoint, "best_val_loss": torch.tensor(4.2), "config": {"dataset": "x"}}, path)


def convert(source, folder, *options):
    done = subprocess.run([sys.executable, SCRIPT, source, folder, *options], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def must_convert(source, folder, *options):
    code, said = convert(source, folder, *options)
    assert code == 0, said


def must_refuse(source, folder, expected):
    code, said = convert(source, folder)
    assert code == 1 and expected in said and len(said.splitlines()) == 1, (expected, said)
    assert not folder.exists(), folder


def write_reference(folder, model, logits_of, is_linear):
    """What dev/reference/make_reference.py writes, for this model. Linear's gradients are [out,in], Conv1D's,
    which the file has, [in,out]."""
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(SIZES["vocab_size"], (2, SIZES["block_size"]), generator=generator)
    targets = torch.randint(SIZES["vocab_size"], tokens.shape, generator=generator)
    logits = logits_of(tokens, targets)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    held = {"tokens": tokens, "targets": targets, "logits": logits.detach(), "loss": loss.detach().reshape(1)}
    for name, parameter in model.named_parameters():
        is_conv1d = name.split(".")[-2] in ("c_attn", "c_proj", "c_fc") and name.endswith(".weight")
        gradient = parameter.grad.t() if is_conv1d and is_linear else parameter.grad
        held[f"grad.{name}"] = gradient
    save_file({name: value.contiguous() for name, value in held.items()}, folder / "reference.safetensors")


def check_nanogpt(work):
    model, args = nanogpt_model()
    save_nanogpt(work / "nanogpt/ckpt.pt", model, args)
    must_convert(work / "nanogpt/ckpt.pt", work / "nanogpt/reference")
    write_reference(work / "nanogpt/reference", model, lambda x, y: model(x, y)[0], True)
    save_nanogpt(work / "compiled/ckpt.pt", model, args, "_orig_mod.")
    must_convert(work / "compiled", work / "compiled/reference")
    model.zero_grad()
    write_reference(work / "compiled/reference", model, lambda x, y: model(x, y)[0], True)
    converted = (work / "compiled/reference/model.safetensors").read_bytes()
    assert converted == (work / "nanogpt/reference/model.safetensors").read_bytes()

    padded, args = nanogpt_model(vocab_size=50304)
    save_nanogpt(work / "padded/ckpt.pt", padded, args)
    must_convert(work / "padded/ckpt.pt", work / "padded/cut")
    wte = load_file(work / "padded/cut/model.safetensors")["transformer.wte.weight"]
    assert torch.equal(wte, padded.transformer.wte.weight[:50257])
    must_convert(work / "padded/ckpt.pt", work / "padded/kept", "--keep_padding")
    assert len(load_file(work / "padded/kept/model.safetensors")["transformer.wte.weight"]) == 50304

    plain, args = nanogpt_model(bias=False)
    save_nanogpt(work / "plain/ckpt.pt", plain, args)
    must_refuse(work / "plain/ckpt.pt", work / "plain/refused", "it was trained with bias=False")
    must_convert(work / "plain/ckpt.pt", work / "plain/zeros", "--zero_biases")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(work / "plain/zeros").eval()
    tokens = torch.arange(16)[None]
    torch.testing.assert_close(loaded(tokens).logits, plain(tokens, tokens)[0], rtol=1e-4, atol=1e-4)


def check_hugging_face(work):
    torch.manual_seed(3)
    config = transformers.GPT2Config(vocab_size=131, n_positions=16, n_embd=24, n_layer=2, n_head=3)
    for name in "resid_pdrop", "embd_pdrop", "attn_pdrop":
        setattr(config, name, 0.0)
    model = transformers.GPT2LMHeadModel(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    folder = work / "hugging_face"
    folder.mkdir()
    config.save_pretrained(folder)
    state = model.state_dict()
    torch.save(state, folder / "pytorch_model.bin")
    must_convert(folder / "pytorch_model.bin", folder / "reference")
    write_reference(folder / "reference", model, lambda x, y: model(x).logits, False)

    pieces = work / "pieces"
    pieces.mkdir()
    config.save_pretrained(pieces)
    names = list(state)
    weight_map = {}
    for number, part in enumerate((names[:9], names[9:])):
        torch.save({name: state[name] for name in part}, pieces / f"pytorch_model-{number}.bin")
        weight_map |= dict.fromkeys(part, f"pytorch_model-{number}.bin")
    (pieces / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    must_convert(pieces, pieces / "whole")
    whole = (pieces / "whole/model.safetensors").read_bytes()
    assert whole == (folder / "reference/model.safetensors").read_bytes()


def check_refusals(work):
    refused = work / "refused"
    refused.mkdir()
    (refused / "text").write_text("no checkpoint")
    must_refuse(refused / "text", refused / "a", "expected a checkpoint of PyTorch")
    must_refuse(refused / "gone", refused / "a", "no such file")
    must_refuse(refused, refused / "a", "expected ckpt.pt or pytorch_model.bin in it")
    torch.save([1, 2], refused / "list.bin")
    must_refuse(refused / "list.bin", refused / "a", "expected a dict of tensors, found list")
    torch.save({"x": torch.zeros(2)}, refused / "other.bin")
    must_refuse(refused / "other.bin", refused / "a", "config.json: expected a JSON file")
    (refused / "config.json").write_text('{"n_head": 1}')
    must_refuse(refused / "other.bin", refused / "a", "not a GPT-2")
    model, args = nanogpt_model()
    for change, expected in (
        ({"transformer.wpe.weight": torch.zeros(16, 25)}, "expected shape (16, 24), found (16, 25)"),
        ({"transformer.h.0.extra.weight": torch.zeros(2), "transformer.h.0.extra.bias": torch.zeros(2)},
         "expected GPT-2's tensors only"),
        ({"lm_head.weight": torch.zeros(131, 24)}, "expected it to equal wte.weight"),
    ):
        torch.save({"model": {**model.state_dict(), **change}, "model_args": args}, refused / "ckpt.pt")
        must_refuse(refused / "ckpt.pt", refused / "a", expected)
    torch.save({"model": model.state_dict(), "model_args": {**args, "n_head": 5}}, refused / "ckpt.pt")
    must_refuse(refused / "ckpt.pt", refused / "a", "n_head: expected a divisor of n_embd=24, found 5")


def main():
    nanogpt, work = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    sys.path.insert(0, str(nanogpt))
    work.mkdir(parents=True)
    check_nanogpt(work)
    check_hugging_face(work)
    check_refusals(work)
    print(f"conversions and refusals hold; now ./test_gpt2 {work}/*/reference")


main()
