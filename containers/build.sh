#!/usr/bin/env bash
# Builds an image from packages alone, the same file each time.
#
#   containers/build.sh minimal|cpu|cuda [--output FILE] [--program LEDGER]
#   containers/build.sh ledger|ledger-cpu --program LEDGER [--output FILE]
#       --output     the image; NAME.sif in the working directory without it
#       --program    `ledger`: what %test starts, and what is in the images ledger and ledger-cpu
#       --oci FILE   also write an OCI archive, for Docker and Podman
#
# Needs root, Apptainer 1.3 or later, squashfs-tools and what rootfs.sh needs. The image is written by this script and not by `apptainer
# build`, which puts the time and a random number into it. Two builds give the same file if they have the same packages (locks/), the
# same program, and the same versions of Apptainer, mksquashfs, tar and mmdebstrap.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# The exit code is 69 if a program or a package is missing.
fail() { printf 'containers/build.sh: %s\n' "$1" >&2; exit "${2:-1}"; }

name=${1:-}
[ -f "$here/${name%-cpu}.def" ] || { sed -n '2,/^set -e/p' "$0" | sed -n 's/^# \{0,1\}//p' >&2; exit 2; }
shift
output=$name.sif program='' oci=''
while [ $# -gt 0 ]; do
    case $1 in
        --output) output=${2:?} ;;
        --program) program=$(readlink -f "${2:?}") ;;
        --oci) oci=${2:?} ;;
        *) fail "there is no option \`$1\`" ;;
    esac
    shift 2
done
case $name in ledger) base=cuda ;; ledger-cpu) base=minimal ;; *) base=$name ;; esac
case $name in ledger*) [ -x "$program" ] || fail "--program is missing (give the file of \`ledger\`)" ;; esac
[ "$(id -u)" = 0 ] || fail "only root can keep the owners of files (run it with sudo, or in a virtual machine)" 69
for command in apptainer mksquashfs; do command -v $command >/dev/null || fail "there is no \`$command\` (install Apptainer and squashfs-tools)" 69; done

work=$(mktemp -d "${TMPDIR:-/tmp}/ledger-image.XXXXXX")
trap 'rm -rf "$work"' EXIT
"$here/rootfs.sh" "$base" "$work/rootfs"
case $name in ledger*) install -D -m 755 "$program" "$work/rootfs/usr/local/bin/ledger" ;; esac
epoch=1707523200
(cd "$work" && apptainer --quiet build --notest --sandbox image "$here/${name%-cpu}.def") 2> >(grep -v '^WARNING' >&2)
rm -rf "$work/rootfs"
sed -i 's/\("org.label-schema.build-date": "\)[^"]*/\1'"$(date -u -d "@$epoch" +%FT%TZ)"'/' "$work/image/.singularity.d/labels.json"

# Eight bytes, the lowest first.
le64() { local n=$1; for _ in 1 2 3 4 5 6 7 8; do printf '%b' "\\x$(printf %02x $((n & 255)))"; n=$((n >> 8)); done; }
# FILE OFFSET: writes standard input there.
put() { dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }

# The image: definition, labels as JSON, and the files (PARTS of the Singularity Image Format).
sif() {
    local sif=$work/new.sif
    mksquashfs "$work/image" "$work/files" -noappend -no-progress -quiet -all-time "$epoch" -mkfs-time "$epoch" >/dev/null
    apptainer inspect --all --json "$work/image" >"$work/labels"
    cp "$work/image/.singularity.d/Singularity" "$work/definition"
    apptainer sif new "$sif"
    apptainer sif add --groupid 1 --datatype 1 --filename definition "$sif" "$work/definition"
    apptainer sif add --groupid 1 --datatype 6 --filename labels "$sif" "$work/labels"
    apptainer sif add --groupid 1 --datatype 4 --parttype 2 --partfs 1 --partarch 2 --filename files "$sif" "$work/files"
    # `sif new` takes a random number and the time.
    printf '#!/usr/bin/env run-singularity\n\0' | put "$sif" 0
    sha256sum "$work/files" | cut -c 1-32 | sed 's/../\\x&/g' | xargs -0 printf '%b' | head -c 16 | put "$sif" 48
    local at
    for at in 64 72; do le64 "$epoch" | put "$sif" "$at"; done
    for at in 0 1 2; do { le64 "$epoch"; le64 "$epoch"; } | put "$sif" $((4096 + at * 585 + 41)); done
    chmod 755 "$sif"
    mv "$sif" "$output"
}

# An OCI archive: one layer of the same files but Apptainer's own.
oci() {
    local blobs=$work/oci/blobs/sha256 layer config entry='' variables=''
    mkdir -p "$blobs"
    # Moves a file to the blobs; prints its descriptor.
    blob() {
        local sum
        sum=$(sha256sum "$2" | cut -d ' ' -f 1)
        printf '{"mediaType":"application/vnd.oci.image.%s","digest":"sha256:%s","size":%s}' "$1" "$sum" "$(stat -c %s "$2")"
        mv "$2" "$blobs/$sum"
    }
    tar -C "$work/image" --sort=name --mtime="@$epoch" --numeric-owner --format=gnu \
        --exclude=./.singularity.d --exclude=./singularity --exclude=./environment --exclude=./.run --exclude=./.exec --exclude=./.shell \
        --exclude=./.test -cf "$work/layer" .
    config=$(sha256sum "$work/layer" | cut -d ' ' -f 1)
    gzip -n "$work/layer"
    layer=$(blob layer.v1.tar+gzip "$work/layer.gz")
    # In a home that is gone with the container, the ledger would be gone, too.
    case $name in ledger*) entry=',"Entrypoint":["/usr/local/bin/ledger"]' variables=',"LEDGER_DIR=ledger"' ;; esac
    local path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin cuda=/usr/local/cuda time
    time=$(date -u -d "@$epoch" +%FT%TZ)
    printf '{"created":"%s","architecture":"amd64","os":"linux","config":{"Env":["PATH=%s","LC_ALL=C.UTF-8","LD_LIBRARY_PATH=%s/lib","CUDA_PATH=%s"%s]%s},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]},"history":[{"created":"%s","created_by":"containers/build.sh %s"}]}' \
        "$time" "$path" "$cuda" "$cuda" "$variables" "$entry" "$config" "$time" "$name" >"$work/config"
    config=$(blob config.v1+json "$work/config")
    printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":%s,"layers":[%s]}' "$config" "$layer" >"$work/manifest"
    printf '{"schemaVersion":2,"manifests":[%s,"annotations":{"org.opencontainers.image.ref.name":"%s:latest"}}]}' \
        "$(blob manifest.v1+json "$work/manifest" | sed 's/}$//')" "$name" >"$work/oci/index.json"
    printf '{"imageLayoutVersion":"1.0.0"}' >"$work/oci/oci-layout"
    tar -C "$work/oci" --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --format=gnu -cf "$oci" blobs index.json oci-layout
}

find "$work/image" -exec touch --no-dereference --date="@$epoch" {} +
[ -z "$oci" ] || oci
sif
tests=(--contain)
if [ -n "$program" ]; then
    tests+=(--bind "$program:/.ledger/ledger")
    # A program that was built with the trainer trains inside.
    "$program" doctor 2>/dev/null | grep -q '^trainer .* not built in' || tests+=(--bind "$here/smoke.toml:/.ledger/smoke.toml")
fi
apptainer --quiet test "${tests[@]}" "$output"
printf '%s  %s (%s bytes)\n' "$(sha256sum "$output" | cut -d ' ' -f 1)" "$output" "$(stat -c %s "$output")"
