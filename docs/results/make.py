#!/usr/bin/env python3
"""Writes the pages of this folder from the attempts in ledger/reference/campaign, by the answers of `ledger --json`.

    docs/results/make.py [--check] [LEDGER]

LEDGER is the program (default: target/release/ledger). With --check the committed pages stay as they are; exit code 1 names those that differ
from what the program answers now. Every number of a page is one of `best`, `pareto`, `effects`, `events` and `ls`; nothing is computed here.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CAMPAIGN = ROOT / "ledger/reference/campaign"
MANIFESTS = ROOT / "manifests/reference"
SPEED = "batch_size,precision"
TITLES = {"bert": "BERT-base", "dqn": "DQN", "gpt2": "GPT-2", "gru": "GRU", "lstm": "LSTM", "maskrcnn": "Mask R-CNN", "resnet50": "ResNet-50", "vgg16": "VGG16", "yolov3": "YOLOv3"}
# Of `MODEL-gpus.toml`.
SAMPLES_EACH = {"bert": 64, "resnet50": 128}
METRICS = {"energy_per_sample": "energy", "throughput": "speed", "edp_per_sample": "energy × time"}
RATE = "training.learning_rate"
PRECISION = "training.precision"
GPUS = "hardware.gpus"
# The round on H100s of 2026-11-27: each GPU executed each run once, so that GPUs are blocks. YOLOv3's cells are complete on all but one of its GPUs.
ROUND = "git.commit == 'bb2ee992289917ce9b17b2f44ae413d6540b5a30'"
COMPLETE = f"{ROUND} and gpu.0.uuid != 'GPU-0f194165-0740-9c17-b8ad-b46b7bdf4e14'"
# The trainer's revision in the newest rounds, in which most cells ran on each GPU; 2 where none is named.
REVISIONS = {"NVIDIA H200": {**dict.fromkeys(("bert", "gpt2", "gru", "lstm", "resnet50", "vgg16"), 7), **dict.fromkeys(("dqn", "maskrcnn", "yolov3"), 8)}}


def revisions_text():
    of = REVISIONS["NVIDIA H200"]
    each = [(revision, [TITLES[model] for model in TITLES if of[model] == revision]) for revision in sorted(set(of.values()))]
    return "; ".join(f"revision {revision} for {', '.join(models)}" for revision, models in each)


UNTESTED = {"too_few": "too few", "no_scatter": "no scatter", "confounded": "other GPUs or seeds", "other_rounds": "other rounds", "different_sensors": "too few GPUs"}


class Ledger:
    """The program, on a ledger of its own that has all attempts of the campaign."""

    def __init__(self, program, folder):
        self.program, self.env = program, {**os.environ, "LEDGER_DIR": folder, "NO_COLOR": "1"}
        for pack in sorted(CAMPAIGN.glob("*.ledger")):
            self.run("unpack", str(pack))

    def run(self, *words, good=(0,)):
        done = subprocess.run([self.program, *words], env=self.env, capture_output=True, text=True, check=False)
        if done.returncode not in good:
            sys.exit(f"ledger {' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def ask(self, *words, good=(0,)):
        return json.loads(self.run(*words, "--json", good=good))

    def best(self, model, where, metric, axes, *more, good=(0,)):
        return self.ask("best", "--model", model, "--metric", metric, "--group-by", axes, "--any-version", "--where", where, "--top", "50", *more, good=good)

    def attempts(self, where, *columns):
        """The attempts that match and whose times and energies count, oldest first, with these fields or metrics in `columns`."""
        more = ("--columns", ",".join(columns)) if columns else ()
        found = self.ask("ls", "--all", "--outcome", "finished", "--sort", "started", "--where", where, *more)["attempts"]
        return [one for one in found if not one.get("tainted")]


def attempts_of(model, kind, device):
    """The condition on attempts of one reference manifest, `speed` or `learns`, on one kind of GPU."""
    return f"experiment == '{model}-{kind}' and gpu.0.name == '{device}'"


def digits(value, count=3):
    """A number with `count` significant digits, never in powers of ten."""
    if value is None:
        return "–"
    shown = f"{value:.{count}g}"
    return f"{float(shown):,.0f}" if abs(value) >= 1000 else (f"{float(shown):.10g}" if "e" in shown else shown)


def interval(mean, half_width, sample, scale=1, is_share=False):
    """A mean and the half-width of its interval, in percent unless it is a share; the range where the program gives no interval."""
    if sample.get("range"):
        low, high = sample["range"]
        low, high = digits(scale * low, 4), digits(scale * high, 4)
        return f"about {low}" if low == high else f"{low} to {high}"
    if is_share and half_width is not None:
        return f"{digits(mean, 4)} ± {digits(half_width, 2)}"
    return f"{digits(scale * mean, 4)} ± {digits(100 * half_width / mean, 2)}%" if half_width is not None else f"{digits(scale * mean, 4)}"


def of_place(place, scale=1, is_share=False):
    return interval(place["mean"], place.get("half_width"), place["sample"], scale, is_share)


def probability(place):
    """The p of a comparison, after the program's correction for all rows; or why there is none."""
    p = place.get("p_corrected", place["comparison"].get("p"))
    if p is None:
        return f"not tested ({UNTESTED[place['comparison']['untested']]})"
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def difference(place):
    """The ratio to the best, or the difference in points, with its interval."""
    comparison = place["comparison"]
    form, unit = ("{:.3f}", "×") if comparison["scale"] == "ratio" else ("{:+.1f}", " points")
    low, high = comparison.get("low"), comparison.get("high")
    between = "" if low is None else f" ({form.format(low)} to {form.format(high)})"
    return f"{form.format(comparison['estimate'])}{unit}{between}"


def against(place):
    return f"{difference(place)}, {probability(place)}" if place.get("comparison") else "best"


def saving(place):
    """What the best needs less than this place, with its interval where there is one."""
    comparison = place.get("comparison")
    if not comparison:
        return "– (it is the best)"
    less = {name: 100 * (1 - 1 / comparison[name]) for name in ("estimate", "low", "high") if comparison.get(name) is not None}
    # Ends that round to the same number get another digit.
    places = int("low" in less and abs(less["high"] - less["low"]) < 2)
    between = f" ({less['low']:.{places}f} to {less['high']:.{places}f}%)" if "low" in less else ""
    return f"{less['estimate']:.{places}f}%{between}"


