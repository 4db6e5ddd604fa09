#!/usr/bin/env python3
"""PyTorch as the worker of `ledger run`: trains a cell of peer_models.py for a number of steps and writes events (docs/protocol.md).

Usage: peer_worker.py CELL STEPS [--seed N] [--idle SECONDS] [--inference '[1, 128]'] [--device cuda|cpu]
Steps are timed by events on the GPU, and nothing waits for them until the training ends. The first step, which compiles, is a step like the others.
"""

import argparse
import collections
import json
import os
import sys
import time

import peer_models

LOSS_EVERY = 50
ANSWERS = 100


class Events:
    """Lines for ledger. Outside of ledger they go nowhere."""

    def __init__(self, path):
        self.file = open(path or os.devnull, "a", buffering=1)

    def tell(self, event, **members):
        self.file.write(json.dumps({"event": event, "t_ns": time.monotonic_ns(), **members}) + "\n")

    def phase(self, name, **members):
        return Phase(self, name, members)


class Phase:
    def __init__(self, events, name, members):
        self.events, self.name, self.members = events, name, members

    def __enter__(self):
        self.events.tell("phase_start", name=self.name, **self.members)

    def __exit__(self, *_):
        self.events.tell("phase_stop", name=self.name, **self.members)


class GpuClock:
    """Marks on the GPU's own timeline, read when it has passed them."""

    def __init__(self, torch):
        self.torch = torch
        torch.cuda.synchronize()
        self.zero, self.zero_ns = self.mark(), time.monotonic_ns()

    def mark(self):
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def passed(self, mark):
        return mark.query()

    def at_ns(self, mark):
        return self.zero_ns + round(self.zero.elapsed_time(mark) * 1e6)

    def between_ns(self, one, other):
        return round(one.elapsed_time(other) * 1e6)


class HostClock:
    """The same without a GPU, where a step has ended when it returns."""

    def mark(self):
        return time.monotonic_ns()

    def passed(self, _):
        return True

    def at_ns(self, mark):
        return mark

    def between_ns(self, one, other):
        return other - one


class Losses:
    """Copies of losses, made without a wait."""

    def __init__(self, work):
        self.work = work

    def keep(self, loss):
        if not self.work.on_gpu:
            return loss
        host = self.work.torch.empty((), pin_memory=True)
        return host.copy_(loss.float(), non_blocking=True)


def train(work, steps, events, clock, losses):
    """Queues all steps, and tells of each when the device has ended it."""
    queued = collections.deque()
    last = clock.mark()

    def tell(entry):
        step, begin, end, loss = entry
        values = {} if loss is None else {"values": {"loss": float(loss)}}
        events.tell("step", step=step, t_ns=clock.at_ns(end), duration_ns=clock.between_ns(begin, end), **values)

    for step in range(1, steps + 1):
        loss = work.step()
        kept = losses.keep(loss) if step == 1 or step % LOSS_EVERY == 0 or step == steps else None
        mark = clock.mark()
        queued.append((step, last, mark, kept))
        last = mark
        while queued and clock.passed(queued[0][2]):
            tell(queued.popleft())
    work.wait()
    for entry in queued:
        tell(entry)


def infer(work, sizes, events):
    for size in sizes:
        x = work.ask(size)
        for _ in range(10):
            work.answer(x)
        work.wait()
        with events.phase("inference_batch", index=size):
            for _ in range(ANSWERS):
                with events.phase("inference"):
                    work.answer(x)
                    work.wait()


def facts(work, events):
    torch = work.torch
    told = {"implementation": "pytorch", "torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    for name, value in told.items():
        if value is not None:
            events.tell("fact", name=name, value=value)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cell", type=peer_models.Cell)
    parser.add_argument("steps", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--idle", type=float, default=2.0)
    parser.add_argument("--inference", type=json.loads, default=[])
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    events = Events(os.environ.get("LEDGER_EVENTS"))
    import torch

    if args.device == "cuda":
        torch.zeros(1, device="cuda").item()
        # The power of a GPU at rest with a context on it, before the model is there.
        with events.phase("idle"):
            time.sleep(args.idle)
    work = peer_models.Work(args.cell, args.device, args.seed)
    facts(work, events)
    events.tell("plan", steps=args.steps, samples_per_step=args.cell.batch)
    clock = GpuClock(torch) if work.on_gpu else HostClock()
    with events.phase("epoch", index=1):
        train(work, args.steps, events, clock, Losses(work))
    if work.on_gpu:
        events.tell("metric", name="allocator_peak", value=work.peak(), unit="B")
    if args.inference:
        events.tell("metric", name="inference_batch_size", value=args.inference[0])
        infer(work, args.inference, events)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
