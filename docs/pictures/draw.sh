#!/usr/bin/env bash
# Draws the pictures of this folder from committed records of H200: attempts in ledger/reference.
#
#     docs/pictures/draw.sh [--check] [LEDGER]
#
# LEDGER is the program (default: target/release/ledger). With --check the committed pictures stay as they are; exit code 1 names those that
# differ from what the program draws now.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="$here/../.."
check=no
if [ "${1:-}" = --check ]; then
    check=yes
    shift
fi
program="$(realpath "${1:-$root/target/release/ledger}")"

drawn="$(mktemp -d)"
trap 'rm -rf "$drawn"' EXIT
mkdir "$drawn/ledger" "$drawn/campaign"
export LEDGER_DIR="$drawn/ledger"
"$program" import "$root/ledger/reference/mnist_cnn-8197c4ec.ledger" >/dev/null
"$program" plot curves 8197c4ec --series gpu.0.power_instant --over time -o "$drawn/h200-power.svg" >/dev/null
"$program" plot energy 8197c4ec -o "$drawn/h200-energy.svg" >/dev/null
export LEDGER_DIR="$drawn/campaign"
"$program" import "$root/ledger/reference/campaign/resnet50-h200.ledger" >/dev/null
"$program" plot distribution --model resnet50 --where "experiment == 'resnet50-speed' and program.revision == 7" --metric energy_per_sample --by batch_size,precision \
    -o "$drawn/h200-answer.svg" >/dev/null
"$program" plot pareto --model resnet50 --where "experiment != 'resnet50-precision'" --metrics energy_per_sample,throughput --group-by batch_size,precision,gpus,pytorch,program.revision --any-version \
    -o "$drawn/h200-front.svg" >/dev/null

stale=0
for picture in h200-answer.svg h200-power.svg h200-energy.svg h200-front.svg; do
    if [ "$check" = no ]; then
        cp "$drawn/$picture" "$here/$picture"
    elif ! cmp -s "$drawn/$picture" "$here/$picture"; then
        printf '%s is stale (run docs/pictures/draw.sh)\n' "docs/pictures/$picture" >&2
        stale=1
    fi
done
exit "$stale"
