#!/usr/bin/env bash
# The house in order: floors include only lower floors, and the limits of length hold.
#   dev/test/test_house.sh        prints TAP
set -u
export LC_ALL=C.UTF-8
cd "$(dirname "$0")/../.." || exit 1
tests=0

# clean NAME COMMAND: what the command prints should not be there.
clean() {
    local found
    found=$("$2")
    tests=$((tests + 1))
    if [ -z "$found" ]; then
        echo "ok $tests - $1"
    else
        echo "not ok $tests - $1"
        head -n 20 <<<"$found" | sed 's/^/# /'
    fi
}

list_files() {
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git ls-files --cached --others --exclude-standard
    else # an archive of the sources
        find . -type f -not -path './build/*' -not -path './data/*' -not -path './out*' | sed 's|^\./||'
    fi
}

sources=() scripts=() texts=() reference_bytes=0
while read -r file; do
    [ -f "$file" ] || continue # deleted, not yet committed
    case $file in
    *.c | *.h | *.cu | *.cuh) sources+=("$file") ;;
    *.sh | *.bash | *.py | *.mk | .ci/run | Makefile) scripts+=("$file") ;;
    *.md | *.conf) texts+=("$file") ;;
    dev/reference/*.safetensors) reference_bytes=$((reference_bytes + $(wc -c <"$file"))) ;;
    esac
done < <(list_files)

too_few_files() {
    if [ ${#sources[@]} -lt 50 ] || [ ${#scripts[@]} -lt 10 ] || [ ${#texts[@]} -lt 5 ]; then
        echo "${#sources[@]} sources, ${#scripts[@]} scripts, ${#texts[@]} texts"
    fi
}

# A floor may include itself and those before it; a device is known by the seam alone.
wrong_includes() {
    awk -v floors="base model text data snapshot comm compute run" '
        BEGIN { count = split(floors, order, " "); for (i = 1; i <= count; i++) level[order[i]] = i }
        FILENAME ~ /^llmc\// && /^#include ".*\// {
            split(FILENAME, here, "/")
            split($2, there, "/")
            floor = there[1] == "\"llmc" ? level[there[2]] : 99
            device = there[2] == "compute" && there[3] ~ /^(cpu|cuda)$/ && there[3] != here[3]
            if (!level[here[2]] || !floor || floor > level[here[2]] || device)
                print FILENAME ": includes " $2
        }' "${sources[@]}"
}

long_files() {
    local file limit lines
    for file in "${sources[@]}" "${scripts[@]}"; do
        limit=500
        case $file in
        Makefile) limit=200 ;;
        train_gpt2.c* | test_gpt2.c*) limit=100 ;;
        llmc/text/unicode_tables.c | dev/test/tokenizer_sample.h) continue ;; # made by scripts
        esac
        lines=$(wc -l <"$file")
        [ "$lines" -le $limit ] || echo "$file: $lines lines, at most $limit"
    done
}

long_lines() {
    awk 'FILENAME !~ /(unicode_tables.c|tokenizer_sample.h)$/ {
        if (length($0) > 110) print FILENAME ":" FNR ": " length($0) " columns, at most 110"
    }' "${sources[@]}" "${scripts[@]}"
}

# A function begins with { and ends with } in the first column.
long_functions() {
    awk 'FNR == 1 { first = 0 }
        /^\{/ { first = FNR }
        /^\}/ && first {
            if (FNR - first - 1 > 70) print FILENAME ":" first ": " FNR - first - 1 " lines, at most 70"
            first = 0
        }' "${sources[@]}"
}

# Variation is another file, chosen in the Makefile.
conditionals() {
    grep -nE '^ *# *(if|ifdef|elif)\b' "${sources[@]}" | grep -vE 'ifdef __cplusplus|VERSION'
}

unguarded() {
    local file
    for file in "${sources[@]}"; do
        case $file in
        llmc/*.h) grep -qE '^#ifndef [A-Z0-9_]+_H$|^#pragma once' "$file" || echo "$file" ;;
        esac
    done
}

machine_paths() {
    grep -nE '(^|[^A-Za-z0-9_.])/(work|root|home/[a-z]+)/' "${sources[@]}" "${scripts[@]}" "${texts[@]}" |
        grep -v '^dev/test/test_house.sh:'
}

heavy_references() {
    [ "$reference_bytes" -gt 100000 ] && [ "$reference_bytes" -lt 2000000 ] ||
        echo "$reference_bytes bytes, expected 100,000 to 2,000,000"
}

unformatted() {
    local file
    for file in "${sources[@]}"; do
        clang-format "$file" | cmp -s - "$file" || echo "$file: run make format"
    done
}

clean "the sources are found" too_few_files
clean "code includes only lower floors" wrong_includes
clean "files are short" long_files
clean "lines are short" long_lines
clean "functions are short" long_functions
clean "no #ifdef" conditionals
clean "headers are guarded" unguarded
clean "no paths of one machine" machine_paths
clean "reference folders are small" heavy_references
# Other versions format differently.
if command -v clang-format >/dev/null && clang-format --version | grep -q 'version 14'; then
    clean "sources are formatted" unformatted
fi
echo "1..$tests"
