# Sourced by the tests of ranks and of faults: TAP, a small data set in an empty folder, and a program started
# as users start it: alone, by mpirun, or by a launcher that sets RANK and WORLD_SIZE.
#   PROGRAMS=build/mpi1   where the programs are
#   program               which one, if not train_gpt2
program=${program:-train_gpt2}
export LC_ALL=C OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive # ranks share the cores
# Containers: root may start ranks, more of them than cores, unbound, and without reading each other's memory,
# for which Open MPI 4 and 5 have settings of different names. Open MPI 5 does not start without a HOME.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export HOME=${HOME:-/} OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc=^cma
mpirun_options=(--oversubscribe --bind-to none)
for name in $(compgen -v SLURM) RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT; do
    unset "$name" # of the job that the test itself may run in
done

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
job= # process group of ranks in the background
end_test() {
    [ -z "$job" ] || kill -KILL -- -"$job" 2>/dev/null
    rm -rf "$work"
}
trap end_test EXIT
# Copies: a build that goes on meanwhile does not change what is tested.
cp "${PROGRAMS:-$root}/$program" "$work" || exit 1
cd "$work" || exit 1
export TMPDIR=$work # what a killed mpirun leaves there would be in the way of one with the same process id
. "$root/dev/test/tap.bash"
let_ranks_end

told() {
    echo "exit code $code"
    tail -n 4 stdout stderr 2>/dev/null | cut -c 1-200
}

# Which launcher `ranks` uses. A build with MPI=0 has only the other.
launcher=tcp
if command -v mpirun >/dev/null && ldd "./$program" | grep -q libmpi; then
    launcher=mpirun
fi

# What every rank runs: its process id is left in pid.R; it works in the folder rank-R if there is one, and
# takes the arguments in rank-R.options, one a line, and the variables in rank-R.environment besides.
cat >as_rank <<'END'
#!/usr/bin/env bash
rank=${OMPI_COMM_WORLD_RANK:-${RANK:-0}}
exec >>stdout 2>>stderr # not through mpirun: that of Open MPI 5.0.7 now and then mixes or loses last lines
echo $$ >pid.$rank.new && mv pid.$rank.new pid.$rank
[ ! -e rank-$rank.options ] || mapfile -t own <rank-$rank.options
[ ! -e rank-$rank.environment ] || . ./rank-$rank.environment
[ ! -d rank-$rank ] || cd rank-$rank
exec "$@" "${own[@]}"
END
chmod +x as_rank

# RANK, WORLD_SIZE and so on, as torchrun sets them. Leaves the exit code of rank R in status.R; ends like the
# rank that failed first, or with 0.
cat >tcp_launch <<'END'
#!/usr/bin/env bash
export WORLD_SIZE=$1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$2 RANK
shift 2
for ((RANK = 0; RANK < WORLD_SIZE; RANK++)); do
    (
        "$@"
        status=$?
        echo $status >status.$RANK
        exit $status
    ) &
done
status=0
for ((rank = 0; rank < WORLD_SIZE; rank++)); do
    wait -n
    own=$?
    [ $status -ne 0 ] || status=$own
done
exit $status
END
chmod +x tcp_launch

# A port that nobody listens at. Below the range from which the system takes ports for outgoing connections.
free_port() {
    local port
    while port=$((10000 + RANDOM % 20000)) && (exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null; do
        :
    done
    echo $port
}

# ranks N ARGUMENTS...: in the foreground, with output in the files stdout and stderr and the exit code in
# $code.
ranks() {
    ranks_begin "$@"
    ranks_end
}

# The same in the background, as a process group of its own: $job, whose child `leader` is. N=0: no launcher
# at all.
ranks_begin() {
    local N=$1
    shift
    rm -f pid.* status.* stdout stderr
    local command=(./as_rank "$work/$program" "$@")
    case $N:$launcher in
    0:*) ;;
    *:tcp) command=(./tcp_launch "$N" "$(free_port)" "${command[@]}") ;;
    *:mpirun) command=(mpirun "${mpirun_options[@]}" -np "$N" "${command[@]}") ;;
    esac
    # A deadline for the whole run, which as a failure would otherwise hang.
    setsid timeout --foreground -k 5 "$(scaled "${limit_s:-120}")" "${command[@]}" >>stdout 2>>stderr &
    job=$!
}

