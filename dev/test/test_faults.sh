#!/usr/bin/env bash
# What a run survives, and how it ends when it cannot go on: signals, lost ranks, full disks, losses that are
# not finite, kill -9 at any moment, damaged snapshots. Nothing is lost but the updates since the last good
# snapshot.
#   PROGRAMS=build/mpi1 dev/test/test_faults.sh        prints TAP
set -u
. "$(dirname "$0")/ranks.bash"

small+=(--lr_schedule=wsd --lr_decay_iters=40 --dropout=0.1)
endless=(--max_iters=100000 --init_from=auto) # until something stops it
saving=(--snapshot_interval=1)

# undisturbed STEPS: the weights line of a run that ends there and that nothing happened to.
undisturbed() {
    "$work/train_gpt2" "${small[@]}" --max_iters="$1" --out_dir=undisturbed-"$1" 2>&1 | tail -n 1
    rm -rf undisturbed-"$1"
}

newest() { # FOLDER: the step of its newest snapshot
    local newest=$(ls "$1" | grep -xE 'step-[0-9]{8}\.snap' | sort | tail -n 1)
    newest=${newest//[!0-9]/}
    echo $((10#${newest:-0}))
}

# goes_on NAME STATUS N FOLDER ARGUMENTS...: from its newest snapshot some updates further, on N ranks, to the
# weights of a run that nothing happened to. STATUS is that of what was checked before.
goes_on() {
    local name=$1 bad=$2 N=$3 folder=$4 from goal
    shift 4
    from=$(newest "$folder")
    goal=$((from + 3))
    [ "$bad" -eq 0 ] || { echo "# before it went on"; tail -n 3 stdout stderr | sed 's/^/# /'; }
    ranks "$N" "${small[@]}" --max_iters=$goal --init_from=auto --out_dir="$folder" "$@"
    [ "$bad" -eq 0 ] && [ "$code" -eq 0 ] && grep -q "^resuming .*: $from updates made" stdout &&
        [ "$(weights)" = "$(undisturbed $goal)" ]
    result $? "$name"
    rm -rf "$folder"
}

# ---- signals -----------------------------------------------------------------------------------------------
# A thread takes the signals that stop a run, and every other thread of a rank, the libraries' too, blocks
# them (llmc/run/stop.h).
stopping=$((0x4202)) # the bits of SIGINT, SIGUSR1 and SIGTERM, and below that of mpirun's SIGCONT
[ $launcher = tcp ] || stopping=$((0x24202))
takers() { # PID: how many of its threads do not block them all
    local count=0 mask
    for mask in $(sed -n 's/^SigBlk:[[:space:]]*//p' /proc/"$1"/task/*/status); do
        [ $((0x$mask & stopping)) -eq $stopping ] || count=$((count + 1))
    done
    echo $count
}
ranks_begin 2 "${small[@]}" "${endless[@]}" --threads=2 --out_dir=out
await 60 has_made 3 out
found="$(takers "$(cat pid.0)") $(takers "$(cat pid.1)")"
# The ranks too: they are not in mpirun's process group, and would go on with their log for a while.
kill -KILL -- -"$job" "$(cat pid.0)" "$(cat pid.1)"
ranks_end
[ "$found" = "1 1" ]
result $? "one thread of a rank takes signals, none that computes ($found)"
rm -rf out

# A program that is not told how its threads wait executes itself once more. A library that it loads then
# sends the signal: after the first line of main, and before anything takes signals.
cat >early.c <<'END'
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void send_signal(void)
{
    const char *number = getenv("EARLY_SIGNAL");
    if (number && getenv("GOMP_SPINCOUNT")) {
        kill(getpid(), atoi(number));
    }
}
END
${CC:-cc} -shared -fPIC -o early.so early.c || exit 1
for signal in TERM USR1 INT HUP; do
    cat >rank-0.environment <<END
unset OMP_WAIT_POLICY GOMP_SPINCOUNT
export EARLY_SIGNAL=$(kill -l $signal) LD_PRELOAD=$work/early.so
END
    ranks 0 "${small[@]}" "${endless[@]}" --out_dir=out
    [ $code -eq 75 ] && grep -q "SIG$signal before the run had begun" stderr && [ ! -e out ]
    result $? "SIG$signal while the program starts: exit 75 at once"
    rm -rf out
done
rm rank-0.environment

# Every rank finishes its slot, all agree, rank 0 writes a snapshot, exit 75. Where mpirun itself is told to
# end, it ends with 1 whatever its ranks do, unless by SIGUSR1, which it only passes on.
signals=(TERM:0 TERM:2 INT:0 INT:1 USR1:0 USR1:2 HUP:1)
[ $launcher = tcp ] || signals+=(TERM:mpirun INT:mpirun USR1:mpirun)
signals+=(USR1:all) # as Slurm does: every process of the step, and mpirun tells its ranks again
for one in "${signals[@]}"; do
    signal=${one%:*} who=${one#*:}
    ranks_begin 3 "${small[@]}" "${endless[@]}" --out_dir=out
    await 60 has_made 3 out
    made=$(grep -c '"event":"step"' out/log.jsonl)
    case $who in
    mpirun) told_pids=$(leader) ;;
    all) told_pids="$(cat pid.0 pid.1 pid.2) $([ $launcher = tcp ] && cat pid.0 pid.1 || leader)" ;;
    *) told_pids=$(cat "pid.$who") ;;
    esac
    kill -"$signal" $told_pids
    ranks_end
    expected=75
    [ $one != TERM:mpirun ] && [ $one != INT:mpirun ] || expected=1
    last=$(tail -n 1 out/log.jsonl)
    echo "# exit code $code after $made updates, newest snapshot $(newest out), last event ${last:0:70}"
    [ $code -eq $expected ] && [[ $last == *'"reason":"signal"'* ]] && [ "$(newest out)" -ge "$made" ] &&
        [[ $(cat out/.end) == "75 "* ]] &&
        [ "$(newest out)" -eq "$(grep -c '"event":"step"' out/log.jsonl)" ]
    goes_on "SIG$signal on ${who/#[0-9]/rank &}: a snapshot, exit $expected, and it goes on" $? 1 out
done
ranks_begin 2 "${small[@]}" "${endless[@]}" --comm_timeout="$(scaled 5)" --out_dir=out
await 60 has_made 3 out
kill -STOP "$(cat pid.1)"
await 10 grep -q '^State:.T' "/proc/$(cat pid.1)/status"
made=$(grep -c '"event":"step"' out/log.jsonl)
kill -CONT "$(cat pid.1)"
await 60 has_made $((made + 10)) out && kill -USR1 "$(cat pid.0)"
status=$?
ranks_end
[ $status -eq 0 ] && [ $code -eq 75 ]
result $? "a rank that is stopped and continued in time goes on"
rm -rf out

# ---- a rank is lost ----------------------------------------------------------------------------------------
lose() { # SIGNAL RANK
    local signal=$1 lost=$2 status
    lose_one "$signal" "$lost" "${small[@]}" "${endless[@]}" "${saving[@]}"
    status=$?
    local told=$(grep -o '"file":"step-[0-9]*' out/log.jsonl | tail -n 1)
    [ "$(newest out)" -ge "$((10#${told##*-}))" ] || status=1 # what the log promises is there
    [[ $(cat out/.end) == "76 $program: [rank "*"] rank $lost "*lost* ]] || status=1
    goes_on "$launcher: SIG$signal on rank $lost: the others name it and end with 76, and 2 ranks go on" \
        $status 2 out
}
default=$launcher
for launcher in $(printf '%s\n' $default tcp | uniq); do
    for fault in KILL:0 KILL:1 STOP:0 STOP:2; do
        lose ${fault%:*} ${fault#*:}
    done
done
launcher=$default

# An mpirun that is killed can tell its ranks nothing: they miss it, and end. So must they all, before another
# mpirun goes on in their folder.
have_gone() { # PIDS: not one is left, but as a name that nobody has asked for
    local pid
    for pid; do
        ! grep -qs '^State:.[^ZX]' "/proc/$pid/status" || return 1
    done
}
if [ $launcher = mpirun ]; then
    ranks_begin 3 "${small[@]}" "${endless[@]}" "${saving[@]}" --out_dir=out
    await 60 has_made 5 out
    pids=$(cat pid.0 pid.1 pid.2)
    kill -KILL "$(leader)"
    ranks_end
    status=1
    for ((deadline = SECONDS + $(scaled 30); SECONDS < deadline; )); do
        have_gone $pids && status=0 && break
        sleep 0.02
    done
    have_gone $pids || kill -KILL $pids 2>/dev/null
    [ "$code" -eq 137 ] || status=1
    goes_on "SIGKILL on mpirun: its ranks end by themselves, and 2 go on" $status 2 out
fi

good='newest good snapshot: step-00000004.snap'

# ---- snapshots that cannot be written ----------------------------------------------------------------------
failures_told() { # at least so many
    [ "$(grep -c 'the run goes on without this snapshot' stderr)" -ge "$1" ]
}
few=("${small[@]}" "${saving[@]}" --init_from=auto)
launcher=tcp # mpirun's own files would not fit the limit either
for N in 0 2; do
    ranks $N "${few[@]}" --max_iters=4 --out_dir=out
    code=$(
        ulimit -f 64
        ranks $N "${few[@]}" --max_iters=7 --out_dir=out
        echo $code
    )
    [ "$code" -eq 1 ] && [ "$(weights)" = "$(undisturbed 7)" ] && failures_told 3 &&
        grep -q "out: the last snapshot could not be written (3 failed); $good" stderr &&
        [ "$(ls out | tr '\n' ' ')" = "log.jsonl step-00000003.snap step-00000004.snap " ]
    goes_on "write errors, ${N/0/1} rank(s): training goes on, snapshots stay, exit 1; then it goes on" \
        $? $N out
done
launcher=$default

# fail NAME BEGIN FOLDER END: something makes snapshots fail while a run goes on, and then is over. Meanwhile
# FOLDER holds the snapshots that there were.
later_than() {
    [ "$(newest disk/out)" -gt "$1" ]
}
fail() {
    local name=$1 begin=$2 meanwhile=$3 end=$4 bad=0 kept left
    ranks_begin 2 "${small[@]}" "${endless[@]}" "${saving[@]}" --out_dir=disk/out
    await 60 has_made 5 disk/out
    eval "$begin" || bad=1
    await 30 failures_told 2 || bad=1
    kept=$(newest "$meanwhile")
    eval "$end"
    await 30 later_than "$kept" || bad=1
    kill -USR1 "$(cat pid.0)"
    ranks_end
    # What is half written when the folder goes away or may not be written is out of the writer's reach: the
    # next run removes it. A full disk is no such excuse.
    left=$(ls disk/out | grep tmp)
    echo "# failed: $bad, exit code $code, snapshot $kept meanwhile, half written: ${left:-nothing}"
    [ $bad -eq 0 ] && [ "$code" -eq 75 ] && [ "$kept" -ge 4 ] &&
        { [ "$name" != "full disk" ] || [ -z "$left" ]; }
    goes_on "$name: training goes on, the last snapshot stays, later ones are written" $? 2 disk/out
}
mkdir disk
if mount -t tmpfs -o size=32m tmpfs disk 2>/dev/null; then
    trap 'umount -l disk/out disk 2>/dev/null; end_test' EXIT
    fail "full disk" '! cat /dev/zero >disk/ballast 2>/dev/null' disk/out 'rm disk/ballast'
    # Either is refused while the writer has a file open there.
    fail "read-only folder" 'mount --bind disk/out disk/out && await 30 mount -o remount,bind,ro disk/out' \
        disk/out 'await 30 umount disk/out || bad=1'
else
    echo "# no right to mount a small disk: its cases are left out"
fi
# By a link, which changes in one go; else the writer might make the folder again in between.
mkdir disk/real && touch disk/file && ln -s real disk/out
fail "a file where the folder was" 'ln -s file disk/new && mv -T disk/new disk/out' disk/real \
    'ln -s real disk/new && mv -T disk/new disk/out'

# ---- losses that are not finite ----------------------------------------------------------------------------
# The first update throws the weights so far off that no later loss is finite.
log_of() { # FOLDER: what the log says about updates
    grep -E '"event":"(step|skip|end)"' "$1/log.jsonl" |
        sed -E 's/,"([a-z_]*ms|tok_per_s|mfu|slowest_[a-z]+)":[^,}]*//g'
}
wild=("${small[@]}" --learning_rate=100 --weight_decay=100 --warmup_iters=0 --max_iters=20 --max_bad_steps=4)
limit='finite, but beyond 113.778 (1024 / gradient_accumulation_steps), the most that exact sums hold'
for N in 0 3; do
    ranks $N "${wild[@]}" --snapshot_interval=2 --out_dir=wild-$N
    [ $code -eq 76 ] && [ "$(grep -c '^train_gpt2: ' stderr)" -eq 1 ] &&
        grep -qF "wild-$N: 4 updates in a row had a loss or gradient that is $limit; newest good snapshot: \
none was written; --reduce=fp32 has no such limit" stderr &&
        [ "$(log_of wild-$N | grep -c '"event":"skip"')" -eq 4 ] && [ -z "$(ls wild-$N | grep snap)" ] &&
        grep -q '"event":"dropped","iter":2,"file":"step-00000002.snap","reason":' wild-$N/log.jsonl
    result $? "$N ranks: updates are skipped, then exit 76, and no snapshot of such weights is kept"
done
# Gradients that are only too large for exact sums: the line names what adds them up.
dropped=("${small[@]}" --dropout=0.99 --max_iters=6 --max_bad_steps=4)
ranks 0 "${dropped[@]}" --out_dir=dropped
[ $code -eq 76 ] && grep -qF -- "$limit; newest good snapshot: none was written; --reduce=fp32" stderr
bad=$?
ranks 0 "${dropped[@]}" --reduce=fp32 --out_dir=dropped-fp32
[ $bad -eq 0 ] && [ $code -eq 0 ] && [ "$(updates dropped-fp32)" -eq 6 ]
result $? "large gradients are not called infinite, and --reduce=fp32 trains with them"

# Good snapshots are followed by updates that destroy the weights, and by snapshots at each of them.
ranks 0 "${small[@]}" --max_iters=6 --snapshot_interval=2 --out_dir=spoilt
sums=$(cd spoilt && md5sum *.snap)
ranks 0 "${wild[@]}" --snapshot_interval=1 --init_from=resume --out_dir=spoilt
kept=$(grep -o 'newest good snapshot: step-[0-9]*' stderr | grep -o '[0-9]*')
[ $code -eq 76 ] && [ "$kept" = 00000006 ] && [ "$(cd spoilt && md5sum *.snap)" = "$sums" ]
goes_on "good snapshots outlive updates that destroy the weights, and are what is named" $? 0 spoilt

# The last snapshot has no update after it, and one on a signal has none either: a forward pass tests them.
ranks 0 "${wild[@]}" --max_iters=1 --snapshot_interval=1 --out_dir=last
[ $code -eq 76 ] && [ -z "$(ls last | grep snap)" ] &&
    grep -q 'last: the loss of the weights after 1 updates is not finite: no snapshot' stderr
result $? "last weights that give no finite loss are not kept"
[ -n "$(log_of wild-0)" ] && [ "$(log_of wild-0)" = "$(log_of wild-3)" ]
result $? "any number of ranks skips the same updates"
ranks 2 "${wild[@]}" --snapshot_interval=0 --max_bad_steps=2 --out_dir=wild-never
[ $code -eq 76 ] && grep -q 'newest good snapshot: none was written' stderr
result $? "no snapshot to name"

# ---- kill -9 at any moment ---------------------------------------------------------------------------------
# Each restart goes on from the newest snapshot that the log had told of, or a newer one.
kills=10
bad=0
for ((kill = 0; kill < kills; kill++)); do
    from=$( [ -d out ] && newest out || echo 0)
    told=$(grep -o '"file":"step-[0-9]*' out/log.jsonl 2>/dev/null | tail -n 1)
    told=${told##*-}
    ranks_begin 0 "${small[@]}" "${endless[@]}" "${saving[@]}" --out_dir=out
    if [ $((RANDOM % 5)) -gt 0 ]; then # else while it starts
        await 60 has_made $((from + RANDOM % 8)) out
    fi
    sleep 0.0$((RANDOM % 40 + 10))
    kill -KILL "$(leader)"
    ranks_end
    [ $code -eq 137 ] && [ "$(newest out)" -ge "$from" ] && [ "$from" -ge $((10#${told:-0})) ] &&
        ! grep -q 'damaged' stderr || { bad=1; echo "# kill $kill: exit code $code, from $from"; }
done
goes_on "$kills times kill -9, snapshots at every update: nothing lost, no bit wrong" $bad 0 out

# ---- damaged snapshots -------------------------------------------------------------------------------------
ranks 0 "${small[@]}" --max_iters=6 --snapshot_interval=2 --out_dir=whole
expected=$(undisturbed 8)
old=step-00000004.snap
new=step-00000006.snap
# damaged NAME NUMBER COMMAND: done to a copy of the folder, which then goes on after NUMBER updates.
damaged() {
    local name=$1 from=$2
    rm -rf copy
    cp -r whole copy
    (cd copy && eval "$3")
    ranks 0 "${small[@]}" --max_iters=8 --init_from=resume --out_dir=copy
    [ $code -eq 0 ] && [ "$(weights)" = "$expected" ] &&
        grep -q "^resuming copy/.*: $from updates made" stdout &&
        { [ "$from" -eq 6 ] || { grep -q "copy/$new" stderr && [ -e copy/$new.damaged ]; }; }
    result $? "$name"
}
flip() { # FILE BYTE BIT
    local byte=$(od -An -tu1 -j"$2" -N1 "$1")
    printf "\\x$(printf %02x $((byte ^ 1 << $3)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
bytes=$(stat -c %s whole/$new)
for place in 0 4 $((RANDOM % bytes)) $((RANDOM * 7 % bytes)) $((bytes - 1)); do
    damaged "a flipped bit at byte $place of $bytes" 4 "flip $new $place $((RANDOM % 8))"
done
for length in 0 1 $((bytes / 2)) $((bytes - 1)); do
    damaged "cut to $length of $bytes bytes" 4 "truncate -s $length $new"
done
damaged "longer by a byte" 4 "printf X >>$new"
damaged "another step's snapshot under its name" 4 "cp $old $new"
damaged "two snapshots exchanged, then the older" 4 "cp $old $new; touch -d yesterday $new"
damaged "something else under its name" 4 "cp '$work/train_gpt2' $new"
damaged "leftovers of writers that were killed" 6 \
    "head -c 999 $new >step-00000008.snap.tmp.4711; cp $old step-00000002.snap.tmp.1"
[ -z "$(ls copy | grep tmp)" ]
result $? "leftovers are gone"
damaged "foreign files" 6 \
    "mkdir step-00000009 snap; touch step-9.snap step-00000010.snap.damaged notes.txt
    ln -s nowhere step-x.snap"
[ -e copy/step-9.snap ] && [ -e copy/notes.txt ] && [ -e copy/step-00000010.snap.damaged ]
result $? "foreign files stay"
rm -rf copy
cp -r whole copy
for file in copy/*.snap; do
    flip "$file" 1000 3
done
ranks 0 "${small[@]}" --max_iters=8 --init_from=auto --out_dir=copy
[ $code -eq 1 ] && grep -q '^train_gpt2: .*copy: expected a whole snapshot, found 2, all damaged' stderr &&
    [ "$(ls copy/*.damaged | wc -l)" -eq 2 ]
result $? "only damaged snapshots: an error, not a new run"

end_of_tests
