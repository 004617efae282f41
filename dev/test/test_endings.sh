#!/usr/bin/env bash
# How a run ends when what is around it fails: descriptors that nobody opened, a console that is gone, a disk
# that data are on, and names and places that are used only at the end.
#   PROGRAMS=build/mpi1 dev/test/test_endings.sh        prints TAP
set -u
tokenize=$(cd "${PROGRAMS:-$(dirname "$0")/../..}" && pwd)/data_prep/tokenize
. "$(dirname "$0")/ranks.bash"
cp "$tokenize" "$work" || exit 1
unset OMP_WAIT_POLICY GOMP_SPINCOUNT # so that the program starts itself once more, as it does for users

short=("${small[@]}" --max_iters=6 --snapshot_interval=2) # no val.bin: log.jsonl is the second file
ranks 0 "${short[@]}" --out_dir=whole
expected=$(weights)
[ "$code" -eq 0 ] && [ -n "$expected" ]
result $? "a run that nothing happens to"

# are_whole FOLDER: its snapshots and its log are, and the newest snapshot is that of the last update.
are_whole() {
    [ "$(ls "$1"/*.snap | wc -l)" -eq 2 ] && zstd -qt "$1"/*.snap 2>>stderr &&
        ! grep -qv '^{"event":.*}$' "$1/log.jsonl" && [ "$(updates "$1")" -eq 6 ] &&
        tail -n 1 "$1/log.jsonl" | grep -q "\"weights\":\"${expected#weights }\""
}

# ---- closed descriptors ------------------------------------------------------------------------------------
cat "$root"/llmc/run/*.c >text
./tokenize -o tokens text 2>stderr || exit 1
for closed in 0 1 2 3 4 5 6 7; do
    redirection=
    [ $((closed & 1)) -eq 0 ] || redirection+=' <&-'
    [ $((closed & 2)) -eq 0 ] || redirection+=' >&-'
    [ $((closed & 4)) -eq 0 ] || redirection+=' 2>&-'
    eval '(exec ./train_gpt2 "${short[@]}" --out_dir=closed-$closed '"$redirection"') >stdout 2>stderr'
    code=$?
    [ $code -eq 0 ] && are_whole closed-$closed
    result $? "train_gpt2${redirection:- with all descriptors}: snapshots and log are whole"
    eval '(exec ./tokenize -o tokens-$closed text '"$redirection"') >stdout 2>stderr'
    code=$?
    [ $code -eq 0 ] && cmp -s tokens/train.bin tokens-$closed/train.bin &&
        cmp -s tokens/val.bin tokens-$closed/val.bin
    result $? "tokenize${redirection:- with all descriptors}: the same shards"
done

# ---- a console that is gone --------------------------------------------------------------------------------
for one in ./train_gpt2 ./tokenize; do
    $one --help >/dev/full 2>stderr
    code=$?
    [ $code -eq 1 ] && grep -q 'stdout: cannot write: No space left' stderr
    result $? "$one --help that cannot be printed is an error"
done
./train_gpt2 --sample_only=true --init_from=whole/step-00000006.snap --max_new_tokens=4 \
    --num_samples=1000000 --threads=1 --start=a >/dev/full 2>stderr
code=$?
[ $code -eq 1 ] && grep -q 'samples: cannot write to stdout: ' stderr
result $? "samples that cannot be printed are an error, and the end"
./train_gpt2 "${short[@]}" --num_samples=1 --max_new_tokens=4 --start=a --out_dir=full >/dev/full 2>&1
code=$?
[ $code -eq 0 ] && are_whole full
result $? "a console that cannot be written does not end a run"
./train_gpt2 "${short[@]}" --out_dir=head 2>&1 | head -n 1 >stdout
code=${PIPESTATUS[0]}
[ "$code" -eq 0 ] && are_whole head
result $? "nor does a pipe that nobody reads any more"
ranks_begin 0 "${small[@]}" --max_iters=100000 --out_dir=hang-up
await 60 has_made 3 hang-up
name=$(cat "/proc/$(cat pid.0)/comm")
[ "$name" = train_gpt2 ]
result $? "the process is called train_gpt2 after it has started itself again ($name)"
kill -HUP "$(cat pid.0)"
kill -HUP "$(cat pid.0)" 2>/dev/null
ranks_end
[ "$code" -eq 75 ] && [ "$(ls hang-up/*.snap)" = "hang-up/step-$(printf %08d "$(updates hang-up)").snap" ]
result $? "SIGHUP, as often as a lost terminal sends it: a snapshot, then 75"

# ---- what is used at the end -------------------------------------------------------------------------------
# refused NAME EXPECTED ARGUMENTS...: exit 1 and one line, before the first update.
refused() {
    local name=$1 expected=$2
    shift 2
    ranks 0 "${small[@]}" --max_iters=6 --out_dir=refused "$@"
    [ "$code" -eq 1 ] && [ "$(wc -l <stderr)" -eq 1 ] && grep -qF -- "$expected" stderr &&
        ! grep -q '^iter' stdout && [ ! -e refused ]
    result $? "$name"
    rm -rf refused
}
mkdir foreign && echo '{}' >foreign/config.json && cp data/val.bin foreign.bin
refused "export_hf that cannot be made" 'export_hf: /proc/x: ' --export_hf=/proc/x
refused "export_llmc that cannot be made" 'export_llmc: /proc/x: ' --export_llmc=/proc/x
refused "export_hf over somebody's model" 'export_hf: foreign/config.json: expected no file' \
    --export_hf=foreign
refused "export_llmc over somebody's file" 'export_llmc: foreign.bin: expected no file' \
    --export_llmc=foreign.bin
[ "$(cat foreign/config.json)" = '{}' ] && cmp -s foreign.bin data/val.bin
result $? "they stay as they were"
refused "a start that is not there" 'start: nope: cannot open' --num_samples=1 --start=FILE:nope
refused "a start beyond the vocabulary" 'start: token' --num_samples=1 --start=Weather
ranks 0 "${short[@]}" --out_dir=exporting --export_hf=hf --export_llmc=llmc.bin --num_samples=1 \
    --max_new_tokens=4 --start=a
[ "$code" -eq 0 ] && [ "$(grep -nE '^(exported|-----)' stdout | cut -d: -f2 | cut -c 1-8 | tr '\n' ' ')" = \
    'exported exported -------- ' ]
result $? "exports come before samples"
ranks 0 "${short[@]}" --out_dir=exporting --init_from=resume --export_hf=hf --export_llmc=llmc.bin
[ "$code" -eq 0 ]
result $? "an export replaces an earlier one"
ranks_begin 0 "${small[@]}" --max_iters=300 --out_dir=late --export_hf=late-hf
await 60 has_made 3 late
cp foreign/config.json late-hf
ranks_end
[ "$code" -eq 1 ] &&
    grep -q 'late-hf/config.json: expected no file, .*; newest good snapshot: step-00000300' stderr &&
    tail -n 1 late/log.jsonl | grep -q '"reason":"failed"'
result $? "an export that fails after all leaves a snapshot, also with snapshot_interval=0"
rm late-hf/config.json
ranks 0 "${small[@]}" --max_iters=300 --out_dir=late --init_from=auto --export_hf=late-hf
[ "$code" -eq 0 ] && [ -s late-hf/model.safetensors ]
result $? "from which it is exported"

# ---- a disk that data are on -------------------------------------------------------------------------------
cat >bad_disk.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* After so many reads the file whose name has BAD_FILE in it cannot be read any more. */
ssize_t pread(int descriptor, void *data, size_t bytes, off_t offset)
{
    static int count;
    char link[64], path[4096] = "";
    ssize_t (*next)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread");
    snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
    if (readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, getenv("BAD_FILE")) &&
        __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED) > atoi(getenv("BAD_AFTER"))) {
        errno = atoi(getenv("BAD_REASON"));
        return -1;
    }
    return next(descriptor, data, bytes, offset);
}
ssize_t pread64(int descriptor, void *data, size_t bytes, off_t offset)
{
    return pread(descriptor, data, bytes, offset);
}
END
${CC:-cc} -shared -fPIC -o bad_disk.so bad_disk.c -ldl || exit 1
# bad_disk N RANK FILE ERRNO TEXT ARGUMENTS...: 76, one line of that rank, and a snapshot to go on from.
bad_disk() {
    local N=$1 rank=$2 file=$3 reason=$4 text=$5 made status
    shift 5
    rm -rf bad
    cat >rank-$rank.environment <<END
export LD_PRELOAD=$work/bad_disk.so BAD_FILE=$file BAD_AFTER=60 BAD_REASON=$reason
END
    ranks $N "${small[@]}" --max_iters=100000 --out_dir=bad "$@"
    rm rank-$rank.environment
    made=$(updates bad)
    [ "$code" -eq 76 ] && [ "$made" -gt 2 ] && [ -e "bad/step-$(printf %08d "$made").snap" ] &&
        [ "$(grep -c '^train_gpt2: ' stderr)" -eq 1 ] && grep -q "$file: cannot read: $text; " stderr
    status=$?
    [ $status -eq 0 ] || { told; ls bad; } | sed 's/^/# /'
    ranks 0 "${small[@]}" --max_iters=$((made + 2)) --init_from=auto --out_dir=bad "$@"
    local resumed=$(weights)
    rm -rf undisturbed
    ranks 0 "${small[@]}" --max_iters=$((made + 2)) --out_dir=undisturbed "$@"
    [ $status -eq 0 ] && [ -n "$resumed" ] && [ "$(weights)" = "$resumed" ]
    result $? "$N ranks, $file of rank $rank: $text: a snapshot, then 76, and it goes on"
}
bad_disk 0 0 train.bin 5 'Input/output error'
bad_disk 0 0 val.bin 116 'Stale file handle' --eval_interval=2 --eval_iters=7
bad_disk 3 0 train.bin 12 'Cannot allocate memory'
bad_disk 3 2 train.bin 5 'Input/output error'
bad_disk 3 1 val.bin 116 'Stale file handle' --eval_interval=2 --eval_iters=40

end_of_tests
