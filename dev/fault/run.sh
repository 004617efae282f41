#!/usr/bin/env bash
# Faults injected into train_gpt2 and tokenize, and what must hold after each: the next run reaches the
# weights of a run that nothing happened to, no good snapshot is lost, no damaged one is used, tokenize's
# folder is the old one or the new one, and nothing hangs or crashes. Cases are random; the same seed gives
# the same cases.
#   dev/fault/run.sh [--cases=N | --seconds=S] [--seed=X] [--jobs=J] [--table]
#                    [--subjects="A B"] [--calls="open malloc"]
#   dev/fault/run.sh --case=SUBJECT,RANK,CALL:N:ACTION[:on]     one case again; keeps its folder
# PROGRAMS=build/mpi1 has the programs and, in fault/, what `make fault-tools` makes. Each case that fails
# prints the command that repeats it. The last line is `N cases, N failed`.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
export LC_ALL=C OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=1000
for name in $(compgen -v SLURM) $(compgen -v FAULT) RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT; do
    unset "$name"
done
. "$root/dev/test/time.bash"
cases=0 seconds=0 seed=$((RANDOM * 32768 + RANDOM)) jobs=$(getconf _NPROCESSORS_ONLN) one= table=0
chosen= calls=
die() {
    echo "dev/fault/run.sh: $*" >&2
    exit 1
}
for argument; do
    case $argument in
    --cases=*) cases=${argument#*=} ;;
    --seconds=*) seconds=${argument#*=} ;;
    --seed=*) seed=${argument#*=} ;;
    --jobs=*) jobs=${argument#*=} ;;
    --subjects=*) chosen=${argument#*=} ;;
    --calls=*) calls=" ${argument#*=} " ;;
    --case=*) one=${argument#*=} ;;
    --table) table=1 ;;
    -h | --help)
        sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *) die "unknown argument $argument; see --help" ;;
    esac
done
[ "$cases" -gt 0 ] || [ "$seconds" -gt 0 ] || cases=500
built=$(cd "${PROGRAMS:-$root/build/mpi1}" && pwd) || exit 1

# A disk in memory where there is one: syncing costs nothing there.
[ -n "${TMPDIR:-}" ] || ! [ -w /dev/shm ] || TMPDIR=/dev/shm
export TMPDIR=${TMPDIR:-/tmp}
work=$(mktemp -d)
keep=0
end_run() {
    [ $keep -eq 1 ] || rm -rf "$work"
}
trap end_run EXIT
# Copies: a build that goes on meanwhile does not change what is tested.
programs=$work/programs
mkdir -p "$programs/data_prep" "$programs/fault" "$work/data"
cp "$built/train_gpt2" "$programs" && cp "$built/data_prep/tokenize" "$programs/data_prep" &&
    cp "$built"/fault/{inject.so,inspect,start} "$programs/fault" || exit 1
