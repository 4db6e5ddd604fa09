#!/usr/bin/env bash
# Runs on GPUs in a container and outside of it: the same numbers, the same speed, nothing left behind. Needs root, and nothing but what it brings along.
#
#   tests/gpu/container.sh CARRY OUT           on a machine with an NVIDIA GPU: ResNet-50 and LSTM
#   tests/gpu/container.sh --dry CARRY OUT     on a CPU: softmax and mnist_mlp, without CUDA
#
# CARRY has    ledger.xz         the program, stripped (`--dry` takes a file `ledger` as well)
#              minimal.sif       by containers/build.sh minimal
#              apptainer.tar.xz  Apptainer in /opt/apptainer
#              libraries.tar.xz  libstdc++.so.6 and libz.so.1 of Debian 12, which cuDNN and NVRTC need and the image lacks
# OUT gets     rows.tsv          one line for each step: what, ok or FAILED or note, seconds since the start, what was found
#              *.txt, *.json     what each command wrote
# In the environment: MODELS, `lstm resnet50` by default; PAIRS, of attempts outside and inside, whose order alternates, 3 to 10 (3); CUDA_VISIBLE_DEVICES, one GPU (0)
#
# CUDA comes in by a bind of /usr/local/cuda; libraries that lie elsewhere on the loader's path are copied to one folder, which is bound too.
# Nothing of the GPU's settings is changed. At most 8 minutes: each step has a limit of its own, and later steps are left out when time is over.
set -uo pipefail
dry=0; [ "${1:-}" != --dry ] || { dry=1; shift; }
[ $# -eq 2 ] || { sed -n '2,/^set -u/p' "$0" | sed -n 's/^# \{0,1\}//p' >&2; exit 2; }
carry=$(readlink -f "$1"); mkdir -p "$2"; out=$(readlink -f "$2")
work=$(mktemp -d /tmp/container-proof.XXXXXX); chmod 755 "$work"
limit=${LIMIT:-470} pairs=${PAIRS:-3}
: >"$out/rows.tsv"
row() { printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$SECONDS" "$3" | tee -a "$out/rows.tsv"; }
# NAME SECONDS COMMAND...: its output to NAME.txt; its exit code.
step() {
    local name=$1 most=$2 left=$((limit - SECONDS)); shift 2
    [ "$left" -gt 5 ] || { row "$name" note "left out: no time"; return 99; }
    timeout -s INT -k 10 $((most < left ? most : left)) "$@" >"$out/$name.txt" 2>&1
}

# What was brought along.
unpack() { # FILE: to standard output, with Python where there is no xz.
    if command -v xz >/dev/null; then xz -dc "$1"; else python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), sys.stdout.buffer)' "$1"; fi
}
if [ -f "$carry/ledger.xz" ]; then unpack "$carry/ledger.xz" >"$work/ledger"; else cp "$carry/ledger" "$work/ledger"; fi
chmod 755 "$work/ledger"
[ -x /opt/apptainer/usr/bin/apptainer ] || unpack "$carry/apptainer.tar.xz" | tar -x -C /
export PATH=/opt/apptainer/usr/bin:$PATH NO_COLOR=1 HOME="$work/home" LEDGER_DIR="$work/book" LEDGER_SCRATCH="$work/scratch"
unset XDG_CACHE_HOME XDG_STATE_HOME XDG_DATA_HOME
export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0}"
[ $dry = 0 ] || unset CUDA_VISIBLE_DEVICES
mkdir -p "$HOME" "$LEDGER_SCRATCH" "$work/libraries"
unpack "$carry/libraries.tar.xz" | tar -x -C "$work/libraries"
cp "$carry/minimal.sif" "$work/minimal.sif"
# A root without every capability must say which one it lacks.
permitted=$(awk '/^CapPrm/ {print $2}' /proc/self/status)
[ $((0x$permitted & (1 << 24))) -ne 0 ] || export APPTAINER_DROP_CAPS=CAP_SYS_RESOURCE
apptainer --version >"$out/apptainer.txt" 2>&1 && row apptainer ok "$(cat "$out/apptainer.txt")" || row apptainer FAILED "$(tail -n 1 "$out/apptainer.txt")"
"$work/ledger" --version >"$out/version.txt" 2>&1 && row program ok "$(cat "$out/version.txt"), sha256 $(sha256sum "$work/ledger" | cut -c 1-12)"

