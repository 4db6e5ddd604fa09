#!/usr/bin/env bash
# One piece of a campaign on a machine with an NVIDIA GPU, from a binary that was built elsewhere. Earlier pieces are merged first, so that only
# missing attempts are executed. Changes no setting of the GPU.
# Usage: tests/gpu/campaign.sh LEDGER OUT SECONDS MANIFEST[@EXPR]... [-- EARLIER...]
#   LEDGER: the binary, plain or .xz; OUT: a folder that gets campaign.ledger, campaign.kernels.xz, calibrations.tgz and log.txt
#   SECONDS: when to interrupt what runs and to pack; allow 30 s more. EXPR: as `ledger run --only`; `{job}` in it is the number of the GPU's job, from 1
#   REPEAT in the environment: how many more attempts each run gets, sealed or not, of each of JOBS; without it the manifest decides
#   JOBS in the environment: so many GPUs, each with `ledger run`s of its own, which begin with another manifest and take what the others have not begun (1)
#   EARLIER: what an earlier piece left in its OUT: campaign.ledger, campaign.kernels.xz, calibrations.tgz
# Works in $WORK, /tmp/ledger-campaign by default, and removes it. Imported kernels need the same place on each machine: compiled kernels contain its path.
set -uo pipefail
binary=$1 out=$2 seconds=$3
shift 3
manifests=() earlier=() repeat=()
[ -z "${REPEAT:-}" ] || repeat=(--repeat "$REPEAT")
while [ $# -gt 0 ] && [ "$1" != -- ]; do manifests+=("$1"); shift; done
[ $# -gt 0 ] && shift && earlier=("$@")
[ "${#manifests[@]}" -gt 0 ] || { sed -n '2,/^set -u/p' "$0" | sed -n 's/^# \{0,1\}//p' >&2; exit 2; }
mkdir -p "$out"
work=${WORK:-/tmp/ledger-campaign}
mkdir "$work" || exit
trap 'rm -rf "$work"' EXIT
case $binary in
*.xz) python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), open(sys.argv[2], "wb"))' "$binary" "$work/ledger" ;;
*) cp "$binary" "$work/ledger" ;;
esac
chmod +x "$work/ledger"
export LEDGER_DIR="$work/book" NO_COLOR=1
mkdir -p "$LEDGER_DIR"
say() { printf '\n== %s (%s s)\n' "$*" "$SECONDS" | tee -a "$out/log.txt"; }
# try SECONDS LINES COMMAND...: all that it prints goes into the log, so many of its last lines here.
try() {
    local limit=$1 lines=$2 code last=$work/last.$BASHPID
    shift 2
    timeout --signal=INT --kill-after=30 "$limit" "$@" >"$last" 2>&1
    code=$?
    [ "$code" = 0 ] || echo "exit code $code" >>"$last"
    cat "$last" >>"$out/log.txt"
    tail -n "$lines" "$last" | cut -c1-200
    return "$code"
}
for piece in ${earlier[@]+"${earlier[@]}"}; do
    say "earlier: $piece"
    case $piece in
    *.kernels.xz) xz -dc "$piece" >"$work/kernels" && try 60 3 "$work/ledger" cache import "$work/kernels" ;;
    *.tgz) tar -xzf "$piece" -C "$LEDGER_DIR" ;;
    *) try 60 3 "$work/ledger" unpack "$piece" ;;
    esac
done
say "doctor"
try 60 20 "$work/ledger" doctor
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
if [ -n "$driver" ] && ! "$work/ledger" calibrate --list 2>/dev/null | grep -qF "$driver"; then
    say "calibrate"
    for gpu in $(seq 0 $((${JOBS:-1} - 1))); do
        timeout 60 "$work/ledger" calibrate --gpu "$gpu" --seconds 20 >"$work/calibrate.$gpu" 2>&1 || echo "exit code $?" >>"$work/calibrate.$gpu" &
    done
    wait
    cat "$work"/calibrate.* | tee -a "$out/log.txt" | cut -c1-200
fi
# All manifests, one after the other, on one GPU. Each job begins with another manifest: two jobs never execute one run at the same time, but wait for each other.
one_job() {
    local gpu=$1 first entry manifest left only
    [ -z "${JOBS:-}" ] || export CUDA_VISIBLE_DEVICES=$gpu
    first=$((gpu % ${#manifests[@]}))
    for entry in "${manifests[@]:first}" "${manifests[@]:0:first}"; do
        manifest=${entry%%@*}
        only=()
        [ "$entry" = "$manifest" ] || only=(--only "${entry#*@}")
        only=("${only[@]//\{job\}/$((gpu + 1))}")
        left=$((seconds - SECONDS))
        [ "$left" -gt 20 ] || { say "no time is left"; return; }
        say "job $((gpu + 1)): $manifest ${only[*]-}, at most $left s"
        # The first interrupt lets the attempt end at its next step; everything so far is kept.
        try "$left" 40 "$work/ledger" run "$manifest" ${only[@]+"${only[@]}"} ${repeat[@]+"${repeat[@]}"}
    done
}
for gpu in $(seq 0 $((${JOBS:-1} - 1))); do
    one_job "$gpu" &
done
wait
say "pack"
timeout 30 "$work/ledger" ls --all --json >"$work/ls.json"
ids=$(python3 -c 'import json, sys; print(*sorted({row["attempt"] for row in json.load(open(sys.argv[1]))["attempts"]}))' "$work/ls.json")
rm -f "$out/campaign.ledger" "$out/campaign.kernels.xz" "$out/calibrations.tgz"
if [ -n "$ids" ]; then
    # shellcheck disable=SC2086 # ids are words
    try 120 3 "$work/ledger" pack $ids -o "$out/campaign.ledger"
fi
[ ! -d "$LEDGER_DIR/calibrations" ] || tar -czf "$out/calibrations.tgz" -C "$LEDGER_DIR" calibrations
# Those of earlier pieces may be of other GPUs or of another version of the program: the newest attempt says which are its own.
# No attempt may have kernels, and the name of the column is unknown then.
key=$(timeout 30 "$work/ledger" ls --all --columns kernel_cache.key --json 2>>"$out/log.txt" | python3 -c 'import json, sys; rows = json.loads(sys.stdin.read() or "{\"attempts\": []}")["attempts"]; print(*max([(row["started_unix_ms"], row["columns"]["kernel_cache.key"]) for row in rows if row.get("columns")] or [()])[1:])')
if [ -n "$key" ]; then
    say "kernels"
    try 30 5 "$work/ledger" cache ls
    rm -f "$work/kernels"
    try 30 2 "$work/ledger" cache export "$key" -o "$work/kernels" && xz -2 -T0 -c "$work/kernels" >"$out/campaign.kernels.xz"
fi
say "done"
ls -l "$out"
