#!/usr/bin/env python3
"""Make reference folders for test_gpt2: what Hugging Face transformers computes, in fp32.

    pip install torch transformers safetensors
    dev/reference/make_reference.py                       the committed folders, beside this file
    dev/reference/make_reference.py --random=SEED FOLDER  one folder of a shape drawn from SEED

A folder holds config.json and model.safetensors as transformers saves them, and reference.safetensors with
tokens and targets I64 (B,T), logits F32 (B,T,V), loss F32 (1), and grad.<parameter name> F32, the gradient of
the mean loss. The tied lm_head appears once, as transformer.wte.weight.
"""
import argparse
import dataclasses
import pathlib
import random

import safetensors.torch
import torch
import transformers


@dataclasses.dataclass
class Recipe:
    """One folder. Weights are normal; scale multiplies every matrix, embed_scale the token embedding, which
    is also the classifier and so sets the size of the logits."""
    B: int
    T: int
    V: int
    L: int
    NH: int
    C: int
    block_size: int = 0  # 0: T
    scale: float = 1.0
    embed_scale: float = 1.0
    seed: int = 0


COMMITTED = {
    "one_head": Recipe(B=3, T=17, V=131, L=1, NH=1, C=20, block_size=32),
    "one_token": Recipe(B=3, T=1, V=97, L=2, NH=2, C=14, block_size=5),
    "heads_of_5": Recipe(B=1, T=67, V=90, L=1, NH=7, C=35, block_size=67),
    "heads_of_7": Recipe(B=2, T=33, V=129, L=1, NH=3, C=21, block_size=40),
    "heads_of_64": Recipe(B=1, T=130, V=50, L=1, NH=1, C=64),
    "heads_of_72": Recipe(B=3, T=9, V=20, L=1, NH=1, C=72),
    "twelve_layers": Recipe(B=2, T=24, V=77, L=12, NH=2, C=10, block_size=24),
    "large_logits": Recipe(B=2, T=20, V=200, L=2, NH=2, C=16, scale=3.0, embed_scale=40.0),
    "sharp_attention": Recipe(B=1, T=40, V=50, L=2, NH=3, C=18, scale=8.0),
}


def draw_recipe(seed):
    rng = random.Random(seed)
    NH = rng.choice([1, 1, 2, 3, 4, 5, 6, 8])
    HS = rng.choice([1, 2, 3, 4, 5, 7, 8, 11, 16, 20, 24, 32, 33, 48, 64, 80])
    T = rng.choice([1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64, 65, 67, 96, 100, 127, 128, 129, 130, 200, 257])
    return Recipe(B=rng.choice([1, 1, 2, 3, 4, 5]), T=T,
                  V=rng.choice([1, 2, 11, 64, 127, 128, 129, 300, 513, 1000]),
                  L=rng.choice([1, 1, 2, 3, 4, 6, 12]), NH=NH, C=NH * HS,
                  block_size=T + rng.choice([0, 0, 1, 9, 50]),
                  scale=rng.choice([0.1, 0.3, 1.0, 1.0, 1.0, 2.0, 4.0, 10.0]),
                  embed_scale=rng.choice([0.01, 0.3, 1.0, 1.0, 1.0, 3.0, 10.0, 50.0]), seed=seed)


def build_model(recipe):
    config = transformers.GPT2Config(
        vocab_size=recipe.V, n_positions=recipe.block_size or recipe.T, n_embd=recipe.C, n_layer=recipe.L,
        n_head=recipe.NH, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=recipe.V - 1,
        eos_token_id=recipe.V - 1)
    config._attn_implementation = "eager"
    model = transformers.GPT2LMHeadModel(config).float().train()
    generator = torch.Generator().manual_seed(1234 + recipe.seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            if name.endswith("wte.weight"):
                parameter.copy_(0.1 * recipe.embed_scale * values)
            elif name.endswith("wpe.weight"):
                parameter.copy_(0.1 * values)
            elif parameter.dim() == 2:  # [in,out]: keeps the size of what goes through it
                parameter.copy_(recipe.scale * values / parameter.shape[0] ** 0.5)
            elif ".ln_" in name and name.endswith("weight"):
                parameter.copy_(1.0 + 0.3 * values)
            else:
                parameter.copy_(0.2 * values)
    return model, generator


def write_folder(folder, recipe):
    model, generator = build_model(recipe)
    shape = (recipe.B, recipe.T)
    tokens = torch.randint(recipe.V, shape, generator=generator)
    targets = torch.randint(recipe.V, shape, generator=generator)
    logits = model(tokens).logits
    loss = torch.nn.functional.cross_entropy(logits.view(-1, recipe.V), targets.view(-1))
    loss.backward()
    tensors = {"tokens": tokens, "targets": targets, "logits": logits.detach(), "loss": loss.detach().view(1)}
    for name, parameter in model.named_parameters():
        tensors["grad." + name] = parameter.grad
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    safetensors.torch.save_file(tensors, folder / "reference.safetensors", metadata={"format": "pt"})
    print(f"{folder}: {recipe}, loss {loss.item():.6f}, largest logit {logits.abs().max().item():.3g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, metavar="SEED")
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.random is not None:
        write_folder(options.folder, draw_recipe(options.random))
        return
    for name, recipe in COMMITTED.items():
        write_folder(pathlib.Path(__file__).parent / name, recipe)


if __name__ == "__main__":
    main()
