#!/usr/bin/env python3
"""Trains the published models on a machine with an NVIDIA GPU, from programs that were built elsewhere, and tells how fast they are there.

Usage: models.py OUT STAGE...

    OUT                    folder for logs and tables
    ledger FILE            the program, plain or .xz
    kernels FILE           imports kernels, plain or .xz
    facts                  the machine
    parity FILE PART,...   the crate's tests, plain or .xz, whose names have one of these parts: arithmetic against
                           the reference implementations, with TF32 and without; on_gpu: each operation of ours against the CPU
    warm CELL,...          trains all of these at once, ten steps each: compiles and tunes, measures nothing
    cells CELL,...         trains one after the other and prints a row for each
    manifests FILE,...     runs manifests and tells what they reached
    export                 brings the kernels along in OUT

A CELL is MODEL:BATCH:PRECISION[:STEPS]. JOBS in the environment says how many tests or manifests run at once, 16 if it is not given. Changes no setting of the card.
"""

import json
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BEGIN = time.monotonic()
# DEVICE=cpu and KEEP=FOLDER, where everything stays, are for trying this script out.
WORK = Path(os.environ.get("KEEP") or tempfile.mkdtemp())
# What a cell has beside batch and precision: the data, and how it learns.
DATA = {
    "resnet50": 'name = "shapes"\nside = 224\ntrain_count = {train}\neval_count = {eval}',
    "vgg16": 'name = "shapes"\nside = 224\ntrain_count = {train}\neval_count = {eval}',
    "lstm": 'name = "grammar"\nwidth = 128\ntrain_count = {train}\neval_count = {eval}',
    "gru": 'name = "grammar"\nwidth = 128\ntrain_count = {train}\neval_count = {eval}',
    "bert": 'name = "grammar"\nwidth = 128\ntrain_count = {train}\neval_count = {eval}',
    "gpt2": 'name = "grammar"\nwidth = 512\ntrain_count = {train}\neval_count = {eval}',
    "dqn": 'name = "cartpole"\ntrain_count = 64000',
    "catch": 'name = "catch"\nactions = 6\ntrain_count = 64000',
    "yolov3": 'name = "scenes"\nside = 416\ntrain_count = {train}\neval_count = {eval}',
    "maskrcnn": 'name = "scenes"\nside = 512\ntrain_count = {train}\neval_count = {eval}',
    "mnist_cnn": 'name = "digits"\ntrain_count = 6400\neval_count = 1000',
}
RULE = {"resnet50": ("momentum", 0.01), "vgg16": ("momentum", 0.001), "yolov3": ("momentum", 0.0001), "maskrcnn": ("momentum", 0.0001)}
COLUMNS = [
    ("step_time", 1e3, "step ms"),
    ("step_time_p95", 1e3, "p95 ms"),
    ("throughput", 1, "samples/s"),
    ("data_time", 1e3, "data ms"),
    ("inference_time", 1e3, "infer ms"),
    ("inference_sample_time", 1e3, "infer ms/sample"),
    ("energy_per_sample", 1, "J/sample"),
    ("inference_energy", 1, "infer J/sample"),
    ("gpu_mem_peak", 2.0**-30, "GiB"),
    ("achieved_tflops", 1, "TFLOP/s"),
    ("first_step_s", 1, "first step s"),
    ("loss", 1, "loss"),
    ("accuracy", 1, "accuracy"),
    ("mask_ap", 1, "mask AP"),
    ("matching_share", 100, "matching %"),
]


def say(text):
    print(f"[{time.monotonic() - BEGIN:6.1f} s] {text}", flush=True)


def unpacked(path, name):
    target = WORK / name
    source = lzma.open(path) if str(path).endswith(".xz") else open(path, "rb")
    with source, open(target, "wb") as file:
        shutil.copyfileobj(source, file)
    target.chmod(0o755)
    return target


