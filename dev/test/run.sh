#!/usr/bin/env bash
# Runs test programs, each of which prints TAP (`ok 1 - name`, `not ok 2 - name`), and sums up.
# A program that ends badly without a failed line of its own counts as one failure.
#   dev/test/run.sh PROGRAM...      ends with `N passed, N failed`, exit 1 if any failed
# TEST_TIME_SCALE=4 multiplies all limits of time, which otherwise grow with the load (time.bash).
set -u
tests=$(dirname "$0")
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-1000} # waiting threads sleep soon: tests share cores
passed=0
failed=0
# An operation's tests at a level that this machine does not run would die of its instructions.
levels=$(CPU_LEVEL=which "${PROGRAMS:-.}/train_gpt2" 2>&1 |
    sed -n 's/.*one that this machine runs:\(.*\)/\1 /p')
for program in "$@"; do
    level=$(basename "$(dirname "$program")")
    if [[ $program == */ops/x86-64-* && -n $levels && $levels != *" $level "* ]]; then
        printf '%-50s not run: this CPU is below %s\n' "$program" "$level"
        continue
    fi
    log=$(mktemp)
    start=$(date +%s)
    (. "$tests/time.bash" && CMOCKA_MESSAGE_OUTPUT=TAP "$program") >"$log" 2>&1
    status=$?
    ok=$(grep -cE '^ok ' "$log")
    not_ok=$(grep -cE '^not ok ' "$log")
    if [ "$not_ok" -eq 0 ] && { [ "$status" -ne 0 ] || [ "$ok" -eq 0 ]; }; then
        not_ok=1
        echo "$program: exit status $status, $ok tests"
    fi
    passed=$((passed + ok))
    failed=$((failed + not_ok))
    printf '%-50s %4d passed %4d failed  %4d s\n' "$program" "$ok" "$not_ok" $(($(date +%s) - start))
    [ "$not_ok" -eq 0 ] || sed 's/^/    /' "$log" | tail -n 60
    rm -f "$log"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
