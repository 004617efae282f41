#!/usr/bin/env bash
# Keeps a run going: starts it, and starts it again when it asks for that (exit code 75) or a rank was lost
# (76, or ended by a signal), with as many ranks as there is room for now. A run goes on at any number of
# ranks and ends in the same weights, so none has to be replaced.
#   scripts/supervise.sh [OPTION...] -- COMMAND...
#       scripts/supervise.sh -- mpirun -np {ranks} ./train_gpt2 run.conf
#       {ranks} stands for the number of ranks. Once there are snapshots, --init_from=resume is put at the
#       end.
#   --slots=N              room for N ranks (default: SUPERVISE_SLOTS, else what Slurm gave, else the cores)
#   --slots-command=TEXT   a shell command that prints the room there is now, asked before each start
#   --min-ranks=N          with room for fewer, wait (1)
#   --max-ranks=N          never more (default, and the most: the command's gradient_accumulation_steps)
#   --out-dir=DIR          where its snapshots are (default: the command's out_dir)
#   --tries=N              give up after N runs in a row that left no newer snapshot (3)
#   --wait=SECONDS         before a restart after a fault, times the number of tries (5)
#   --signal=NAME          what SIGTERM, SIGINT, SIGUSR1 and SIGHUP become for the command (USR1, which
#                          mpirun and srun pass on to every rank, where others make them kill the job;
#                          torchrun passes on TERM)
# A signal ends the run in good order and is the last start; a second one ends it at once. When a terminal
# goes away SIGHUP may come several times: after the first signal it is nothing new. Under nohup it does not
# come. The exit code is the run's: 0 and 1 (an error that would come again) at once, 75 after a signal, else
# that of the last try.
set -u

# A terminal that is gone, or a pipe that nobody reads, ends nothing.
say() {
    echo "supervise.sh: $*" >&2
}

refuse() {
    say "$*"
    exit 1
}

# number NAME VALUE: refuses what is not a whole number.
number() {
    [[ $2 =~ ^[0-9]{1,9}$ ]] ||
        refuse "$1: expected a whole number, found \"$2\"; see the head of this script"
}