def manifest(cell, steps):
    model, batch, precision, *_ = cell.split(":")
    rule, rate = RULE.get(model, ("adam", 0.001))
    batch = int(batch)
    data = DATA[model].format(train=batch * 160, eval=batch * 4)
    name = "dqn" if model == "catch" else model
    return f"""
description = "how fast {cell} is"
[model]
name = "{name}"
[data]
{data}
[training]
optimizer = "{rule}"
learning_rate = {rate}
batch_size = {batch}
precision = "{precision}"
steps = {steps}
[hardware]
device = "{os.environ.get("DEVICE", "cuda")}"
[telemetry]
hz = 10
idle_s = 0
"""


def run(cell, steps, limit, out):
    """One attempt; its exit code and what it printed."""
    path = WORK / f"{cell.replace(':', '-')}-{steps}.toml"
    path.write_text(manifest(cell, steps))
    begin = time.monotonic()
    command = [str(WORK / "ledger"), "run", str(path), "--repeat", "1"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
        code, said = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as late:
        code, said = 124, ((late.stdout or b"") + (late.stderr or b"")).decode(errors="replace")
    with open(out / "log.txt", "a", encoding="utf-8") as log:
        log.write(f"\n== {cell}, {steps} steps: exit code {code}\n{said}\n")
    return code, time.monotonic() - begin, said


def shown(cell, steps):
    """What is recorded of the last attempt of a cell."""
    listed = subprocess.run([str(WORK / "ledger"), "ls", "--json"], capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        return {}
    name = f"{cell.replace(':', '-')}-{steps}"
    attempts = [a for a in json.loads(listed.stdout)["attempts"] if a["experiment"] == name]
    if not attempts:
        return {}
    command = [str(WORK / "ledger"), "show", attempts[0]["attempt"], "--json"]
    attempt = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)["attempts"][0]
    return {**attempt.get("facts", {}), **attempt.get("metrics", {})}


def number(value):
    if isinstance(value, dict):
        value = value.get("value")
    return value if isinstance(value, (int, float)) else None


def row(cell, steps):
    found = shown(cell, steps)
    values = [(number(found.get(name)), scale) for name, scale, _ in COLUMNS]
    return [cell] + ["–" if value is None else f"{value * scale:.4g}" for value, scale in values]


def stage_warm(cells, out):
    def one(cell):
        code, took, said = run(cell, 12, 560, out)
        say(f"warm {cell}: exit code {code} after {took:.0f} s" + ("" if code == 0 else "\n" + said[-1500:]))

    with ThreadPoolExecutor(max_workers=16) as pool:
        list(pool.map(one, cells))


def stage_cells(cells, out):
    rows = []
    for cell in cells:
        given = cell.split(":")
        steps = int(given[3]) if len(given) > 3 else 160
        cell = ":".join(given[:3])
        code, took, said = run(cell, steps, float(os.environ.get("LIMIT", "300")), out)
        say(f"{cell}: exit code {code} after {took:.0f} s" + ("" if code == 0 else "\n" + said[-1500:]))
        rows.append(row(cell, steps))
        print(" | ".join(rows[-1]), flush=True)
    text = "\n".join(" | ".join(line) for line in [["cell"] + [title for *_, title in COLUMNS]] + rows)
    print(text)
    with open(out / "cells.txt", "a", encoding="utf-8") as file:
        file.write(text + "\n")


def stage_manifests(paths, out):
    def one(path):
        begin = time.monotonic()
        command = [str(WORK / "ledger"), "run", path]
        limit = float(os.environ.get("LIMIT", "300"))
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
            said = done.stdout + done.stderr
        except subprocess.TimeoutExpired as late:
            said = ((late.stdout or b"") + (late.stderr or b"")).decode(errors="replace")
        with open(out / "manifests.txt", "a", encoding="utf-8") as log:
            log.write(f"\n== {path}\n{said}\n")
        say(f"{path} after {time.monotonic() - begin:.0f} s\n{said[-700:]}")

    with ThreadPoolExecutor(max_workers=int(os.environ.get("JOBS", "16"))) as pool:
        list(pool.map(one, paths))
    command = [str(WORK / "ledger"), "ls", "--json"]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)["attempts"]
    names = {Path(path).stem for path in paths}
    for attempt in listed:
        if attempt["experiment"] in names:
            command = [str(WORK / "ledger"), "show", attempt["attempt"], "--json"]
            shown = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
            found = {**shown["attempts"][0].get("facts", {}), **shown["attempts"][0].get("metrics", {})}
            wanted = ["accuracy", "perplexity", "mean_return", "box_ap_50", "mask_ap", "mask_ap_50", "matching_share", "step_time", "eval_loss", "worker.eval_loss_floor", "worker.chance_accuracy", "train_time", "skipped_steps"]
            told = [f"{name} {number(found.get(name)):.5g}" for name in wanted if number(found.get(name)) is not None]
            print(attempt["experiment"], attempt["outcome"], ", ".join(told), flush=True)


