#!/usr/bin/env bash
# Runs all fuzz targets at the same time, each in JOBS processes, and prints what they saw.
# Usage: fuzz/run.sh TARGETS CORPUS OUT SECONDS [JOBS]
#   TARGETS: the folder of the built targets; CORPUS: a folder with a folder of inputs for each target, to which new inputs are added
#   OUT: a folder for logs, and for inputs that fail, take longer than 10 s or more than 2 GiB
set -uo pipefail
[ $# -ge 4 ] || { sed -n '2,/^set -u/p' "$0" | sed -n 's/^# \{0,1\}//p' >&2; exit 2; }
targets=$1 corpus=$2 out=$3 seconds=$4 jobs=${5:-1}
mkdir -p "$out"
for target in chunk event expression journal manifest pack record; do
    mkdir -p "$corpus/$target" "$out/$target"
    (
        TIMEFORMAT='processor seconds: %U %S'
        time "$targets/$target" "$corpus/$target" -fork="$jobs" -artifact_prefix="$out/$target/" -max_total_time="$seconds" \
            -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 -max_len=8192
    ) >"$out/$target.log" 2>&1 &
done
wait
printf '%-12s %14s %7s %7s %16s %7s\n' target executed edges inputs 'processor hours' faults
for target in chunk event expression journal manifest pack record; do
    last=$(grep -a '^#[0-9]*: cov:' "$out/$target.log" | tail -n 1)
    hours=$(sed -n 's/^processor seconds: //p' "$out/$target.log" | awk '{ printf "%.2f", ($1 + $2) / 3600 }')
    printf '%-12s %14s %7s %7s %16s %7s\n' "$target" "$(sed 's/^#\([0-9]*\):.*/\1/' <<<"$last")" \
        "$(sed 's/.*cov: \([0-9]*\).*/\1/' <<<"$last")" "$(find "$corpus/$target" -type f | wc -l)" "$hours" "$(find "$out/$target" -type f | wc -l)"
done
