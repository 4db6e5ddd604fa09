#!/usr/bin/env bash
# Runs the quickstart on a machine with an NVIDIA GPU, from a binary that was built elsewhere, and shows what is recorded.
# Usage: tests/gpu/quickstart.sh LEDGER OUT   (LEDGER: the binary, plain or .xz; OUT: a folder for logs). Changes no setting of the card.
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
say() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }
try() {
    limit=$1
    shift
    say "$*"
    timeout "$limit" "$@" >"$out/last.txt" 2>&1
    code=$?
    cat "$out/last.txt" >>"$out/all.txt"
    tail -n 40 "$out/last.txt"
    echo "exit code $code"
}
try 60 "$work/ledger" doctor
try 30 "$work/ledger" run manifests/quickstart.toml --dry-run
try 400 "$work/ledger" run manifests/quickstart.toml --only 'model != mnist_cnn'
try 300 "$work/ledger" run manifests/quickstart.toml
try 30 "$work/ledger" ls
try 30 "$work/ledger" show latest
try 120 "$work/ledger" rerun latest~3
try 30 "$work/ledger" verify
try 30 "$work/ledger" best --model mnist_mlp --metric accuracy
say done
rm -rf "$work"
