# Sourced by the shell tests: TAP lines, their end, and limits of time.
. "$(dirname "${BASH_SOURCE[0]}")/time.bash"
tests=0
failures=0

# What a failed test shows; a test that keeps its output elsewhere has its own.
told() {
    tail -n 5 stdout stderr 2>/dev/null | cut -c 1-200
}

# result STATUS NAME: one TAP line; on failure what the last program said.
result() {
    tests=$((tests + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $tests - $2"
    else
        failures=$((failures + 1))
        echo "not ok $tests - $2"
        told | sed 's/^/# /'
    fi
}

end_of_tests() {
    echo "1..$tests"
    [ "$failures" -eq 0 ]
}

# Ranks that take more than five seconds to start say whom they wait for, which is no error: such lines go out
# of the file stderr. In place, as a rank that outlives mpirun may still append to it.
forget_waits() {
    local kept
    kept=$(grep -vE ' waits for (other ranks to start|[0-9]+ of [0-9]+ ranks to come|rank 0,)' stderr)
    [ -z "$kept" ] || kept+=$'\n'
    printf '%s' "$kept" >stderr
}
