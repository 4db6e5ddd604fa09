#!/usr/bin/env bash
# Fills a folder with the files of an image, from packages alone: Debian 12's, by apt, and NVIDIA's, by pip.
#
#   containers/rootfs.sh NAME FOLDER    NAME is minimal, cpu or cuda; the folder must be empty or absent
#   containers/rootfs.sh --lock NAME    writes locks/NAME.txt anew, from the packages that apt offers here today
#
# locks/NAME.txt has the version and the SHA-256 of each of Debian's packages, locks/NAME.pip.txt of each of NVIDIA's. A file with another
# digest ends the build. apt and pip download from where they are configured to; what they fetched is kept in
# $LEDGER_CONTAINER_CACHE, else in ledger/containers in the user's cache folder.
#
# minimal and cuda are the packages' files and nothing else. cpu is a Debian whose packages are installed, so that more can be added to it;
# it needs mmdebstrap and root. The same files come out each time: names, contents, owners and times.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${LEDGER_CONTAINER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ledger/containers}
# The time of every file; that of Debian 12.5.
export SOURCE_DATE_EPOCH=1707523200 LC_ALL=C

# The exit code is 69 if a program or a package is missing.
fail() { printf 'containers/rootfs.sh: %s\n' "$1" >&2; exit "${2:-1}"; }
needs() { for program in "$@"; do command -v "$program" >/dev/null || fail "there is no \`$program\` (apt-get install $program)" 69; done; }

# The packages of an image. Those of cpu are a whole Debian: what is essential, Python, and all that these depend on.
wanted() {
    case $1 in
        minimal) echo base-files dash libc6 libgcc-s1 ;;
        cuda) echo base-files dash libc6 libgcc-s1 libstdc++6 zlib1g ;;
        cpu) apt-get install -y --no-install-recommends --print-uris "${alone[@]}" ca-certificates python3 python3-venv usr-is-merged \
                 $(apt-cache dumpavail | awk '/^Package:/ {name = $2} /^Essential: yes/ {print name}' | sort -u) |
                 sed -n "s/^'[^']*' \([^_]*\)_.*/\1/p" ;;
        *) fail "there is no image \`$1\` (minimal, cpu or cuda)" ;;
    esac
}
# The packages that apt offers, whatever is installed here.
alone=(-o Dir::State::status=/dev/null -o APT::Sandbox::User=root)

