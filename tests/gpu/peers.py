#!/usr/bin/env python3
"""PyTorch's speed and energy at the work of models.py, on the same machine: fp32 with TF32 or autocast to bf16, synthetic data that is on the device already.

Usage: peers.py [--inference] CELL,... where a CELL is MODEL:BATCH:PRECISION[:MODE] and MODE is eager (default), fast, compile or graphs
(peer_models.py says what each is). peer_more.py has YOLOv3, Mask R-CNN and DQN. With --inference nothing is trained.
Prints a row for each: step ms (mean), samples/s, inference ms (median of single answers, each waited for, as `inference_time` is), samples/s,
J a step with half the width of its 95% interval, GiB at the allocator's peak, seconds of the first step. The interval is of the counter's ticks alone (100 ms); the sensor's gain, the same in all rows, may add ± 5%. Changes no setting of the GPU.
"""

import math
import statistics
import sys
import time

import peer_models
import peer_more

WARMUP_STEPS = 15
TRAIN_S, INFERENCE_S = 6.0, 1.0
TICK_S = 0.1
HEAD = "cell | step ms | samples/s | infer ms | samples/s | J/step | ± | GiB | first step s"


def with_more(opened):
    """`peer_models.opened` with another model. It is here because peer_models.py is part of the ids of recorded attempts."""

    def found(name):
        import torch
        from torch import nn

        if name == "mnist_cnn":
            block = lambda inner, outer: [nn.Conv2d(inner, outer, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
            layers = [*block(1, 32), *block(32, 64), nn.Flatten(), nn.Linear(3136, 1024), nn.ReLU(), nn.Dropout(0.4), nn.Linear(1024, 10)]
            return nn.Sequential(*layers), 10, lambda batch, device: torch.randn(batch, 1, 28, 28, device=device)
        return opened(name)

    return found


class Work(peer_models.Work):
    """A cell of peer_models.py, or `mnist_cnn`, which learns by Adam as models.py has it."""

    def __init__(self, cell):
        super().__init__(cell)
        if cell.name == "mnist_cnn":
            self.rule = self.torch.optim.Adam(self.model.parameters(), 1e-3, **({"fused": True} if cell.mode != "eager" else {}))


def energy_mj():
    import pynvml

    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByIndex(0))


def window(call, wait, seconds, energy=energy_mj, clock=time.perf_counter):
    """Seconds and joules of one call, and the half-width of the joules' interval, over at least so many seconds.

    Each edge of the window lies up to a tick off the counter's: 1.96 W P / sqrt(12), two edges in quadrature, as docs/energy.md has it.
    """
    wait()
    count, begin, before = 0, clock(), energy()
    while clock() - begin < seconds:
        for _ in range(5):
            call()
        wait()
        count += 5
    lasted, joules = clock() - begin, (energy() - before) / 1e3
    edges = 1.96 * (joules / lasted) * TICK_S / math.sqrt(12) * math.sqrt(2)
    return lasted / count, joules / count, edges / count


def waited(call, wait, seconds, clock=time.perf_counter):
    """The median time of a single call, each waited for, over at least this many seconds."""
    wait()
    begin, times = clock(), []
    while clock() - begin < seconds:
        start = clock()
        call()
        wait()
        times.append(clock() - start)
    return statistics.median(times)


def trained(work, energy, clock, seconds):
    """Seconds and joules of a step with the half-width of their interval, the allocator's peak in GiB, and the first step's seconds."""
    begin = clock()
    work.step()
    work.wait()
    first = clock() - begin
    for _ in range(WARMUP_STEPS):
        work.step()
    step, joules, off = window(work.step, work.wait, seconds, energy, clock)
    return step, joules, off, work.peak() / 2**30, first


def row(cell, work, energy=energy_mj, clock=time.perf_counter, seconds=(TRAIN_S, INFERENCE_S), trains=True):
    step, joules, off, peak, first = trained(work, energy, clock, seconds[0]) if trains else [math.nan] * 5
    x = work.ask(cell.batch)
    for _ in range(WARMUP_STEPS):
        work.answer(x)
    answered = waited(lambda: work.answer(x), work.wait, seconds[1], clock)
    values = [step * 1e3, cell.batch / step, answered * 1e3, cell.batch / answered, joules, off, peak, first]
    return " | ".join([str(cell)] + [f"{value:.4g}" for value in values])


def main():
    peer_models.opened, peer_models.IMAGES = with_more(peer_models.opened), (*peer_models.IMAGES, "mnist_cnn")
    peer_more.add_models()
    try:
        words = sys.argv[1:]
        trains = words[:1] != ["--inference"]
        cells = [peer_models.Cell(text) for text in words[0 if trains else 1].split(",")]
    except (IndexError, ValueError) as fault:
        sys.exit(str(fault) if isinstance(fault, ValueError) else __doc__)
    print(HEAD, flush=True)
    failed = 0
    for cell in cells:
        work = None
        try:
            work = peer_more.MORE.get(cell.name, Work)(cell)
            print(row(cell, work, trains=trains), flush=True)
        except Exception as fault:  # the other cells are measured all the same
            failed += 1
            print(f"{cell} | failed: {str(fault).splitlines()[0] if str(fault) else type(fault).__name__}", flush=True)
        if work is not None:
            work.close()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