def named(group):
    words = {"training.batch_size": "batch {}", RATE: "rate {}", GPUS: "{} GPUs"}
    return ", ".join("1 GPU" if (key, value) == (GPUS, 1) else words.get(key, "{}").format(value) for key, value in sorted(group.items()))


def table(head, rows):
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def advice(places, winners, default):
    """What somebody who trains the model should take, from the means: the best, and what its two axes are worth."""
    best = places[0]
    batch, precision = (best["group"][key] for key in ("training.batch_size", "training.precision"))
    said = [f"Train with {named(best['group'])}."]
    if len(set(winners.values())) == 1:
        said.append("Its mean energy a sample is the least, and its mean speed the highest.")
    else:
        others = ", ".join(f"{winners[metric]} by {METRICS[metric]}" for metric in winners if winners[metric] != named(best["group"]))
        said.append(f"Its mean energy a sample is the least. Best by something else: {others}.")
    if default is not best:
        said.append(f"It needs {saving(default)} less energy a sample than fp32 at its largest batch, {default['group']['training.batch_size']}.")
    for place in places[1:]:
        if (place.get("p_best") or 0) >= 0.05:
            said.append(f"{named(place['group']).capitalize()} needs {place['comparison']['estimate']:.3f} times the energy. It is the best with a [probability](../answers.md#best) of {100 * place['p_best']:.0f}%.")
    smaller = [place for place in places if place["group"]["training.precision"] == precision and place["group"]["training.batch_size"] < batch]
    if smaller:
        smallest = min(smaller, key=lambda place: place["group"]["training.batch_size"])
        said.append(f"If the batch has to be {smallest['group']['training.batch_size']}, batch {smallest['group']['training.batch_size']} in the same precision needs {smallest['comparison']['estimate']:.2f} times the energy a sample.")
    return " ".join(said)


def page(ledger, model, device):
    """The page of a model on one kind of GPU, and its rows of the summary. A section stands where there are attempts for it."""
    sections = {"speed": speed_of(ledger, model, device), "learned": learning(ledger, model, device), "precise": precisions(ledger, model, device), "scaled": scaling(ledger, model, device), "beside": beside_pytorch(ledger, model, device)}
    title = TITLES.get(model, model)
    lines = [f"# {title} on {device}\n", "Made by `docs/results/make.py` from the attempts in `ledger/reference/campaign`."]
    lines.extend(line for section, _ in sections.values() for line in section)
    rows = {name: row for name, (_, row) in sections.items()}
    return "\n".join(lines), {"title": title, **rows}


def speed_of(ledger, model, device):
    """The sections on fixed steps, and their row of the summary; neither where there are no such attempts."""
    revision = REVISIONS.get(device, {}).get(model, 2)
    speed = f"{attempts_of(model, 'speed', device)} and program.revision == {revision}"
    # Exit code 1: there are no such attempts.
    ranks = {metric: ledger.best(model, speed, metric, SPEED, good=(0, 1)) for metric in METRICS}
    energy = ranks["energy_per_sample"]
    defaults = [place for place in energy.get("places", []) if place["group"]["training.precision"] == "fp32"]
    if not defaults:
        return [], None
    default = max(defaults, key=lambda place: place["group"]["training.batch_size"])
    best = energy["places"][0]
    lines = [f"\nUp to the energy by phase: {energy['counted']} attempts of `{model}-speed.toml`, with revision {revision} of the trainer. Each cell trains on a fixed number of steps, so its numbers say nothing of accuracy. fp32 allows TF32 in matrix products and convolutions ([arithmetic](../models.md#on-a-gpu)).\n"]
    winners = {metric: named(rank["places"][0]["group"]) for metric, rank in ranks.items()}
    lines.append("## Best by energy and speed\n")
    lines.append(advice(energy["places"], winners, default) + "\n")
    lines.append("\n".join(f"- **Best by {METRICS[metric]}**: {winner}." for metric, winner in winners.items()))
    lines.append("")
    cells = {}
    for metric, rank in ranks.items():
        for place in rank["places"]:
            cells.setdefault(named(place["group"]), {})[metric] = place
    order = [named(place["group"]) for place in energy["places"]]
    lines.append(f'## Every cell\n\n    ledger best --model {model} --metric energy_per_sample --group-by {SPEED} --any-version --where "{speed}"\n')
    lines.append(table(["cell", "J a sample", "against the best", "samples/s", "energy × time, µJ·s a sample", "attempts"], [[name, of_place(cells[name]["energy_per_sample"]), against(cells[name]["energy_per_sample"]), of_place(cells[name]["throughput"]), of_place(cells[name]["edp_per_sample"], 1e6), cells[name]["energy_per_sample"]["sample"]["text"]] for name in order]))
    front = ledger.ask("pareto", "--model", model, "--metrics", "energy_per_sample,throughput", "--group-by", SPEED, "--any-version", "--where", speed)
    covers = {place["sample"].get("covers") for place in energy["places"]} - {None}
    if covers:
        lines.append("\n".join(f"Intervals of cells that ran on one GPU cover {text}." for text in sorted(covers)) + "\n")
    lines.append("± is half the width of the 95% interval. That of energy includes the sensor's ±5%, which cancels in ratios on the same GPUs. A ratio is over the GPUs that ran both cells if these are three or more or all of them. It can then differ a little from the quotient of the means. Otherwise the sensors' errors do not cancel, and its interval is wider. A range stands where there are too few units for an interval, and has no sensor error; with several GPUs, it is the range of the GPUs' means. With one attempt, ± is the sensor's uncertainty alone. Two GPUs suffice for the interval of a ratio, which assumes a normal distribution. A test needs three, or repetitions on both. Energy × time uses the time of the whole training, so it differs from J a sample divided by samples/s.\n")
    lines.append("## Pareto front of energy and speed\n")
    lines.append(table(["cell", "J a sample", "samples/s", "P(front)"], [front_row(point) for point in front["points"] if point["on_front"]]))
    effects = ledger.ask("effects", "--model", model, "--metric", "energy_per_sample", "--axes", SPEED, "--where", speed)
    lines.append("## Effect of each axis on the energy of a sample\n")
    lines.append("\n".join("- " + effect["sentence"].replace("; ", "\n  - ") for effect in effects["main"] + effects["interactions"]))
    # Each batch size has steps of its own, by the manifest.
    mixed = [one for one in effects.get("confounded", []) if one["field"] == "machine"]
    lines.extend(f"- confounded: {one['sentence']} ({one['separation']})" for one in mixed)
    lines.append("\n## Energy by phase of the best cell\n")
    lines.append(f"Attempt `{best['attempts'][0][:8]}`. `epoch` and `step` contain the warm-up, which the metrics above leave out. Phases within a step are timed in some steps only.\n")
    events = ledger.ask("events", best["attempts"][0])
    lines.append(table(["phase", "count", "time s", "power W", "energy J"], [[phase["phase"], str(phase["count"]), digits(phase["time_s"]), digits(phase.get("power_w")), energy_of(phase)] for phase in events["phases"]]))
    row = {"energy": winners["energy_per_sample"], "fastest": winners["throughput"], "attempts": str(energy["counted"]), "saving": saving(default), "default": named(default["group"])}
    return lines, row


