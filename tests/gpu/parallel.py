#!/usr/bin/env python3
"""Data parallelism on a machine with several NVIDIA GPUs, by programs that were built elsewhere: how well it scales, whether it computes the same, and what becomes of
a rank that fails.

Usage: parallel.py OUT STAGE...

    OUT                    folder for logs and tables
    ledger FILE            the program, plain or .xz
    kernels FILE           imports kernels, plain or .xz
    facts                  the machine
    tests FILE             the crate's tests, plain or .xz: those that need GPUs, have to do with several of them, and that TESTS matches, a regular expression
    warm CELL,...          trains these on one GPU, twelve steps each: compiles and tunes, measures nothing
    equal CELL,...         the same batch on one GPU and shared by all: how far the losses are apart, and what the digests say
    weak CELL,...          a batch on each of 1, 2, 4 GPUs, as many as there are; prints a row for each
    strong CELL,...        one batch shared by 1, 2, 4 GPUs
    grid CELL,...          as weak, as many runs side by side as there are GPUs for, each with its share of the processors; ends before the second DEADLINE of the script
    pipe CELL,...          one batch through stages on 1, 2, 4 GPUs, in as many micro-batches as MICRO says, 8 if it says nothing; the same losses?
    small CELL,...         whether a model that has no room on one card of GIB gibibytes has it on two
    faults                 a rank that panics, hangs, dies or has no memory left, in each place that PLACES matches, a regular expression: how long it takes to the end, and what is said
    refusals               more GPUs than there are, and no NCCL
    bandwidth MIB,...      what PyTorch's NCCL reaches with buckets of these sizes
    ddp CELL,...           PyTorch's DistributedDataParallel at the same work
    export                 brings the kernels along in OUT

A CELL is MODEL:BATCH:PRECISION[:STEPS], as models.py has it. COUNTS=1,4 in the environment takes other numbers of GPUs than 1, 2 and 4. Changes no setting of the card. DEVICE=cpu tries the script out with threads in place of GPUs.
"""

import csv
import io
import json
import os
import queue
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import models
from models import WORK, number, say, unpacked

BEGIN = time.monotonic()
CPU = os.environ.get("DEVICE") == "cpu"
BASE = ["step_time", "throughput", "data_time", "all_reduce_time", "all_reduce_exposed", "straggler_spread", "energy_per_sample", "power_mean", "wait_energy"]
HEAD = ["cell", "gpus", "step ms", "samples/s", "efficiency %", "data ms", "all_reduce ms", "exposed ms", "spread ms", "bus GB/s", "J/sample", "W", "waiting J", "GPU util %", "weights"]
# Of a tenth of a second or so a step, on one H200.
FAULT_CELL = "bert:32:bf16"


