#!/usr/bin/env bash
# On a machine with an NVIDIA GPU, with a program that was built elsewhere: calibrates the first card's sensors, then does one cell again and again and says how far the attempts are apart.
# Changes no setting of the card.
#
# Usage: repeatability.sh OUT LEDGER[.xz] [ATTEMPTS] [SECONDS_IN_ALL]
set -uo pipefail
out=$1 program=$2 attempts=${3:-10} limit=${4:-600}
work=$(mktemp -d)
python3 - "$program" "$work/ledger" <<'P'
import lzma, shutil, sys
source = lzma.open(sys.argv[1]) if sys.argv[1].endswith(".xz") else open(sys.argv[1], "rb")
with source, open(sys.argv[2], "wb") as file:
    shutil.copyfileobj(source, file)
P
chmod +x "$work/ledger"
export NO_COLOR=1 LEDGER_DIR="$work/book" CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0}"
cat > "$work/cell.toml" <<'M'
description = "one cell again and again"

[model]
name = "resnet50"

[data]
name = "shapes"
side = 224
train_count = 64000
eval_count = 256

[training]
optimizer = "momentum"
learning_rate = 0.01
batch_size = 128
precision = "bf16"
steps = 480

[hardware]
gpus = 1

[telemetry]
idle_s = 1

[protocol]
canary_every = 0
M
nvidia-smi --query-gpu=name,driver_version,power.limit,temperature.gpu --format=csv,noheader | head -n 1
timeout 60 "$work/ledger" calibrate --gpu 0 --seconds "${CALIBRATE_S:-20}" > "$out/calibration.txt" 2>&1
echo "calibrate: exit code $? at $SECONDS s"
cut -c1-200 "$out/calibration.txt"
"$work/ledger" calibrate --list --json > "$out/calibrations.json"
timeout -s INT -k 10 $((limit - SECONDS)) "$work/ledger" run "$work/cell.toml" --repeat "$attempts" > "$out/run.txt" 2>&1
echo "run: exit code $? at $SECONDS s"
tail -n 5 "$out/run.txt" | cut -c1-200
"$work/ledger" ls --all --json > "$out/attempts.json"
python3 - "$work/ledger" "$out/attempts.json" <<'P'
import json, statistics, subprocess, sys

program, listed = sys.argv[1:]
names = ("energy_per_sample", "step_time", "power_mean", "energy_total")
found = {name: [] for name in names}
for attempt in json.load(open(listed))["attempts"]:
    if attempt["outcome"] != "finished":
        continue
    shown = json.loads(subprocess.run([program, "show", attempt["attempt"], "--json"], capture_output=True, text=True, check=True).stdout)["attempts"][0]
    row = [(shown["metrics"].get(name) or {}).get("value") for name in names]
    facts = shown["facts"]
    stamp = {"validity": facts.get("validity"), "reasons": facts.get("validity.reasons"), "warnings": shown.get("warnings")}
    print(attempt["attempt"][:8], " ".join(f"{name} {value:.6g}" for name, value in zip(names, row) if value is not None), json.dumps(stamp)[:300])
    for name, value in zip(names, row):
        found[name] += [value] if value is not None else []
for name, values in found.items():
    if len(values) > 1:
        mean, deviation = statistics.mean(values), statistics.stdev(values)
        print(f"{name}: n {len(values)}, mean {mean:.6g}, coefficient of variation {100 * deviation / mean:.3f}%; without the first {100 * statistics.stdev(values[1:]) / statistics.mean(values[1:]) if len(values) > 2 else 0:.3f}%")
P
cp "$work/book/ledger.redb" "$out/"