# The process id of mpirun, or of the one process that has no launcher.
leader() {
    tr -d ' ' <"/proc/$job/task/$job/children"
}

ranks_end() {
    wait "$job" 2>/dev/null # else the shell tells of signals
    code=$?
    job=
    forget_waits
}

# await SECONDS COMMAND...: until the command succeeds; seconds of a quiet machine. 1 when it does not within
# the time or the ranks have ended.
await() {
    local deadline=$((SECONDS + $(scaled "$1")))
    shift
    until "$@" 2>/dev/null; do
        [ $SECONDS -lt $deadline ] && kill -0 "$job" 2>/dev/null || return 1
        sleep 0.02
    done
}

# has_made STEPS FOLDER: that update is in the log.
has_made() {
    grep -qs "\"event\":\"step\",\"iter\":$1," "$2/log.jsonl"
}

# The last line of the last run, its weights; nothing if it ended without.
weights() {
    tail -n 1 stdout | grep -E '^weights [0-9a-f]{16}$'
}

# same NAME WEIGHTS: the last run ended well, and with these weights.
same() {
    [ "$code" -eq 0 ] && [ -n "$2" ] && [ "$(weights)" = "$2" ]
    result $? "$1"
}

# How many updates the log of a folder tells of.
updates() {
    cat "$1"/log.jsonl 2>/dev/null | grep -c '"event":"step"'
}

have_ended() { # LOST: all 3 ranks but that one, or the whole job
    local rank
    kill -0 "$job" 2>/dev/null || return 0
    for rank in 0 1 2; do
        [ $rank -eq "$1" ] || [ -s status.$rank ] || return 1
    done
}

# lose_one SIGNAL RANK ARGUMENTS...: 3 ranks, which write to out, and of which one is lost after some updates.
# Whether the others end with 76, each with a line that names that rank and the collective that it was in
# itself. mpirun ends like the rank that it first saw end badly.
lose_one() {
    local signal=$1 lost=$2 status=0 rank name=${program%_host}
    shift 2
    ranks_begin 3 "$@" --comm_timeout="$(scaled 2)" --out_dir=out
    await 60 has_made 5 out
    kill -"$signal" "$(cat pid.$lost)"
    await 40 have_ended $lost || kill -0 "$job" 2>/dev/null && ! have_ended $lost && status=1
    [ $launcher = mpirun ] || kill -KILL "$(cat pid.$lost)" 2>/dev/null # nobody else ends a stopped process
    ranks_end
    grep -qE "^$name: \[rank [0-9] .*\] rank $lost .*lost.*; this rank was (computing|in )" stderr || status=1
    [ "$signal" = STOP ] || ! grep -q "^$name: \[rank $lost " stderr || status=1
    [ "$signal" = KILL ] || grep -qE 'this rank was in [a-z]' stderr || status=1
    if [ $launcher = mpirun ]; then
        [ "$signal" = KILL ] && [ $code -eq 137 ] || [ $code -eq 76 ] || status=1
    else
        for rank in 0 1 2; do
            [ $rank -eq $lost ] || [ "$(cat status.$rank)" = 76 ] || status=1
        done
    fi
    return $status
}

# Tokens that are the bytes of the sources: each byte followed by a zero byte is one little-endian uint16.
mkdir data
cat "$root"/llmc/*/*.c | head -c 200000 | iconv -f LATIN1 -t UTF-16LE >data/train.bin
cat "$root"/llmc/*/*.h | head -c 20000 | iconv -f LATIN1 -t UTF-16LE >data/val.bin
small=(--train_data=data/train.bin --val_data=data/val.bin --vocab_size=256 --n_layer=2 --n_head=2 --n_embd=32
    --block_size=16 --batch_size=2 --gradient_accumulation_steps=9 --warmup_iters=2 --lr_decay_iters=20
    --learning_rate=3e-3 --eval_interval=0 --snapshot_interval=0 --dtype=fp32 --threads=1
    --comm_timeout="$(scaled 60)")