def scaling(ledger, model, device):
    """The section on several GPUs that share each batch, and its rows of the summary; neither where there are no such attempts."""
    where = attempts_of(model, "gpus", device)
    hosts = dict.fromkeys((one["columns"]["gpu.0.uuid"], one["columns"]["program.revision"]) for one in ledger.attempts(where, "gpu.0.uuid", "program.revision"))
    if not hosts:
        return [], []
    lines = ["\n## Several GPUs\n", f"Attempts of `{model}-gpus.toml` in bf16, in which each GPU takes {SAMPLES_EACH[model]} samples of a step. Hosts and revisions of the trainer differ: one table for each.\n"]
    rows = []
    numbers = {host: number for number, host in enumerate(dict.fromkeys(host for host, _ in hosts), 1)}
    # The newest host comes first, and has the largest number.
    for host, revision in reversed(list(hosts)):
        number = numbers[host]
        ranks = {metric: ledger.best(model, f"{where} and gpu.0.uuid == '{host}' and program.revision == {revision}", metric, GPUS) for metric in ("throughput", "energy_per_sample")}
        gpus = {place["group"][GPUS]: {} for place in ranks["throughput"]["places"]}
        for metric, rank in ranks.items():
            for place in rank["places"]:
                gpus[place["group"][GPUS]][metric] = place
        cells = [[str(count), *(word for metric in ranks for word in (of_place(places[metric]), against(places[metric]))), places["throughput"]["sample"]["text"]] for count, places in sorted(gpus.items())]
        lines.append(table([f"GPUs of host {number}, revision {revision}", "samples/s", "against the best", "J a sample", "against the best", "attempts"], cells))
        covers = {place["sample"].get("covers") for rank in ranks.values() for place in rank["places"]} - {None}
        one, most = gpus[min(gpus)], gpus[max(gpus)]
        rows.append({**{metric: f"{of_place(one[metric])} → {of_place(most[metric])}" for metric in ranks}, "gpus": f"{max(gpus)} (host {number}, revision {revision})", "attempts": str(ranks["throughput"]["counted"])})
    lines.extend(f"± has the sensor's ±5%, too. Intervals of cells that ran on one GPU cover {text}." for text in sorted(covers))
    return lines, rows


def beside_pytorch(ledger, model, device):
    """The section that sets PyTorch's attempts beside ours of the same cells, and its rows of the summary; neither where there are none."""
    torch, ours = attempts_of(model, "pytorch", device), attempts_of(model, "speed", device)
    cell_of = lambda one: (one["columns"]["training.batch_size"], one["columns"]["training.precision"])
    machines = {}
    for one in ledger.attempts(torch, "training.batch_size", "training.precision", "gpu.0.uuid"):
        machines.setdefault(cell_of(one), set()).add(one["columns"]["gpu.0.uuid"])
    revisions = {}
    for one in ledger.attempts(ours, "training.batch_size", "training.precision", "gpu.0.uuid", "program.revision"):
        uuid, cell = one["columns"]["gpu.0.uuid"], cell_of(one)
        # Other GPUs would differ by more than the program.
        if uuid in machines.get(cell, ()):
            revisions.setdefault((cell, one["columns"]["program.revision"]), set()).add(uuid)
    lines, rows, shown = [], [], set()
    for (cell, revision), uuids in sorted(revisions.items(), key=lambda one: (one[0][0], -one[0][1])):
        batch, precision = cell
        own = f"`ledger`, revision {revision}"
        on = " or ".join(f"gpu.0.uuid == '{uuid}'" for uuid in sorted(uuids))
        where = f"(({torch}) or ({ours}) and program.revision == {revision}) and batch_size == {batch} and precision == {precision} and ({on})"
        ranks = {metric: ledger.best(model, where, metric, "pytorch") for metric in ("throughput", "energy_per_sample")}
        program_of = lambda place: f"PyTorch, `{mode}`" if (mode := place["group"].get("params.pytorch")) else own
        by = {metric: {program_of(place): place for place in rank["places"]} for metric, rank in ranks.items()}
        asked = f'ledger best --model {model} --metric throughput --group-by pytorch --any-version --where "{where}"'
        lines.append(f"`ledger` in revision {revision}, and PyTorch on the same GPUs:\n\n    {asked}\n")
        lines.append(table([f"batch {batch}, {precision}", "samples/s", "against the best", "J a sample", "against the best", "attempts"], [[program, *(word for metric in ranks for word in (of_place(by[metric][program]), against(by[metric][program]))), by["energy_per_sample"][program]["sample"]["text"]] for program in by["energy_per_sample"]]))
        if cell not in shown:
            theirs = next(place for place in ranks["energy_per_sample"]["places"] if program_of(place) != own)
            # One of the two is the least of all.
            other = by["energy_per_sample"][own] if not theirs.get("comparison") else theirs
            sides = [word for name in (own, program_of(theirs)) for word in (of_place(by["energy_per_sample"][name]), of_place(by["throughput"][name]))]
            rows.append([f"batch {batch}, {precision}", f"revision {revision}", *sides[:2], f"`{theirs['group']['params.pytorch']}`", *sides[2:], f"{program_of(other)}: {against(other)}"])
            shown.add(cell)
    if not lines:
        return [], None
    head = ["\n## Beside PyTorch\n", f"Attempts of `{model}-pytorch.toml`, and those of `{model}-speed.toml` on the same GPUs, measured in the same way. `compile` is `torch.compile`; `graphs` replays CUDA graphs; `fast`, where it stands, has channels-last tensors and a fused optimizer. The revision is that of `ledger`'s built-in trainer. Two GPUs or attempts have a range in place of ±, which has no sensor error. With two GPUs it is that of their means. Intervals of ratios assume a normal distribution. {OTHER_WORK[model]}\n"]
    return [*head, *lines], rows