# The command's value of an option, as train_gpt2 reads it: config files and --name=value, the last one
# counts.
option() {
    local name=$1 value=$2 word line pattern
    pattern="[[:space:]]*${name}[[:space:]]*=[[:space:]]*"
    shift 2
    for word in "$@"; do
        if [[ $word == "--$name="* ]]; then
            value=${word#*=}
        elif [ -f "$word" ] && [ -r "$word" ] && [ ! -x "$word" ]; then
            line=$(sed -nE "s/^$pattern([^#]*[^#[:space:]])[[:space:]]*(#.*)?\$/\1/p" "$word" | tail -n 1)
            value=${line:-$value}
        fi
    done
    value=${value#[\"\']}
    echo "${value%[\"\']}"
}

# The newest snapshot's file name; they sort by the number of updates.
newest() {
    local file last=
    for file in "$out_dir"/step-*.snap; do
        [ -e "$file" ] && last=${file##*/}
    done
    echo "$last"
}

# Room for this many ranks now.
room() {
    local count
    if [ -n "$slots_command" ]; then
        count=$(bash -c "$slots_command") || count=
    else
        count=${slots:-${SUPERVISE_SLOTS:-${SLURM_NTASKS:-$(nproc)}}}
    fi
    [[ $count =~ ^[0-9]{1,9}$ ]] || {
        say "slots: expected a number of ranks, found \"$count\"; taken for none"
        count=0
    }
    echo "$count"
}

child=
signals=0
interrupted=0
on_signal() {
    signals=$((signals + 1))
    interrupted=1
    if [ -n "$child" ]; then
        if [ $signals -eq 1 ]; then
            kill "-$signal" "$child" 2>/dev/null
        else
            kill -TERM -- "-$child" 2>/dev/null # its whole group
        fi
    fi
}

# Once more for every part of the terminal that goes away.
on_hang_up() {
    interrupted=1
    [ $signals -gt 0 ] || on_signal
}

# Runs the command with $1 ranks, from snapshot $2 if there is one, and leaves its exit code in $code. It gets
# a process group of its own, so that a Ctrl-C comes here first and not to mpirun, which would kill the job.
run() {
    local ranks=$1 words=() word status
    for word in "${command[@]}"; do
        words+=("${word//\{ranks\}/$ranks}")
    done
    [ -z "$2" ] || words+=(--init_from=resume)
    set -m
    SUPERVISE_RANKS=$ranks "${words[@]}" </dev/null &
    child=$!
    set +m
    if [ $signals -gt 0 ]; then
        kill "-$signal" "$child" 2>/dev/null # it came while the command started
    fi
    code=
    while :; do
        interrupted=0
        wait "$child"
        status=$?
        if [ "$status" -ne 127 ] || [ -z "$code" ]; then
            code=$status
        fi
        # A signal ends `wait` with more than 128 though the command goes on: wait again (127: it had ended).
        if [ $interrupted -eq 0 ] || [ "$status" -le 128 ]; then
            break
        fi
    done
    child=
}

# pause SECONDS: ends early on a signal.
pause() {
    local sleeper
    sleep "$1" &
    sleeper=$!
    wait $sleeper
    kill $sleeper 2>/dev/null
}

slots=
slots_command=
min_ranks=1
max_ranks=
out_dir=
tries=3
wait_s=5
signal=USR1
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in
    --slots=*) slots=${1#*=} && number slots "$slots" ;;
    --slots-command=*) slots_command=${1#*=} ;;
    --min-ranks=*) min_ranks=${1#*=} && number min-ranks "$min_ranks" ;;
    --max-ranks=*) max_ranks=${1#*=} && number max-ranks "$max_ranks" ;;
    --out-dir=*) out_dir=${1#*=} ;;
    --tries=*) tries=${1#*=} && number tries "$tries" ;;
    --wait=*) wait_s=${1#*=} && number wait "$wait_s" ;;
    --signal=*) signal=${1#*=} ;;
    -h | --help)
        sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *) refuse "$1: expected an option and then -- COMMAND; see the head of this script" ;;
    esac
    shift
done
[ $# -gt 1 ] ||
    refuse "expected -- COMMAND, found none; as in: scripts/supervise.sh -- mpirun -np {ranks} ./train_gpt2"
shift
command=("$@")
out_dir=${out_dir:-$(option out_dir out "$@")}
max_ranks=${max_ranks:-$(option gradient_accumulation_steps 40 "$@")}
number gradient_accumulation_steps "$max_ranks"
if [ "$min_ranks" -lt 1 ] || [ "$max_ranks" -lt "$min_ranks" ]; then
    refuse "ranks: expected 1 <= min-ranks <= max-ranks, found $min_ranks and $max_ranks; give other numbers"
fi

trap on_signal TERM INT USR1
trap on_hang_up HUP
trap : PIPE # not ignored: what it starts has the default again
failures=0
code=75
while :; do
    ranks=$(room)
    ranks=$((ranks < max_ranks ? ranks : max_ranks))
    before=$(newest)
    [ $signals -eq 0 ] || exit 75
    if [ "$ranks" -lt "$min_ranks" ]; then
        reason="room for $ranks ranks, expected $min_ranks"
    else
        say "starting $ranks ranks${before:+ from $before}"
        run "$ranks" "$before"
        case $code in
        0 | 1 | 2 | 126 | 127) exit "$code" ;;
        esac
        reason="exit code $code"
    fi
    if [ $signals -gt 0 ]; then
        exit $((code > 128 ? 75 : code)) # ended by the signal itself before it could be handled
    fi
    after=$(newest)
    if [ "$after" != "$before" ]; then
        failures=0
    else
        failures=$((failures + 1))
    fi
    if [ "$failures" -ge "$tries" ]; then
        say "giving up: $reason, and no newer snapshot in $out_dir after $failures tries"
        [ "$ranks" -ge "$min_ranks" ] || code=76
        exit "$code"
    fi
    say "$reason; newest snapshot: ${after:-none}; starting again"
    if [ "$code" -ne 75 ] || [ "$failures" -gt 0 ]; then
        pause $((wait_s * (failures > 0 ? failures : 1)))
    fi
    [ $signals -eq 0 ] || exit 75
done