# The libraries that do not lie in /usr/local/cuda: as many bytes again, in a folder of their own.
cuda=$(readlink -f /usr/local/cuda 2>/dev/null || true)
if [ $dry = 0 ]; then
    nvidia-smi --query-gpu=name,driver_version,memory.used --format=csv,noheader >"$out/gpu.txt" 2>&1
    row gpu note "$(head -n 1 "$out/gpu.txt")"
    for stem in libnvrtc libnvrtc-builtins libcublasLt libcudnn; do
        found=$( { tr ':' '\n' <<<"${LD_LIBRARY_PATH:-}" | while read -r folder; do [ -n "$folder" ] && ls "$folder/$stem".so* 2>/dev/null; done
                   /sbin/ldconfig -p | sed -n "s/^\t$stem\.so.* => //p"; } | head -n 1)
        real=''; [ -z "$found" ] || real=$(readlink -f "$found")
        case $real in
            "") row "host $stem" note "not on the loader's path" ;;
            "$cuda"/*) row "host $stem" note "$real, in the bind of $cuda" ;;
            *) cp -d "$(dirname "$real")/$stem"*.so* "$(dirname "$found")/$stem"*.so* "$work/libraries/" 2>/dev/null
               row "host $stem" note "$real, copied: $(ls "$work/libraries" | grep -c "^$stem") files" ;;
        esac
    done
    binds="[\"/usr/local/cuda:ro\", \"$work/libraries:/opt/libraries\"]"
    models=${MODELS:-lstm resnet50}
else
    binds="[\"$work/libraries:/opt/libraries\"]"
    models="softmax mnist_mlp"
fi
ls -l "$work/libraries" >"$out/libraries.txt"

# NAME MODEL STEPS [IMAGE [BINDS]]
manifest() {
    local device=cuda gpus='gpus = 1' data='name = "grammar"
width = 128
train_count = 20000' training='optimizer = "adam"
learning_rate = 0.001
batch_size = 32' deterministic='deterministic = true'
    case $2 in
        resnet50) data='name = "shapes"
side = 224
train_count = 9600
eval_count = 256' training='optimizer = "momentum"
learning_rate = 0.01
batch_size = 64' ;;
        softmax | mnist_mlp) device=cpu gpus='' deterministic='' data='name = "digits"' training='optimizer = "sgd"
learning_rate = 0.1
batch_size = 32' ;;
    esac
    {
        printf '[model]\nname = "%s"\n[data]\n%s\n[training]\n%s\nsteps = %s\n%s\n' "$2" "$data" "$training" "$3" "$deterministic"
        printf '[hardware]\ndevice = "%s"\n%s\n[telemetry]\nidle_s = 1.0\n' "$device" "$gpus"
        [ $# -lt 4 ] || printf '[container]\nimage = "%s"\n' "$4"
        [ $# -lt 5 ] || printf 'binds = %s\n' "$5"
    } | if [ $dry = 1 ]; then sed 's/^idle_s.*/hz = 10/'; else cat; fi >"$work/$1.toml"
}

# An image without CUDA is refused before the start.
manifest bare "${models%% *}" 300 "$work/minimal.sif"
if [ $dry = 0 ]; then
    step refused 30 "$work/ledger" run "$work/bare.toml"
    code=$?
    if [ $code = 2 ] && grep -q '`libnvrtc.so` is not in the image' "$out/refused.txt" && [ ! -e "$LEDGER_DIR/ledger.redb" ]; then
        row "refused without NVRTC" ok "$(grep -m 1 libnvrtc "$out/refused.txt")"
    else
        row "refused without NVRTC" FAILED "exit code $code: $(tail -n 1 "$out/refused.txt")"
    fi
    manifest half "${models%% *}" 300 "$work/minimal.sif" '["/usr/local/cuda"]'
    step half 30 "$work/ledger" run "$work/half.toml" --dry-run
    row "with CUDA and without libstdc++" note "exit code $?: $(tail -n 1 "$out/half.txt")"