IMAGES = "Both networks have 1,000 classes. PyTorch's images are noise and already on the GPU. `ledger` loads generated pictures of 10 classes from the host."
RECURRENT = "PyTorch's tokens are random and already on the GPU, and its optimizer is AdamW. `ledger` loads generated tokens from the host, and its optimizer is Adam. On one host four jobs ran at once; on the other one job ran alone, and took as long ([measurement](../measurements/2026-11-28-campaign.md))."
# How PyTorch's work differs from ours.
OTHER_WORK = {
    "resnet50": IMAGES,
    "vgg16": IMAGES,
    "bert": "PyTorch's tokens are random and already on the GPU. Its head computes all positions, with 30,522 words; `ledger`'s head computes the masked positions alone, which is 18% less arithmetic (69.8 against 85.5 GFLOP a sample).",
    "gpt2": "PyTorch's tokens are random and already on the GPU. `ledger` pads the vocabulary from 50,257 to 50,304 words.",
    "lstm": RECURRENT,
    "gru": RECURRENT,
    "yolov3": "PyTorch's images are noise and already on the GPU, and its objects are matched to anchors once, before the first step. `ledger` loads pictures from the host, and matches the objects of each batch.",
    "maskrcnn": "PyTorch's model is torchvision's. Its images are noise and already on the GPU, where proposals are matched and sampled, too. `ledger` loads pictures from the host, and matches and samples there. `fast` has the fused optimizer alone, and `compile` compiles the body and the pyramid. CUDA graphs cannot hold a number of regions that differs from step to step.",
    "dqn": "PyTorch computes the update alone, on random frames that are on the GPU already. A step of `ledger` has four steps in the game before the update, whose actions the network chooses, so the comparison is unfavourable to `ledger`.",
}


def front_row(point):
    group = {key: point["config"][key] for key in ("training.batch_size", "training.precision")}
    values = [interval(point["metrics"][name]["mean"], point["metrics"][name].get("half_width"), point["samples"][name]) for name in ("energy_per_sample", "throughput")]
    chance = point.get("p_front")
    return [named(group), *values, "–" if chance is None else f"{100 * chance:.0f}%"]


def energy_of(phase):
    energy = phase.get("energy")
    if not energy or energy.get("joules") is None:
        return "–"
    return f"{digits(energy['joules'])} ± {digits(100 * energy['uncertainty_j'] / energy['joules'], 2)}%"


def target_of(model):
    """The target that the manifest states: the condition on an attempt, its metric, and the words that keep configurations whose mean reaches it."""
    condition = re.search(r"--where '(.+)' --metric energy", (MANIFESTS / f"{model}-learns.toml").read_text(encoding="utf-8"))[1]
    limits = re.findall(r"(\w+) (>=|<=) ([\d.]+)", condition)
    words = [word for metric, way, value in limits for word in ("--at-least" if way == ">=" else "--at-most", f"{metric}={value}")]
    return condition, limits[0][0], words


def learning(ledger, model, device):
    """The section on the attempts that train to the target, and their row of the summary; neither where there are none."""
    learns = attempts_of(model, "learns", device)
    condition, metric, limits = target_of(model)
    # Exit code 1: there are no such attempts.
    if not ledger.best(model, learns, metric, RATE, good=(0, 1)).get("places"):
        return [], None
    ranks = {name: ledger.best(model, learns, name, RATE) for name in (metric, "energy", "train_time")}
    rates = {place["group"][RATE]: {} for place in ranks[metric]["places"]}
    for name, rank in ranks.items():
        for place in rank["places"]:
            rates[place["group"][RATE]][name] = place
    reached = {(attempt["columns"][RATE], attempt["seed"]) for attempt in ledger.attempts(f"{learns} and {condition}", RATE)}
    seeds = {rate: (sum(one == rate for one, _ in reached), places[metric]["sample"]["seeds"]) for rate, places in rates.items()}
    most = max(count for _, count in seeds.values())
    # Exit code 1: no mean reaches the target.
    least, fastest = (ledger.best(model, learns, name, RATE, *limits, good=(0, 1)).get("places", []) for name in ("energy", "train_time"))
    best = ranks[metric]["places"][0]
    outcome = f"{named(best['group'])}, {of_place(best, is_share=metric == 'accuracy')}"
    lines = ["\n## Learning\n", f"{ranks['energy']['counted']} attempts of `{model}-learns.toml`: each learning rate trains for the same number of steps. The target is `{condition}`. Columns compare with all rates, also those that miss the target.\n"]
    if least:
        lines.append(f"- **Least energy in J**, of the rates whose mean reaches the target: {first_of(least)}")
        lines.append(f"- **Least time in s**, of the same: {first_of(fastest)}")
    else:
        lines.append("- The mean of no rate reaches the target.")
    every = ", ".join(f"{rate}" + (f" ({seeds[rate][1]} seeds)" if seeds[rate][1] != most else "") for rate in sorted(rates) if seeds[rate][0] == seeds[rate][1]) or "none"
    lines.append(f"- **Rates with which every seed reaches it**: {every}.")
    lines.append(f"- **Best {metric}**: {outcome}.\n")
    lines.append(table(["rate", metric, "against the best", "seeds at the target", "energy J", "against the least", "training s", "against the fastest"], [[f"{rate}", *(word for name in ranks for word in rate_cells(rates[rate][name], name, metric, seeds[rate]))] for rate in sorted(rates)]))
    # The manifests had no shuffled order yet.
    if ledger.attempts(f"{learns} and {ROUND}"):
        lines.append("On each GPU the rates ran in ascending order, so their energy and time are confounded with the order.")
    if (model, device) == ("bert", H200):
        lines.append("Rate 0.0002 ran first on each GPU, in a piece of its own, so its energy and time are confounded with the order. The other two were shuffled.")
    lines.append("Interrupted attempts do not count.")
    row = {"condition": condition, "rates": str(len(rates)), "least": named(least[0]["group"]) if least else "none reaches it", "sure": surely(least), "outcome": outcome, "every": every, "attempts": str(ranks["energy"]["counted"])}
    return lines, row


