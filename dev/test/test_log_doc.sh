#!/usr/bin/env bash
# docs/log.md has a row for each event and key that the program writes to log.jsonl, and for no other.
#   dev/test/test_log_doc.sh        prints TAP
set -u
. "$(dirname "$0")/tap.bash"
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

awk -f dev/test/log_keys.awk llmc/run/*.c | sort -u >"$work/written"
sed -nE 's/^\| `([a-z_]+)` \| `([a-z_]+)` \|.*/\1 \2/p' docs/log.md | sort >"$work/documented"
told() {
    sed 's/$/: not in the table of docs\/log.md/' "$work/missing"
    sed 's/$/: in the table of docs\/log.md, but nothing in llmc\/run writes it/' "$work/extra"
}
comm -23 "$work/written" "$work/documented" >"$work/missing"
comm -13 "$work/written" "$work/documented" >"$work/extra"
[ "$(cut -d' ' -f1 "$work/written" | uniq | wc -l)" -ge 11 ] && grep -qx 'step exposed_ms' "$work/written"
result $? "events and keys are found in the sources"
[ ! -s "$work/missing" ] && [ ! -s "$work/extra" ]
result $? "docs/log.md has a row for each of them"
[ -z "$(uniq -d "$work/documented")" ]
result $? "and only one"
end_of_tests
