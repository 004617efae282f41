#!/usr/bin/env python3
"""A checkpoint of PyTorch to a Hugging Face folder, which train_gpt2 takes: --init_from=FOLDER.

    pip install torch safetensors
    scripts/convert_checkpoint.py ckpt.pt FOLDER              nanoGPT's checkpoint
    scripts/convert_checkpoint.py pytorch_model.bin FOLDER    Hugging Face's, with config.json beside it
    scripts/convert_checkpoint.py OLD_FOLDER FOLDER           a folder with either, in pieces too

Only weights are converted, as fp32; the optimizer's state is left. Names with `_orig_mod.` (torch.compile)
or `module.` (DDP) are understood. A vocabulary that nanoGPT has padded to 50,304 is cut to GPT-2's 50,257
tokens; --keep_padding keeps it. Nothing in the file is run: it is loaded as plain tensors (weights_only).

nanoGPT's models compute the exact GELU, GPT-2's and this program's the tanh approximation: the same weights
give a loss that differs in the fourth digit or so.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile

GPT2_TOKENS = 50257
NANOGPT_PADDED_TOKENS = 50304
CONV1D = re.compile(r"\.(attn\.c_attn|attn\.c_proj|mlp\.c_fc|mlp\.c_proj)\.weight$")
BUFFER = re.compile(r"\.attn\.(bias|masked_bias)$")
BLOCK = ["ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"]


def die(message):
    sys.exit(f"convert_checkpoint.py: {message}")


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--keep_padding", action="store_true", help="keep rows of wte beyond 50,257")
    parser.add_argument(
        "--zero_biases", action="store_true", help="give a bias=False checkpoint biases of zero"
    )
    return parser.parse_args()


def load_file(path):
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a foreign file leads to is told in one line
        die(f"{path}: expected a checkpoint of PyTorch: {str(error).splitlines()[0]}")


def load_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        die(f"{path}: expected a JSON file: {error}")


def find_checkpoint(path):
    """The file, or the list of pieces, of a folder or file."""
    if not path.is_dir():
        if not path.exists():
            die(f"{path}: no such file")
        return [path]
    for name in "ckpt.pt", "pytorch_model.bin":
        if (path / name).exists():
            return [path / name]
    index = path / "pytorch_model.bin.index.json"
    if index.exists():
        return [path / name for name in sorted(set(load_json(index)["weight_map"].values()))]
    die(f"{path}: expected ckpt.pt or pytorch_model.bin in it, found neither")


def load(path):
    """The state dict, and the shape as far as it is told: n_head is not in the tensors."""
    pieces = find_checkpoint(path)
    loaded = {}
    for piece in pieces:
        content = load_file(piece)
        if not isinstance(content, dict):
            die(f"{piece}: expected a dict of tensors, found {type(content).__name__}")
        loaded.update(content)
    if "model_args" in loaded and "model" in loaded:
        return loaded["model"], loaded["model_args"], "nanoGPT"
    if "state_dict" in loaded:
        loaded = loaded["state_dict"]
    return loaded, load_json(pieces[0].parent / "config.json"), "Hugging Face"


def check_config(config):
    """What would compute something else than GPT-2 is refused; train_gpt2 checks the rest."""
    for key, accepted in {
        "model_type": ("gpt2",),
        "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
        "layer_norm_epsilon": (1e-5,),
        "tie_word_embeddings": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
    }.items():
        if config.get(key, accepted[0]) not in accepted:
            die(f"config.json: {key}: expected {accepted[0]}, found {config[key]}: another model than GPT-2")


def rename(state):
    """Names as in a GPT2LMHeadModel, without buffers and without the tied lm_head."""
    import torch

    result = {}
    for name, tensor in state.items():
        while name.startswith(("_orig_mod.", "module.")):
            name = name.split(".", 1)[1]
        if not name.startswith(("transformer.", "lm_head.")):
            name = "transformer." + name
        if BUFFER.search(name):
            continue
        if not isinstance(tensor, torch.Tensor):
            die(f"{name}: expected a tensor, found {type(tensor).__name__}")
        result[name] = tensor.detach().float()
    head = result.pop("lm_head.weight", None)
    wte = result.get("transformer.wte.weight")
    if wte is None or "transformer.wpe.weight" not in result:
        found = ", ".join(list(result)[:3]) or "nothing"
        die(f"expected wte.weight and wpe.weight, found {found}: not a GPT-2")
    if head is not None and not torch.equal(head, wte):
        die("lm_head.weight: expected it to equal wte.weight (GPT-2 ties them), found other values")
    return result


def expected_shapes(shape):
    C = shape["n_embd"]
    shapes = {
        "transformer.wte.weight": (shape["vocab_size"], C),
        "transformer.wpe.weight": (shape["n_positions"], C),
    }
    widths = {"attn.c_attn": (3 * C, C), "attn.c_proj": (C, C)}
    widths |= {"mlp.c_fc": (4 * C, C), "mlp.c_proj": (C, 4 * C)}
    for layer in range(shape["n_layer"]):
        for part in BLOCK:
            weight = widths.get(part, (C,))
            shapes[f"transformer.h.{layer}.{part}.weight"] = weight
            shapes[f"transformer.h.{layer}.{part}.bias"] = weight[:1]
    shapes["transformer.ln_f.weight"] = shapes["transformer.ln_f.bias"] = (C,)
    return shapes


def complete(tensors, args):
    """Refuse a model without biases, unless zeros are asked for."""
    import torch

    missing = [name for name in tensors if name.endswith(".weight") and name[:-6] + "bias" not in tensors]
    missing = [name for name in missing if not re.search(r"\.w[tp]e\.weight$", name)]
    if missing and not args.zero_biases:
        die(
            f"{args.checkpoint}: expected biases, found none for {len(missing)} tensors (it was trained with "
            "bias=False): GPT-2, and train_gpt2, have biases in every layer. --zero_biases adds biases of "
            "zero: the model then computes the same, and training on trains them"
        )
    for name in missing:
        tensors[name[:-6] + "bias"] = torch.zeros(tensors[name].shape[0])


def check_shapes(tensors, shape, path):
    shapes = expected_shapes(shape)
    for name in sorted(shapes.keys() | tensors.keys()):
        if name not in tensors:
            die(f"{path}: expected tensor {name}, found none")
        if name not in shapes:
            die(f"{path}: tensor {name}: expected GPT-2's tensors only, found this one too")
        if tuple(tensors[name].shape) != shapes[name]:
            die(f"{path}: tensor {name}: expected shape {shapes[name]}, found {tuple(tensors[name].shape)}")


def convert(args):
    state, told, kind = load(args.checkpoint)
    tensors = rename(state)
    if kind == "Hugging Face":
        check_config(told)
        for name in tensors:
            if CONV1D.search(name) and tensors[name].dim() == 2:
                tensors[name] = tensors[name].t()  # [in,out] in its files, [out,in] here and in nanoGPT's
    complete(tensors, args)
    wte = tensors["transformer.wte.weight"]
    cut = kind == "nanoGPT" and wte.shape[0] == NANOGPT_PADDED_TOKENS and not args.keep_padding
    if cut:
        wte = tensors["transformer.wte.weight"] = wte[:GPT2_TOKENS]
    layers = {int(match[1]) for match in (re.match(r"transformer\.h\.(\d+)\.", n) for n in tensors) if match}
    shape = {
        "vocab_size": wte.shape[0],
        "n_positions": tensors["transformer.wpe.weight"].shape[0],
        "n_embd": wte.shape[1],
        "n_layer": max(layers, default=-1) + 1,
        "n_head": told.get("n_head"),
    }
    if not isinstance(shape["n_head"], int) or shape["n_head"] < 1 or shape["n_embd"] % shape["n_head"]:
        found = f"n_embd={shape['n_embd']}, found {shape['n_head']}"
        die(f"{args.checkpoint}: n_head: expected a divisor of {found}")
    check_shapes(tensors, shape, args.checkpoint)
    return tensors, shape, kind, cut


def write(folder, tensors, shape):
    """All of the folder at once, under its name only when it is whole."""
    from safetensors.torch import save_file

    temporary = pathlib.Path(tempfile.mkdtemp(prefix=f"{folder.name}.tmp.", dir=folder.parent))
    try:
        os.chmod(temporary, 0o755)
        contents = {n: (t.t() if CONV1D.search(n) else t).contiguous() for n, t in tensors.items()}
        save_file(contents, temporary / "model.safetensors", metadata={"format": "pt"})
        end = GPT2_TOKENS - 1 if shape["vocab_size"] >= GPT2_TOKENS else None
        config = {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "activation_function": "gelu_new",
            **shape,
            "n_ctx": shape["n_positions"],
            "layer_norm_epsilon": 1e-5,
            "bos_token_id": end,
            "eos_token_id": end,
            "tie_word_embeddings": True,
            "torch_dtype": "float32",
        }
        (temporary / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        os.rename(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def main():
    args = parse_arguments()
    folder = args.folder.absolute()
    if folder.exists():
        die(f"{args.folder}: expected no such folder yet, found one; choose another name")
    try:
        import safetensors.torch  # noqa: F401
    except ImportError as error:
        die(f"expected Python's packages torch and safetensors: {error}; pip install torch safetensors")
    tensors, shape, kind, cut = convert(args)
    folder.parent.mkdir(parents=True, exist_ok=True)
    write(folder, tensors, shape)
    if cut:
        print(f"of {NANOGPT_PADDED_TOKENS:,} rows of wte, padded by nanoGPT, {GPT2_TOKENS:,} are kept")
    if kind == "nanoGPT":
        print("nanoGPT computes the exact GELU, train_gpt2 the tanh approximation: losses differ slightly")
    count = sum(tensor.numel() for tensor in tensors.values())
    print(f"{args.folder}: {kind}, {shape}, {count:,} parameters; train_gpt2 --init_from={args.folder}")


main()