def precisions(ledger, model, device):
    """The section on what a precision costs in accuracy, and its rows of the summary; neither where there are no such attempts."""
    runs = attempts_of(model, "precision", device)
    metric = target_of(model)[1]
    # Exit code 1: there are no such attempts.
    if not ledger.best(model, runs, metric, PRECISION, good=(0, 1)).get("places"):
        return [], []
    ranks = {name: ledger.best(model, runs, name, PRECISION) for name in (metric, "energy", "train_time")}
    of = {name: {place["group"][PRECISION]: place for place in rank["places"]} for name, rank in ranks.items()}
    (rate,) = {attempt["columns"][RATE] for attempt in ledger.attempts(runs, RATE)}
    lines = ["\n## Precision at one learning rate\n", f"{ranks[metric]['counted']} attempts of `{model}-precision.toml`, at rate {rate}: each precision trains for the same number of steps from the same seeds.\n"]
    lines.append(f'    ledger best --model {model} --metric {metric} --group-by precision --where "{runs}"\n')
    order = [place["group"][PRECISION] for place in ranks["energy"]["places"]]
    lines.append(table(["precision", metric, "against the best", "seeds", "energy J", "against the least", "training s", "against the fastest"], [[name, *(word for one in ranks for word in precision_cells(of[one][name], one, metric))] for name in order]))
    lines.append("A difference that is not significant is no proof of equality: its interval says how large it may be.")
    covers = {place["sample"].get("covers") for rank in ranks.values() for place in rank["places"]} - {None}
    lines.extend(f"\nIntervals of energies and times cover {text}." for text in sorted(covers))
    rows = [[name, of_place(of[metric][name], is_share=metric == "accuracy"), against(of[metric][name]), of_place(of["energy"][name]), against(of["energy"][name])] for name in order]
    return lines, [[metric, *row] for row in rows]


def precision_cells(place, name, metric):
    cells = [of_place(place, is_share=name == "accuracy"), against(place)]
    return [*cells, str(place["sample"]["seeds"])] if name == metric else cells


def rate_cells(place, name, metric, seeds):
    cells = [of_place(place, is_share=name == "accuracy"), against(place)]
    return [*cells, f"{seeds[0]} of {seeds[1]}"] if name == metric else cells


def first_of(places):
    """The first of a ranking, and each other one with its difference."""
    others = [f" {named(place['group']).capitalize()}: {against(place)}." for place in places[1:]]
    alike = " None differs significantly." if others and all(place["differs"] == "no" for place in places[1:]) else ""
    return f"{named(places[0]['group'])}, {of_place(places[0])}.{''.join(others) or ' No other rate reaches it.'}{alike}"


def surely(places):
    """Whether the first of a ranking differs from all others."""
    differs = {place["differs"] for place in places[1:]}
    return "–" if not places else "the only one" if not differs else "significant" if differs == {"yes"} else "not significant" if "no" in differs else "not tested"


H200 = "NVIDIA H200"
ON_H200 = f"gpu.0.name == '{H200}'"
ON_H100 = "gpu.0.name == 'NVIDIA H100 80GB HBM3'"
# Each piece of the campaign has a commit and a host of its own.
TWO_GPUS = f"{ON_H200} and git.commit == '903aab9f6c1488e883365db99c050fcedc50c473'"
FOUR_GPUS = f"{ON_H200} and git.commit == 'dff318ee627d09939dc283ab95f7311a1e40180c'"
THIRD_HOST = f"{ON_H200} and program.revision == 7"
ALL, BLOCKS = "all attempts", "GPUs as blocks"

