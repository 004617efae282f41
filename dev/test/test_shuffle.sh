#!/usr/bin/env bash
# --shuffle-documents gives the bytes that numpy and tiktoken give, from an archive of archives or JSON lines,
# whatever the threads and the memory, and after any stop. Needs fault/inject.so.
#   PROGRAMS=build/mpi1 dev/test/test_shuffle.sh        prints TAP
set -u
. "$(dirname "$0")/tap.bash"
export LC_ALL=C
command -v python3 >/dev/null || {
    echo "ok 1 - documents in random order # SKIP no python3"
    echo "1..1"
    exit 0
}
programs=$(cd "${PROGRAMS:-.}" && pwd)
tokenize=$programs/data_prep/tokenize
make=$(cd "$(dirname "$0")/../reference" && pwd)/openwebtext_split.py
[ -n "${TMPDIR:-}" ] || ! [ -w /dev/shm ] || export TMPDIR=/dev/shm
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# Of what openwebtext_split.py expect wrote for these documents.
cat >expected <<'END'
14cf64fa4be9c5f03120397cf042acc758841fa46c2b5de60a6e3c8cb9287ef0  train.bin
2759d89e2678c2dd3d5586e3a40b914e19fbdcc3b0a56961cc2bb362dc779f7c  val.bin
END
python3 "$make" make . 700
result $? 'a small OpenWebText'

fault=
run() { # ARGUMENTS...: with the fault in $fault, if there is one; the exit code in $code
    local faulty=()
    [ -z "$fault" ] || faulty=(env LD_PRELOAD="$programs/fault/inject.so" FAULT="$fault" FAULT_UNDER="$work"
        FAULT_COUNTS="$work/counts")
    rm -f counts
    { timeout "$(scaled 60)" "${faulty[@]}" "$tokenize" "$@" >stdout 2>stderr; } 2>/dev/null
    code=$?
}
is_right() { # FOLDER: holds the expected shards and nothing else, and nothing is beside it
    (cd "$1" && sha256sum -c --quiet ../expected >/dev/null 2>&1) &&
        [ "$(ls -A "$1")" = "$(printf 'train.bin\nval.bin')" ] && [ -z "$(ls -d "$1".* 2>/dev/null)" ]
}
shuffled=(--shuffle-documents=2357 --header=none)
cleaned=("${shuffled[@]}" --clean=openwebtext openwebtext.tar)

# ---- the same bytes ----------------------------------------------------------------------------------------
run -o out --threads=1 "${cleaned[@]}"
[ $code -eq 0 ] && is_right out
result $? 'a tar of xz tars: the bytes of numpy and tiktoken'
run -o out --threads=5 --shuffle-memory=1 "${cleaned[@]}"
[ $code -eq 0 ] && is_right out
result $? 'the same with more threads, in less memory, in the place of older shards'
run -o lines "${shuffled[@]}" --val-fraction=0.0005 openwebtext.jsonl
[ $code -eq 0 ] && is_right lines
result $? 'the same from JSON lines'
run -o pipe "${shuffled[@]}" --format=jsonl --shuffle-memory=1 - <openwebtext.jsonl
[ $code -eq 0 ] && is_right pipe
result $? 'the same from a pipe'
run -o split "${shuffled[@]}" --shard-tokens=100000 openwebtext.jsonl
cat split/train_*.bin >split.bin && [ "$(ls split | wc -l)" -eq 11 ] &&
    [ "$(sha256sum <split.bin | cut -c 1-64)" = "$(head -c 64 expected)" ]
result $? 'the same in shards'
run -o text --clean=openwebtext --eot=none --header=none --val-tokens=0 clean.txt
"$tokenize" --decode text/train.bin | cmp -s - cleaned.txt
result $? 'white space of all kinds is cleaned as Python does it'

