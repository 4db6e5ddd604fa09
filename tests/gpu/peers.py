#!/usr/bin/env python3
"""PyTorch's speed at the work of models.py, on the same machine: eager, fp32 with TF32 allowed or autocast to bf16, synthetic data that is on the device already.

Usage: peers.py CELL,... where a CELL is MODEL:BATCH:PRECISION. Prints a row for each: step ms, samples/s, inference ms, samples/s, J a step, peak GiB.
Changes no setting of the card.
"""

import contextlib
import sys
import time

import torch
import torchvision
import transformers
from torch import nn

DEVICE = torch.device("cuda")
WINDOW_S = 0.8


class Recurrent(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.embedding = nn.Embedding(10_000, 256)
        self.layers = cell(256, 512, num_layers=2, batch_first=True)
        self.linear = nn.Linear(512, 10_000)

    def forward(self, tokens):
        return self.linear(self.layers(self.embedding(tokens))[0])


class Logits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(tokens).logits


def opened(name):
    """A model, its input for a batch, and the number of classes."""
    images = lambda batch: torch.randn(batch, 3, 224, 224, device=DEVICE)
    tokens = lambda width, words: lambda batch: torch.randint(0, words, (batch, width), device=DEVICE)
    if name in ("resnet50", "vgg16"):
        return getattr(torchvision.models, name)(), images, 1000
    if name in ("lstm", "gru"):
        return Recurrent(nn.LSTM if name == "lstm" else nn.GRU), tokens(128, 10_000), 10_000
    if name == "bert":
        return Logits(transformers.BertForMaskedLM(transformers.BertConfig())), tokens(128, 30_522), 30_522
    if name == "gpt2":
        return Logits(transformers.GPT2LMHeadModel(transformers.GPT2Config())), tokens(512, 50_257), 50_257
    sys.exit(f"no model is called {name}")


def energy_mj():
    import pynvml

    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByIndex(0))


def timed(step):
    """Seconds and joules of one call, over a window of at least WINDOW_S."""
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    count, begin, before = 0, time.perf_counter(), energy_mj()
    while time.perf_counter() - begin < WINDOW_S:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
        count += 5
    return (time.perf_counter() - begin) / count, (energy_mj() - before) / 1e3 / count


def main():
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    print("cell | step ms | samples/s | infer ms | samples/s | J/step | GiB")
    for cell in sys.argv[1].split(","):
        name, batch, precision = cell.split(":")[:3]
        batch = int(batch)
        model, make, classes = opened(name)
        model = model.to(DEVICE).train()
        half = precision == "bf16"
        cast = lambda: torch.autocast("cuda", torch.bfloat16) if half else contextlib.nullcontext()
        x = make(batch)
        images = name in ("resnet50", "vgg16")
        rule = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9) if images else torch.optim.AdamW(model.parameters(), 1e-4)
        y = torch.randint(0, classes, (batch if images else x.numel(),), device=DEVICE)

        def step():
            rule.zero_grad(set_to_none=True)
            with cast():
                loss = nn.functional.cross_entropy(model(x).reshape(-1, classes), y)
            loss.backward()
            rule.step()

        def answer():
            with torch.no_grad(), cast():
                model(x)

        torch.cuda.reset_peak_memory_stats()
        trained, joules = timed(step)
        peak = torch.cuda.max_memory_allocated() / 2**30
        model.eval()
        answered, _ = timed(answer)
        values = [trained * 1e3, batch / trained, answered * 1e3, batch / answered, joules, peak]
        print(" | ".join([cell] + [f"{value:.4g}" for value in values]), flush=True)
        del model, rule, x, y, step, answer
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
