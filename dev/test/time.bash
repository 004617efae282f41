# Sourced by tests with limits of time. A limit is said in seconds of a quiet machine and multiplied by the
# time scale: how many times longer anything may take here. TEST_TIME_SCALE, a whole number, says so, for an
# emulator or a sanitizer. Without it, it is guessed from the programs that run or wait for a core now; not
# from the load average, to which the tests before this one contribute.
guess_time_scale() {
    local running others=0
    for _ in 1 2 3 4; do
        read -r _ _ _ running _ </proc/loadavg
        running=$((${running%/*} - 1)) # without this program
        [ $running -le $others ] || others=$running
        sleep 0.01
    done
    echo $((1 + 2 * others / $(getconf _NPROCESSORS_ONLN)))
}

export TEST_TIME_SCALE=${TEST_TIME_SCALE:-$(guess_time_scale)}

# scaled SECONDS: of a quiet machine, for this one.
scaled() {
    echo $(($1 * TEST_TIME_SCALE))
}

# How long mpirun lets its ranks live once it ends them, a second by default: Open MPI 4 and 5 in turn.
let_ranks_end() {
    OMPI_MCA_odls_base_sigkill_timeout=$(scaled 1)
    PRTE_MCA_odls_base_sigkill_timeout=$(scaled 1)
    export OMPI_MCA_odls_base_sigkill_timeout PRTE_MCA_odls_base_sigkill_timeout
}
