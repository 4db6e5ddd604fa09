#!/usr/bin/env python3
"""Writes the pages of this folder from the attempts in ledger/reference/campaign, by the answers of `ledger --json`.

    docs/results/make.py [--check] [LEDGER]

LEDGER is the program (default: target/release/ledger). With --check the committed pages stay as they are; exit code 1 names those that differ
from what the program answers now. Every number of a page is one of `best`, `pareto`, `effects` and `events`; nothing is computed here.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CAMPAIGN = ROOT / "ledger/reference/campaign"
SPEED = "batch_size,precision"
TITLES = {"bert": "BERT-base", "dqn": "DQN", "gpt2": "GPT-2", "gru": "GRU", "lstm": "LSTM", "maskrcnn": "Mask R-CNN", "resnet50": "ResNet-50", "vgg16": "VGG16", "yolov3": "YOLOv3"}
METRICS = {"energy_per_sample": "energy", "throughput": "speed", "edp_per_sample": "energy × time"}


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


def digits(value, count=3):
    """A number with `count` significant digits, never in powers of ten."""
    if value is None:
        return "–"
    shown = f"{value:.{count}g}"
    return f"{float(shown):,.0f}" if abs(value) >= 1000 else (f"{float(shown):.10g}" if "e" in shown else shown)


def interval(mean, half_width, sample, scale=1):
    """A mean and the half-width of its interval; the range where the program gives no interval."""
    if sample.get("range"):
        low, high = sample["range"]
        return f"{digits(scale * low, 4)} to {digits(scale * high, 4)}"
    return f"{digits(scale * mean, 4)} ± {digits(100 * half_width / mean, 2)}%" if half_width is not None else f"{digits(scale * mean, 4)}"


def of_place(place, scale=1):
    return interval(place["mean"], place.get("half_width"), place["sample"], scale)


def against(place):
    """The ratio to the best, with its interval and p."""
    comparison = place.get("comparison")
    if not comparison:
        return "best"
    p = place.get("p_corrected")
    said = "not tested" if p is None else ("p < 0.001" if p < 0.001 else f"p = {p:.3f}")
    low, high = comparison.get("low"), comparison.get("high")
    between = "" if low is None else f" ({low:.3f} to {high:.3f})"
    return f"{comparison['estimate']:.3f}×{between}, {said}"


def saving(place):
    """What the best needs less than this place, with its interval where there is one."""
    comparison = place.get("comparison")
    if not comparison:
        return "0%"
    less = {name: 100 * (1 - 1 / comparison[name]) for name in ("estimate", "low", "high") if comparison.get(name) is not None}
    between = f" ({less['low']:.0f} to {less['high']:.0f}%)" if "low" in less else ""
    return f"{less['estimate']:.0f}%{between}"


def named(group):
    return ", ".join(f"{value}" if "precision" in key else f"batch {value}" for key, value in sorted(group.items()))


def table(head, rows):
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def ranking(ledger, model, device, metric):
    return ledger.ask("best", "--model", model, "--metric", metric, "--group-by", SPEED, "--where", f"gpu.0.name == '{device}'", "--top", "50")


def advice(places, winners, default):
    """What somebody who trains the model should take, from the means: the best, and what its two axes are worth."""
    best = places[0]
    batch, precision = (best["group"][key] for key in ("training.batch_size", "training.precision"))
    said = [f"Train with {named(best['group'])}."]
    if len(set(winners.values())) == 1:
        said.append("It needs the least energy a sample, and is the fastest.")
    else:
        others = ", ".join(f"{winners[metric]} by {METRICS[metric]}" for metric in winners if winners[metric] != named(best["group"]))
        said.append(f"It needs the least energy a sample. Best by something else: {others}.")
    if default is not best:
        said.append(f"Against {named(default['group'])}, the largest batch in fp32, it needs {saving(default)} less energy a sample.")
    for place in places[1:]:
        if (place.get("p_best") or 0) >= 0.05:
            said.append(f"By energy, {named(place['group'])} may be as good: it is the best with a probability of {100 * place['p_best']:.0f}%.")
    smaller = [place for place in places if place["group"]["training.precision"] == precision and place["group"]["training.batch_size"] < batch]
    if smaller:
        smallest = min(smaller, key=lambda place: place["group"]["training.batch_size"])
        said.append(f"If the batch has to be {smallest['group']['training.batch_size']}, the same precision needs {smallest['comparison']['estimate']:.2f} times the energy a sample.")
    return " ".join(said)


def page(ledger, model, device):
    title = TITLES.get(model, model)
    ranks = {metric: ranking(ledger, model, device, metric) for metric in METRICS}
    energy = ranks["energy_per_sample"]
    default = next(place for place in reversed(sorted(energy["places"], key=lambda place: place["group"]["training.batch_size"])) if place["group"]["training.precision"] == "fp32")
    best = energy["places"][0]
    lines = [f"# {title} on one {device}\n"]
    lines.append(f"Made by `docs/results/make.py` from {energy['counted']} attempts in `ledger/reference/campaign`. Each cell trains on a fixed number of steps, so this page says nothing of accuracy.\n")
    winners = {metric: named(rank["places"][0]["group"]) for metric, rank in ranks.items()}
    lines.append("## What to do\n")
    lines.append(advice(energy["places"], winners, default) + "\n")
    lines.append("\n".join(f"- **Best by {METRICS[metric]}**: {winner}." for metric, winner in winners.items()))
    lines.append("")
    cells = {}
    for metric, rank in ranks.items():
        for place in rank["places"]:
            cells.setdefault(named(place["group"]), {})[metric] = place
    order = [named(place["group"]) for place in energy["places"]]
    lines.append("## Every cell\n")
    lines.append(table(["cell", "J a sample", "against the best", "samples/s", "µJ·s a sample", "sample"], [[name, of_place(cells[name]["energy_per_sample"]), against(cells[name]["energy_per_sample"]), of_place(cells[name]["throughput"]), of_place(cells[name]["edp_per_sample"], 1e6), cells[name]["energy_per_sample"]["sample"]["text"]] for name in order]))
    front = ledger.ask("pareto", "--model", model, "--metrics", "energy_per_sample,throughput", "--group-by", SPEED, "--where", f"gpu.0.name == '{device}'")
    covers = {place["sample"].get("covers") for place in energy["places"]} - {None}
    if covers:
        lines.append("\n".join(f"Intervals cover {text}." for text in sorted(covers)) + "\n")
    lines.append("## Pareto front of energy and speed\n")
    lines.append(table(["cell", "J a sample", "samples/s", "P(front)"], [front_row(point) for point in front["points"] if point["on_front"]]))
    effects = ledger.ask("effects", "--model", model, "--metric", "energy_per_sample", "--axes", SPEED, "--where", f"gpu.0.name == '{device}'")
    lines.append("## Effect of each axis on the energy of a sample\n")
    lines.append("\n".join("- " + effect["sentence"].replace("; ", "\n  - ") for effect in effects["main"] + effects["interactions"]))
    # Each batch size has steps of its own, by the manifest.
    mixed = [one for one in effects.get("confounded", []) if one["field"] == "machine"]
    lines.extend(f"- confounded: {one['sentence']} ({one['separation']})" for one in mixed)
    lines.append("\n## Energy by phase of the best cell\n")
    lines.append(f"Attempt `{best['attempts'][0][:8]}`.\n")
    events = ledger.ask("events", best["attempts"][0])
    lines.append(table(["phase", "count", "time s", "power W", "energy J"], [[phase["phase"], str(phase["count"]), digits(phase["time_s"]), digits(phase.get("power_w")), energy_of(phase)] for phase in events["phases"]]))
    text = "\n".join(lines)
    return text, {"title": title, "energy": winners["energy_per_sample"], "speed": winners["throughput"], "attempts": energy["counted"], "saving": saving(default), "default": named(default["group"])}


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


def summary(pages):
    lines = ["# Results of the reference campaign\n", "Made by `docs/results/make.py` from the attempts in `ledger/reference/campaign`. [The campaign](../campaign.md) says how they are measured.\n"]
    lines.append(table(["model", "device", "least energy a sample", "most samples/s", "energy saved", "against", "attempts"], [[f"[{row['title']}]({row['file']})", row["device"], row["energy"], row["speed"], row["saving"], row["default"], str(row["attempts"])] for row in pages]))
    return "\n".join(lines)


def main():
    words = sys.argv[1:]
    check = words[:1] == ["--check"]
    program = str(Path(words[check:][0] if words[check:] else ROOT / "target/release/ledger").resolve())
    stale = []
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(program, folder)
        made, rows = {}, []
        for model, device in models(ledger):
            file = f"{model}-{device.split()[1].lower()}.md"
            made[file], row = page(ledger, model, device)
            rows.append({"file": file, "device": device, **row})
        made["README.md"] = summary(rows)
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
    found = set()
    for attempt in ledger.ask("ls", "--all")["attempts"]:
        if attempt["outcome"] == "finished":
            shown = ledger.ask("show", attempt["attempt"])["attempts"][0]
            found.add((attempt["model"], shown["facts"]["gpu.0.name"]))
    return sorted(found)


if __name__ == "__main__":
    main()
