#!/usr/bin/env python3
"""Thirty updates by PyTorch, for dev/test/test_training.sh to compare train_gpt2's with.

    pip install torch transformers
    dev/reference/train_reference.py

Writes dev/test/training: tokens.bin, a small shard of made-up tokens, and expected.txt (iter, loss, gradient
norm before clipping, lr). The model begins with the weights of heads_of_7; rows are windows in file order;
AdamW has nanoGPT's two groups, everything is fp32.
"""
import array
import math
import pathlib
import random

import torch
import transformers

HERE = pathlib.Path(__file__).parent
FOLDER = HERE.parent / "test" / "training"
B, T, G, UPDATES = 4, 32, 3, 30
LEARNING_RATE, MIN_LR, WARMUP_ITERS, LR_DECAY_ITERS = 3e-3, 3e-4, 5, 25
WEIGHT_DECAY, BETAS, GRAD_CLIP = 0.1, (0.9, 0.95), 0.42  # some updates are clipped, some not
WINDOWS = 100


def make_tokens(vocab_size):
    """Mostly the successor of the token before, sometimes anything: something to learn, something not to."""
    rng = random.Random(1)
    tokens = [0]
    while len(tokens) < WINDOWS * T + 1:
        tokens.append((tokens[-1] * 5 + 3) % vocab_size if rng.random() < 0.7 else rng.randrange(vocab_size))
    return tokens


def write_shard(path, tokens):
    header = array.array("i", [20240520, 1, len(tokens)] + [0] * 253)
    path.write_bytes(header.tobytes() + array.array("H", tokens).tobytes())


def learning_rate(i):
    if i < WARMUP_ITERS:
        return LEARNING_RATE * (i + 1) / (WARMUP_ITERS + 1)
    if i > LR_DECAY_ITERS:
        return MIN_LR
    ratio = (i - WARMUP_ITERS) / (LR_DECAY_ITERS - WARMUP_ITERS)
    return MIN_LR + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (LEARNING_RATE - MIN_LR)


def slot_loss(model, tokens, step, slot):
    first = (step * G + slot) * B
    starts = [(first + b) % WINDOWS * T for b in range(B)]
    inputs = torch.tensor([tokens[s:s + T] for s in starts])
    targets = torch.tensor([tokens[s + 1:s + T + 1] for s in starts])
    logits = model(inputs).logits
    return torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1)) / G


def main():
    torch.set_num_threads(1)
    model = transformers.GPT2LMHeadModel.from_pretrained(HERE / "heads_of_7", attn_implementation="eager",
                                                         resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = model.float().train()
    tokens = make_tokens(model.config.vocab_size)
    FOLDER.mkdir(exist_ok=True)
    write_shard(FOLDER / "tokens.bin", tokens)
    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": WEIGHT_DECAY},
              {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=BETAS, eps=1e-8)
    with open(FOLDER / "expected.txt", "w") as out:
        for i in range(UPDATES):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(i)
            optimizer.zero_grad()
            loss = 0.0
            for slot in range(G):
                part = slot_loss(model, tokens, i, slot)
                part.backward()
                loss += part.item()
            norm = torch.nn.utils.clip_grad_norm_(parameters, GRAD_CLIP).item()
            optimizer.step()
            out.write(f"{i} {loss:.9g} {norm:.9g} {learning_rate(i):.9g}\n")


if __name__ == "__main__":
    main()
