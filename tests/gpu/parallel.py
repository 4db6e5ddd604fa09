#!/usr/bin/env python3
"""Data parallelism on a machine with several NVIDIA GPUs, by programs that were built elsewhere: how well it scales, whether it computes the same, and what becomes of
a rank that fails.

Usage: parallel.py OUT STAGE...

    OUT                    folder for logs and tables
    ledger FILE            the program, plain or .xz
    kernels FILE           imports kernels, plain or .xz
    facts                  the machine
    tests FILE             a crate's tests, plain or .xz: those that need GPUs, have to do with several of them, and that TESTS matches, a regular expression
    warm CELL,...          trains these on one GPU, twelve steps each: compiles and tunes, measures nothing
    equal CELL,...         the same batch on one GPU and shared by all: how far the losses are apart, and what the digests say
    weak CELL,...          a batch on each of 1, 2, 4 GPUs, as many as there are; prints a row for each
    strong CELL,...        one batch shared by 1, 2, 4 GPUs
    grid CELL,...          as weak, of most GPUs first, as many runs side by side as there are GPUs for, each with its share of the processors. What each run gave is written down at once, the table at the end
    pipe CELL,...          one batch through stages on 1, 2, 4 GPUs, in as many micro-batches as MICRO says, 8 if it says nothing; the same losses?
    small CELL,...         whether a model that has no room on one card of GIB gibibytes has it on several
    faults                 a rank that panics, hangs, dies or has no memory left, in each place that PLACES matches, a regular expression: how long it takes to the end, and what is said
    refusals               more GPUs than are visible, and several that no NCCL is found for
    bandwidth MIB,...      what PyTorch's NCCL reaches with buckets of these sizes
    ddp CELL,...           PyTorch's DistributedDataParallel at the same work
    export                 brings the kernels of the last attempt along in OUT

A CELL is MODEL:BATCH:PRECISION[:STEPS], as models.py has it. The GPUs are those of CUDA_VISIBLE_DEVICES. COUNTS=1,4 in the environment takes other numbers of them than 1, 2 and 4. Changes no setting of the card. DEVICE=cpu tries the script out with threads in place of GPUs, two or as
many as COUNTS says. A run is ended after LIMIT seconds, and none is begun or goes on after the second DEADLINE of the script. What went wrong is said at once, and again at the end, after all stages; the exit code is 1 then.
"""

import csv
import functools
import io
import itertools
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import models
import plan
from models import WORK, number, say, unpacked

BEGIN = time.monotonic()
CPU = os.environ.get("DEVICE") == "cpu"
BASE = ["step_time", "throughput", "data_time", "all_reduce_time", "all_reduce_exposed", "straggler_spread", "energy_per_sample", "power_mean", "wait_energy"]
HEAD = ["cell", "gpus", "step ms", "samples/s", "efficiency %", "data ms", "all_reduce ms", "exposed ms", "spread ms", "bus GB/s", "J/sample", "W", "waiting J", "GPU util %", "weights"]
# Of a tenth of a second or so a step, on one H200.
FAULT_CELL = "bert:32:bf16"
LIMIT = float(os.environ.get("LIMIT", "400"))
# A run that is begun with less time before it gives nothing.
LEAST = 5.0
# Of the runs side by side.
WRITING = threading.Lock()
COMPLAINTS = []


def complain(text):
    COMPLAINTS.append(text.splitlines()[0])
    say(text)


def left():
    """Seconds until the script is to end."""
    return float(os.environ.get("DEADLINE", "inf")) - (time.monotonic() - BEGIN)