fi
manifest missing "${models%% *}" 300 "$work/minimal.sif" '["/no/such/folder"]'
step missing 30 "$work/ledger" run "$work/missing.toml" && code=0 || code=$?
if [ $code = 2 ] && grep -q 'missing.toml:[0-9]*:[0-9]*: .*/no/such/folder' "$out/missing.txt"; then
    row "a missing bind has a place" ok "$(head -n 1 "$out/missing.txt")"
else
    row "a missing bind has a place" FAILED "exit code $code: $(tail -n 1 "$out/missing.txt")"
fi

# What the trainer finds inside.
mounts=(--mount "type=bind,source=$work/ledger,destination=/.ledger/ledger,ro" --mount "type=bind,source=$work/libraries,destination=/opt/libraries,ro")
nv=(); [ $dry = 1 ] || { nv=(--nv); mounts+=(--mount "type=bind,source=$cuda,destination=/usr/local/cuda,ro"); }
look() {
    apptainer --quiet exec "${nv[@]}" --cleanenv --contain --pid --no-eval --pwd / "${mounts[@]}" "$work/minimal.sif" \
        /.ledger/ledger worker --libraries /usr/local/cuda/lib64:/opt/libraries --survey
}
begin=$(date +%s%N); look >"$out/survey.txt" 2>&1; code=$?; cold=$((($(date +%s%N) - begin) / 1000000))
begin=$(date +%s%N); look >"$out/survey.txt" 2>&1; warm=$((($(date +%s%N) - begin) / 1000000))
row "the look inside" "$([ $code = 0 ] && echo ok || echo FAILED)" "$cold ms at first, $warm ms again: $(tail -n 1 "$out/survey.txt" | cut -c 1-300)"
begin=$(date +%s%N); apptainer --quiet exec "${nv[@]}" --cleanenv --contain --pid "${mounts[@]}" "$work/minimal.sif" /bin/sh -c : >"$out/start.txt" 2>&1; code=$?
row "start of a container" "$([ $code = 0 ] && echo ok || echo FAILED)" "$((($(date +%s%N) - begin) / 1000000)) ms"

# Compares a run outside (A) with one inside (B), by what the ledger has of their newest attempts.
cat >"$work/compare.py" <<'P'
import json, subprocess, sys

program, model, dry, outside, inside = sys.argv[1:]
ask = lambda *words: json.loads(subprocess.run([program, *words, "--json"], capture_output=True, text=True).stdout or "{}")
told = lambda name, good, found: print(f"{model}: {name}\t{'note' if good is None else 'ok' if good else 'FAILED'}\t{found}")
a, b = (ask("show", run) for run in (outside, inside))
if not a.get("attempts") or not b.get("attempts"):
    told("compared", False, f"no attempt of {outside} or {inside}")
    sys.exit()
in_order = lambda shown: sorted(shown["attempts"], key=lambda attempt: attempt["started_unix_ms"])
x, y = in_order(a)[-1], in_order(b)[-1]
told("finished", x["outcome"] == y["outcome"] == "finished", f"{x['outcome']}, {y['outcome']}")
curves = lambda attempt: {(one["name"], one["axis"]): one["digest"] for one in attempt["series"] if one["axis"] != "time_ns" and one["unit"] not in ("ns", "s")}
left, right = curves(x), curves(y)
differ = sorted(name for name, _ in (key for key in left.keys() | right.keys() if left.get(key) != right.get(key)))
told("curves, bit for bit", bool(left) and not differ, f"{len(left)} curves: {', '.join(sorted(name for name, _ in left))}; different: {differ or 'none'}")
told("digests", x["digests"] == y["digests"], f"{x['digests']}; {y['digests']}"[:400])
value = lambda attempt, metric: (attempt["metrics"].get(metric) or {}).get("value")
told("loss", value(x, "loss") == value(y, "loss") if value(x, "loss") is not None else None, f"{value(x, 'loss')!r}, {value(y, 'loss')!r}")
# The first attempt of each side compiles; the others are pairs.
pairs = [(value(left, "step_time"), value(right, "step_time")) for left, right in zip(in_order(a)[1:], in_order(b)[1:])]
# 95% of Student's t with 2 to 9 degrees of freedom.
t = {3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}.get(len(pairs))
if t and len(a["attempts"]) == len(b["attempts"]) and all(all(pair) for pair in pairs):
    apart = [inside / outside - 1 for outside, inside in pairs]
    mean = sum(apart) / len(apart)
    half = t * (sum((one - mean) ** 2 for one in apart) / (len(apart) - 1) / len(apart)) ** 0.5
    # Not resolved if the interval has values within 1% and beyond.
    within = True if abs(mean) + half <= 0.01 else False if abs(mean) - half > 0.01 else None
    listed = ", ".join(f"{one:+.2%}" for one in apart)
    told("step time within 1%", within if dry == "0" else None, f"{mean:+.2%} ± {half:.2%} inside, of {len(pairs)} pairs: {listed}; {pairs}")