# Each finding: its title, its text, and its questions. A question: what is compared, the model and manifest, the condition, the metric, the axis,
# and the value that has to be the better one if the claim is true (None: no claim, only a difference).
FINDINGS = [
    ("DQN at batch 32 needs more energy in bf16", "DQN at batch 32 keeps the GPU busy for a quarter of the time. A possible reason: bf16 adds kernels to each step, and its faster arithmetic shortens no wait. The mean speed is lower in bf16, too, but not significantly. At batch 128 no difference is significant. H200s, with revision 8, agree.", [
        (f"batch 32, {ALL}", "dqn-speed", "batch_size == 32", "energy_per_sample", "precision", "fp32"),
        (f"batch 32, {BLOCKS}", "dqn-speed", f"batch_size == 32 and {ROUND}", "energy_per_sample", "precision", "fp32"),
        (f"batch 32, {ALL}", "dqn-speed", "batch_size == 32", "throughput", "precision", "fp32"),
        (f"batch 32, {BLOCKS}", "dqn-speed", f"batch_size == 32 and {ROUND}", "throughput", "precision", "fp32"),
        (f"batch 128, {ALL}", "dqn-speed", "batch_size == 128", "energy_per_sample", "precision", "fp32"),
        (f"batch 128, {BLOCKS}", "dqn-speed", f"batch_size == 128 and {ROUND}", "energy_per_sample", "precision", "fp32"),
        (f"batch 32, {ALL}", "dqn-speed", "batch_size == 32", "gpu_util", "precision", None),
        *((f"batch {batch}, H200", "dqn-speed", f"batch_size == {batch} and {ON_H200} and program.revision == 8", metric, "precision", "fp32") for batch in (32, 128) for metric in ("energy_per_sample", "throughput")),
    ]),
    ("Mask R-CNN at batch 2 needs less energy and is slower in bf16", "Over all cells, one cell is the best by energy and by speed, for each of the nine models. At batch 2 the two disagree on H100s. On two H200s, with revision 5, bf16 was not slower at batch 2 (not tested).", [
        (f"batch 2, {ALL}", "maskrcnn-speed", "batch_size == 2", "energy_per_sample", "precision", "bf16"),
        (f"batch 2, {BLOCKS}", "maskrcnn-speed", f"batch_size == 2 and {ROUND}", "energy_per_sample", "precision", "bf16"),
        (f"batch 2, {ALL}", "maskrcnn-speed", "batch_size == 2", "throughput", "precision", "fp32"),
        (f"batch 2, {BLOCKS}", "maskrcnn-speed", f"batch_size == 2 and {ROUND}", "throughput", "precision", "fp32"),
    ]),
    ("A larger batch saves little for YOLOv3 and half for LSTM", "Largest against smallest batch in bf16. The host limited LSTM's steps in revision 2: with revision 7 on H200s its largest batch saves a third ([page](lstm-h200.md)). YOLOv3 keeps the GPU busy, and LSTM does not. VGG16 keeps it as busy as YOLOv3 and saves more, so [utilisation](../metrics.md) alone does not predict the saving. YOLOv3's blocks are the three GPUs that executed both cells.", [
        (f"YOLOv3, {ALL}", "yolov3-speed", "precision == bf16 and batch_size != 64", "energy_per_sample", "batch_size", "batch 128"),
        (f"YOLOv3, {BLOCKS}", "yolov3-speed", f"precision == bf16 and batch_size != 64 and {COMPLETE}", "energy_per_sample", "batch_size", "batch 128"),
        (f"LSTM, {ALL}", "lstm-speed", "precision == bf16 and batch_size != 64", "energy_per_sample", "batch_size", "batch 128"),
        (f"YOLOv3, {ALL}", "yolov3-speed", "precision == bf16 and batch_size != 64", "gpu_util", "batch_size", None),
        (f"LSTM, {ALL}", "lstm-speed", "precision == bf16 and batch_size != 64", "gpu_util", "batch_size", None),
    ]),
    ("The learning rate changes the result at nearly equal energy", "Each rate trains for the same number of steps, and the mean of each rate reaches the target. For GPT-2 no difference of the energy is significant. YOLOv3's best rate needs more energy on the three GPUs that executed all rates. On these GPUs the rates ran in ascending order, so the order may explain it as well. For YOLOv3 and Mask R-CNN (H200) the best rate is the largest one tested. A still larger one may be better.", [
        ("GPT-2", "gpt2-learns", None, "perplexity", "learning_rate", "rate 0.0004"),
        ("GPT-2", "gpt2-learns", None, "energy", "learning_rate", None),
        ("YOLOv3", "yolov3-learns", None, "accuracy", "learning_rate", "rate 0.001"),
        ("YOLOv3", "yolov3-learns", None, "energy", "learning_rate", None),
        ("Mask R-CNN, H200", "maskrcnn-learns", ON_H200, "accuracy", "learning_rate", "rate 0.0003"),
        ("Mask R-CNN, H200", "maskrcnn-learns", ON_H200, "energy", "learning_rate", None),
        (f"YOLOv3, seeds 1, 3 and 4, {BLOCKS}", "yolov3-learns", "seed != 2", "energy", "learning_rate", None),
    ]),
    ("Twice the learning rate spoils BERT-base, and the energy does not show it", "On H200s. Only the middle rate reaches the target. With twice that rate every seed ends at a perplexity of 477 or more, for an energy that differs by less than 1.5%. Rate 0.0002 ran first on each GPU, in a piece of its own; the other two rates were shuffled.", [
        ("BERT-base, H200", "bert-learns", ON_H200, "perplexity", "learning_rate", "rate 0.0002"),
        ("BERT-base, H200", "bert-learns", ON_H200, "energy", "learning_rate", None),
    ]),
    ("VGG16's largest learning rate needs the least energy for the same steps", "On H200s. It computes the same operations and is 1 to 2% faster, on each of four GPUs. In three of the four shuffled orders this rate came last; in the fourth it came second, with the same result. The cause is not known; the values that the kernels compute with differ.", [
        ("VGG16, H200", "vgg16-learns", ON_H200, "energy", "learning_rate", "rate 0.0002"),
        ("VGG16, H200", "vgg16-learns", ON_H200, "train_time", "learning_rate", "rate 0.0002"),
        ("VGG16, H200", "vgg16-learns", ON_H200, "accuracy", "learning_rate", None),
    ]),
    ("A second GPU cost energy in revision 2, even where the speed nearly doubled", "On H200s, bf16. Each GPU takes 64 (BERT-base) or 128 (ResNet-50) samples of a step. Three attempts of each cell. Revision 2: two GPUs on one host, four on another. With four GPUs the mean energies differ in the same way, but not significantly. Revision 7, on a third host: the means are 4 to 6% higher on two and on four GPUs. These differences are not significant, since the sensors of different GPUs are off by up to ±5%. Other hosts may differ.", [
        (f"{title}, revision {revision}, {count}", f"{model}-gpus", condition, metric, GPUS, claim if metric == "throughput" else "1 GPU")
        for title, model in (("BERT-base", "bert"), ("ResNet-50", "resnet50"))
        for revision, count, condition, claim in ((2, "1 or 2", TWO_GPUS, "2 GPUs"), (2, "1 or 4", FOUR_GPUS, "4 GPUs"), (7, "1 or 2", f"{THIRD_HOST} and hardware.gpus != 4", "2 GPUs"), (7, "1 or 4", f"{THIRD_HOST} and hardware.gpus != 2", "4 GPUs"))
        for metric in ("energy_per_sample", "throughput")
    ]),
    ("PyTorch's mode changes the energy of a sample by up to 2 times", "PyTorch on H200s, bf16: the same operations in each mode. On each of three (ResNet-50) or four GPUs each measured mode ran once, in another order. Compiled modes need the least. Revision 2 of our own trainer needed 1.36 times the energy of `graphs` for ResNet-50 and 1.41 times for GPT-2. For VGG16 the difference was not significant (0.987 to 1.014), and it needed a tenth less for BERT-base. Revision 7 needs less energy than `graphs` for each of the four, on the same four GPUs: 33% less for BERT-base, 13% for GPT-2, 9% for ResNet-50 and 1.2% for VGG16. It is faster for BERT-base (1.50 times), GPT-2 (1.16 times) and VGG16 (1.02 times). Each of these differences is significant. For ResNet-50 the speeds do not differ significantly. PyTorch ran first on some GPUs and last on the others. For LSTM and GRU, on five GPUs each, revision 2 is 1.6 times as fast as PyTorch's fastest mode. It needs 8% less energy than PyTorch's mode with the least. Both differences are significant. Revision 7 is 3.3 (LSTM, four GPUs) and 3.5 times (GRU, three) as fast as `graphs` on the same GPUs, and needs 0.65 and 0.62 of its energy. These differences are significant, too. Pages: [ResNet-50](resnet50-h200.md#beside-pytorch), [GPT-2](gpt2-h200.md#beside-pytorch), [VGG16](vgg16-h200.md#beside-pytorch), [BERT-base](bert-h200.md#beside-pytorch), [LSTM](lstm-h200.md#beside-pytorch), [GRU](gru-h200.md#beside-pytorch).", [
        (f"{title}, H200", f"{model}-pytorch", ON_H200, metric, "pytorch", "graphs")
        for title, model in (("ResNet-50", "resnet50"), ("VGG16", "vgg16"), ("BERT-base", "bert"))
        for metric in ("energy_per_sample", "throughput")
    ]),
    ("bf16 needs about half the energy, and four seeds show no cost in accuracy", "On H200s. Each precision trained for the same steps from the same four seeds. fp16 needs more energy than bf16. Whether a precision costs less than the intervals show stays open.", [
        (f"{title}, H200", f"{model}-precision", ON_H200, metric, "precision", "bf16" if metric == "energy" else None)
        for title, model, outcome in (("ResNet-50", "resnet50", "accuracy"), ("GPT-2", "gpt2", "perplexity"))
        for metric in (outcome, "energy")
    ]),
    ("Four seeds do not settle the learning rate of ResNet-50", "The means differ by many points, but so do the seeds of one rate. For LSTM (on H200s) the two larger rates do not differ significantly, and the smallest rate is significantly worse.", [
        ("ResNet-50", "resnet50-learns", None, "accuracy", "learning_rate", "rate 0.001"),
        ("LSTM, H200", "lstm-learns", ON_H200, "perplexity", "learning_rate", "rate 0.004"),
    ]),
    ("A significant difference that need not be an effect", "DQN needs more energy with rate 0.00025 than with 0.000125, for the same steps. The test of these two rates is significant, but they ran in ascending order. Rate 0.0005 scatters by 25% ([its page](dqn-h100.md#learning)), so nothing is significant beside it. Attempts of one run, repeated on the same GPU in another piece, differ by more (last table). The load of the host may explain the difference as well as the rate.", [
        ("DQN", "dqn-learns", "learning_rate < 0.0005", "energy", "learning_rate", None),
        ("DQN", "dqn-learns", "learning_rate < 0.0005", "train_time", "learning_rate", None),
    ]),
]


