#!/usr/bin/env bash
# Runs test programs, each of which prints TAP (`ok 1 - name`, `not ok 2 - name`), and sums up.
# A program that ends badly without a failed line of its own counts as one failure.
#   dev/test/run.sh PROGRAM...      ends with `N passed, N failed`, exit 1 if any failed
# TEST_JOBS programs run at a time, by default three: many of them mostly wait.
# TEST_TIME_SCALE=4 multiplies all limits of time, which otherwise grow with the load (time.bash).
set -u
tests=$(dirname "$0")
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-1000} # waiting threads sleep soon: tests share cores
jobs_max=${TEST_JOBS:-3}
passed=0
failed=0
# An operation's tests at a level that this machine does not run would die of its instructions.
levels=$(CPU_LEVEL=which "${PROGRAMS:-.}/train_gpt2" 2>&1 |
    sed -n 's/.*one that this machine runs:\(.*\)/\1 /p')
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# run_program NUMBER PROGRAM: what it says goes to NUMBER.log, `exit status, seconds` to NUMBER.end.
run_program() {
    local start status
    start=$(date +%s)
    (. "$tests/time.bash" && CMOCKA_MESSAGE_OUTPUT=TAP "$2") >"$folder/$1.log" 2>&1
    status=$?
    echo "$status $(($(date +%s) - start))" >"$folder/$1.end"
}

# report NUMBER PROGRAM: one line, and the end of what a failing program said.
report() {
    local log=$folder/$1.log ok not_ok status seconds
    read -r status seconds <"$folder/$1.end"
    ok=$(grep -cE '^ok ' "$log")
    not_ok=$(grep -E '^not ok ' "$log" | grep -vc '# SKIP') # cmocka's way of saying "skipped"
    if [ "$not_ok" -eq 0 ] && { [ "$status" -ne 0 ] || [ "$ok" -eq 0 ]; }; then
        not_ok=1
        echo "$2: exit status $status, $ok tests"
    fi
    passed=$((passed + ok))
    failed=$((failed + not_ok))
    printf '%-50s %4d passed %4d failed  %4d s\n' "$2" "$ok" "$not_ok" "$seconds"
    [ "$not_ok" -eq 0 ] || sed 's/^/    /' "$log" | tail -n 60
}

# Report the programs that have ended since, in the order in which they do.
declare -A running=()
report_ended() {
    local number
    for number in "${!running[@]}"; do
        if [ -e "$folder/$number.end" ]; then
            report "$number" "${running[$number]}"
            unset "running[$number]"
        fi
    done
}

number=0
for program in "$@"; do
    level=$(basename "$(dirname "$program")")
    if [[ $program == */ops/x86-64-* && -n $levels && $levels != *" $level "* ]]; then
        printf '%-50s not run: this CPU is below %s\n' "$program" "$level"
        continue
    fi
    while [ "${#running[@]}" -ge "$jobs_max" ]; do
        wait -n
        report_ended
    done
    number=$((number + 1))
    running[$number]=$program
    run_program $number "$program" &
done
wait
report_ended
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