else:
    told("step time within 1%", None, f"{pairs}; {[(attempt['metrics'].get('step_time') or {}).get('reason') for attempt in (x, y)]}")
walls = value(x, "wall_time"), value(y, "wall_time")
if all(walls):
    told("wall time of the attempt", None, f"{walls[0]:.3f} s outside, {walls[1]:.3f} s inside, {walls[1] - walls[0]:+.3f} s")
why = ask("why", outside, inside)
parts = [part["part"] for part in why.get("parts", [])]
fields = [field["field"] for part in why.get("parts", []) for field in part.get("fields", [])]
told("why names the container alone", parts == ["container"], f"{parts}: {fields}")
facts = y["facts"]
for name in ("energy", "power_mean"):
    one = y["metrics"].get(name) or {}
    told(f"{name} inside", ("value" in one) if dry == "0" else None, f"{one}; outside {x['metrics'].get(name)}"[:300])
series = sorted({one["name"] for one in y["series"] if one["axis"] == "time_ns"})
told("telemetry inside", any(name.startswith("gpu") for name in series) if dry == "0" else bool(series), f"{len(series)} series: {', '.join(series)}"[:400])
libraries = {name: ("sha256" if "sha256" in value else value.get("of") or value.get("unread")) for name, value in facts.items() if name.startswith("library.") and isinstance(value, dict)}
told("libraries inside", None, f"{libraries}"[:600])
told("binds", bool(facts.get("image.binds")), json.dumps(facts.get("image.binds"))[:500])
told("warnings inside", None, f"{y['warnings']}"[:500])
told("facts", None, f"cuda {b['parts'].get('cuda', {}).get('value')}; validity {facts.get('validity')}"[:400])
P

newest_run() { "$work/ledger" show latest --json 2>/dev/null | python3 -c 'import json, sys; print(json.load(sys.stdin).get("run", "none"))' 2>/dev/null || echo none; }
for model in $models; do
    case $model in lstm) steps=1500 ;; *) steps=300 ;; esac
    manifest "$model-outside" "$model" $steps
    manifest "$model-inside" "$model" $steps "$work/minimal.sif" "$binds"
    declare -A run=() took=([outside]=0 [inside]=0)
    for side in outside inside; do
        # The first attempt compiles and selects kernels; those after it are measured.
        step "$model-$side-1" 120 "$work/ledger" run "$work/$model-$side.toml"; code=$?
        run[$side]=$(newest_run)
        row "$model $side, first attempt" "$([ $code = 0 ] && echo ok || echo FAILED)" "${run[$side]:-}: $(tail -n 1 "$out/$model-$side-1.txt" | cut -c 1-200)"
    done
    for pair in $(seq "$pairs"); do
        # Neither side is always the first.
        sides="outside inside"; [ $((pair % 2)) = 1 ] || sides="inside outside"
        for side in $sides; do
            begin=$(date +%s%N)
            step "$model-$side-$((pair + 1))" 60 "$work/ledger" run "$work/$model-$side.toml" --repeat 1; code=$?
            took[$side]=$((took[$side] + ($(date +%s%N) - begin) / 1000000))
            row "$model $side, pair $pair" "$([ $code = 0 ] && echo ok || echo FAILED)" "$(tail -n 1 "$out/$model-$side-$((pair + 1)).txt" | cut -c 1-200)"
        done
    done
    row "$model: $pairs commands" note "${took[outside]} ms outside, ${took[inside]} ms inside: $(((took[inside] - took[outside]) / pairs)) ms each"
    for side in outside inside; do "$work/ledger" show "${run[$side]:-none}" --json >"$out/$model-$side.json" 2>&1; done
    timeout 60 python3 "$work/compare.py" "$work/ledger" "$model" "$dry" "${run[outside]:-none}" "${run[inside]:-none}" >"$work/rows" 2>"$out/$model-compare.txt" ||
        row "$model: compared" FAILED "$(tail -n 1 "$out/$model-compare.txt")"
    while IFS=$'\t' read -r name verdict found; do row "$name" "$verdict" "$found"; done <"$work/rows"
