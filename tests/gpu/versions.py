#!/usr/bin/env python3
"""Trains cells with several builds of ledger in turns on one GPU, and compares their speed, energy, memory and results.

Usage: versions.py OUT ROUNDS CELL,... NAME=FILE NAME=FILE...

    OUT        folder for log.txt, attempts.tsv and versions.md
    ROUNDS     attempts of each cell and build; every second round has the reverse order
    CELL       MODEL:BATCH:PRECISION[:STEPS], as models.py has them; 160 steps if none are given
    NAME=FILE  a build, plain or .xz; the first one is the reference

Each build has its own ledger folder and is warmed up with 12 steps of each cell, all at once. Seeds are the same, so that attempts of one
build must end with the same weights.
DEVICE=cpu is for trying this script out. Changes no setting of the GPU.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import models

COLUMNS = [
    ("step_time", 1e3, "step ms"),
    ("throughput", 1, "samples/s"),
    ("inference_time", 1e3, "inference ms"),
    ("energy_per_sample", 1e3, "mJ/sample"),
    ("gpu_mem_peak", 2.0**-30, "GiB"),
    ("achieved_tflops", 1, "TFLOP/s"),
]


def ledger(build, *words, limit=300):
    environment = {**os.environ, "LEDGER_DIR": str(models.WORK / f"book-{build}"), "NO_COLOR": "1"}
    try:
        done = subprocess.run(
            [str(models.WORK / build), *words], capture_output=True, text=True, timeout=limit, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return 124, "", f"not done after {limit} s"
    return done.returncode, done.stdout, done.stderr


def attempt(build, cell, steps, out):
    """Trains once; the metrics, the weights' digest and the last loss."""
    path = models.WORK / f"{build}-{cell.replace(':', '-')}-{steps}.toml"
    path.write_text(models.manifest(cell, steps), encoding="utf-8")
    begin = time.monotonic()
    code, said, faults = ledger(build, "run", str(path), "--repeat", "1")
    with open(out / "log.txt", "a", encoding="utf-8") as log:
        log.write(f"\n== {build} {cell}, {steps} steps: exit code {code} after {time.monotonic() - begin:.1f} s\n{said}{faults}\n")
    if code != 0:
        models.say(f"{build} {cell}: exit code {code}\n{(said + faults)[-1500:]}")
        return None
    listed = json.loads(ledger(build, "ls", "--json")[1])["attempts"]
    newest = next(one for one in listed if one["experiment"] == path.stem)
    shown = json.loads(ledger(build, "show", newest["attempt"], "--json")[1])["attempts"][0]
    found = {**shown.get("facts", {}), **shown.get("metrics", {})}
    values = [models.number(found.get(name)) for name, *_ in COLUMNS]
    digest = shown.get("digests", {}).get("weights", "–")
    scaled = [None if value is None else value * scale for value, (_, scale, _) in zip(values, COLUMNS)]
    return scaled, digest, models.number(found.get("loss"))


def shown(values):
    """Mean, and the range where there are several."""
    values = [value for value in values if value is not None]
    if not values:
        return "–", None
    mean = statistics.fmean(values)
    spread = f" ({min(values):.4g} to {max(values):.4g})" if len(values) > 1 else ""
    return f"{mean:.4g}{spread}", mean


def table(cells, builds, found):
    lines = ["| cell | build | " + " | ".join(title for *_, title in COLUMNS) + " | last loss | weights |"]
    lines.append("|---|---|" + "---|" * (len(COLUMNS) + 2))
    for cell in cells:
        means = {}
        for build in builds:
            attempts = found.get((cell, build), [])
            texts, means[build] = zip(*(shown([values[n] for values, *_ in attempts]) for n in range(len(COLUMNS))))
            digests = {digest for _, digest, _ in attempts}
            same = f"{next(iter(digests))[:12]}, {len(attempts)} times" if len(digests) == 1 else f"**{len(digests)} digests**"
            losses = sorted({loss for *_, loss in attempts if loss is not None})
            lines.append(f"| {cell} | {build} | " + " | ".join(texts) + f" | {', '.join(f'{loss:.6g}' for loss in losses)} | {same} |")
        for build in builds[1:]:
            ratios = [f"{new / old:.3f}" if new and old else "–" for old, new in zip(means[builds[0]], means[build])]
            lines.append(f"| {cell} | {build} / {builds[0]} | " + " | ".join(ratios) + " | | |")
    return "\n".join(lines)


def main():
    out, rounds = Path(sys.argv[1]), int(sys.argv[2])
    cells = {}
    for cell in sys.argv[3].split(","):
        model, batch, precision, *steps = cell.split(":")
        cells[f"{model}:{batch}:{precision}"] = int(steps[0]) if steps else 160
    builds = [word.split("=", 1)[0] for word in sys.argv[4:]]
    out.mkdir(parents=True, exist_ok=True)
    models.WORK.mkdir(parents=True, exist_ok=True)
    for word in sys.argv[4:]:
        build, path = word.split("=", 1)
        models.unpacked(path, build)
    # Compiles kernels; nothing is measured.
    with ThreadPoolExecutor(max_workers=16) as pool:
        warm = list(pool.map(lambda job: attempt(*job, 12, out), [(build, cell) for cell in cells for build in builds]))
    if None in warm:
        sys.exit("a build failed where it was warmed up (log.txt)")
    models.say("warm")
    found = {}
    for turn in range(rounds):
        for cell, steps in cells.items():
            for build in builds if turn % 2 == 0 else reversed(builds):
                one = attempt(build, cell, steps, out)
                if one is None:
                    continue
                found.setdefault((cell, build), []).append(one)
                values, digest, loss = one
                line = [cell, build, *("–" if value is None else f"{value:.5g}" for value in values), f"{loss}", digest[:12]]
                models.say(" ".join(line))
                with open(out / "attempts.tsv", "a", encoding="utf-8") as file:
                    file.write("\t".join([cell, build, *map(str, values), str(loss), digest]) + "\n")
    text = table(cells, builds, found)
    (out / "versions.md").write_text(text + "\n", encoding="utf-8")
    print(text, flush=True)


if __name__ == "__main__":
    main()
