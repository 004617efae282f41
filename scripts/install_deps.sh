#!/usr/bin/env bash
# Install what the programs need from the packages of Debian or Ubuntu: only what is missing, and saying what.
#   scripts/install_deps.sh [--test] [--book] [--plot]
#       --test   also what the tests need
#       --book   also the text of the King James Bible, for scripts/quickstart.sh
#       --plot   also what scripts/plot.sh draws pictures with
# MPI=0 leaves Open MPI out. Without root (or sudo that asks for no password) nothing is installed: the one
# line to run is printed, and the exit code is 1.
set -euo pipefail

packages=(gcc libc6-dev binutils make libzstd-dev libjansson-dev libarchive-dev zlib1g-dev)
[ "${MPI:-1}" = 0 ] || packages+=(libopenmpi-dev openmpi-bin)
for argument in "$@"; do
    case $argument in
    --test) packages+=(g++ python3 libcmocka-dev zstd zip xz-utils bzip2) ;;
    --plot) packages+=(gnuplot-nox) ;;
    --book) packages+=(bible-kjv bible-kjv-text) ;;
    -h | --help)
        sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *)
        echo "install_deps.sh: $argument: expected --test, --book, --plot or --help" >&2
        exit 1
        ;;
    esac
done

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    echo "install_deps.sh: no apt-get here: this script knows Debian and Ubuntu. Install by hand:" \
        "a C11 compiler, make, zstd, jansson, libarchive, zlib, Open MPI" \
        "(or make MPI=0), and for tests a C++20 compiler, python3, cmocka, zstd, zip, xz, bzip2" >&2
    exit 1
fi

missing=()
for package in "${packages[@]}"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
    echo "packages: all ${#packages[@]} are installed"
    exit 0
fi

install=(apt-get install -y --no-install-recommends "${missing[@]}")
run=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
        echo "install_deps.sh: ${#missing[@]} packages are missing, and installing them takes root. Run:" >&2
        echo "    sudo sh -c 'apt-get update && ${install[*]}'" >&2
        exit 1
    fi
    run=(sudo -n)
fi

echo "packages: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${run[@]}" apt-get update && "${run[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}"; } \
    >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "install_deps.sh: apt-get failed (its last lines are above);" \
        "try: apt-get update && ${install[*]}" >&2
    exit 1
fi
echo "packages: done"
