#!/usr/bin/env bash
# Machines without a folder in common: each rank has an out_dir of its own, and the newest snapshot is on any
# of them. Whatever the ranks find, the run ends with the undisturbed run's weights.
#   PROGRAMS=build/mpi1 dev/test/test_unshared.sh        prints TAP
set -u
. "$(dirname "$0")/ranks.bash"
options=("${small[@]}" --dropout=0.1 --bucket_cap_mb=0.1 --snapshot_interval=4 --keep_snapshots=9
    --eval_interval=4 --eval_iters=1)

ranks 0 "${options[@]}" --max_iters=12 --out_dir=alone
alone=$(weights)
[ "$code" -eq 0 ] && [ -n "$alone" ]
result $? "a run that nobody disturbs"

for rank in 0 1 2; do
    mkdir rank-$rank
    cp -r data rank-$rank
done
# holds RANK STEP...: the rank's folder has these snapshots and no other; without steps there is no folder.
holds() {
    local rank=$1 step
    rm -rf "rank-$rank/out"
    shift
    for step; do
        mkdir -p "rank-$rank/out"
        cp "alone/step-$(printf %08d "$step").snap" "rank-$rank/out"
    done
}
has() { # RANK STEP
    [ -e "rank-$1/out/step-$(printf %08d "$2").snap" ]
}
damage() { # RANK STEP
    printf X | dd of="rank-$1/out/step-$(printf %08d "$2").snap" bs=1 seek=5000 conv=notrunc status=none
}
clean() { # nothing temporary, and no log but rank 0's
    [ -z "$(find rank-? -name '*.tmp*' -o -name .lock)" ] && [ -s rank-0/out/log.jsonl ] &&
        [ -z "$(find rank-[12] -name log.jsonl)" ]
}
# resumed NAME WORDS: the run went on as WORDS says, and ended well.
resumed() {
    [ "$code" -eq 0 ] && [ "$(weights)" = "$alone" ] && grep -qE "^resuming .*$2" stdout && clean && has 0 12
    result $? "$1"
}

default=$launcher
for launcher in $default tcp; do
    holds 0 && holds 1 8 && holds 2
    ranks 3 "${options[@]}" --max_iters=12 --init_from=auto --out_dir=out
    resumed "$launcher: rank 1 alone has a snapshot" "step-00000008.snap of rank 1 .*: 8 updates made"
    [ ! -e rank-2/out ] && ! has 1 12
    result $? "$launcher: nothing is written where rank 0 is not"

    holds 0 4 && holds 1 8 && holds 2 8
    ranks 3 "${options[@]}" --max_iters=12 --init_from=resume --out_dir=out
    resumed "$launcher: the newest counts" "step-00000008.snap of rank 1 .*: 8 updates made"

    holds 0 4 8 && holds 1 4 && holds 2
    damage 0 8
    ranks 3 "${options[@]}" --max_iters=12 --init_from=auto --out_dir=out
    resumed "$launcher: the newest is damaged, the next is sent" "step-00000004.snap of rank 0 .*: 4 updates"
    [ -e rank-0/out/step-00000008.snap.damaged ]
    result $? "$launcher: the damaged one is set aside"
    [ "$launcher" = mpirun ] || break
done
launcher=$default

holds 0 8 && holds 1 8 && holds 2 8
damage 1 8
ranks 3 "${options[@]}" --max_iters=12 --init_from=auto --out_dir=out
resumed "a rank whose snapshot is damaged gets another's" "step-00000008.snap of rank 0 .*: 8 updates made"
[ -e rank-1/out/step-00000008.snap.damaged ]
result $? "its own is set aside there"

for how in eval_only sample_only; do
    holds 0 && holds 1 12 && holds 2
    ranks 2 "${options[@]}" --max_iters=12 --init_from=resume --$how=true --max_new_tokens=3 --out_dir=out
    [ "$code" -eq 0 ] && grep -q 'resuming .*step-00000012.snap of rank 1' stdout
    result $? "$how with another rank's snapshot"
done

holds 0 && holds 1 4 && holds 2
damage 1 4
ranks 3 "${options[@]}" --max_iters=12 --init_from=auto --out_dir=out
[ "$code" -eq 1 ] && [ "$(grep -c '^train_gpt2: ' stderr)" -eq 1 ] &&
    grep -q 'rank 1 .*expected a whole snapshot, found 1, all damaged' stderr && [ ! -e rank-0/out ]
