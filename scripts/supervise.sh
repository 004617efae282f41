#!/usr/bin/env bash
# Keeps a run going: starts it, and starts it again when it asks for that (exit code 75) or a rank was lost
# (76, or ended by a signal), with as many ranks as there is room for now. A run goes on at any number of
# ranks and ends in the same weights, so none has to be replaced.
#   scripts/supervise.sh [OPTION...] -- COMMAND...
#       scripts/supervise.sh -- mpirun -np {ranks} ./train_gpt2 run.conf
#       scripts/supervise.sh -- torchrun --no-python --nproc-per-node={ranks} ./train_gpt2 run.conf
#       scripts/supervise.sh --hosts=a:8,b:8 -- mpirun -np {ranks} --host {hosts} ./train_gpt2 run.conf
#       {ranks} stands for the number of ranks, {hosts} for the hosts that answer. Once there are snapshots,
#       --init_from=resume is put at the end.
#   --slots=N              room for N ranks (default: SUPERVISE_SLOTS, else what Slurm gave, else the cores)
#   --slots-command=TEXT   a shell command that prints the room there is now, asked before each start
#   --hosts=HOST:N,...     machines and the room on each. Before each start all are asked whether they answer;
#                          one that does not is left out of that start
#   --host-check=TEXT      the shell command that asks {host} (ssh -o BatchMode=yes .. {host} true); this
#                          machine is not asked
#   --min-ranks=N          with room for fewer, wait (1)
#   --max-ranks=N          never more (default, and the most: the command's gradient_accumulation_steps)
#   --out-dir=DIR          where its snapshots are (default: the command's out_dir)
#   --tries=N              give up after N runs in a row that left no newer snapshot (3)
#   --wait=SECONDS         before a restart after a fault, times the number of tries (5)
#   --end-wait=SECONDS     how long the launcher may take once the ranks have ended (10); then it is ended
#   --silence=SECONDS      ranks whose sign of life is as old as this have ended (180)
#   --signal=NAME          what SIGTERM, SIGINT, SIGUSR1 and SIGHUP become for the command (USR1, which
#                          mpirun and srun pass on to every rank, where others make them kill the job).
#                          Where no process of the command's group handles it, as of torchrun, which would
#                          die and leave its ranks training, they get TERM
# How a run ended is told by the line that it leaves in out_dir/.end, then by the launcher's exit code:
# torchrun turns every code into 1, and an mpirun that has lost a host may not end for a quarter of an hour.
# Ranks that have ended are known by that line, or by out_dir/.lock, which rank 0 touches every two seconds.
# An exit code of 1 without that line, where there is an out_dir already, is a launcher that could not start
# the run: that is tried again. When the launcher has ended, what it leaves on this machine is ended too:
# first by SIGTERM, after which a rank writes its snapshot, then by SIGKILL.
#
# A signal ends the run in good order and is the last start; a second one, 5 seconds or more after it, ends it
# at once (sooner it is the same event, told twice). When a terminal goes away SIGHUP may come several times:
# after the first signal it is nothing new. Under nohup it does not come. The exit code is the run's: 0 and 1
# (an error that would come again) at once, 75 after a signal, else that of the last try.
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

# Leaves in $ranks for how many there is room now.
room() {
    local count
    if [ -n "$hosts" ]; then
        ask_hosts
        count=$host_slots
    elif [ -n "$slots_command" ]; then
        count=$(bash -c "$slots_command") || count=
    else
        count=${slots:-${SUPERVISE_SLOTS:-${SLURM_NTASKS:-$(nproc)}}}
    fi
    [[ $count =~ ^[0-9]{1,9}$ ]] || {
        say "slots: expected a number of ranks, found \"$count\"; taken for none"
        count=0
    }
    ranks=$((count < max_ranks ? count : max_ranks))
}

# Whether a host answers.
answers() {
    [ "$1" = localhost ] || [ "$1" = "$(uname -n)" ] ||
        timeout 20 bash -c "${host_check//\{host\}/$1}" </dev/null >/dev/null 2>&1
}

