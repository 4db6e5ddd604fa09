"""Fits y = w * x + b by gradient descent and tells ledger about it. Python's standard library only."""

import argparse
import json
import os
import random
import time

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--steps", type=int, default=200)
args = parser.parse_args()

# Outside of ledger the variable is not set, and the events go nowhere.
events = open(os.environ.get("LEDGER_EVENTS", os.devnull), "a", buffering=1)


def tell(event, **members):
    print(json.dumps({"event": event, "t_ns": time.monotonic_ns(), **members}), file=events)


random.seed(args.seed)
points = [(x / 10, 2 * x / 10 - 1 + random.gauss(0, 0.05)) for x in range(20)]
w, b = 0.0, 0.0
tell("plan", steps=args.steps, samples_per_step=len(points))
tell("phase_start", name="train")
for step in range(1, args.steps + 1):
    begun = time.monotonic_ns()
    errors = [(w * x + b - y, x) for x, y in points]
    w -= args.lr * sum(2 * error * x for error, x in errors)
    b -= args.lr * sum(2 * error for error, _ in errors)
    loss = sum(error * error for error, _ in errors)
    tell("step", step=step, duration_ns=time.monotonic_ns() - begun, values={"loss": loss})
tell("phase_stop", name="train")
tell("metric", name="weight", value=w)