result $? "where all that there is is damaged, its rank says so, and nothing begins anew"
holds 1
ranks 3 "${options[@]}" --max_iters=12 --init_from=resume --out_dir=out
[ "$code" -eq 1 ] && [ "$(grep -c '^train_gpt2: ' stderr)" -eq 1 ] &&
    grep -q 'rank 0 .*expected a snapshot .* to resume from, found none' stderr
result $? "nothing to resume is said once"
holds 2 4
ranks 3 "${options[@]}" --max_iters=12 --out_dir=out
[ "$code" -eq 1 ] && [ "$(grep -c '^train_gpt2: ' stderr)" -eq 1 ] &&
    grep -q 'rank 2 .*holds snapshots (newest step-00000004.snap)' stderr && ! has 0 4
result $? "a new run does not begin where one rank has snapshots"

# ---- a copy on each machine --------------------------------------------------------------------------------
# Ranks of one machine that take themselves for the first of theirs.
launcher=tcp
every=("${options[@]}" --snapshot_on=every_node --init_from=auto --out_dir=out)
for rank in 0 1 2; do
    echo export LOCAL_RANK=0 >rank-$rank.environment
    holds $rank
done
ranks 3 "${every[@]}" --max_iters=8
[ "$code" -eq 0 ] && clean && has 0 4 && has 1 4 && has 2 4 && has 0 8 && has 1 8 && has 2 8
result $? "snapshot_on=every_node: each has every snapshot"
rm -rf rank-0/out rank-1/out
ranks 3 "${every[@]}" --max_iters=12
resumed "any copy is enough" "step-00000008.snap of rank 2 .*: 8 updates made"
has 1 12 && has 2 12
result $? "and the next snapshot is on all machines again"
echo export LOCAL_RANK=1 >rank-2.environment
holds 0 && holds 1 && holds 2
ranks 3 "${every[@]}" --max_iters=4
[ "$code" -eq 0 ] && has 0 4 && has 1 4 && [ ! -e rank-2/out ]
result $? "the second rank of a machine writes nothing"
rm -rf rank-1/out
ln -s ../rank-0/out rank-1/out
ranks 3 "${every[@]}" --max_iters=12
resumed "where two machines have one folder, one rank writes" "step-00000004.snap.*: 4 updates made"
rm -rf rank-1/out rank-?.environment

# ---- going back --------------------------------------------------------------------------------------------
launcher=$default
cp alone/step-00000004.snap good.snap
for rank in 0 1; do
    cp good.snap rank-$rank
    holds $rank 4 8 12
done
echo own >rank-0/out/step-00000012.snap.aside
rm rank-1/good.snap
ranks 2 "${options[@]}" --max_iters=12 --init_from=resume:good.snap --out_dir=out
resumed "resume:PATH goes back to that snapshot" "good.snap of rank 0 .*: 4 updates made"
aside() { # RANK STEP SUFFIX: it is there, as it was
    cmp -s "rank-$1/out/step-$(printf %08d "$2").snap.$3" "alone/step-$(printf %08d "$2").snap"
}
aside 0 4 aside && aside 0 8 aside && aside 0 12 aside.2 && aside 1 4 aside && aside 1 8 aside &&
    aside 1 12 aside && grep -q own rank-0/out/step-00000012.snap.aside
result $? "what was newer is kept aside on each machine"
holds 0 4 8 && holds 1
ranks 2 "${options[@]}" --max_iters=12 --init_from=resume:out/step-00000004.snap --out_dir=out
resumed "resume:PATH of a snapshot of out_dir" "step-00000004.snap.*: 4 updates made"
has 0 4 && aside 0 8 aside
result $? "which stays where it is"
damage 0 4
ranks 2 "${options[@]}" --max_iters=16 --init_from=resume:out/step-00000004.snap --out_dir=out
[ "$code" -eq 1 ] && grep -q 'init_from: .*step-00000004.snap: damaged' stderr && has 0 12 && has 0 4
result $? "a damaged one is named, and nothing is moved"
ranks 2 "${options[@]}" --max_iters=16 --init_from=resume:missing.snap --out_dir=out
[ "$code" -eq 1 ] && [ "$(grep -c '^train_gpt2: ' stderr)" -eq 1 ] &&
    grep -q 'init_from=resume:missing.snap: expected a snapshot, found no such file' stderr && has 0 12
result $? "a missing one is named"

end_of_tests