@functools.cache
def mine():
    """The GPUs that are lent, as CUDA_VISIBLE_DEVICES names them, or threads in their place."""
    if CPU:
        asked = [int(count) for count in os.environ.get("COUNTS", "2").split(",")]
        return list(map(str, range(max(asked))))
    listed = lambda: subprocess.run(["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True, check=True).stdout.split()
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return plan.visible(given, listed() if given is None else [])


def counts():
    asked = os.environ.get("COUNTS", "1,2,4").split(",")
    found = [gpus for gpus in map(int, asked) if gpus <= len(mine())]
    return found or sys.exit(f"{' or '.join(asked)} GPUs are asked for, and there are {len(mine())}")


def manifest(cell, gpus, steps, shared):
    """The manifest of models.py for so many GPUs. `shared` says that they share the batch, and do not have one each."""
    text = models.manifest(cell, steps)
    batch = int(cell.split(":")[1])
    everyone = batch if shared else batch * gpus
    text = re.sub(r"train_count = \d+", f"train_count = {everyone * 160}", text)
    text = re.sub(r"batch_size = \d+", f"batch_global = {everyone}" if shared else f"batch_size = {batch}", text)
    device = "cpu" if CPU else "cuda"
    sharing = f'{"cpu_ranks" if CPU else "gpus"} = {gpus}\n' + ('parallelism = "data"\n' if gpus > 1 else "")
    text = text.replace(f'device = "{device}"\n', f'device = "{device}"\n{sharing}')
    return text.replace("idle_s = 0", "idle_s = 1")


def ledger(*words, env=None, limit=None, processors=()):
    """Exit code, stdout and stderr of a command."""
    bound = ["taskset", "-c", ",".join(map(str, processors))] if processors else []
    with subprocess.Popen([*bound, str(WORK / "ledger"), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}) as process:
        try:
            said, complained = process.communicate(timeout=limit)
            return process.returncode, said, complained
        except subprocess.TimeoutExpired:
            # Asked to end it records that, and leaves nothing on the GPUs.
            process.terminate()
        try:
            said, complained = process.communicate(timeout=10)
        except subprocess.TimeoutExpired as late:
            # What it has started may hold the pipes open.
            process.kill()
            said, complained = ((piece or b"").decode(errors="replace") for piece in (late.stdout, late.stderr))
        return 124, said, complained


def attempts():
    """All attempts, the last one first."""
    code, listed, complained = ledger("ls", "--all", "--json")
    if code != 0:
        complain(f"ls: exit code {code}: {complained}")
        return []
    return json.loads(listed)["attempts"]


def attempt_of(name, since=0):
    """The last attempt of an experiment, as `show --json` has it, if there is one that was begun since that second."""
    found = [a for a in attempts() if a["experiment"] == name]
    shown = shown_of(found[0]["attempt"]) if found else None
    return shown if shown and shown["started_unix_ms"] >= 1e3 * since else None


def shown_of(attempt):
    code, shown, complained = ledger("show", attempt, "--json")
    if code != 0:
        complain(f"show {attempt}: exit code {code}: {complained}")
        return None
    return {"id": attempt, **json.loads(shown)["attempts"][0]}


def run(name, text, out, env=None, quiet=False, only=(), processors=()):
    """Exit code, seconds and the attempt of a run; no attempt where none was made, as by a refusal."""
    limit = min(LIMIT, left())
    if limit < LEAST:
        complain(f"{name}: no time is left")
        return 124, 0.0, None
    path = WORK / f"{name}.toml"
    path.write_text(text)
    begin, since = time.monotonic(), time.time()
    code, said, complained = ledger("run", str(path), "--repeat", "1", *only, env=env, limit=limit, processors=processors)
    took = time.monotonic() - begin
    with WRITING, open(out / "log.txt", "a", encoding="utf-8") as log:
        log.write(f"\n== {name}: exit code {code} after {took:.1f} s\n{said}{complained}\n")
    if code != 0 and not quiet:
        complain(f"{name}: exit code {code} after {took:.0f} s\n{(said + complained)[-1500:]}")
    return code, took, attempt_of(name, since)


def value(attempt, name):
    return number({**attempt.get("facts", {}), **attempt.get("metrics", {})}.get(name)) if attempt else None


def curve(attempt, name):
    """Positions and values of a series."""
    code, text, _ = ledger("telemetry", attempt["id"], "--csv", "--series", name)
    rows = [row for row in csv.reader(io.StringIO(text)) if row and row[0] == name] if code == 0 else []
    return [(float(row[3]), float(row[4])) for row in rows]


def utilization(attempt):
    """Of each GPU while it trained, as the attempt has it."""
    each = attempt.get("facts", {}).get("utilization")
    told = [number(each[gpu]) for gpu in sorted(each)] if isinstance(each, dict) else [value(attempt, "gpu_util")]
    return "/".join("–" if percent is None else f"{percent:.0f}" for percent in told)


def tell(row, head, out, file):
    with WRITING, open(out / file, "a", encoding="utf-8") as table:
        print(" | ".join(row), flush=True)
        if table.tell() == 0:
            table.write(" | ".join(head) + "\n")
        table.write(" | ".join(row) + "\n")


def taken_apart(given):
    """A cell, and its steps."""
    parts = given.split(":")
    return ":".join(parts[:3]), int(parts[3]) if len(parts) > 3 else 160


def scaled(cell, gpus, attempt, alone):
    """The row of an attempt; `alone` are the samples per second of one GPU."""
    found = {metric: value(attempt, metric) for metric in BASE}
    speed = found["throughput"]
    efficiency = 100 * speed / (alone * gpus) if speed and alone else None
    mebibytes, took = value(attempt, "worker.all_reduce_mib"), found["all_reduce_time"]
    bus = 2 * (gpus - 1) / gpus * mebibytes * 2**20 / took / 1e9 if mebibytes and took else None
    in_order = [(found["step_time"], 1e3), (speed, 1), (efficiency, 1), (found["data_time"], 1e3), (took, 1e3), (found["all_reduce_exposed"], 1e3), (found["straggler_spread"], 1e3), (bus, 1), (found["energy_per_sample"], 1), (found["power_mean"], 1), (found["wait_energy"], 1)]
    row = [cell, str(gpus)] + ["–" if v is None else f"{v * scale:.4g}" for v, scale in in_order]
    return row + [utilization(attempt), attempt.get("digests", {}).get("weights", "–")[:12]]


def is_row(name, code, attempt):
    """Whether an attempt is a measurement; if not, it is said. A run that failed was complained of."""
    why = plan.why_no_row(attempt, value(attempt, "throughput"))
    if why:
        (complain if code == 0 else say)(f"{name}: no row, for {why}")
    return not why


def stage_scale(cells, out, shared):
    kind = "strong" if shared else "weak"
    print(" | ".join(HEAD), flush=True)
    for cell, steps in map(taken_apart, cells):
        alone = None
        for gpus in counts():
            name = f"{kind}-{cell.replace(':', '-')}-{gpus}"
            code, _, attempt = run(name, manifest(cell, gpus, steps, shared), out)
            if is_row(name, code, attempt):
                alone = value(attempt, "throughput") if gpus == 1 else alone
                tell(scaled(cell, gpus, attempt, alone), HEAD, out, f"{kind}.txt")


def stage_grid(cells, out):
    """Runs of one number of GPUs side by side; each begins only if there is time for as long as its cell took at the least, or any other."""
    cards, processors = mine(), sorted(os.sched_getaffinity(0))
    jobs, took, found = [taken_apart(given) for given in cells], {}, {}

    def one(gpus, lanes, cell, steps):
        name = f"grid-{cell.replace(':', '-')}-{gpus}"
        lane = lanes.get()
        try:
            others = [seconds for each in list(took.values()) for seconds in each]
            if left() < min(took.get(cell) or others, default=25.0):
                return complain(f"{name}: no time is left")
            env = {} if CPU else {"CUDA_VISIBLE_DEVICES": ",".join(plan.cards_of(cards, gpus, lane))}
            share = plan.processors_of(processors, len(cards), gpus, lane)
            code, seconds, attempt = run(name, manifest(cell, gpus, steps, False), out, env=env, processors=share)
            if is_row(name, code, attempt):
                took.setdefault(cell, []).append(seconds)
                found[cell, gpus] = attempt
                tell(scaled(cell, gpus, attempt, None), HEAD, out, "grid-runs.txt")
        except Exception:
            complain(f"{name} broke down\n{traceback.format_exc()}")
        finally:
            lanes.put(lane)

    print(" | ".join(HEAD), flush=True)
    for gpus, each in itertools.groupby(plan.schedule(counts(), jobs), key=lambda job: job[0]):
        lanes = queue.SimpleQueue()
        for lane in range(len(cards) // gpus):
            lanes.put(lane)
        with ThreadPoolExecutor(max_workers=len(cards) // gpus) as pool:
            list(pool.map(lambda job, lanes=lanes: one(job[0], lanes, *job[1]), each))
        say(f"{gpus} GPUs: done")
    print(" | ".join(HEAD), flush=True)
    for cell, _ in jobs:
        alone = value(found.get((cell, 1)), "throughput")
        for gpus in counts():
            if (cell, gpus) in found:
                tell(scaled(cell, gpus, found[cell, gpus], alone), HEAD, out, "grid.txt")


def staged(cell, steps, micro):
    """A manifest whose steps go through stages, and the words that pick a number of GPUs of it."""
    key = "cpu_ranks" if CPU else "gpus"
    text = manifest(cell, 1, steps, False)
    text = text.replace(f"{key} = 1\n", f'{key} = [1, 2, 4]\nparallelism = "pipeline"\n')
    if cell.split(":")[0] in ("bert", "gpt2", "vgg16"):
        text = text.replace("[model]\n", "[model]\ndropout = 0.0\n")
    text = text.replace("[hardware]\n", f"micro_batches = {micro}\n[hardware]\n")
    # A cell of one rank has no number of ranks.
    return text, lambda gpus: ("--only", f"hardware.{key} == {gpus}" if gpus > 1 or not CPU else "hardware.parallelism == 'none'")


def stage_pipe(cells, out):
    head = ["cell", "micro-batches", "gpus", "step ms", "samples/s", "speed-up", "of GPipe's speed-up %", "bubble %", "by formula %", "loss off by", "J/sample", "stages"]
    print(" | ".join(head), flush=True)
    micro = int(os.environ.get("MICRO", "8"))
    for given in cells:
        parts = given.split(":")
        cell, steps = ":".join(parts[:3]), int(parts[3]) if len(parts) > 3 else 110
        text, only = staged(cell, steps, micro)
        alone, losses = None, None
        for gpus in counts():
            name = f"pipe-{cell.replace(':', '-')}-{micro}"
            code, _, attempt = run(name, text, out, only=only(gpus))
            if not is_row(f"{name} on {gpus}", code, attempt):
                continue
            speed, formula = value(attempt, "throughput"), (gpus - 1) / (micro + gpus - 1)
            alone = alone or (speed if gpus == 1 else None)
            found = [loss for _, loss in curve(attempt, "loss")]
            losses = losses or (found if gpus == 1 else None)
            gain = speed / alone if alone else None
            share = 100 * gain / (gpus * (1 - formula)) if gain else None
            bubble = value(attempt, "bubble_fraction")
            numbers = [value(attempt, "step_time"), speed, gain, share, bubble, formula, value(attempt, "energy_per_sample")]
            shown = [f"{v * scale:.4g}" if v is not None else "–" for v, scale in zip(numbers, [1e3, 1, 1, 1, 100, 100, 1])]
            shown.insert(6, plan.apart(losses, found))
            stages = attempt.get("facts", {}).get("worker.stages", {})
            tell([cell, str(micro), str(gpus), *shown, str(stages.get("value") if isinstance(stages, dict) else stages)], head, out, "pipe.txt")


def stage_small(cells, out):
    gib = os.environ.get("GIB", "12")
    for cell in cells:
        text, only = staged(cell, 20, int(os.environ.get("MICRO", "8")))
        text = text.replace("[hardware]\n", f"[hardware]\nmemory_limit_gib = {gib}\n")
        for gpus in counts():
            code, took, attempt = run(f"small-{cell.replace(':', '-')}", text, out, only=only(gpus), quiet=True)
            told = (attempt or {}).get("reason") or value(attempt, "loss")
            say(f"{cell} on {gpus} of {gib} GiB: exit code {code} after {took:.0f} s: {str(told)[:300]}")


def stage_equal(cells, out):
    for given in cells:
        cell = ":".join(given.split(":")[:3])
        losses = {}
        for gpus in counts():
            name = f"equal-{cell.replace(':', '-')}-{gpus}"
            # Nothing is drawn differently by different ranks but dropout, which is left out here.
            text = manifest(cell, gpus, 30, True)
            if cell.split(":")[0] in ("bert", "gpt2", "vgg16", "mnist_cnn"):
                text = text.replace("[model]\n", "[model]\ndropout = 0.0\n")
            attempt = run(name, text, out)[2]
            losses[gpus] = [loss for _, loss in curve(attempt, "loss")] if attempt and attempt["outcome"] == "finished" else []
            if not losses[gpus]:
                complain(f"{name}: no losses to compare")
                continue
            digests = attempt.get("digests", {})
            shards = [digests.get(f"shard.{rank}") for rank in range(gpus)] if gpus > 1 else []
            alone, found = losses.get(1, []), losses[gpus]
            say(
                f"{cell} on {gpus}: {len(found)} losses, {found[0]:.6f} to {found[-1]:.6f}; off those of one GPU by {plan.apart(alone[:1], found[:1])} at the first step, "
                f"{plan.apart(alone, found)} at most; weights {digests.get('weights', '–')[:12]}; shards {'differ' if len(set(shards)) == len(shards) else 'ARE EQUAL'} {[str(s)[:8] for s in shards]}"
            )
            say(f"    once more: {plan.once_more(attempt, run(name, text, out)[2])}")


def stage_faults(out):
    cell, ranks = FAULT_CELL if not CPU else "mnist_cnn:4:fp32", max(counts())
    data = lambda steps: manifest(cell, ranks, steps, False)
    stages = lambda steps: re.sub(r"= \[1, 2, 4\]", f"= {ranks}", staged(FAULT_CELL, steps, 4)[0])
    if ranks < 2:
        return complain("faults: one rank alone takes none")
    # A rank that the supervisor has to end is ended before this script ends the supervisor.
    limits = f"[limits]\ntimeout_s = {int(LIMIT * 0.75)}\n"
    for how, places in plan.faults(ranks).items():
        # A model with stages takes threads of the CPU too long.
        places = [place for place in places if re.search(os.environ.get("PLACES", ""), f"{how}, {place}") and (how == "data" or not CPU)]
        if places and how == "memory":
            memory(data(100_000) + limits, out)
        elif places:
            failing(how, places, data if how == "data" else stages, limits, out)


def failing(how, places, text, limits, out):
    # Failed runs leave no tuned kernels: this one does, and says how long a whole run takes.
    run(f"fault-{how}-none", text(60), out)
    begun = run(f"fault-{how}-none", text(60), out)[1]
    for place in places:
        late = place.split()[2] in ("idle", "eval", "inference", "summary")
        # Long enough that the step is reached; the supervisor ends it otherwise.
        code, took, attempt = run(f"fault-{how}-" + place.replace(" ", "-"), text(60 if late else 100_000) + limits, out, env={"LEDGER_FAULT": place}, quiet=True)
        told, outcome = (attempt.get("reason"), attempt.get("outcome")) if attempt else (None, None)
        text_of = f"{how}, {place}: exit code {code} after {took:.1f} s in all ({outcome}; without a fault 60 steps and what comes behind them take {begun:.1f} s)\n    {told}"
        (say if outcome == "failed" else complain)(text_of)
        left_behind()


def memory(text, out):
    """Another process takes nearly all memory of the second GPU."""
    code = "import torch, time; free = torch.cuda.mem_get_info(1)[0]; x = torch.empty(int(free - 3e9), dtype=torch.uint8, device='cuda:1'); print('held', flush=True); time.sleep(600)"
    # By the numbers that `ledger` has, too.
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) as holder:
        try:
            if holder.stdout.readline().strip() != "held":
                return complain("no memory on the second GPU: it could not be taken")
            code, took, attempt = run("fault-memory", text, out, quiet=True)
            told = f"no memory on the second GPU: exit code {code} after {took:.1f} s in all\n    {attempt.get('reason') if attempt else None}"
            (say if attempt and attempt.get("outcome") == "failed" else complain)(told)
        finally:
            holder.kill()
    left_behind()


def left_behind():
    if CPU:
        return
    done = subprocess.run(["nvidia-smi", "-i", ",".join(mine()), "--query-compute-apps=pid,used_memory", "--format=csv,noheader"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        complain(f"    whether something is left on the GPUs is not known: {(done.stdout + done.stderr).strip()}")
    elif done.stdout.strip():
        complain(f"    LEFT ON THE GPUS: {done.stdout.strip()}")
    else:
        say("    nothing is left on the GPUs")


def stage_refusals():
    if CPU:
        return say("threads are refused to nobody")
    (WORK / "refusal.toml").write_text(manifest("mnist_cnn:4:fp32", 2, 20, False))
    hidden = plan.without_nccl(os.environ.get("LD_LIBRARY_PATH"), WORK / "no-nccl")
    for what, env, told in [
        ("one GPU is visible", {"CUDA_VISIBLE_DEVICES": mine()[0]}, "but 1 is visible"),
        ("none is", {"CUDA_VISIBLE_DEVICES": ""}, "no GPU is visible"),
        ("no NCCL is found", {"LD_LIBRARY_PATH": hidden}, "`libnccl.so.2` is missing"),
    ]:
        code, said, complained = ledger("run", str(WORK / "refusal.toml"), env=env, limit=60)
        text = f"{what}: exit code {code}\n    {(said + complained).strip()[:600]}"
        (say if code == 2 and told in complained else complain)(text)


def stage_tests(program, out):
    parts = ("nccl", "bucket", "ranks", "parallel", "peer", "memory")
    wanted = [name for name in models.tests_of(program) if "on_gpu" in name and any(part in name for part in parts)]
    wanted = [name for name in wanted if re.search(os.environ.get("TESTS", ""), name)]
    if not wanted:
        complain("no test is to be run")
    for name in wanted:
        limit = min(LIMIT, left())
        if limit < LEAST:
            complain(f"{name}: no time is left")
        elif models.run_test(program, name, "", out / "tests.txt", {}, limit) != 0:
            complain(f"{name}: failed")


def stage_kernels(path):
    code, said, complained = ledger("cache", "import", str(path))
    (say if code == 0 else complain)(f"kernels: exit code {code}\n{said}{complained}".strip())


def stage_export(out):
    """The kernels that the last attempt on a GPU had: there may be others, which it was given and could not use. What was exported before stays if this fails."""
    facts = (shown_of(attempt["attempt"]) or {} for attempt in attempts())
    keys = (attempt.get("facts", {}).get("kernel_cache.key") for attempt in facts)
    key = next(filter(None, keys), None)
    if key is None:
        return say("no attempt had kernels: none are exported") if CPU else complain("no attempt had kernels: none are exported")
    kernels = WORK / "h200.kernels"
    kernels.unlink(missing_ok=True)
    code, _, complained = ledger("cache", "export", key, "-o", str(kernels))
    if code != 0:
        return complain(f"kernels {key} are not exported: exit code {code}: {complained}")
    draft = out / ".h200.kernels.xz"
    with open(draft, "wb") as file:
        packed = subprocess.run(["xz", "-3", "-T0", "-c", str(kernels)], stdout=file, check=False).returncode
    if packed != 0:
        draft.unlink()
        return complain(f"kernels {key} are not exported: xz has exit code {packed}")
    draft.replace(out / "h200.kernels.xz")
    say(f"kernels {key} are exported, {(out / 'h200.kernels.xz').stat().st_size >> 20} MiB")


def stage(name, given, out):
    cells = given.split(",") if given else []
    if name == "ledger":
        unpacked(given, "ledger")
    elif name == "kernels":
        stage_kernels(unpacked(given, "kernels"))
    elif name == "facts":
        models.stage_facts()
        print(subprocess.run("nvidia-smi topo -m", shell=True, capture_output=True, text=True, check=False).stdout, flush=True)
    elif name == "tests":
        stage_tests(unpacked(given, "tests"), out)
    elif name == "warm":
        models.stage_warm(cells, out)
    elif name in ("weak", "strong"):
        stage_scale(cells, out, name == "strong")
    elif name == "grid":
        stage_grid(cells, out)
    elif name == "pipe":
        stage_pipe(cells, out)
    elif name == "small":
        stage_small(cells, out)
    elif name == "equal":
        stage_equal(cells, out)
    elif name == "faults":
        stage_faults(out)
    elif name == "refusals":
        stage_refusals()
    elif name in ("bandwidth", "ddp"):
        import ddp

        COMPLAINTS.extend((ddp.bandwidth if name == "bandwidth" else ddp.cells)(cells, counts(), left))
    elif name == "export":
        stage_export(out)
    else:
        sys.exit(f"no stage is called {name}")


def main():
    out, words = Path(sys.argv[1]), sys.argv[2:]
    out.mkdir(parents=True, exist_ok=True)
    WORK.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("LEDGER_DIR", str(WORK / "book"))
    os.environ["NO_COLOR"] = "1"
    while words:
        name = words.pop(0)
        say(name)
        given = None if name in ("facts", "faults", "refusals", "export") or not words else words.pop(0)
        try:
            stage(name, given, out)
        except Exception:
            if name == "ledger":
                raise
            # The next stage may come through.
            complain(f"{name} broke down\n{traceback.format_exc()}")
    say("done")
    if COMPLAINTS:
        sys.exit("\n".join([f"{len(COMPLAINTS)} complaints:", *COMPLAINTS]))


if __name__ == "__main__":
    main()
