#!/usr/bin/env bash
# tokenize replaces shards as one: whatever fails, and whenever it is killed, the folder holds the old shards
# or the new ones. What a killed run leaves, the next run removes or finishes. Needs fault/inject.so.
#   PROGRAMS=build/mpi1 dev/test/test_tokenize_folder.sh        prints TAP
set -u
. "$(dirname "$0")/tap.bash"
export LC_ALL=C
programs=$(cd "${PROGRAMS:-.}" && pwd)
tokenize=$programs/data_prep/tokenize
# In memory where that is possible: syncing costs nothing there.
[ -n "${TMPDIR:-}" ] || ! [ -w /dev/shm ] || export TMPDIR=/dev/shm
work=$(mktemp -d)
mounted=
trap '[ -z "$mounted" ] || umount "$mounted"; rm -rf "$work"' EXIT
cd "$work" || exit 1

# run ARGUMENTS...: with the fault in $fault, if there is one; the exit code in $code.
fault=
run() {
    local faulty=()
    [ -z "$fault" ] || faulty=(env LD_PRELOAD="$programs/fault/inject.so" FAULT="$fault" FAULT_UNDER="$work"
        FAULT_COUNTS="$work/counts")
    rm -f counts
    { timeout "$(scaled 60)" "${faulty[@]}" "$tokenize" --threads=1 "$@" >stdout 2>stderr; } 2>/dev/null
    code=$?
}
fired() {
    [ "$("$programs/fault/inspect" --fired counts)" = 1 ]
}

seq 3000 >old.txt
seq 4000 9000 >new.txt
by_name() { (cd "$1" && cksum -- *.bin); }
by_reader() { "$programs/fault/inspect" --shards "$1/*.bin"; }
run -o out --shard-tokens=2000 old.txt && by_name out >old.names && by_reader out >old.reader && cp -r out old
new=(-o out --shard-tokens=3000 new.txt)
rm -rf out && run "${new[@]}" && by_name out >new.names && by_reader out >new.reader && ls -A out >new.listing
[ "$(wc -l <old.names)" -ge 4 ] && [ "$(wc -l <new.names)" -ge 4 ] && ! cmp -s old.names new.names
result $? 'old and new shards can be told apart'
state() { # FOLDER by_name|by_reader: old, new or mixed
    "$2" "$1" >found 2>/dev/null
    if cmp -s found "old.${2#by_}s" || cmp -s found "old.${2#by_}"; then
        echo old
    elif cmp -s found "new.${2#by_}s" || cmp -s found "new.${2#by_}"; then
        echo new
    else
        echo mixed
    fi
}
begin() { # with the old shards, and what else is named
    rm -rf out out.* && cp -r old out
}
beside() {
    begin && echo mine >out/notes.txt && mkdir out/sub && echo mine >out/sub/file
}
has_nothing_beside() {
    [ -z "$(ls -d "$1".* 2>/dev/null)" ]
}
is_clean() { # the folder holds the new shards and nothing that is temporary
    [ "$(ls -A out | grep -vxE 'notes.txt|sub')" = "$(cat new.listing)" ] && has_nothing_beside out
}