book=$work/book.txt
cat "$root"/llmc/*/*.c >"$book"
head -c 3000 "$book" | iconv -f LATIN1 -t UTF-16LE >"$work/data/train.bin"
tail -c 600 "$book" | iconv -f LATIN1 -t UTF-16LE >"$work/data/val.bin"

limit=$(scaled 12) patience=$(scaled 6)
. "$here/subjects.bash"
[ -z "$chosen" ] || subjects=$chosen

# ---- what can meet a call ----------------------------------------------------------------------------------
declare -A actions=(
    [open]="EIO EMFILE ENOMEM EACCES ESTALE EINTR ENOSPC before after"
    [opendir]="EIO EMFILE ENOMEM ESTALE before" [readdir]="EIO ESTALE before"
    [read]="EIO ESTALE EINTR short before" [pread]="EIO ESTALE EINTR short before"
    [write]="EIO ENOSPC EDQUOT EINTR short torn before after"
    [pwrite]="EIO ENOSPC EDQUOT EINTR short torn before after" [flush]="EIO ENOSPC before after"
    [console]="EIO ENOSPC EPIPE EINTR short" [fsync]="EIO ENOSPC before after"
    [truncate]="EIO ENOSPC before after" [lock]="ENOLCK EIO before after"
    [rename]="EIO ENOSPC EACCES ESTALE before after" [link]="EMLINK EPERM before"
    [unlink]="EIO EACCES EBUSY before after" [mkdir]="EIO ENOSPC EACCES before after"
    [chmod]="EPERM EIO before"
    [stat]="EIO ESTALE ENOMEM EACCES before" [close]="EIO ENOSPC EINTR before after" [malloc]="ENOMEM before"
    [mmap]="ENOMEM before" [thread]="EAGAIN before" [socket]="EMFILE ENOBUFS ENOMEM before"
    [bind]="EADDRINUSE EACCES before" [connect]="ECONNREFUSED ETIMEDOUT EINTR ENETUNREACH before after"
    [accept]="ECONNABORTED EMFILE EINTR before after" [send]="ECONNRESET EPIPE EINTR short torn before after"
    [receive]="ECONNRESET EINTR short before after" [poll]="EINTR ENOMEM before after")

# The calls that a subject makes, each with its number: a file that inject.so wrote, as text.
counts_of() {
    "$programs/fault/inspect" --counts "$1"
}

faulty_words() { # RANK FAULT COUNTS: what a program is started with under a fault
    faulty=(LD_PRELOAD="$programs/fault/inject.so" FAULT_UNDER="$work" FAULT_COUNTS="$3" FAULT_RANK="$1")
    [ -z "$2" ] || faulty+=(FAULT="$2")
}

prepare() { # SUBJECT: its folder, and counts.R for each rank
    subject=$1 worker=0 faulty=()
    mkdir "$work/$subject" && cd "$work/$subject" || exit 1
    prepare_"$subject"
    local rank ranks=0
    [[ $subject != *-2 ]] || ranks="0 1"
    for rank in $ranks; do
        rm -rf out && cp -r base/. .
        faulty_words "$rank" "" "$PWD/counts"
        start_"$subject"
        [[ $status =~ ^0( 0)?$ ]] || die "$subject: without a fault it ends with $status: $(tail -n 1 stderr)"
        counts_of counts | while read -r call number; do
            [[ -n $calls && $calls != *" $call "* ]] || echo "$call $number"
        done >calls.$rank
        rm counts
        [ -s calls.$rank ] || die "$subject: none of these calls is made"
    done
}

# pick NUMBER: case NUMBER of this seed, as $subject, $rank and $fault.
pick() {
    local names=() numbers=() i
    RANDOM=$(((seed * 7919 + $1 * 104729) % 32768))
    local list=($subjects)
    subject=${list[($1 + seed) % ${#list[@]}]}
    rank=0
    [[ $subject != *-2 ]] || rank=$((RANDOM % 2))
    while read -r i call; do
        names+=("$i") numbers+=("$call")
    done <"$work/$subject/calls.$rank"
    i=$((RANDOM % ${#names[@]}))
    call=${names[i]}
    local kinds=(${actions[$call]})
    fault=$call:$(((RANDOM * 32768 + RANDOM) % numbers[i] + 1)):${kinds[RANDOM % ${#kinds[@]}]}
    # Some faults stay. Not those of connections: a rank waits long for another that it cannot reach yet.
    [[ $fault == *:before || $fault == *:after || $fault == *:torn || $fault == *:EINTR ]] ||
        [[ $call =~ ^(connect|accept|send|receive)$ ]] || [ $((RANDOM % 5)) -gt 0 ] || fault+=:on
}

# One case in a folder of its own; the line of its result: subject call statuses fired verdict
run_case() { # FOLDER SUBJECT RANK FAULT
    subject=$2 rank=$3 fault=$4 call=${4%%:*} kills=0
    [[ ! $fault =~ :(before|after|torn)$ ]] || kills=1
    rm -rf "$1" && mkdir "$1" && cd "$1" && cp -r "$work/$subject/base" . && cp -r base/. . || exit 1
    [ ! -e "$work/$subject/weights" ] || expected_weights=$(cat "$work/$subject/weights")
    faulty_words "$rank" "$fault" "$PWD/counts"
    start_"$subject"
    local ends=${status// /+} wrong
    wrong=$(judge_"$subject" | sort -u)
    local fired=$("$programs/fault/inspect" --fired counts)
    echo "$subject $call $ends $fired ${wrong:-good}" | tr '\n' ';' | sed 's/;$/\n/'
    if [ -n "$wrong" ]; then
        {
            echo "not ok: $wrong"
            echo "  exit codes $ends; last words:" $(tail -qn 1 stderr.fault stderr.1 2>/dev/null |
                cut -c 1-200)
            echo "  again: dev/fault/run.sh --case=$subject,$rank,$fault"
        } >&2
    fi
}

work_on() { # WORKER: every jobs-th case
    worker=$1
    local number=$1
    while { [ "$cases" -gt 0 ] && [ $number -lt "$cases" ]; } ||
        { [ "$seconds" -gt 0 ] && [ $SECONDS -lt $((began + seconds)) ]; }; do
        pick $number
        run_case "$work/case-$worker" "$subject" "$rank" "$fault" >>"$work/results.$worker"
        number=$((number + jobs))
    done
}

# ---- the whole ---------------------------------------------------------------------------------------------
if [ -n "$one" ]; then
    IFS=, read -r subject rank fault <<<"$one"
    subjects=$subject
    prepare "$subject"
    worker=0 keep=1
    run_case "$work/case-0" "$subject" "$rank" "$fault"
    echo "its folder: $work/case-0"
    exit
fi
echo "faults: seed $seed, $jobs jobs"
for subject in $subjects; do
    (prepare "$subject") || exit 1
done
began=$SECONDS
for ((job = 0; job < jobs; job++)); do
    work_on $job &
done
wait
cat "$work"/results.* >"$work/results"
if [ $table -eq 1 ]; then
    for column in 1 2; do
        awk -v column=$column 'BEGIN {
            print "\n| " (column == 1 ? "subject" : "call"),
                "| cases | fired | done | failed | killed | lost | wrong | crashes | hangs | other |"
            print "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
        } {
            key = $column; cases[key]++; fired[key] += $4
            if ($3 ~ /^0(\+0)?$/) done[key]++; else if ($3 ~ /137/) killed[key]++; else failed[key]++
            if (/ lost:/) lost[key]++; else if (/ wrong:/) wrong[key]++; else if (/ crash/) crash[key]++
            else if (/ hang/) hang[key]++; else if ($5 != "good") other[key]++
        } END {
            for (key in cases)
                printf "| %s | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d |\n", key, cases[key],
                    fired[key], done[key], failed[key], killed[key], lost[key], wrong[key], crash[key],
                    hang[key], other[key] | "sort"
        }' "$work/results"
    done
    echo
fi
total=$(wc -l <"$work/results")
failed=$(grep -cv ' good$' "$work/results")
echo "$total cases, $failed failed"
[ "$failed" -eq 0 ] && [ "$total" -gt 0 ]
