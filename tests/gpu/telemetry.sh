#!/usr/bin/env bash
# Shows on a machine with an NVIDIA GPU what is measured there, from a binary that was built elsewhere. Changes no setting of the card.
# Usage: tests/gpu/telemetry.sh LEDGER OUT STAGE...
#   LEDGER: the binary, plain or .xz; OUT: a folder for logs and kernels
#   STAGE: kernels FILE (imports kernels) | cold (doctor, quickstart, exports kernels) | warm | energy | rates | both | hidden
set -uo pipefail
binary=$1
out=$2
shift 2
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $binary in
*.xz) python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), open(sys.argv[2], "wb"))' "$binary" "$work/ledger" ;;
*) cp "$binary" "$work/ledger" ;;
esac
chmod +x "$work/ledger"
# KEEP names a folder in which the ledger outlives the script.
export LEDGER_DIR="${KEEP:-$work}/book" NO_COLOR=1
ledger="$work/ledger"
say() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }
# try SECONDS COMMAND...: the end of what it printed here, all of it in the log.
try() {
    local limit=$1 code
    shift
    say "$*"
    timeout "$limit" "$@" >"$work/last.txt" 2>&1
    code=$?
    { printf '\n== %s\n' "$*"; cat "$work/last.txt"; } >>"$out/all.txt"
    tail -n "${LINES_SHOWN:-25}" "$work/last.txt" | cut -c1-220
    echo "exit code $code after $SECONDS s"
}
metrics() { "$ledger" show latest --json 2>/dev/null | python3 -c '
import json, sys
attempt = json.load(sys.stdin)["attempts"][0]
for name in sys.argv[1:]:
    print(name, json.dumps(attempt["metrics"].get(name, attempt["facts"].get(name))))' "$@"; }
export_kernels() {
    rm -f "$out/h200.kernels"
    "$ledger" cache export -o "$out/h200.kernels"
    xz -3 -T0 "$out/h200.kernels"
    ls -l "$out"
}

while [ $# -gt 0 ]; do
    stage=$1
    shift
    case $stage in
    kernels)
        xz -dc "$1" >"$work/kernels"
        try 30 "$ledger" cache import "$work/kernels"
        shift
        ;;
    cold)
        try 60 "$ledger" doctor
        try 420 "$ledger" run manifests/quickstart.toml
        try 30 "$ledger" show latest
        export_kernels
        ;;
    warm)
        try 300 "$ledger" run manifests/quickstart.toml
        try 60 "$ledger" rerun latest
        try 30 "$ledger" verify
        export_kernels
        ;;
    energy)
        python3 tests/gpu/counter.py "$out/counter.txt" < <(while [ ! -e "$work/end" ]; do sleep 0.2; done) &
        logger=$!
        sleep 1
        LINES_SHOWN=8 try 200 "$ledger" run tests/gpu/minute.toml --repeat 1
        touch "$work/end"
        wait "$logger"
        "$ledger" show latest --json >"$out/minute.json"
        say "energy against the counter as another program read it"
        python3 tests/gpu/compare.py "$out/minute.json" "$out/counter.txt"
        LINES_SHOWN=60 try 30 "$ledger" show latest
        LINES_SHOWN=60 try 30 "$ledger" events latest
        LINES_SHOWN=80 try 30 "$ledger" telemetry latest
        "$ledger" telemetry latest --plot "$out/minute.svg"
        "$ledger" export latest -o "$out/minute.ledger"
        ;;
    rates)
        for hz in 0 10 100 100 10 0; do
            sed "s/^hz = .*/hz = $hz/; s/^epochs = .*/epochs = 25/; s/^idle_s = .*/idle_s = 0/" tests/gpu/minute.toml >"$work/rate.toml"
            LINES_SHOWN=3 try 120 "$ledger" run "$work/rate.toml" --repeat 1
            metrics step_time energy power_mean telemetry.cpu_ns telemetry.samples_due telemetry.samples_dropped
        done
        metrics telemetry.nvml.fields.calls telemetry.nvml.fields.ns telemetry.gpu.secondary_every
        ;;
    both)
        LINES_SHOWN=12 try 200 "$ledger" run tests/gpu/both.toml
        for model in softmax mnist_mlp mnist_cnn; do
            ids=$("$ledger" ls --json | python3 -c '
import json, sys
attempts = json.load(sys.stdin)["attempts"]
print(*[a["attempt"] for a in attempts if a["experiment"] == "both" and a["model"] == sys.argv[1]])' $model)
            # shellcheck disable=SC2086
            LINES_SHOWN=16 try 30 "$ledger" diff $ids
        done
        ;;
    hidden)
        LINES_SHOWN=4 CUDA_PATH=/nonexistent try 30 "$ledger" run tests/gpu/minute.toml --dry-run
        LINES_SHOWN=4 CUDA_VISIBLE_DEVICES= try 30 "$ledger" run tests/gpu/minute.toml --dry-run
        LINES_SHOWN=4 CUDA_VISIBLE_DEVICES=$(nvidia-smi --query-gpu=uuid --format=csv,noheader | head -1) try 30 "$ledger" run tests/gpu/minute.toml --dry-run
        LINES_SHOWN=4 LEDGER_NVML=/nonexistent/libnvidia-ml.so.1 try 30 "$ledger" run tests/gpu/minute.toml --dry-run
        CUDA_PATH=/nonexistent try 30 "$ledger" doctor
        ;;
    esac
done
say done
