#!/usr/bin/env python3
"""Proves on a GPU what the Python package says of its GPU times: durations are right, nothing waits, values arrive, the cost is small.

    python3 tests/gpu/python_package.py [LEDGER]      # needs PyTorch and a GPU; takes less than a minute

With LEDGER, a binary, it also runs itself under `ledger run` and prints time and energy by phase. The last line is `held` if every check holds.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "python"
sys.path.insert(0, str(PACKAGE))

import torch  # noqa: E402

SIZE = 4096


class Work:
    """Steps whose parts take a GPU some milliseconds each, and the host some microseconds."""

    def __init__(self):
        self.a = torch.randn(SIZE, SIZE, device="cuda")
        self.b = torch.empty_like(self.a)
        for _ in range(3):
            self.part(10)
        torch.cuda.synchronize()

    def part(self, times):
        for _ in range(times):
            torch.mm(self.a, self.a, out=self.b)

    def reference(self, times):
        """The duration of a part, by waiting for it."""
        took = []
        for _ in range(5):
            torch.cuda.synchronize()
            start = time.perf_counter()
            self.part(times)
            torch.cuda.synchronize()
            took.append(time.perf_counter() - start)
        return statistics.median(took)


def checked(name, holds, text):
    print(f"{'ok  ' if holds else 'FAIL'} {name}: {text}", flush=True)
    return holds


def lines_of(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def durations(lines, name):
    starts, found = {}, []
    for line in lines:
        if line["event"] == "phase_start" and line["name"] == name:
            starts[line["index"]] = line["t_ns"]
        if line["event"] == "phase_stop" and line["name"] == name:
            found.append((line["t_ns"] - starts[line["index"]]) / 1e9)
    return found


def check(work, folder):
    from ledger_events.client import Client, GpuPhase, Step

    good = True
    path = os.path.join(folder, "events")
    client = Client(path)
    expected = {"forward": work.reference(10), "backward": work.reference(20)}
    torch.cuda.synchronize()
    begun_ns = time.monotonic_ns()
    losses, host = [], []
    for step in range(1, 31):
        start = time.perf_counter()
        with Step(client, step, True) as timed:
            with GpuPhase(client, "forward", step):
                work.part(10)
            with GpuPhase(client, "backward", step):
                work.part(20)
            losses.append(work.b[0, 0].clone())
            timed.log(loss=losses[-1])
        host.append(time.perf_counter() - start)
    queued_s = (time.monotonic_ns() - begun_ns) / 1e9
    torch.cuda.synchronize()
    ended_ns = time.monotonic_ns()
    all_s = (ended_ns - begun_ns) / 1e9
    client.close()
    lines = lines_of(path)
    good &= checked("nothing waits", queued_s < all_s / 2, f"30 steps were queued in {queued_s:.3f} s, the GPU took {all_s:.3f} s")
    for name, reference in expected.items():
        found = statistics.median(durations(lines, name))
        text = f"{found * 1e3:.2f} ms by events, {reference * 1e3:.2f} ms by waiting"
        good &= checked(name, abs(found / reference - 1) < 0.1, text)
    steps = [line for line in lines if line["event"] == "step"]
    of_steps = sum(line["duration_ns"] for line in steps) / 1e9
    good &= checked("steps", abs(of_steps / all_s - 1) < 0.1, f"{len(steps)} steps took {of_steps:.3f} s of {all_s:.3f} s")
    same = [line["values"]["loss"] for line in steps] == [float(loss) for loss in losses]
    good &= checked("losses", same, f"{len(steps)} values are those of `.item()`: {same}")
    times = [line["t_ns"] for line in lines]
    inside = all(begun_ns <= at <= ended_ns for at in times)
    good &= checked("place", inside and client.dropped == 0, f"all {len(times)} times lie between the first call and the last wait")
    late_ms = (ended_ns - steps[-1]["t_ns"]) / 1e6
    return good & checked("end", late_ms < 5, f"the last step ends {late_ms:.3f} ms before the wait for it ends")


def cost(work, folder):
    """Small steps with and without events, in alternating blocks."""
    from ledger_events.client import Client, GpuPhase, Step

    client = Client(os.path.join(folder, "cost"))
    small = torch.randn(256, 256, device="cuda")

    def plain():
        for _ in range(10):
            torch.mm(small, small)

    def reported(step):
        with Step(client, step, True) as timed:
            with GpuPhase(client, "forward", step):
                plain()
            timed.log(loss=small[0, 0])

    took = {"plain": [], "reported": []}
    for block in range(20):
        for name in took:
            torch.cuda.synchronize()
            start = time.perf_counter()
            for step in range(100):
                plain() if name == "plain" else reported(100 * block + step)
            torch.cuda.synchronize()
            took[name].append((time.perf_counter() - start) / 100)
    client.close()
    without, with_events = (statistics.median(took[name]) * 1e6 for name in ("plain", "reported"))
    text = f"{with_events - without:.1f} µs a step with a phase and a loss on the GPU ({without:.1f} µs without)"
    return checked("cost", with_events - without < 200, text)


def under_ledger(binary, folder):
    manifest = Path(folder, "m.toml")
    script = Path(__file__).resolve()
    manifest.write_text(
        f'[model]\nname = "matmul"\n[program]\ncommand = ["{sys.executable}", "{script}", "--worker"]\n[hardware]\ndevice = "cuda"\n'
    )
    environment = {**os.environ, "LEDGER_DIR": str(Path(folder, "ledger"))}
    good = True
    for words in (["run", str(manifest)], ["events", "latest"], ["show", "latest"]):
        ran = subprocess.run([binary, *words], env=environment, capture_output=True, text=True, timeout=60, check=False)
        print("\n".join((ran.stdout + ran.stderr).splitlines()[:40]), flush=True)
        good &= ran.returncode == 0
    return checked("under ledger run", good, "exit codes of run, events and show")


def worker():
    import ledger_events as ledger

    work = Work()
    with ledger.phase("idle"):
        time.sleep(2)
    ledger.plan(200, epochs=1, samples_per_step=1)
    with ledger.phase("epoch", 1):
        for step in range(1, 201):
            with ledger.step(step, gpu=True) as timed:
                with ledger.phase("forward", step, gpu=True):
                    work.part(10)
                with ledger.phase("backward", step, gpu=True):
                    work.part(20)
                timed.log(loss=work.b[0, 0])
        torch.cuda.synchronize()


def main():
    if "--worker" in sys.argv:
        return worker()
    if not torch.cuda.is_available():
        sys.exit("no GPU that PyTorch can use (install a CUDA build of torch, or run it on a machine with a GPU)")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {sys.version.split()[0]}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Work()
        results = [check(work, folder), cost(work, folder)]
        if len(sys.argv) > 1:
            results.append(under_ledger(os.path.abspath(sys.argv[1]), folder))
    print("held" if all(results) else "did not hold")
    sys.exit(0 if all(results) else 1)


main()