def stage_facts():
    for command in [
        "nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,temperature.gpu,power.limit --format=csv",
        "nproc; free -g | head -2",
        "ldconfig -p | grep -E 'libcublas|libcudnn|libnvrtc|libnccl'",
        "find / -xdev \\( -name 'libcublas*.so*' -o -name 'libcudnn*.so*' \\) 2>/dev/null | head -40",
    ]:
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        print(done.stdout + done.stderr, flush=True)


def tests_of(program):
    """The names of the tests that a program has."""
    listed = subprocess.run([str(program), "--list"], capture_output=True, text=True, check=False).stdout
    return [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]


def run_test(program, name, how, log, more, limit=400):
    """Runs a test with these variables more, and tells what it says of differences."""
    environment = {**os.environ, **more, "LEDGER_PARITY": "cuda", "CUDA_PATH": os.environ.get("CUDA_PATH", "/usr/local/cuda")}
    command = [str(program), "--include-ignored", "--exact", "--nocapture", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False, env=environment)
        code, said = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as late:
        code, said = 124, ((late.stdout or b"") + (late.stderr or b"")).decode(errors="replace")
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"\n== {name}{how}: exit code {code}\n{said}\n")
    told = [line for line in said.splitlines() if any(word in line for word in (" off", "differ", "panicked"))]
    say(f"{name}{how}: exit code {code}\n    " + "\n    ".join(line[:220] for line in told[:14]))
    return code


def stage_parity(program, names, out):
    def one(job):
        name, strict = job
        run_test(program, name, ", strict" if strict else ", TF32", out / "parity.txt", {"NVIDIA_TF32_OVERRIDE": "0"} if strict else {})

    with ThreadPoolExecutor(max_workers=int(os.environ.get("JOBS", "16"))) as pool:
        list(pool.map(one, [(name, strict) for name in names for strict in (True, False)]))


def main():
    out, words = Path(sys.argv[1]), sys.argv[2:]
    out.mkdir(parents=True, exist_ok=True)
    WORK.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("LEDGER_DIR", str(WORK / "book"))
    os.environ["NO_COLOR"] = "1"
    while words:
        stage = words.pop(0)
        say(stage)
        if stage == "ledger":
            unpacked(words.pop(0), "ledger")
        elif stage == "kernels":
            path = unpacked(words.pop(0), "kernels")
            done = subprocess.run([str(WORK / "ledger"), "cache", "import", str(path)], capture_output=True, text=True, check=False)
            say(done.stdout + done.stderr)
        elif stage == "facts":
            stage_facts()
        elif stage == "parity":
            program = unpacked(words.pop(0), "tests")
            wanted = words.pop(0).split(",")
            stage_parity(program, [name for name in tests_of(program) if any(part in name for part in wanted)], out)
        elif stage == "warm":
            stage_warm(words.pop(0).split(","), out)
        elif stage == "manifests":
            stage_manifests(words.pop(0).split(","), out)
        elif stage == "cells":
            stage_cells(words.pop(0).split(","), out)
        elif stage == "export":
            path = out / "h200.kernels"
            subprocess.run([str(WORK / "ledger"), "cache", "export", "-o", str(path)], check=False)
            subprocess.run(["xz", "-3", "-T0", "-f", str(path)], check=False)
            say(f"{sum(file.stat().st_size for file in out.iterdir())} bytes in OUT")
        else:
            sys.exit(f"no stage is called {stage}")
    say("done")


if __name__ == "__main__":
    main()