# ---- stopped and gone on with ------------------------------------------------------------------------------
# each CALL ACTION STEP: every STEP-th call meets the action, until there is none any more. The next run ends
# well. At least `resumed_min` of the next runs must have gone on where the stopped one was.
each() {
    local call=$1 action=$2 step=$3 resumed_min=$4 number=1 tried=0 resumed=0 bad=0
    while [ $tried -lt 60 ]; do
        rm -rf out out.* && mkdir out && echo old >out/train.bin
        fault=$call:$number:$action
        run -o out --threads=1 --shuffle-memory=1 "${cleaned[@]}"
        "$programs/fault/inspect" --fired counts | grep -qx 1 || break
        tried=$((tried + 1))
        [ $code -eq 0 ] || grep -qsx old out/train.bin || [ $code -eq 137 ] ||
            { bad=1; echo "# $fault: exit code $code, and the old shard is gone"; }
        fault=
        run -o out --threads=1 --shuffle-memory=1 "${cleaned[@]}"
        ! grep -q 'going on after [1-9]' stderr || resumed=$((resumed + 1))
        [ $code -eq 0 ] && is_right out ||
            { bad=1; echo "# after $call:$number:$action: exit code $code, in the folder:" $(ls -A out); }
        number=$((number + step))
    done
    [ $tried -gt 0 ] && [ $resumed -ge "$resumed_min" ] || { bad=1; echo "# $tried tried, $resumed resumed"; }
    result $bad "$call meets $action, $tried times; $resumed times the next run went on"
}
each pwrite ENOSPC 8 2
each pwrite torn 7 1
each read EIO 3 1
each pread EIO 3 1
each rename before 2 1
each rename after 1 1
each fsync EIO 4 1
each fsync after 4 1
each truncate EIO 1 0

stop_then() { # CHANGE: the next run after a stop and this change begins again, and is right
    rm -rf out && fault=pwrite:8:ENOSPC
    run -o out --threads=1 --shuffle-memory=1 "${cleaned[@]}"
    fault=
    [ $code -eq 1 ] && grep -q 'out/tokenize.partial keeps .* documents: the same command goes on' stderr &&
        eval "$1" && run -o out --threads=1 "${cleaned[@]}" && [ $code -eq 0 ] &&
        grep -q "${2:-tokenize.partial was made from other inputs or options: beginning again}" stderr &&
        is_right out
    result $? "stopped, then ${3:-$1}"
}
stop_then true 'going on after' 'the same command'
stop_then 'touch openwebtext.tar'
stop_then 'run -o out "${shuffled[@]}" --eot=none openwebtext.tar; rm -r out; run -o out "${cleaned[@]}"' \
    '13 for validation\|for validation' 'another run into the folder, then the first again'
stop_then 'truncate -s 100 out/tokenize.partial/tokens'
stop_then 'sed -i s/^documents/documenta/ out/tokenize.partial/state'
rm -rf out && fault=pwrite:8:ENOSPC
run -o out --threads=1 "${cleaned[@]}"
fault=
run -o out --threads=1 --header=none openwebtext.jsonl
[ $code -eq 0 ] && [ "$(ls -A out)" = "$(printf 'train.bin\nval.bin')" ]
result $? 'stopped, then another run without --shuffle-documents: nothing is left'
rm -rf out && mkfifo pipe.fifo
"$tokenize" -o out "${shuffled[@]}" --format=jsonl - <pipe.fifo >stdout 2>stderr &
pid=$!
exec 9>pipe.fifo
cat openwebtext.jsonl >&9
deadline=$((SECONDS + $(scaled 60)))
until [ -s out/tokenize.partial/tokens ] || [ $SECONDS -ge $deadline ]; do
    sleep 0.02
done
kill -TERM $pid
exec 9>&-
wait $pid 2>/dev/null
[ $? -eq 143 ] && grep -q 'stopped by signal 15' stderr && [ -z "$(ls -A out)" ]
result $? 'a pipe cannot be gone on with: nothing is left'

# ---- errors ------------------------------------------------------------------------------------------------
refused() { # PATTERN ARGUMENTS...
    local pattern=$1
    shift
    run -o none "$@"
    [ $code -eq 1 ] && grep -q "$pattern" stderr && [ -z "$(ls -A none 2>/dev/null | grep bin)" ]
    result $? "refused: $*"
}
refused 'expected --val-fraction=F' "${shuffled[@]}" --val-tokens=10 openwebtext.jsonl
refused 'from 1 to 1048576' "${shuffled[@]}" --shuffle-memory=0 openwebtext.jsonl
refused 'expected a whole number from 0' --shuffle-documents=-1 openwebtext.jsonl
refused 'expected one of none, openwebtext' --clean=all openwebtext.jsonl
refused 'expected to leave a document for training, found 1' "${shuffled[@]}" clean.txt

end_of_tests
