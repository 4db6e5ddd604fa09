#!/usr/bin/env bash
# Exports a ledger in every form and reads it with the tools' own readers.
#
#     tests/readers/run.sh [LEDGER-BINARY [VENV]]
#
# The readers are installed from PyPI into VENV (about 1 GB, mostly MLflow's). Without --ledger there is one made here: a program that
# trains nothing, and a table of results.
set -euo pipefail
cd "$(dirname "$0")/../.."
ledger="$(realpath "${1:-target/release/ledger}")"
venv="${2:-}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

if [ -z "$venv" ]; then
    venv="$work/venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q pyarrow==25.0.1 mlflow==3.17.2 tensorboard==2.21.0 prometheus-client==0.26.0 mlperf-logging==4.1.68
fi

export LEDGER_DIR="$work/ledger"
cat > "$work/program.sh" <<'PROGRAM'
say() { echo "$1" >> "$LEDGER_EVENTS"; }
say '{"event":"plan","steps":6,"epochs":2,"samples_per_step":4}'
for epoch in 1 2; do
    say "{\"event\":\"phase_start\",\"name\":\"epoch\",\"index\":$epoch}"
    for i in 1 2 3; do
        step=$((3 * (epoch - 1) + i))
        say "{\"event\":\"phase_start\",\"name\":\"step\",\"index\":$step}"
        sleep 0.1
        say "{\"event\":\"phase_stop\",\"name\":\"step\",\"index\":$step}"
        say "{\"event\":\"step\",\"step\":$step,\"duration_ns\":100000000,\"values\":{\"loss\":$((100 - $1 * step))}}"
    done
    say "{\"event\":\"phase_stop\",\"name\":\"epoch\",\"index\":$epoch}"
    say "{\"event\":\"phase_start\",\"name\":\"eval\",\"index\":$epoch}"
    say "{\"event\":\"phase_stop\",\"name\":\"eval\",\"index\":$epoch}"
    say "{\"event\":\"step\",\"step\":$((3 * epoch)),\"values\":{\"eval_accuracy\":0.$epoch$1}}"
done
say "{\"event\":\"metric\",\"name\":\"accuracy\",\"value\":0.2$1}"
say '{"event":"metric","name":"own@8","value":1e300,"unit":"J"}'
say '{"event":"metric","name":"own","value":-0.1,"unit":"J"}'
[ "$1" != 3 ]
PROGRAM
cat > "$work/program.toml" <<PROGRAM
name = "it's \\"quoted\\", with a comma"

[model]
name = "toy.net"

[program]
command = ["sh", "$work/program.sh", "{x}"]

[params]
x = [1, 2, 3]

[hardware]
device = "cpu"
PROGRAM
printf 'net,power,seconds,note\na,100,10,"two\nlines"\na,0,9,zero\nb,nan,7,\n' > "$work/t.csv"
cat > "$work/t.toml" <<'MAP'
name = "a table"
date = 2024-05-31
[fields]
model.name = "{net}"
note = "{note}"
[metrics]
power_mean = { value = "{power}", unit = "W" }
epoch_time = { value = "{seconds}", unit = "s" }
energy = { formula = "power_mean * epoch_time", unit = "J" }
MAP
"$ledger" run "$work/program.toml" > "$work/log" 2>&1 || [ $? -eq 4 ] || { cat "$work/log"; exit 1; }
"$ledger" import table "$work/t.csv" --map "$work/t.toml" > /dev/null

"$venv/bin/python" tests/readers/check.py "$ledger" "$work/out"
