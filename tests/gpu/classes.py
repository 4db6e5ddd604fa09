#!/usr/bin/env python3
"""What a rerun gives, for each model: on a machine with NVIDIA GPUs, by a program that was built elsewhere. Measures no time; changes no setting of the card.

Usage: classes.py OUT LEDGER[.xz] CELL,...

A CELL is MODEL:BATCH:PRECISION[:STEPS], as models.py has it; MODEL+tiny is the tiny form of a published model. Each is executed and executed again,
as it is and with `training.deterministic`, on as many GPUs as COUNTS in the environment says (1,2,4). JOBS cells at once, each with a ledger and kernels of its own.
"""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import models
import parallel
from models import WORK, say

LIMIT = float(os.environ.get("LIMIT", "240"))
SMALL = {"linear": 'name = "line"', "softmax": models.DATA["mnist_cnn"], "mnist_mlp": models.DATA["mnist_cnn"]}


def manifest(cell, gpus, steps, deterministic):
    name, rest = cell.split(":", 1)
    model = name.removesuffix("+tiny")
    models.DATA.update(SMALL)
    text = parallel.manifest(f"{model}:{rest}", gpus, steps, False)
    if model != name:
        text = text.replace("[data]\n", 'size = "tiny"\n[data]\n').replace("side = 224", "side = 32").replace("side = 416", "side = 64").replace("side = 512", "side = 64")
        text = text.replace("width = 128", "width = 16").replace("width = 512", "width = 16")
    return text.replace("[hardware]", ("deterministic = true\n" if deterministic else "") + "[hardware]")


def said(book, out, *words):
    environment = {**os.environ, "LEDGER_DIR": str(book), "NO_COLOR": "1"}
    try:
        done = subprocess.run([str(WORK / "ledger"), *words], capture_output=True, text=True, timeout=LIMIT, check=False, env=environment)
        code, text, complaint = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        code, text, complaint = 124, "", f"not over after {LIMIT:.0f} s\n"
    with open(out / f"{book.name}.txt", "a", encoding="utf-8") as log:
        log.write(f"\n== {' '.join(words)}: exit code {code}\n{text}{complaint}")
    return code, text, complaint


def one(given, gpus, out):
    cell, steps = parallel.taken_apart(given if given.count(":") > 2 else f"{given}:24")
    book = WORK / f"{cell.replace(':', '-')}-{gpus}"
    for deterministic in (False, True):
        begin, path = time.monotonic(), WORK / f"{book.name}-{deterministic}.toml"
        path.write_text(manifest(cell, gpus, steps, deterministic))
        code, _, complaint = said(book, out, "run", str(path), "--repeat", "1")
        told, pin = complaint.strip()[-300:], "–"
        if code == 0:
            code, text, complaint = said(book, out, "rerun", "latest", "--json")
            verdict = json.loads(text) if text else {}
            told = f"{verdict['verdict']} ({verdict['class']}) {verdict['detail']}" if verdict else complaint.strip()[-300:]
            facts = json.loads(said(book, out, "show", "latest", "--json")[1] or "{}").get("attempts", [{}])[0].get("facts", {})
            pin = str(facts.get("kernel_cache.pin", "–"))[:8]
        row = [cell, str(gpus), "deterministic" if deterministic else "as it is", str(code), told.replace("\n", " "), pin, f"{time.monotonic() - begin:.0f} s"]
        parallel.tell(row, ["cell", "GPUs", "mode", "exit code", "verdict", "pin", "took"], out, "classes.txt")


def main():
    out, program, cells = Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(",")
    for folder in (out, WORK):
        folder.mkdir(parents=True, exist_ok=True)
    models.unpacked(program, "ledger")
    with ThreadPoolExecutor(int(os.environ.get("JOBS", "4"))) as pool:
        for done in [pool.submit(one, cell, gpus, out) for gpus in parallel.counts() for cell in cells]:
            done.result()
    say("done")


if __name__ == "__main__":
    main()
