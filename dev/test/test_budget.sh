#!/usr/bin/env bash
# dev/bench/budget.py counts what a review counted by hand: 131 ms for a step of GPT-2 124M on an H100 and 123
# on an H200 before the kernels changed, part by part.
#   dev/test/test_budget.sh        prints TAP
set -u
. "$(dirname "$0")/tap.bash"
cd "$(dirname "$0")/../.." || exit 1
command -v python3 >/dev/null || {
    echo "ok 1 - the budget of a step # SKIP no python3"
    exit 0
}

# near NAME MS ARGUMENTS...: the row that begins with this name says so many ms, to a twelfth of one or 2%.
near() {
    local name=$1 expected=$2 found
    shift 2
    found=$(python3 dev/bench/budget.py "$@" | awk -v name="$name" '
        index($0, name) == 1 { print name == "all of a step" ? $NF : $(NF - 1) }')
    awk -v found="${found:-none}" -v expected="$expected" 'BEGIN {
        bound = 0.02 * expected > 0.12 ? 0.02 * expected : 0.12
        exit !(found - expected <= bound && expected - found <= bound) }'
    result $? "$name: expected $expected ms, found ${found:-none} ($*)"
}
for gpu in h100 h200; do
    near "all of a step" "$([ $gpu = h100 ] && echo 131 || echo 123)" --before --gpu=$gpu
done
near products 80.5 --before
near "attention forward" 5.4 --before
near "attention backward" 16.9 --before
near "layer norm forward" 5.4 --before
near "layer norm backward" 8.2 --before
near "bias gradients" 4.0 --before
near classifier 6.6 --before
near "second stages" 0.7 --before
near embeddings 0.9 --before
near "norm, AdamW" 1.6 --before
end_of_tests
