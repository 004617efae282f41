# shellcheck shell=bash
# For the scripts of data sets: they run in the repository's root, and take files by hand where nothing can be
# downloaded.
set -euo pipefail
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
script=data_prep/$(basename "$0")

die() {
    echo "$script: $*" >&2
    exit 1
}

need_tokenize() {
    [ -x data_prep/tokenize ] || make --no-print-directory data_prep/tokenize
}

# from_caller PATH: a path that the caller gave, seen from here.
from_caller() {
    case $1 in
    /* | -) echo "$1" ;;
    *) echo "$caller/$1" ;;
    esac
}

# fetch URL FILE: download unless it is there; goes on with a download that was cut off.
fetch() {
    [ -e "$2" ] && return
    mkdir -p "$(dirname "$2")"
    echo "$script: downloading $1"
    if command -v curl >/dev/null; then
        curl -fL --retry 3 -C - -o "$2.part" "$1" || cannot_fetch "$1"
    elif command -v wget >/dev/null; then
        wget -c -O "$2.part" "$1" || cannot_fetch "$1"
    else
        die "expected curl or wget to download with, found neither; install one, or download" \
            "$1 elsewhere and run: $script FILE..."
    fi
    mv "$2.part" "$2"
}

cannot_fetch() {
    die "cannot download $1 from this machine; download it elsewhere, copy it here, and run: $script FILE..."
}