def findings(ledger):
    lines = ["# Findings that are not obvious\n", "Made by `docs/results/make.py` from the attempts in `ledger/reference/campaign`, on H100s where no H200 is named. They are of revision 2 of the trainer; the section on bf16 is of revision 5. Each row is an answer of `ledger best`.\n"]
    lines.append(f'- "{ALL}": of both series, on the GPUs of several hosts. If three or more GPUs ran both sides, only these are compared, as with blocks; else by Welch\'s test.')
    lines.append(f'- "{BLOCKS}": of the series in which each GPU executed each run once; tested by pairs.')
    lines.append("- A claim is supported if it is significant at 5%. p has Holm's correction over the cells that one call of `ledger best` compares. A model's page compares all cells, so its p can be larger.")
    lines.append("- p is not corrected over this page, and a p near 0.05 would not survive that. The blocks are part of all attempts. They do not confirm them a second time.")
    lines.append("- Energies are in J (`energy_per_sample`: J a sample), throughput in samples/s, times in s. A range \"a to b\" is that of the seeds' or GPUs' means, where there are too few for an interval.")
    lines.append("- A ratio compares the GPUs or seeds that both sides share, so it can differ from the quotient of the two means.")
    lines.append("- \"different\": significant, where no claim was made.")
    lines.append("- Intervals have no correction for several comparisons, so one may exclude 1× where p is above 0.05.")
    lines.append("- A difference that is not significant is no proof of equality: its interval says how large it may be.")
    for title, text, questions in FINDINGS:
        lines.extend([f"\n## {title}\n", text + "\n", table(["compared", "metric", "first", "other", "other against first", "p", "verdict"], [row for question in questions for row in answered(ledger, *question)])])
    lines.append("Runs that were executed twice, with rate 0.0005:\n")
    twice = ledger.attempts("experiment == 'dqn-learns' and learning_rate == 0.0005 and (seed == 2 or seed == 3)", "seed", "step_time", "energy")
    lines.append(table(["seed", "attempt", "step ms", "energy J"], [[str(one["columns"]["seed"]), f"`{one['attempt'][:8]}`", digits(1000 * one["columns"]["step_time"]), digits(one["columns"]["energy"], 4)] for one in sorted(twice, key=lambda one: one["seed"])]))
    return "\n".join(lines)