def there():
    """How many GPUs, or threads in their place."""
    if CPU:
        return 2
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
    done = subprocess.run(["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True, check=True)
    return len(done.stdout.split())


def counts():
    asked = os.environ.get("COUNTS", "1,2,4").split(",")
    return [gpus for gpus in map(int, asked) if gpus <= there()]


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


def ledger(*words, env=None, limit=None):
    """Exit code, stdout and stderr of a command."""
    try:
        done = subprocess.run([str(WORK / "ledger"), *words], capture_output=True, text=True, timeout=limit, check=False, env={**os.environ, **(env or {})})
        return done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        text = lambda piece: (piece or b"").decode(errors="replace") if isinstance(piece, bytes) else piece or ""
        return 124, text(late.stdout), text(late.stderr)


def attempt_of(name):
    """The last attempt of an experiment, as `show --json` has it."""
    code, listed, _ = ledger("ls", "--all", "--json")
    found = [a for a in json.loads(listed)["attempts"] if a["experiment"] == name] if code == 0 else []
    if not found:
        return None
    shown = json.loads(ledger("show", found[0]["attempt"], "--json")[1])["attempts"][0]
    return {"id": found[0]["attempt"], **shown}


def run(name, text, out, env=None, limit=None, quiet=False, only=()):
    path = WORK / f"{name}.toml"
    path.write_text(text)
    begin = time.monotonic()
    code, said, complained = ledger("run", str(path), "--repeat", "1", *only, env=env, limit=limit or float(os.environ.get("LIMIT", "400")))
    took = time.monotonic() - begin
    with open(out / "log.txt", "a", encoding="utf-8") as log:
        log.write(f"\n== {name}: exit code {code} after {took:.1f} s\n{said}{complained}\n")
    if code != 0 and not quiet:
        say(f"{name}: exit code {code} after {took:.0f} s\n{(said + complained)[-1500:]}")
    return code, took, attempt_of(name)


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
    print(" | ".join(row), flush=True)
    with open(out / file, "a", encoding="utf-8") as table:
        if table.tell() == 0:
            table.write(" | ".join(head) + "\n")
        table.write(" | ".join(row) + "\n")


def taken_apart(given):
    """A cell, and its steps."""
    parts = given.split(":")
    return ":".join(parts[:3]), int(parts[3]) if len(parts) > 3 else 160


def scaled(cell, gpus, attempt, alone):
    """The row of an attempt, and its samples per second; `alone` are those of one GPU."""
    found = {metric: value(attempt, metric) for metric in BASE}
    speed = found["throughput"]
    alone = alone or (speed if gpus == 1 else None)
    efficiency = 100 * speed / (alone * gpus) if speed and alone else None
    mebibytes, took = value(attempt, "worker.all_reduce_mib"), found["all_reduce_time"]
    bus = 2 * (gpus - 1) / gpus * mebibytes * 2**20 / took / 1e9 if mebibytes and took else None
    in_order = [(found["step_time"], 1e3), (speed, 1), (efficiency, 1), (found["data_time"], 1e3), (took, 1e3), (found["all_reduce_exposed"], 1e3), (found["straggler_spread"], 1e3), (bus, 1), (found["energy_per_sample"], 1), (found["power_mean"], 1), (found["wait_energy"], 1)]
    row = [cell, str(gpus)] + ["–" if v is None else f"{v * scale:.4g}" for v, scale in in_order]
    return row + [utilization(attempt), attempt.get("digests", {}).get("weights", "–")[:12]], alone


def stage_scale(cells, out, shared):
    kind = "strong" if shared else "weak"
    print(" | ".join(HEAD), flush=True)
    for cell, steps in map(taken_apart, cells):
        alone = None
        for gpus in counts():
            name = f"{kind}-{cell.replace(':', '-')}-{gpus}"
            code, _, attempt = run(name, manifest(cell, gpus, steps, shared), out)
            if code == 0 and attempt:
                row, alone = scaled(cell, gpus, attempt, alone)
                tell(row, HEAD, out, f"{kind}.txt")


def stage_grid(cells, out):
    """Runs of one number of GPUs side by side; each begins only if there is time for as long as the longest before it took."""
    every, cores = there(), os.cpu_count()
    deadline, longest = float(os.environ.get("DEADLINE", "inf")), [25.0]
    jobs = [taken_apart(given) for given in cells]

    def one(gpus, lanes, job):
        cell, steps = job
        name = f"grid-{cell.replace(':', '-')}-{gpus}"
        lane = lanes.get()
        try:
            if time.monotonic() - BEGIN + max(longest) > deadline:
                return say(f"{name}: no time is left")
            cards = range(lane * gpus, (lane + 1) * gpus)
            share = f"{cards[0] * cores // every}-{(cards[-1] + 1) * cores // every - 1}"
            visible = {} if CPU else {"CUDA_VISIBLE_DEVICES": ",".join(map(str, cards))}
            path = WORK / f"{name}.toml"
            path.write_text(manifest(cell, gpus, steps, False))
            begin = time.monotonic()
            command = ["taskset", "-c", share, str(WORK / "ledger"), "run", str(path), "--repeat", "1"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=float(os.environ.get("LIMIT", "400")), check=False, env={**os.environ, **visible})
            longest.append(time.monotonic() - begin)
            with open(out / f"{name}.txt", "w", encoding="utf-8") as log:
                log.write(f"exit code {done.returncode} after {longest[-1]:.1f} s\n{done.stdout}{done.stderr}")
            if done.returncode != 0:
                say(f"{name}: exit code {done.returncode} after {longest[-1]:.0f} s\n{(done.stdout + done.stderr)[-600:]}")
        except subprocess.TimeoutExpired:
            say(f"{name}: ended after its time")
        finally:
            lanes.put(lane)

    for gpus in counts():
        lanes = queue.SimpleQueue()
        for lane in range(every // gpus):
            lanes.put(lane)
        with ThreadPoolExecutor(max_workers=every // gpus) as pool:
            list(pool.map(lambda job, gpus=gpus, lanes=lanes: one(gpus, lanes, job), jobs))
        say(f"{gpus} GPUs: done")
    print(" | ".join(HEAD), flush=True)
    for cell, _ in jobs:
        alone = None
        for gpus in counts():
            attempt = attempt_of(f"grid-{cell.replace(':', '-')}-{gpus}")
            if attempt and value(attempt, "throughput"):
                row, alone = scaled(cell, gpus, attempt, alone)
                tell(row, HEAD, out, "grid.txt")


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
    head = ["cell", "micro-batches", "gpus", "step ms", "samples/s", "speed-up", "of 1/(1 - bubble by formula) %", "bubble %", "by formula %", "loss off by", "J/sample", "stages"]
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
            if code != 0 or not attempt:
                continue
            speed, formula = value(attempt, "throughput"), (gpus - 1) / (micro + gpus - 1)
            alone = alone or (speed if gpus == 1 else None)
            found = [loss for _, loss in curve(attempt, "loss")]
            losses = losses or (found if gpus == 1 else None)
            far = max((abs(a - b) / abs(losses[0]) for a, b in zip(losses, found)), default=0) if losses else None
            gain = speed / alone if alone and speed else None
            share = 100 * gain / (gpus * (1 - formula)) if gain else None
            bubble = value(attempt, "bubble_fraction")
            numbers = [value(attempt, "step_time"), speed, gain, share, bubble, formula, far, value(attempt, "energy_per_sample")]
            shown = [f"{v * scale:.4g}" if v is not None else "–" for v, scale in zip(numbers, [1e3, 1, 1, 1, 100, 100, 1, 1])]
            stages = attempt.get("facts", {}).get("worker.stages", {})
            tell([cell, str(micro), str(gpus), *shown, str(stages.get("value") if isinstance(stages, dict) else stages)], head, out, "pipe.txt")


def stage_small(cells, out):
    gib = os.environ.get("GIB", "12")
    for cell in cells:
        text, only = staged(cell, 20, int(os.environ.get("MICRO", "8")))
        text = text.replace("[hardware]\n", f"[hardware]\nmemory_limit_gib = {gib}\n")
        for gpus in [count for count in counts() if count <= 2]:
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
            code, _, attempt = run(name, text, out)
            if code != 0 or not attempt:
                continue
            digests = attempt.get("digests", {})
            shards = [digests.get(f"shard.{rank}") for rank in range(gpus)] if gpus > 1 else []
            losses[gpus] = [loss for _, loss in curve(attempt, "loss")]
            far = [abs(a - b) / abs(losses[1][0]) for a, b in zip(losses.get(1, []), losses[gpus])]
            say(
                f"{cell} on {gpus}: {len(losses[gpus])} losses, {losses[gpus][0]:.6f} to {losses[gpus][-1]:.6f}; off those of one GPU by {max(far[:1], default=0):.2e} at the first step, "
                f"{max(far, default=0):.2e} at most; weights {digests.get('weights', '')[:12]}; shards {'differ' if len(set(shards)) == len(shards) else 'ARE EQUAL'} {[str(s)[:8] for s in shards]}"
            )
            again = run(name, text, out)[2]
            say(f"    once more: weights {'the same' if again and again['digests'].get('weights') == digests.get('weights') else 'OTHER'}")


def stage_faults(out):
    cell = FAULT_CELL if not CPU else "mnist_cnn:4:fp32"
    data = lambda steps: manifest(cell, 2, steps, False)
    stages = lambda steps: re.sub(r"= \[1, 2, 4\]", "= 2", staged(FAULT_CELL, steps, 4)[0])
    places = [
        ("data", ["1 hang forward 40", "0 hang backward 40", "1 panic data 40", "0 panic optimizer 40", "1 hang all_reduce 40", "1 abort forward 40", "1 panic warm_up 1", "1 panic idle 1", "0 panic eval 1", "0 hang inference 3", "1 hang summary 1"]),
        ("pipeline", ["1 hang forward 40", "0 abort backward 40", "1 panic optimizer 40", "1 panic eval 1", "0 hang inference 3", "1 hang summary 1"]),
    ]
    # A model with stages takes threads of the CPU too long.
    for how, each in places[: 1 if CPU else 2]:
        text = data if how == "data" else stages
        # Failed runs leave no tuned kernels: this one does, and says how long a whole run takes.
        if not any(re.search(os.environ.get("PLACES", ""), f"{how}, {place}") for place in each):
            continue
        run(f"fault-{how}-none", text(60), out)
        begun = run(f"fault-{how}-none", text(60), out)[1]
        for place in each:
            if not re.search(os.environ.get("PLACES", ""), f"{how}, {place}"):
                continue
            late = place.split()[2] in ("idle", "eval", "inference", "summary")
            slug = f"fault-{how}-" + place.replace(" ", "-")
            # Long enough that the step is reached; the supervisor ends it otherwise.
            given = text(60 if late else 100_000) + "[limits]\ntimeout_s = 150\n"
            code, took, attempt = run(slug, given, out, env={"LEDGER_FAULT": place}, limit=300, quiet=True)
            told = attempt.get("reason") if attempt else None
            say(f"{how}, {place}: exit code {code} after {took:.1f} s in all ({attempt.get('outcome') if attempt else None}; without a fault 60 steps and what comes behind them take {begun:.1f} s)\n    {told}")
            left_behind()
    if not CPU:
        memory(data(100_000), out)


def memory(text, out):
    """Another process takes nearly all memory of the second GPU."""
    code = "import torch, time; free = torch.cuda.mem_get_info(1)[0]; x = torch.empty(int(free - 3e9), dtype=torch.uint8, device='cuda:1'); print('held', flush=True); time.sleep(600)"
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        holder.stdout.readline()
        code, took, attempt = run("fault-memory", text + "[limits]\ntimeout_s = 150\n", out, limit=300, quiet=True)
        say(f"no memory on the second GPU: exit code {code} after {took:.1f} s in all\n    {attempt.get('reason') if attempt else None}")
    finally:
        holder.kill()
        holder.wait()
    left_behind()


def left_behind():
    if CPU:
        return
    done = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"], capture_output=True, text=True, check=False)
    say("    nothing is left on the GPUs" if not done.stdout.strip() else f"    LEFT ON THE GPUS: {done.stdout.strip()}")


def stage_refusals(out):
    text = manifest(FAULT_CELL, 2, 20, False)
    (WORK / "refusal.toml").write_text(text)
    for what, env in [("one GPU is visible", {"CUDA_VISIBLE_DEVICES": "0"}), ("none is", {"CUDA_VISIBLE_DEVICES": ""})]:
        code, said, complained = ledger("run", str(WORK / "refusal.toml"), env=env, limit=60)
        say(f"{what}: exit code {code}\n    {(said + complained).strip()[:600]}")


def stage_tests(program, out):
    parts = ("nccl", "bucket", "ranks", "parallel", "peer", "memory")
    wanted = [name for name in models.tests_of(program) if "on_gpu" in name and any(part in name for part in parts)]
    wanted = [name for name in wanted if re.search(os.environ.get("TESTS", ""), name)]
    failed = [name for name in wanted if models.run_test(program, name, "", out / "tests.txt", {}) != 0]
    if failed:
        sys.exit(f"{len(failed)} of {len(wanted)} tests failed: {', '.join(failed)}")


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
            say("".join(ledger("cache", "import", str(path))[1:]))
        elif stage == "facts":
            models.stage_facts()
            topology = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, check=False)
            print(topology.stdout, flush=True)
        elif stage == "tests":
            stage_tests(unpacked(words.pop(0), "tests"), out)
        elif stage == "warm":
            models.stage_warm(words.pop(0).split(","), out)
        elif stage in ("weak", "strong"):
            stage_scale(words.pop(0).split(","), out, stage == "strong")
        elif stage == "grid":
            stage_grid(words.pop(0).split(","), out)
        elif stage == "pipe":
            stage_pipe(words.pop(0).split(","), out)
        elif stage == "small":
            stage_small(words.pop(0).split(","), out)
        elif stage == "equal":
            stage_equal(words.pop(0).split(","), out)
        elif stage == "faults":
            stage_faults(out)
        elif stage == "refusals":
            stage_refusals(out)
        elif stage in ("bandwidth", "ddp"):
            import ddp

            (ddp.bandwidth if stage == "bandwidth" else ddp.cells)(words.pop(0).split(","), counts())
        elif stage == "export":
            path = out / "h200.kernels"
            ledger("cache", "export", "-o", str(path))
            subprocess.run(["xz", "-3", "-T0", "-f", str(path)], check=False)
        else:
            sys.exit(f"no stage is called {stage}")
    say("done")


if __name__ == "__main__":
    main()
