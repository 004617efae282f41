#!/usr/bin/env bash
# The King James Bible, a million tokens, as data/kjv: from Debian's packages bible-kjv and bible-kjv-text, or
# from files given by hand.
#   data_prep/kjv.sh [FILE...]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

files=()
for file in "$@"; do
    files+=("$(from_caller "$file")")
done
if [ ${#files[@]} -eq 0 ]; then
    PATH=$PATH:/usr/games
    command -v bible >/dev/null ||
        die "expected the command bible, found none; run scripts/install_deps.sh --book" \
            "(Debian, Ubuntu), or give the text by hand: $script FILE"
    text=$(mktemp)
    trap 'rm -f "$text"' EXIT
    # A line is a verse, `Ge1:1 In the beginning ..`: the reference goes, and an empty line comes before a
    # chapter.
    bible -f 'gen1:1-rev22:21' </dev/null | awk '
        { chapter = $1; sub(/:.*/, "", chapter); sub(/^[^ ]* /, "") }
        NR > 1 && chapter != last { print "" }
        { print; last = chapter }' >"$text"
    [ "$(wc -l <"$text")" -gt 30000 ] || die "expected 31,102 verses of bible, found $(wc -l <"$text") lines"
    files=("$text")
fi
need_tokenize
data_prep/tokenize -o data/kjv "${files[@]}"
