#!/usr/bin/env bash
# Builds a wheel into OUT, installs it into an empty virtual environment, and runs the tutorial and the package's tests there.
#
#     tests/readers/python.sh TOOLS-VENV OUT [OPTIONS OF maturin build]
#
# Without options the wheel is one of a release, without the trainer. `--release --features train` adds the trainer. `--profile dev` takes half the
# time to compile; its program is slow. zig links it, so that it runs with glibc 2.28 and later. maturin and zig are installed into TOOLS-VENV, and what the tests compare with into a second one beside it (TensorBoard's
# writer, MLflow, Trackio, W&B, Aim, pyarrow).
# Without PyPI, this says so and is no failure.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -ge 2 ] || { printf 'usage: %s TOOLS-VENV OUT [OPTIONS OF maturin build]\n' "$0" >&2; exit 2; }
tools="$(realpath -m "$1")"
out="$(realpath -m "$2")"
shift 2
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
[ $# -gt 0 ] || set -- --release
pip() { timeout 300 "$1/bin/pip" install -q --retries 1 --timeout 15 --disable-pip-version-check "${@:2}"; }

if ! { "$tools/bin/maturin" --version && "$tools/bin/python" -m ziglang version; } >/dev/null 2>&1; then
    if ! python3 -m venv "$tools" || ! pip "$tools" maturin==1.16.0 ziglang==0.17.1; then
        printf 'skipped: maturin cannot be installed here\n'
        exit 0
    fi
fi
(cd python && PATH="$tools/bin:$PATH" maturin build --quiet --zig --compatibility manylinux_2_28 --no-default-features --out "$work" "$@")
mkdir -p "$out"
wheel="$(echo "$work"/*.whl)"
printf 'wheel: %s, %s bytes\n' "${wheel##*/}" "$(stat -c %s "$wheel")"
case "$wheel" in *-py3-none-manylinux_2_28_*.whl) ;; *) printf 'expected a wheel for manylinux_2_28\n'; exit 1 ;; esac
[ "$(stat -c %s "$wheel")" -lt 100000000 ] || { printf 'a file on PyPI has less than 100 MB\n'; exit 1; }
cp "$wheel" "$out"

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check --no-index "$wheel"
export HOME="$work" LEDGER_RESTORE="$work/restore"
unset LEDGER_DIR LEDGER_BIN LEDGER_EVENTS
python="$work/venv/bin/python"
"$python" -m ledger_events --version
# The wheel's own program is found, and it alone is.
found="$("$python" -c 'import ledger_events as ledger; print(ledger.find_ledger_bin())')"
[ "$found" = "$work/venv/bin/ledger" ] || { printf 'find_ledger_bin gives %s\n' "$found"; exit 1; }
PATH="$work/venv/bin:$PATH" "$python" tests/readers/tutorial.py docs/guides/python.md "$work/tutorial"

beside="$tools-beside"
needs='import tensorboardX, mlflow, trackio, wandb, pyarrow, pandas'
if ! "$beside/bin/python" -c "$needs" 2>/dev/null; then
    python3 -m venv "$beside" && pip "$beside" tensorboardX==2.6.5 mlflow==3.17.2 trackio==0.43.0 wandb==0.31.0 pyarrow pandas ||
        { printf 'skipped: the trackers cannot be installed here\n'; exit 0; }
    # It has no wheel for the newest versions of Python.
    pip "$beside" aim==3.29.1 || printf 'Aim cannot be installed: its test will be skipped\n'
fi
LEDGER_TEST_BIN="$found" "$beside/bin/python" -B -m unittest discover --start-directory python/tests
