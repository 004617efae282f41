#!/usr/bin/env bash
# The same run at any number of ranks, shown: a run that nobody disturbs on one process; the same run on 4
# ranks, stopped by SIGTERM, gone on with on 3, stopped again, ended on 1. Prints the commands and their
# telling lines. Exit 0 if both end with the same weights.
#   make && scripts/demo_ranks.sh          PROGRAMS=FOLDER: where the programs are
set -eu
case ${1:-} in
-h | --help)
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
root=$(cd "$(dirname "$0")/.." && pwd)
programs=$(cd "${PROGRAMS:-$root}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/data_prep"
cp "$programs/train_gpt2" "$work"
cp "$programs/data_prep/tokenize" "$work/data_prep"
cat "$root"/llmc/*/*.[ch] >"$work/source.txt"
cd "$work"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive # more ranks than cores, perhaps
export HOME=${HOME:-/}                           # without one Open MPI 5 does not start
if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

die() {
    echo "demo_ranks.sh: $*" >&2
    exit 1
}
command -v mpirun >/dev/null || die "mpirun: not found; install Open MPI"

# tell PATTERN: the lines of the last command that match.
tell() {
    grep -E "$1" stdout || true
}
lines='^(resuming|snapshot|weights)|^step: .* ranks?$'

# stopped FIRST SIGNAL COMMAND...: in the background until iter FIRST is logged, then one rank gets the
# signal.
stopped() {
    local first=$1 signal=$2 rank code=0
    shift 2
    echo "\$ $* &"
    "$@" >stdout 2>stderr &
    until grep -qs "\"event\":\"step\",\"iter\":$first," out/log.jsonl; do
        kill -0 $! 2>/dev/null ||
            die "the run did not come to update $first: $(tail -n 1 stderr)"
        sleep 0.02
    done
    rank=$(tr ' ' '\n' <"/proc/$!/task/$!/children" | grep . | tail -n 1)
    echo "\$ kill -$signal $rank      # one of its ranks, after iter $first"
    kill -"$signal" "$rank"
    wait $! || code=$?
    tell "$lines"
    echo "exit code $code"
    [ $code -eq 75 ] || die "expected exit code 75, found $code: $(tail -n 1 stderr)"
    echo
}

cat >demo.conf <<'END'
dataset = demo
n_layer = 2
n_head = 4
n_embd = 32
block_size = 32
batch_size = 2
gradient_accumulation_steps = 8     # shared by 4, 3 or 1 ranks
dropout = 0.1
max_iters = 60
warmup_iters = 5
lr_decay_iters = 60
learning_rate = 3e-3
eval_interval = 0
snapshot_interval = 0               # only when a signal stops the run
END

echo '$ data_prep/tokenize -o data/demo source.txt'
data_prep/tokenize -o data/demo source.txt >stdout 2>stderr || die "$(tail -n 1 stderr)"
echo '$ ./train_gpt2 demo.conf --out_dir=undisturbed'
./train_gpt2 demo.conf --out_dir=undisturbed >stdout 2>stderr || die "$(tail -n 1 stderr)"
tell "$lines"
expected=$(tail -n 1 stdout)
echo
stopped 14 TERM mpirun --oversubscribe -np 4 ./train_gpt2 demo.conf
stopped 34 TERM mpirun --oversubscribe -np 3 ./train_gpt2 demo.conf --init_from=resume
echo '$ ./train_gpt2 demo.conf --init_from=resume'
./train_gpt2 demo.conf --init_from=resume >stdout 2>stderr || die "$(tail -n 1 stderr)"
tell "$lines"
found=$(tail -n 1 stdout)
[[ $expected == weights\ * ]] && [ "$found" = "$expected" ] || die "expected $expected, found $found"
