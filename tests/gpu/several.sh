#!/usr/bin/env bash
# All that is to be measured on a machine with several NVIDIA GPUs, in parts of ten minutes at most, each by itself, by programs that were built elsewhere. Changes no setting of the cards.
#
# Usage: several.sh FOLDER OUT PART...
#
#   FOLDER   holds ledger.xz and, for `first`, tests.xz: `cargo build --release` and `cargo test --release --lib --no-run`, stripped; and h200.kernels.xz, where a part brought kernels along
#   OUT      folder for logs and tables
#   first    the machine, tests that have to do with several GPUs, the same losses, refusals, ranks that fail, a model that has no room on one card
#   stages   pipelines of BERT, GPT-2, ResNet-50 and VGG16
#   images   ResNet-50 and VGG16 at 32, 64 and 128 rows on each GPU, in fp32 and bf16
#   words    BERT and GPT-2 at the same
#   torch    what NCCL reaches with a bucket, and PyTorch's DistributedDataParallel at all of these cells
#   all      these, one after the other
#
# COUNTS=1,4 takes other numbers of GPUs than 1, 2 and 4, SECONDS_EACH=900 other limits of a part, TRY=1 prints what would be done.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$1 out=$2
shift 2
seconds=${SECONDS_EACH:-585}
mkdir -p "$out"
kernels=()
if [ -e "$folder/h200.kernels.xz" ]; then
    kernels=(kernels "$folder/h200.kernels.xz")
fi

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

# A script of this folder, ended with its part; what it printed also lies in OUT.
measured() {
    local limit=$1 name=$2
    shift 2
    if [ -n "${TRY:-}" ]; then
        printf '%s s %s: %s\n' "$limit" "$name" "$*"
        return
    fi
    timeout --kill-after 5 "$limit" env PYTHONUNBUFFERED=1 python3 "$here/$@" 2>&1 | tee -a "$out/$name.txt"
}

scaled() {
    DEADLINE=$((seconds - 10)) measured "$seconds" "$1" parallel.py "$out" facts ledger "$folder/ledger.xz" "${kernels[@]}" grid "$2" export
}

part() {
    case $1 in
    first)
        measured $((seconds * 2 / 5)) first parallel.py "$out" facts ledger "$folder/ledger.xz" "${kernels[@]}" tests "$folder/tests.xz" equal mnist_cnn:64:fp32,bert:32:fp32 refusals
        measured $((seconds * 3 / 5)) faults parallel.py "$out" ledger "$folder/ledger.xz" "${kernels[@]}" small gpt2:32:fp32 faults
        ;;
    stages) measured "$seconds" stages parallel.py "$out" facts ledger "$folder/ledger.xz" "${kernels[@]}" pipe bert:128:bf16,gpt2:32:bf16,resnet50:256:bf16,vgg16:128:bf16 export ;;
    images) scaled images "$images" ;;
    words) scaled words "$words" ;;
    torch)
        measured $((seconds / 3)) bandwidth parallel.py "$out" facts bandwidth 1,4,8,16,32,64,128,256,440
        measured $((seconds * 2 / 3)) torch parallel.py "$out" ddp "$images,$words"
        ;;
    *)
        printf 'several.sh: %s is no part (first, stages, images, words, torch, all)\n' "$1" >&2
        exit 2
        ;;
    esac
}

for name in "$@"; do
    if [ "$name" = all ]; then
        for each in first stages images words torch; do part "$each"; done
    else
        part "$name"
    fi
done