# ---- every call that can fail ------------------------------------------------------------------------------
# each CALL ACTION FOLDER [STEP]: the first, second .. (each STEP-th) call meets the action, until there is
# none any more. A run that fails has changed nothing; one that was killed has changed all or nothing; the
# next run ends well and leaves nothing temporary.
each() {
    local call=$1 action=$2 folder=$3 step=${4:-1} number=$((1 - ${4:-1})) tried=0 bad=0 by=by_name
    local expected found killed=0
    [[ ! $action =~ ^(before|after|torn)$ ]] || killed=1
    [ "$folder" = begin ] || [ $killed -eq 0 ] || by=by_reader
    while [ $tried -lt 100 ]; do
        number=$((number + step))
        "$folder"
        fault=$call:$number:$action
        run "${new[@]}"
        fired || break
        tried=$((tried + 1))
        expected=old
        [ $code -ne 0 ] || expected=new
        found=$(state out $by)
        [ $found = $expected ] || { [ $killed -eq 1 ] && [ $found = new ]; } ||
            { bad=1; echo "# $fault: exit code $code, the shards are $found"; }
        [ $killed -eq 0 ] || [ $code -eq 137 ] || { bad=1; echo "# $fault: exit code $code"; }
        [ $killed -eq 1 ] || [ $code -eq 0 ] || grep -q '^tokenize: ' stderr || bad=1
        fault=
        run "${new[@]}"
        [ $code -eq 0 ] && [ "$(state out by_name)" = new ] && is_clean &&
            { [ "$folder" = begin ] || [ "$(cat out/notes.txt out/sub/file | sort -u)" = mine ]; } ||
            { bad=1; echo "# after $call:$number:$action: exit code $code, in the folder:" $(ls -A out); }
    done
    [ $tried -gt 0 ] || { bad=1; echo "# the call is not made"; }
    [ "$folder" = begin ] && folder="a folder of shards" || folder="a folder that holds other files too"
    result $bad "$call meets $action, $tried times: $folder"
}
for folder in begin beside; do
    each rename ENOSPC $folder
    each rename after $folder
    each fsync EIO $folder 2
    each unlink before $folder 2
done
each pwrite ENOSPC begin 3
each mkdir ENOSPC begin
each open EIO begin 2
each readdir EIO beside 6
each fsync after beside 2

# ---- who reads meanwhile -----------------------------------------------------------------------------------
# Killed in the middle of moving shards: training and --decode find the new ones.
beside
fault=rename:$((1 + $(ls old | wc -l) + 2)):after # of the folder, of the old ones, and of two new ones
run "${new[@]}"
[ $code -eq 137 ] && [ "$(state out by_reader)" = new ] && [ "$(ls out | grep -c bin)" -eq 2 ]
result $? 'shards half in place: training reads the new ones'
fault=
rm -rf expected && run -o expected --shard-tokens=3000 new.txt
for shard in $(cat new.listing); do
    "$tokenize" --decode out/$shard >decoded && "$tokenize" --decode expected/$shard | cmp -s - decoded ||
        break
done
result $? '--decode finds the shards that are not in place yet'
run -o out --format=jsonl new.txt
[ $code -eq 1 ] && [ "$(state out by_name)" = new ] && [ "$(ls -A out | grep -c tokenize)" -eq 0 ]
result $? 'a run that then fails has put them in place'
cp -r old odd && mkdir odd/tokenize.commit && printf 'train_000001.bin\nend' >odd/tokenize.commit/shards
! by_reader odd >/dev/null 2>stderr && grep -q 'odd/tokenize.commit/shards: ' stderr
result $? 'a damaged list of shards is an error'
run -o odd new.txt
[ $code -eq 1 ] && grep -q 'odd/tokenize.commit/shards: ' stderr &&
    cmp -s odd/train_000001.bin old/train_000001.bin
result $? 'and stops tokenize too'

# ---- one run at a time, and what killed ones leave ---------------------------------------------------------
waits() { # a run that waits for its pipe, as $first
    rm -f pipe && mkfifo pipe
    "$tokenize" "$@" - <pipe >first.out 2>first.err &
    first=$!
    exec 9>pipe
    cat new.txt >&9
    local deadline=$((SECONDS + $(scaled 60)))
    until ls -d out/tokenize.tmp.* >/dev/null 2>&1 || [ $SECONDS -ge $deadline ]; do
        sleep 0.02
    done
}
begin
waits -o out --shard-tokens=3000
run "${new[@]}"
[ $code -eq 1 ] && grep -q "^tokenize: out: .*another tokenize.*process $first on" stderr &&
    [ "$(state out by_name)" = old ]
result $? 'a second run into the same folder is refused, and told by whom'
exec 9>&-
wait $first
[ $? -eq 0 ] && [ "$(state out by_name)" = new ] && is_clean
result $? 'the first one ends as if nothing had been'

