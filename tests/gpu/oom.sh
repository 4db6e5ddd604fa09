#!/usr/bin/env bash
# Lets GPU memory run out and shows what is said and kept, from a binary that was built elsewhere.
# Usage: tests/gpu/oom.sh LEDGER OUT   (LEDGER: the binary, plain or .xz; OUT: a folder for logs). Changes no setting of the card.
set -uo pipefail
binary=$1
out=$2
mkdir -p "$out"
work=$(mktemp -d)
case $binary in
*.xz) python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), open(sys.argv[2], "wb"))' "$binary" "$work/ledger" ;;
*) cp "$binary" "$work/ledger" ;;
esac
chmod +x "$work/ledger"
export LEDGER_DIR="$work/book"
try() {
    limit=$1
    shift
    printf '\n== %s\n' "${*/$work\/}"
    began=$(date +%s.%N)
    timeout "$limit" "$@" >"$out/last.txt" 2>&1
    code=$?
    cat "$out/last.txt" >>"$out/all.txt"
    tail -n 30 "$out/last.txt"
    printf 'exit code %s after %.1f s\n' "$code" "$(python3 -c "import time; print(time.time() - $began)")"
}
# The large batch fails within seconds, the small one is trained: exit code 4.
try 300 "$work/ledger" run tests/gpu/oom.toml
try 30 "$work/ledger" ls
# Nothing is executed: the large batch is named as one without enough memory.
try 60 "$work/ledger" run tests/gpu/oom.toml
try 30 "$work/ledger" export --to csv --where 'failure == "oom"'
try 120 "$work/ledger" run tests/gpu/oom.toml --retry-oom --only 'batch_size == 4096'
try 30 "$work/ledger" show latest
try 30 "$work/ledger" verify
rm -rf "$work"