# Leaves those of --hosts that answer in $hosts_up, as mpirun takes them, and their room in $host_slots.
ask_hosts() {
    local one asking=() i=0
    hosts_up=
    host_slots=0
    for one in ${hosts//,/ }; do
        answers "${one%:*}" &
        asking+=($!)
    done
    for one in ${hosts//,/ }; do
        if await_one "${asking[i]}"; then
            hosts_up+=${hosts_up:+,}$one
            host_slots=$((host_slots + ${one##*:}))
        else
            say "host ${one%:*} does not answer and is left out"
        fi
        i=$((i + 1))
    done
}

# The exit status of a process in the background, also when a signal comes meanwhile.
await_one() {
    local status
    while :; do
        interrupted=0
        wait "$1"
        status=$?
        [ $interrupted -eq 1 ] && [ $status -gt 128 ] && kill -0 "$1" 2>/dev/null || return $status
    done
}

# ---- signals and processes ---------------------------------------------------------------------------------
child=
signals=0    # that count
signal_s=0   # when the first came
interrupted=0
on_signal() {
    interrupted=1
    if [ $signals -eq 0 ]; then
        signals=1
        signal_s=$SECONDS
    elif [ $((SECONDS - signal_s)) -ge 5 ]; then
        signals=2
    fi
}

# Once more for every part of the terminal that goes away.
on_hang_up() {
    interrupted=1
    [ $signals -gt 0 ] || on_signal
}

# The processes of the launcher's group.
group() {
    cat /proc/[0-9]*/stat 2>/dev/null |
        awk -v group="$child" '{ pid = $1; sub(/.*\) /, ""); if ($3 == group && $1 != "Z") print pid }'
}

# All that this start led to on this machine, in whatever group: torchrun gives each worker its own session.
marked() {
    grep -lsz "^SUPERVISE_RUN=$mark\$" /proc/[0-9]*/environ | tr -dc '0-9\n'
}

# handles PID SIGNAL: whether it catches that signal, or has it blocked and waits for it: it does not die.
handles() {
    local bit name mask
    bit=$((1 << ($(kill -l "$2") - 1)))
    while read -r name mask; do
        [[ $name == Sig@(Cgt|Blk): ]] && [ $((16#${mask: -8} & bit)) -ne 0 ] && return 0
    done 2>/dev/null <"/proc/$1/status"
    return 1
}

# Tells those of the group that handle $signal, or else SIGTERM. 1 when nobody does, or does yet.
pass_on() {
    local name pid told=1
    for name in "$signal" TERM; do
        for pid in $(group); do
            handles "$pid" "$name" && kill "-$name" "$pid" 2>/dev/null && told=0
        done
        [ $told -ne 0 ] || return 0
    done
    return 1
}

# end_whole SIGNAL: to the launcher's group and to whatever else came of it. 1 when there is nothing.
end_whole() {
    local rest
    rest=$(marked)
    kill "-$1" -- "-$child" 2>/dev/null || [ -n "$rest" ] || return 1
    # shellcheck disable=SC2086 # numbers
    [ -z "$rest" ] || kill "-$1" $rest 2>/dev/null
    return 0
}

# ---- how a run ends ----------------------------------------------------------------------------------------

# The line that it left, once it is whole.
end_line() {
    local line
    [ -f "$out_dir/.end" ] && IFS= read -r line <"$out_dir/.end" && [[ $line =~ ^[0-9]{1,3}\  ]] &&
        echo "$line"
}

# What changes while rank 0 lives: the time of its lock, which it touches.
sign_of_life() {
    stat -c '%i %Y %Z' "$out_dir/.lock" 2>/dev/null
}

# Whether the lock's holder is a process of this machine that lives, though it may be stopped.
holder_lives() {
    local process host _
    read -r _ process _ host _ 2>/dev/null <"$out_dir/.lock" &&
        [ "$host" = "$(uname -n)" ] && [[ $process =~ ^[0-9]+$ ]] &&
        grep -qs '^State:.[^ZX]' "/proc/$process/status" # no zombie
}

# Whether the ranks have ended, as far as can be known. Called every half second; keeps the signs in variables
# of watch().
have_ended() {
    local now_sign
    [ -z "$(end_line)" ] || return 0
    now_sign=$(sign_of_life)
    if [ "$now_sign" != "$sign" ]; then
        sign=$now_sign
        sign_s=$SECONDS
    fi
    [ -n "$sign_s" ] && [ $((SECONDS - sign_s)) -ge "$silence_s" ] || return 1
    if holder_lives; then
        sign_s=$SECONDS
        return 1
    fi
}

# half_second: less when the launcher ends or a signal comes.
half_second() {
    local sleeper
    sleep 0.5 &
    sleeper=$!
    wait -n "$child" $sleeper 2>/dev/null
    kill $sleeper 2>/dev/null
}

# Sees to what comes while the launcher lives: signals, and ranks that end without it.
watch() {
    local sign sign_s='' ended_s='' told=0 ending=0
    sign=$(sign_of_life) # of a run before this one, maybe
    while kill -0 "$child" 2>/dev/null; do
        if [ $signals -gt 0 ] && [ $told -eq 0 ]; then
            if pass_on; then
                told=1
            elif [ $((SECONDS - signal_s)) -ge 5 ]; then
                say "no process of the command handles SIG$signal or SIGTERM: ending all of them"
                told=1
                signals=2
            fi
        fi
        if [ $signals -gt 1 ] && [ $ending -eq 0 ]; then
            ending=1
            ended_s=$SECONDS
            end_whole TERM
        elif [ -z "$ended_s" ] && have_ended; then
            ended_s=$SECONDS
        elif [ -n "$ended_s" ] && [ $ending -eq 0 ] && [ $((SECONDS - ended_s)) -ge "$end_wait_s" ]; then
            say "the ranks have ended, and ${command[0]} has not for $end_wait_s s: ending it"
            ending=1
            ended_s=$SECONDS
            end_whole TERM
        elif [ $ending -eq 1 ] && [ $((SECONDS - ended_s)) -ge 10 ]; then
            end_whole KILL
        fi
        half_second
    done
}

# What the launcher left behind: as long as a rank takes for its snapshot, then at once.
end_rest() {
    local end
    [ -n "$(marked)" ] || return 0
    [ "$1" -ne 0 ] || return 0 # the run is done: it is whatever else the command began
    say "${command[0]} has left processes behind: ending them"
    end=$((SECONDS + 30))
    end_whole TERM
    while [ -n "$(marked)" ] && [ $SECONDS -lt $end ] && [ $signals -lt 2 ]; do
        pause 0.2
    done
    end_whole KILL
}

# Runs the command with $1 ranks, from snapshot $2 if there is one, and leaves its exit code in $code and what
# it said in $said. It gets a process group of its own, so that a Ctrl-C comes here first and not to mpirun,
# which would kill the job.
run() {
    local words=() word
    for word in "${command[@]}"; do
        word=${word//\{ranks\}/$1}
        words+=("${word//\{hosts\}/$hosts_up}")
    done
    [ -z "$2" ] || words+=(--init_from=resume)
    rm -f "$out_dir/.end"
    mark=$$-$SECONDS-$RANDOM
    set -m
    SUPERVISE_RUN=$mark SUPERVISE_RANKS=$1 "${words[@]}" </dev/null &
    child=$!
    set +m
    watch
    await_one "$child"
    code=$?
    end_rest "$code"
    said=$(end_line)
    [ -z "$said" ] || code=${said%% *}
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
hosts=
hosts_up=
host_slots=0
host_check='ssh -o BatchMode=yes -o ConnectTimeout=10 {host} true'
min_ranks=1
max_ranks=
out_dir=
tries=3
wait_s=5
end_wait_s=10
silence_s=180
signal=USR1
mark=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in
    --slots=*) slots=${1#*=} && number slots "$slots" ;;
    --slots-command=*) slots_command=${1#*=} ;;
    --hosts=*)
        hosts=${1#*=}
        [[ $hosts =~ ^[^:,\ ]+:[0-9]{1,9}(,[^:,\ ]+:[0-9]{1,9})*$ ]] ||
            refuse "hosts: expected HOST:N,HOST:N.., found \"$hosts\"; give each host the number of its ranks"
        ;;
    --host-check=*) host_check=${1#*=} ;;
    --min-ranks=*) min_ranks=${1#*=} && number min-ranks "$min_ranks" ;;
    --max-ranks=*) max_ranks=${1#*=} && number max-ranks "$max_ranks" ;;
    --out-dir=*) out_dir=${1#*=} ;;
    --tries=*) tries=${1#*=} && number tries "$tries" ;;
    --wait=*) wait_s=${1#*=} && number wait "$wait_s" ;;
    --end-wait=*) end_wait_s=${1#*=} && number end-wait "$end_wait_s" ;;
    --silence=*) silence_s=${1#*=} && number silence "$silence_s" ;;
    --signal=*)
        signal=${1#*=} signal=${signal#SIG}
        kill -l "$signal" >/dev/null 2>&1 ||
            refuse "signal: expected a name like USR1, found \"$signal\"; kill -l lists them"
        ;;
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
    room
    before=$(newest)
    [ $signals -eq 0 ] || exit 75
    if [ "$ranks" -lt "$min_ranks" ]; then
        reason="room for $ranks ranks, expected $min_ranks"
    else
        say "starting $ranks ranks${before:+ from $before}"
        run "$ranks" "$before"
        reason="exit code $code"
        if [ "$code" -eq 1 ] && [ -z "$said" ] && [ $signals -gt 0 ]; then
            code=75 # told before the ranks were there
        elif [ "$code" -eq 1 ] && [ -z "$said" ] && [ -d "$out_dir" ]; then
            reason="${command[0]} ended with 1 and the program did not say why: a launch failure"
            code=76
        else
            case $code in
            0 | 1 | 2 | 126 | 127) exit "$code" ;;
            esac
        fi
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