def answered(ledger, compared, experiment, condition, metric, axis, claimed):
    """A row for each configuration but the best."""
    device = None if ON_H200 in (condition or "") else ON_H100
    where = " and ".join(one for one in (f"experiment == '{experiment}'", device, condition) if one)
    if axis == "pytorch":
        # The GPUs on which each mode ran.
        ran = {}
        for one in ledger.attempts(where, "params.pytorch", "gpu.0.uuid"):
            ran.setdefault(one["columns"]["params.pytorch"], set()).add(one["columns"]["gpu.0.uuid"])
        on = " or ".join(f"gpu.0.uuid == '{uuid}'" for uuid in sorted(set.intersection(*ran.values())) if ran)
        where += f" and ({on})" if on else ""
    best, *others = ledger.best(experiment.split("-")[0], where, metric, axis)["places"]
    for place in others:
        verdict = {"yes": "different" if claimed is None else "supported" if named(best["group"]) == claimed else "contradicted", "no": "not significant", "untested": "not tested"}[place["differs"]]
        shown = [f"{named(one['group'])}: {of_place(one, is_share=metric in ('accuracy', 'gpu_util'))}" for one in (best, place)]
        yield [compared, metric, *shown, difference(place), probability(place), verdict]


def summary(pages):
    lines = ["# Results of the reference campaign\n", "Made by `docs/results/make.py` from the attempts in `ledger/reference/campaign`. [The campaign](../campaign.md) says how they are measured.\n"]
    lines.append("- [Findings that are not obvious](findings.md), each with its test")
    lines.append("- [Beside published findings](published.md)")
    lines.append("- [The built-in trainer beside PyTorch](pytorch.md), beyond the table below\n")
    lines.append("## Energy and speed of a sample\n")
    lines.append("fp32 allows TF32 in matrix products and convolutions ([arithmetic](../models.md#on-a-gpu)). Each interval is that of the saving between the two cells of its row. Each model's page has the test of the pair, or says that too few GPUs ran both. Attempts on H100s are of revision 2 of the trainer. " + f"Those on H200s are of {revisions_text()}. So do not compare the two GPUs. Each model's page also tests precision over all its cells.\n")
    lines.append(table(["model", "device", "least energy a sample", "most samples/s", "energy saved", "against", "attempts"], [[f"[{row['title']}]({row['file']})", row["device"], one["energy"], one["fastest"], one["saving"], one["default"], one["attempts"]] for row in pages if (one := row["speed"])]))
    beside = [[f"[{row['title']}]({row['file']}#beside-pytorch)", row["device"], *one] for row in pages for one in row["beside"] or []]
    if beside:
        lines += ["## Beside PyTorch\n", "`ledger` beside the mode of PyTorch that needs the least energy a sample. Of the trainer's revisions that ran on the same GPUs as PyTorch, the newest is shown. The model's page has the number of GPUs, the other modes, the tests, and how PyTorch's work differs.\n"]
        lines.append(table(["model", "device", "cell", "`ledger`", "J a sample", "samples/s", "PyTorch", "J a sample", "samples/s", "energy against the other one"], beside))
    scaled = [[f"[{row['title']}]({row['file']}#several-gpus)", row["device"], one["gpus"], one["throughput"], one["energy_per_sample"], one["attempts"]] for row in pages for one in row["scaled"]]
    if scaled:
        lines.append("## From one GPU to several\n")
        lines.append("bf16. Each GPU trains on 64 samples a step (BERT-base) or 128 (ResNet-50). The model's page has the tests.\n")
        lines.append(table(["model", "device", "GPUs", "samples/s: one → all", "J a sample: one → all", "attempts"], scaled))
    lines.append("## Learning rates at a fixed number of steps\n")
    lines.append("Training does not stop at the target. All models but DQN train in bf16. The accuracy and energy of each precision stand below. The energy is that of all steps. The least energy is among the rates whose mean reaches the target. All data are generated ([data](../data.md)). For YOLOv3 and Mask R-CNN, accuracy is the average precision of boxes, and `mask_ap` that of masks. [Models](../models.md) defines the targets.\n")
    lines.append(table(["model", "device", "target", "rates", "least energy", "against the others", "every seed reaches it", "best outcome", "attempts"], [[f"[{row['title']}]({row['file']}#learning)", row["device"], f"`{one['condition']}`", one["rates"], one["least"], one["sure"], one["every"], one["outcome"], one["attempts"]] for row in pages if (one := row["learned"])]))
    precise = [[f"[{row['title']}]({row['file']}#precision-at-one-learning-rate)", row["device"], *one] for row in pages for one in row["precise"]]
    if precise:
        lines.append("## Precision at one learning rate\n")
        lines.append("Whether bf16 costs accuracy: each precision trains from the same seeds at one learning rate. Each seed has the same data in each precision, so differences of outcomes are tested by pairs of seeds. A difference that is not significant is no proof of equality: its interval says how large it may be. Intervals of energies hold for the GPU that ran the attempts: each model's page says what they cover.\n")
        lines.append(table(["model", "device", "outcome", "precision", "its mean", "against the best", "energy J", "against the least"], precise))
    missing = sorted({row["title"] for row in pages} - {row["title"] for row in pages if row["learned"]})
    if missing:
        lines.append(f"No learning rates compared yet: {', '.join(missing)}.")
    return "\n".join(lines)


def main():
    words = [word for word in sys.argv[1:] if word != "--check"]
    check = len(words) < len(sys.argv) - 1
    program = str(Path(words[0] if words else ROOT / "target/release/ledger").resolve())
    if not Path(program).is_file():
        sys.exit(f"there is no program {program} (build it, or give its path: make.py [--check] LEDGER)")
    stale = []
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(program, folder)
        made, rows = {}, []
        for model, device in models(ledger):
            file = f"{model}-{device.split()[1].lower()}.md"
            made[file], row = page(ledger, model, device)
            rows.append({"file": file, "device": device, **row})
        made["README.md"] = summary(rows)
        made["findings.md"] = findings(ledger)
    for file, text in made.items():
        path = HERE / file
        text = text.rstrip("\n") + "\n"
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(f"docs/results/{file}")
    if stale:
        sys.exit(f"{', '.join(stale)}: not what the program answers (run docs/results/make.py)")


def models(ledger):
    """Each model, with each kind of GPU that it ran on."""
    return sorted({(attempt["model"], attempt["columns"]["gpu.0.name"]) for attempt in ledger.ask("ls", "--all", "--outcome", "finished", "--columns", "gpu.0.name")["attempts"]})


if __name__ == "__main__":
    main()