done

# A rerun inside, and one that is told another place of the image.
last=${models##* }
step "$last-rerun" 60 "$work/ledger" rerun "${run[inside]:-none}"; code=$?
row "rerun inside" "$([ $code = 0 ] && echo ok || echo FAILED)" "$(grep -m 1 -E 'identical|equivalent|drifted|failed' "$out/$last-rerun.txt" | cut -c 1-200)"

# Kill -9 of the supervisor leaves nothing.
manifest killed "$last" 1000000 "$work/minimal.sif" "$binds"
on_gpu() { nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader -i "$CUDA_VISIBLE_DEVICES" 2>/dev/null | grep -c .; }
memory() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i "$CUDA_VISIBLE_DEVICES" 2>/dev/null | head -n 1; }
inside() { grep -lzs -e '^/\.ledger/ledger$' -e '^/proc/self/exe$' /proc/[0-9]*/cmdline | grep -c .; }
if [ $((limit - SECONDS)) -gt 40 ]; then
    before=$([ $dry = 1 ] && echo 0 || memory)
    "$work/ledger" run "$work/killed.toml" >"$out/killed.txt" 2>&1 &
    supervisor=$!
    for _ in $(seq 100); do
        sleep 0.2
        kill -0 $supervisor 2>/dev/null || break
        [ "$(inside)" -gt 0 ] && { [ $dry = 1 ] || [ "$(memory)" -gt $((before + 400)) ]; } && break
    done
    sleep 1
    during=$([ $dry = 1 ] && echo 0 || memory) there=$(inside) apps=$([ $dry = 1 ] && echo 0 || on_gpu)
    kill -9 $supervisor 2>/dev/null; wait $supervisor 2>/dev/null
    begin=$(date +%s%N); gone=''
    for _ in $(seq 100); do
        sleep 0.1
        if [ "$(inside)" = 0 ] && { [ $dry = 1 ] || { [ "$(on_gpu)" = 0 ] && [ "$(memory)" -le $((before + 64)) ]; }; }; then
            gone=$((($(date +%s%N) - begin) / 1000000)); break
        fi
    done
    row "kill -9 leaves nothing" "$([ -n "$gone" ] && [ "$there" -gt 0 ] && echo ok || echo FAILED)" \
        "$there workers and $apps processes on the GPU before, $(inside) and $([ $dry = 1 ] && echo 0 || on_gpu) after ${gone:-more than 10000} ms; memory $before, $during, $([ $dry = 1 ] && echo 0 || memory) MiB"
    step ls 30 "$work/ledger" ls --all
    row "the killed attempt is sealed" "$(grep -q interrupted "$out/ls.txt" && echo ok || echo FAILED)" "$(grep -m 1 interrupted "$out/ls.txt" | cut -c 1-200)"
else
    row "kill -9 leaves nothing" note "left out: no time"
fi
step verify 60 "$work/ledger" verify; row verify "$([ $? = 0 ] && echo ok || echo FAILED)" "$(tail -n 1 "$out/verify.txt" | cut -c 1-200)"
step pack 60 "$work/ledger" pack latest -o "$out/last.pack"
rm -rf "$work"
row end note "$(grep -c $'\tok\t' "$out/rows.tsv") ok, $(grep -c $'\tFAILED\t' "$out/rows.tsv") failed"
! grep -q $'\tFAILED\t' "$out/rows.tsv"