# Downloads packages, each as NAME=VERSION, if they are not in the cache.
download() {
    local package missing=()
    mkdir -p "$cache"
    for package in "$@"; do
        compgen -G "$(file_of "${package%%=*}" "${package#*=}")" >/dev/null || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] || (cd "$cache" && apt-get download -q "${alone[@]}" "${missing[@]}" >&2) ||
        fail "apt offers other versions (\`apt-get update\`; if Debian has replaced one, containers/rootfs.sh --lock writes today's versions)" 69
}

# The file of a package of that version: apt escapes the colon of an epoch.
file_of() { printf '%s/%s_%s_*.deb' "$cache" "$1" "${2//:/%3a}"; }

lock() {
    needs apt-get apt-cache
    local name packages=()
    for name in $(wanted "$1" | tr ' ' '\n' | sort -u); do
        packages+=("$name=$(apt-cache show --no-all-versions "${alone[@]}" "$name" | sed -n 's/^Version: //p')")
    done
    download "${packages[@]}"
    for name in "${packages[@]}"; do
        echo "${name/=/ } $(sha256sum $(file_of "${name%%=*}" "${name#*=}") | cut -d ' ' -f 1)"
    done >"$here/locks/$1.txt"
}

# Prints the files of Debian's packages, checked.
debs() {
    local name version sum file
    download $(awk '{print $1 "=" $2}' "$here/locks/$1.txt")
    while read -r name version sum; do
        file=$(echo $(file_of "$name" "$version"))
        echo "$sum  $file" | sha256sum --check --quiet >&2 || fail "$file has another SHA-256 than locks/$1.txt (remove the file)"
        echo "$file"
    done <"$here/locks/$1.txt"
}

# Debian 12's folders as its packages expect them, and the files that programs ask for first.
unpack() {
    local root=$1 name deb
    shift
    mkdir -p "$root"/{usr/{bin,lib,lib64,sbin},dev,etc,opt,proc,root,run,sys,tmp,var/tmp}
    for name in bin lib lib64 sbin; do ln -s "usr/$name" "$root/$name"; done
    for deb in "$@"; do dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C "$root"; done
    echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
    echo 'root:x:0:' >"$root/etc/group"
    rm -rf "$root"/usr/lib/x86_64-linux-gnu/{gconv,audit,perl*} "$root"/usr/share/{locale,man,i18n,lintian,bug,menu,info} "$root"/etc/{apt,dpkg}
    # Of the documents the licences stay.
    find "$root/usr/share" ! -type d ! -name copyright ! -path '*/common-licenses/*' -delete
    find "$root/usr/share" -type d -empty -delete
}

minimal() { local list; list=$(debs minimal); unpack "$1" $list; }

cuda() {
    needs pip unzip
    local list wheels="$cache/wheels" work="$1.wheels" wheel
    list=$(debs cuda)
    unpack "$1" $list
    mkdir -p "$wheels"
    pip --quiet --disable-pip-version-check download --require-hashes --no-deps --only-binary :all: --dest "$wheels" --find-links "$wheels" \
        --platform manylinux_2_27_x86_64 --platform manylinux_2_18_x86_64 --platform manylinux2014_x86_64 -r "$here/locks/cuda.pip.txt" >&2
    rm -rf "$work"
    local to="$1/usr/local/cuda"
    mkdir -p "$work" "$to/lib" "$to/licenses"
    while read -r wheel; do
        unzip -qo "$wheels"/"$wheel"-*.whl -d "$work"
    done < <(sed -n 's/^\([a-z0-9-]*\)==\([^ ]*\).*/\1 \2/p' "$here/locks/cuda.pip.txt" | sed 's/-/_/g; s/ /-/')
    cp -r "$work/nvidia/cu13/include" "$to/include"
    cp "$work"/nvidia/cu13/lib/{libnvrtc.so.13,libnvrtc-builtins.so.13.0,libcublasLt.so.13} "$work"/nvidia/{cudnn,nccl}/lib/*.so.* "$to/lib/"
    ln -s lib "$to/lib64"
    for wheel in "$work"/*.dist-info; do
        find "$wheel" -iname 'license*' -type f -exec cp {} "$to/licenses/$(basename "$wheel" .dist-info).txt" \;
    done
    rm -rf "$work"
    echo /usr/local/cuda/lib >"$1/etc/ld.so.conf"
    ldconfig -r "$1" -X
    # It has the inodes' numbers.
    rm -r "$1/var/cache/ldconfig"
}

cpu() {
    needs mmdebstrap
    local list deb repository="$1.packages" names
    list=$(debs cpu)
    rm -rf "$repository"
    mkdir -p "$repository"
    for deb in $list; do
        ln "$deb" "$repository/" 2>/dev/null || cp "$deb" "$repository/"
        dpkg-deb --field "$deb"
        printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$(basename "$deb")" "$(stat -c %s "$deb")" "$(sha256sum "$deb" | cut -d ' ' -f 1)"
    done >"$repository/Packages"
    names=$(cut -d ' ' -f 1 "$here/locks/cpu.txt" | paste -sd ,)
    # A deb's digest was compared with the lock's.
    mmdebstrap --quiet --mode=root --format=tar --variant=custom --include="$names" --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        bookworm - "deb [trusted=yes] copy://$(readlink -f "$repository") ./" | { mkdir -p "$1" && tar -x -C "$1" --exclude='./dev/*'; }
    rm -rf "$repository" "$1"/etc/{hostname,resolv.conf} "$1"/etc/apt/sources.list* "$1"/var/cache/ldconfig/aux-cache
}

case ${1:-} in
    --lock) lock "${2:?}" ;;
    minimal | cpu | cuda)
        needs dpkg-deb apt-get
        [ ! -e "${2:?}" ] || [ -z "$(ls -A "$2")" ] || fail "\`$2\` is not empty"
        mkdir -p "$(dirname "$2")"
        "$1" "$(readlink -m "$2")"
        find "$2" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} + ;;
    *) sed -n '2,/^set -e/p' "$0" | sed -n 's/^# \{0,1\}//p' >&2; exit 2 ;;
esac