begin
waits -o out --shard-tokens=100
kill -KILL $first
exec 9>&-
wait $first 2>/dev/null
[ -n "$(ls -d out/tokenize.tmp.*)" ] && [ "$(state out by_name)" = old ]
result $? 'killed while it writes: the old shards'
head -c 100 new.txt >out/train.bin.tmp.4711
mkdir out.tokenize.tmp.AbC123 out.tokenize.tmp.mine && touch out.tokenize.tmp.{AbC123,mine}/train.bin
run "${new[@]}"
rm -r out.tokenize.tmp.mine
[ $code -eq 0 ] && [ "$(state out by_name)" = new ] && is_clean
result $? 'the next run removes what was left'

# ---- an input is no output ---------------------------------------------------------------------------------
rm -rf out && run -o out --val-tokens=0 --header=none old.txt
cp out/train.bin before.bin
ln -s out/train.bin link.txt && ln out/train.bin hard.txt
for input in out/train.bin link.txt hard.txt; do
    run -o out $input
    [ $code -eq 1 ] && grep -q "^tokenize: $input: .*out/train.bin" stderr && cmp -s out/train.bin before.bin
    result $? "an input that would be replaced is refused: $input"
done
run -o out - <hard.txt
[ $code -eq 1 ] && grep -q "^tokenize: stdin: .*out/train.bin" stderr && cmp -s out/train.bin before.bin
result $? "an input that would be replaced is refused: a pipe"
cp new.txt out/input.txt
run -o out --shard-tokens=3000 out/input.txt
[ $code -eq 0 ] && [ "$(by_name out)" = "$(cat new.names)" ] && cmp -s out/input.txt new.txt &&
    [ ! -e out/train.bin ]
result $? 'an input in the folder that is no shard stays'

# ---- where folders cannot be exchanged ---------------------------------------------------------------------
begin
chmod 2751 out
run "${new[@]}"
[ $code -eq 0 ] && [ "$(stat -c %a out)" = 2751 ]
result $? 'the folder keeps its mode'
begin
(cd out && "$tokenize" --threads=1 -o . --shard-tokens=3000 ../new.txt 2>/dev/null &&
    [ "$(ls)" = "$(cat ../new.listing)" ])
result $? 'the present folder stays the present folder'
begin && mv out real && ln -s real out
run "${new[@]}"
[ $code -eq 0 ] && [ -L out ] && [ "$(state real by_name)" = new ] && has_nothing_beside out &&
    has_nothing_beside real
result $? 'a link to a folder stays one'
rm -rf out real && mkdir disk
if mount -t tmpfs -o size=16m tmpfs disk 2>/dev/null; then
    mounted=disk
    for out in disk disk/sub; do # moved one by one, and exchanged
        rm -rf disk/* && mkdir -p $out && cp old/* $out
        run -o $out --shard-tokens=3000 new.txt
        [ $code -eq 0 ] && [ "$(by_name $out)" = "$(cat new.names)" ] &&
            [ "$(ls -A $out)" = "$(cat new.listing)" ] && has_nothing_beside $out
        result $? "a mounted folder: $out"
        for room in 0 8000 20000 30000; do # bytes: for nothing, for some shards, for all but a little
            rm -rf disk/* && mkdir -p $out && cp old/* $out
            [ $out = disk ] && ballast=disk/ballast || ballast=disk/other/ballast
            mkdir -p "${ballast%/*}" && cat /dev/zero >$ballast 2>/dev/null
            truncate -s $(($(stat -c %s $ballast) - room)) $ballast
            run -o $out --shard-tokens=3000 new.txt
            [ $code -eq 0 ] || { [ $code -eq 1 ] && [ "$(by_name $out)" = "$(cat old.names)" ] &&
                ! ls -A $out | grep -q tokenize && grep -q 'No space left' stderr; }
            result $? "a full disk with room for $room bytes in $out: exit code $code"
        done
    done
else
    echo "# no right to mount a small disk: its cases are left out"
fi

# ---- memory ------------------------------------------------------------------------------------------------
head -c 32000000 /dev/zero | tr '\0' ' ' >blank.txt
(
    ulimit -v 700000
    run -o blank --val-tokens=0 --header=none blank.txt
    [ $code -eq 0 ] && "$tokenize" --decode blank/train.bin | head -c 32000000 | cmp -s - blank.txt
)
result $? '32 MB of white space in 700 MB of memory'

end_of_tests
