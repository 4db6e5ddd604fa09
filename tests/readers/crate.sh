#!/usr/bin/env bash
# Exports a research object and has the public validator (roc-validator, from PyPI) look at it.
#
#     tests/readers/crate.sh LEDGER-BINARY [VENV]
#
# The validator is installed into VENV (80 MB). Where that cannot be done, this says so and is no failure.
set -euo pipefail
cd "$(dirname "$0")/../.."
ledger="$(realpath "$1")"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
venv="${2:-$work/venv}"

pins='from importlib.metadata import version as v; assert (v("roc-validator"), v("rocrate")) == ("0.13.0", "0.13.0")'
pip() { timeout 240 "$venv/bin/pip" install -q --retries 1 --timeout 15 "$@"; }
if ! "$venv/bin/python" -c "$pins" 2>/dev/null; then
    if ! python3 -m venv "$venv" || ! pip roc-validator==0.13.0 || ! pip --no-deps rocrate==0.13.0; then
        printf 'skipped: roc-validator cannot be installed here\n'
        exit 0
    fi
fi

export LEDGER_DIR="$work/ledger"
cat > "$work/program.sh" <<'PROGRAM'
say() { echo "$1" >> "$LEDGER_EVENTS"; }
for step in 1 2 3; do
    say "{\"event\":\"step\",\"step\":$step,\"duration_ns\":100000000,\"values\":{\"loss\":$((100 - $1 * step))}}"
done
say "{\"event\":\"metric\",\"name\":\"accuracy\",\"value\":0.2$1}"
say '{"event":"metric","name":"own@8","value":1e300,"unit":"J"}'
[ "$1" != 2 ]
PROGRAM
cat > "$work/program.toml" <<PROGRAM
name = "it's \\"quoted\\", with a comma"
[model]
name = "toy.net"
[program]
command = ["sh", "$work/program.sh", "{x}"]
[params]
x = [1, 2]
[hardware]
device = "cpu"
PROGRAM
# The second one fails, and is recorded so.
OMP_NUM_THREADS=3 "$ledger" run "$work/program.toml" > "$work/log" 2>&1 || [ $? -eq 4 ] || { cat "$work/log"; exit 1; }
# And one in an image: a header and nothing else, with what starts it on the host after all, since a record is all that is wanted.
{ printf '#!/usr/bin/env run-singularity\n\0SIF_MAGIC\00001\00002\0'; head -c 82 /dev/zero; } > "$work/image.sif"
cat > "$work/apptainer" <<'TOOL'
#!/bin/sh
[ "$1" = --version ] && echo 'apptainer version 1.4.5' && exit
for word in "$@"; do
    case "$word" in *'destination=/.ledger/events'*) events="${word#*source=}"; events="${events%%\"*}" ;; esac
done
while [ "${1%.sif}" = "$1" ]; do shift; done
shift
LEDGER_EVENTS="$events" exec "$@"
TOOL
chmod +x "$work/apptainer"
sed -e 's/\[1, 2\]/[3]/' "$work/program.toml" > "$work/contained.toml"
printf '[container]\nimage = "image.sif"\n' >> "$work/contained.toml"
LEDGER_CONTAINER_COMMAND="$work/apptainer" "$ledger" run "$work/contained.toml" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$ledger" export --ro-crate "$work/all" --author 'Ada Lovelace' --license https://spdx.org/licenses/CC-BY-4.0
"$ledger" export latest --ro-crate "$work/one" --author 'Ada Lovelace'
"$venv/bin/python" tests/readers/crate.py "$work/all" "$work/one"
# What is in it can be taken in again.
LEDGER_DIR="$work/second" "$ledger" import "$work"/all/attempts/*/attempt.ledger > /dev/null
