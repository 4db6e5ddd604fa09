#!/usr/bin/env bash
# The long form of the attacks that `cargo test` makes in short: kills at random and before each system call, flipped bits, failing and full disks,
# damaged journals and packs, many processes at once, planted secrets, foreign commands.
# Usage: tests/attack.sh TESTS OUT SECONDS [JOBS]
#   TESTS: a folder with the test programs `integration`, `ledger`, `wire` and `host`, as `cargo test --release --no-default-features --no-run` builds
#   and names them
#   OUT: a folder for what they print; SECONDS: the limit of each attack; JOBS: how many kill at random at the same time (2)
# ROUNDS in the environment: random kills of each job (1000). CASES: damaged inputs of each property (20000). A full disk needs root.
set -uo pipefail
[ $# -ge 3 ] || { sed -n '2,/^set -u/p' "$0" | sed -n 's/^# \{0,1\}//p' >&2; exit 2; }
tests=$(realpath "$1") out=$2 seconds=$3 jobs=${4:-2}
mkdir -p "$out"
out=$(realpath "$out")
failed=$out/failed
rm -f "$failed"
# attack NAME PROGRAM TESTS...: all in the background.
attack() {
    local name=$1 program=$2
    shift 2
    (
        began=$SECONDS
        if timeout "$seconds" "$tests/$program" "$@" --nocapture >"$out/$name.txt" 2>&1; then
            verdict=held
        else
            verdict="FAILED or not done in time"
            echo "$name" >>"$failed"
        fi
        printf '%-14s %4d s  %s\n' "$name" $((SECONDS - began)) "$verdict"
    ) &
}
for job in $(seq "$jobs"); do
    LEDGER_TEST_SEED=$job LEDGER_TEST_ROUNDS=${ROUNDS:-1000} attack "kills-$job" integration campaign::killed
done
LEDGER_TEST_CALLS=all attack calls integration campaign::calls
LEDGER_TEST_KILLS=200 attack sweeps integration crash::
LEDGER_TEST_PROCESSES=64 attack processes integration campaign::many
LEDGER_TEST_FULL=200 attack full-disk integration campaign::a_disk
LEDGER_TEST_FAULTS=160 attack disk ledger store::tests::disk
attack flips ledger store::tests::flips
PROPTEST_CASES=${CASES:-20000} attack journals ledger journal::tests
PROPTEST_CASES=${CASES:-20000} attack packs wire
attack secrets host secrets:: git::
attack foreign integration trust:: identity::
wait
grep -h ' kills: \|^[a-z_]*: [0-9]* changes\|^\(run\|sweep\|merge\|import\|tag\|note\|hide\) ' "$out"/*.txt
[ ! -e "$failed" ] || { echo "failed: $(tr '\n' ' ' <"$failed")"; exit 1; }
echo "all of it held"
