#!/usr/bin/env bash
# All that is to be measured on a machine with several NVIDIA GPUs, in parts of ten minutes at most, each by itself, by programs that were built elsewhere. Changes no setting of the cards.
#
# Usage: several.sh FOLDER OUT PART...
#
#   FOLDER   holds ledger.xz: `cargo build --release`, stripped; for `tests` also tests.xz and native.xz, which `cargo test --release --lib --no-run` builds of ledger-train and ledger-native; and maybe h200.kernels.xz, which a part has brought along before
#   OUT      folder for logs and tables, and for h200.kernels.xz, from which the next part goes on
#   tests    refusals, and the crate's tests that have to do with several GPUs
#   equal    the same losses on one and on several
#   faults   ranks that fail, those first that no table has yet
#   small    a model that has no room on one card
#   stages   pipelines of BERT, GPT-2, ResNet-50 and VGG16
#   images   ResNet-50 and VGG16 at 32, 64 and 128 rows on each GPU, in fp32 and bf16, of most GPUs first
#   words    BERT and GPT-2 at the same
#   torch    what NCCL reaches with a bucket, and PyTorch's DistributedDataParallel at all of these cells
#   all      these, one after the other
#
# COUNTS=1,4 takes other numbers of GPUs than 1, 2 and 4, CUDA_VISIBLE_DEVICES=4,5,6,7 other GPUs, SECONDS_EACH=900 other limits of a part, LIMIT=300 others of a run (120), TRY=1 prints what would be done. The exit code is 1 if anything went wrong, which the last lines of a part in OUT
# name; the other parts are done all the same.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$1 out=$2
shift 2
seconds=${SECONDS_EACH:-585}
# What a part needs behind its last run: a table, and kernels that are packed.
reserve=30
failed=0
export LIMIT=${LIMIT:-120}
mkdir -p "$out"

# Cells of a model: MODEL STEPS_BF16 STEPS_FP32 STEPS_AT_128. Of the longest first: what is not reached is then the cheapest to do again.
cells() {
    for given in "$@"; do
        read -r model bf16 fp32 large <<<"$given"
        for batch in 128 64 32; do
            printf '%s:%s:bf16:%s\n%s:%s:fp32:%s\n' "$model" "$batch" "$([ "$batch" = 128 ] && echo "$large" || echo "$bf16")" "$model" "$batch" "$([ "$batch" = 128 ] && echo "$large" || echo "$fp32")"
        done
    done | paste -sd,
}
images=$(cells "resnet50 110 80 80" "vgg16 80 60 60")
words=$(cells "bert 110 80 80" "gpt2 60 60 50")

# A script of this folder, which begins nothing more when its time is nearly up, and is ended with its part; what it printed also lies in OUT.
measured() {
    local limit=$1 name=$2
    shift 2
    if [ -n "${TRY:-}" ]; then
        printf '%s s %s: %s\n' "$limit" "$name" "$*"
        return
    fi
    timeout --kill-after 5 "$limit" env PYTHONUNBUFFERED=1 DEADLINE=$((limit - reserve)) python3 "$here/$@" 2>&1 | tee -a "$out/$name.txt" || failed=1
}

# Stages with the program, and with the kernels that the part before has tuned.
program() {
    local limit=$1 name=$2 kernels=()
    shift 2
    for place in "$out" "$folder"; do
        if [ -e "$place/h200.kernels.xz" ]; then
            kernels=(kernels "$place/h200.kernels.xz")
            break
        fi
    done
    measured "$limit" "$name" parallel.py "$out" facts ledger "$folder/ledger.xz" "${kernels[@]}" "$@"
}

part() {
    case $1 in
    tests) program "$seconds" tests refusals tests "$folder/tests.xz" tests "$folder/native.xz" ;;
    equal) program "$seconds" equal equal mnist_cnn:64:fp32,bert:32:fp32 export ;;
    faults) program "$seconds" faults faults export ;;
    small) program "$seconds" small small gpt2:32:fp32 export ;;
    stages) program "$seconds" stages pipe bert:128:bf16,gpt2:32:bf16,resnet50:256:bf16,vgg16:128:bf16 export ;;
    images) program "$seconds" images grid "$images" export ;;
    words) program "$seconds" words grid "$words" export ;;
    torch)
        measured $((seconds / 4)) bandwidth parallel.py "$out" facts bandwidth 1,4,8,16,32,64,128,256,440
        measured $((seconds * 3 / 4)) torch parallel.py "$out" ddp "$images,$words"
        ;;
    *)
        printf 'several.sh: %s is no part (tests, equal, faults, small, stages, images, words, torch, all)\n' "$1" >&2
        exit 2
        ;;
    esac
}

for name in "$@"; do
    if [ "$name" = all ]; then
        for each in tests equal faults small stages images words torch; do part "$each"; done
    else
        part "$name"
    fi
done
exit "$failed"
