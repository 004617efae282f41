#!/usr/bin/env bash
# Everything that only a GPU can tell, in one command: first the steps that bring a GPU up, then the rest. It
# stops at nothing. A table comes last, to be pasted into an issue, and gpu_check.json beside the logs; under
# the table stands of each part that failed what that means and the switch that goes around it.
#
#   dev/gpu_check.sh [PART...]          all parts, or these; exit 0 if nothing failed
#   dev/gpu_check.sh --carry FOLDER     on a machine that has the libraries: copy them for one that has not
#
# Parts: build device updates reference sanitizer graph operations autotune speed llmc ranks (a first GPU,
# in this order), ops repeat exact move. Each has a time limit of its own. Logs are kept in the folder named
# last, and in GPU_CHECK_OUT if that is set.
#
# It needs nvcc with cuBLASLt, a C and a C++ compiler, make, and headers and libraries of zstd and jansson.
# Parts say SKIP where they miss what only they need: cmocka (ops), compute-sanitizer, a
# python3 with PyTorch (the comparison in speed), NCCL with its header (ranks), which PyTorch's package has;
# without it all is built with NCCL=0. MPI is left out. For a machine that has no such libraries and no
# network:
#
#   dev/gpu_check.sh --carry libraries                         here; take the folder along, then there
#   GPU_CHECK_LIBRARIES=libraries dev/gpu_check.sh
#
# The folder has include/ and lib/; what is in lib/ must suit that machine's processor and not need a newer C
# library.
#
# Settings (environment): GPU_CHECK_LIBRARIES, GPU_CHECK_OUT, GPU_CHECK_SECONDS=1500 (for all parts), NVCC,
# PYTHON=python3, NCCL=0 to leave NCCL out; PROGRAMS=FOLDER of what was built already; GPU_CHECK_LLMC=FOLDER
# of llm.c's sources, which are built (GPU_CHECK_LLMC_MAKE=USE_CUDNN=1) and run beside ours;
# GPU_CHECK_VARIANT=host tries the script out without a GPU: the host build in place of the programs, tiny
# shapes.
set -u
export LC_ALL=C GOMP_SPINCOUNT=1000 MPI=${MPI:-0}
self=$(readlink -f "$0")
root=$(dirname "$(dirname "$self")")
cd "$root" || exit 1
variant=${GPU_CHECK_VARIANT:-cuda}
python=${PYTHON:-python3}
parts=(build device updates reference sanitizer graph operations autotune speed llmc ranks ops repeat exact
    move)
declare -A limits=([build]=240 [device]=20 [updates]=60 [reference]=90 [sanitizer]=160 [graph]=50
    [operations]=40 [autotune]=40 [speed]=200 [llmc]=300 [ranks]=120 [ops]=60 [repeat]=45 [exact]=50
    [move]=40)

. dev/gpu_check_bringup.bash
. dev/gpu_check_ranks.bash

# row STATUS WHAT VALUE [GOAL]: a line of the last table.
row() {
    printf '%s|%s|%s|%s|%s\n' "$1" "${2//|/ }" "${3//|/ }" "${4:--}" "$part_name" >>"$out/rows"
}

# judge WHAT VALUE GOAL CONDITION: PASS if awk finds the condition true.
judge() {
    local status=FAIL
    awk "BEGIN { exit !($4) }" && status=PASS
    row $status "$1" "$2" "$3"
}

# ---- libraries ---------------------------------------------------------------------------------------------
has_library() {
    echo 'int main(void) { return 0; }' | gcc -x c - "-l$1" -o "$out/probe" 2>/dev/null
}

has_header() {
    echo "#include <$1>" | gcc -x c -fsyntax-only -include stdarg.h -include stddef.h -include stdint.h \
        -include setjmp.h - 2>/dev/null
}

# carry FOLDER: headers, static libraries where there are any, else shared ones under the name programs look
# for.
carry() {
    local folder=$1 header library file name
    mkdir -p "$folder/include" "$folder/lib" || exit 1
    for header in zstd.h jansson.h cmocka.h; do
        printf '#include <%s>\n' stdarg.h stddef.h stdint.h setjmp.h $header |
            gcc -M -x c - | tr -s ' ' '\n' | grep -E '/(zstd|jansson|cmocka)' | while read -r file; do
            name=${file##*/include/}
            name=${name#*-linux-gnu/}
            mkdir -p "$folder/include/$(dirname "$name")"
            cp "$file" "$folder/include/$name"
        done
    done
    for library in zstd jansson cmocka; do
        file=$(gcc -print-file-name=lib$library.a)
        if [ -f "$file" ]; then
            cp "$file" "$folder/lib"
            continue
        fi
        file=$(gcc -print-file-name=lib$library.so)
        [ -f "$file" ] || file=$(ldconfig -p | sed -n "s/.*lib$library\.so\.1 .*=> //p" | head -n 1)
        if [ ! -f "$file" ]; then
            echo "gpu_check.sh: lib$library is not on this machine: left out" >&2
            continue
        fi
        file=$(readlink -f "$file")
        name=$(objdump -p "$file" | awk '$1 == "SONAME" { print $2 }')
        cp "$file" "$folder/lib/${name:-$(basename "$file")}"
    done
    du -sh "$folder"
}

# Make compilers and programs find what was carried, and the toolkit's own libraries wherever they lie.
find_libraries() {
    local file name toolkit includes
    NVCC=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
    NVCC=$(readlink -f "$NVCC")
    toolkit=$(dirname "$(dirname "$NVCC")")
    mkdir -p "$out/lib"
    includes=${CPLUS_INCLUDE_PATH:-}
    if [ -n "${GPU_CHECK_LIBRARIES:-}" ]; then
        for file in "$GPU_CHECK_LIBRARIES"/lib/*; do
            name=$(basename "$file")
            ln -sf "$(readlink -f "$file")" "$out/lib/$name"
            case $name in *.so.*) ln -sf "$name" "$out/lib/${name%%.so.*}.so" ;; esac
        done
        includes=$(readlink -f "$GPU_CHECK_LIBRARIES/include")${includes:+:$includes}
    fi
    # A toolkit out of Python's packages has libraries without the name that linkers look for.
    if ! compgen -G "$toolkit/lib*/libcublasLt.so" >/dev/null; then
        while read -r file; do
            ln -sf "$file" "$out/lib/$(basename "$file")"
            ln -sf "$file" "$out/lib/libcublasLt.so"
            includes=${includes:+$includes:}$(dirname "$(dirname "$file")")/include
        done < <(find "$toolkit/.." /opt /usr/lib /usr/local/lib -name 'libcublasLt.so.*' 2>/dev/null |
            head -n 1)
    fi
    find_nccl
    # An empty entry would mean the current folder.
    LIBRARY_PATH=$out/lib:$toolkit/lib64:$toolkit/lib${LIBRARY_PATH:+:$LIBRARY_PATH}
    LD_LIBRARY_PATH=$out/lib:$toolkit/lib64:$toolkit/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export NVCC LIBRARY_PATH LD_LIBRARY_PATH
    # As system headers, whose warnings are nobody's.
    [ -z "$includes" ] || export C_INCLUDE_PATH=$includes CPLUS_INCLUDE_PATH=$includes
}

# ---- the programs ------------------------------------------------------------------------------------------
name_programs() {
    local suffix=
    [ "$variant" = cuda ] || suffix=_host
    B=build/mpi$MPI
    [ "$NCCL" = 1 ] || B+=-nccl0
    B=${PROGRAMS:-$B}
    train=$B/train_gpt2cu$suffix
    test=$B/test_gpt2cu$suffix
}
folders=(dev/reference/*/)

# One architecture only: that of the first GPU.
architecture() {
    local capability
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader --id=0 | tr -d '. ')
    [ "$capability" != 90 ] || capability=90a
    echo "-gencode arch=compute_$capability,code=sm_$capability"
}

part_build() {
    local start=$SECONDS library targets=("$train" "$test" "$B/ops/$variant/bench_cuda") source
    for library in zstd:zstd.h jansson:jansson.h; do
        if ! has_library ${library%:*} || ! has_header ${library#*:}; then
            row FAIL "build" "no ${library%:*}: see GPU_CHECK_LIBRARIES in $0"
            return 1
        fi
    done
    [ "$NCCL" = 1 ] || row SKIP "NCCL" "no header or library: built with NCCL=0"
    if has_library cmocka && has_header cmocka.h; then
        for source in dev/ops/test_*.cu; do
            targets+=("$B/ops/$variant/$(basename "$source" .cu)")
        done
    fi
    targets+=("$B/train_gpt2")
    local flags=()
    [ "$variant" = cuda ] && flags=("GPUS=$(architecture)")
    make -k -j"${JOBS:-$(nproc)}" "NVCC=$NVCC" "${flags[@]}" "${targets[@]}"
    local status=$?
    if [ $status -eq 0 ]; then
        row PASS "build" "$((SECONDS - start)) s"
    else
        row FAIL "build" "exit status $status: see build.log"
    fi
}

part_reference() {
    "$test" "${folders[@]}"
    local status=$? held
    held=$(grep -oE '^[0-9]+ of [0-9]+ folders hold' "$out/reference.log" | tail -n 1)
    if [ $status -eq 0 ]; then
        row PASS "reference folders, fp32 and bf16" "$held" all
    else
        row FAIL "reference folders, fp32 and bf16" "${held:-exit status $status}" all
    fi
}

part_ops() {
    local source name status
    if ! has_library cmocka || ! has_header cmocka.h; then
        row SKIP "operations against double" "no cmocka"
        return
    fi
    for source in dev/ops/test_*.cu; do
        name=$(basename "$source" .cu)
        if [ ! -x "$B/ops/$variant/$name" ]; then
            row FAIL "$name" "not built: see build.log"
            continue
        fi
        CMOCKA_MESSAGE_OUTPUT=TAP "$B/ops/$variant/$name" >"$out/$name.log" 2>&1
        status=$?
        cat "$out/$name.log"
        if [ $status -eq 0 ]; then
            row PASS "$name" "$(grep -cE '^ok ' "$out/$name.log") passed"
        else
            row FAIL "$name" "exit status $status, $(grep -cE '^not ok ' "$out/$name.log") failed"
        fi
    done
}

# ---- runs --------------------------------------------------------------------------------------------------
# The recipe of dev/reference/train_reference.py.
recipe=(--init_from=dev/reference/heads_of_7 --train_data=dev/test/training/tokens.bin --eval_interval=0
    --shuffle=false --batch_size=4 --block_size=32 --gradient_accumulation_steps=3 --max_iters=30
    --learning_rate=3e-3 --min_lr=3e-4 --warmup_iters=5 --lr_decay_iters=25 --weight_decay=0.1 --beta1=0.9
    --beta2=0.95 --grad_clip=0.42
    --snapshot_interval=0)

# train_into FOLDER PROGRAM ARGUMENTS...: prints the last line, the hash of the weights.
train_into() {
    local folder=$out/runs/$1 program=$2
    shift 2
    "$program" "${recipe[@]}" "--out_dir=$folder" "$@" >"$folder.log" 2>&1 ||
        { cat "$folder.log" >&2 && return 1; }
    tail -n 1 "$folder.log" | grep -oE '^weights [0-9a-f]{16}$'
}

part_repeat() {
    local dtype first second
    for dtype in fp32 bf16; do
        first=$(train_into repeat-$dtype-1 "$train" "--dtype=$dtype" --dropout=0.1)
        second=$(train_into repeat-$dtype-2 "$train" "--dtype=$dtype" --dropout=0.1)
        echo "$dtype: $first, $second"
        if [ -n "$first" ] && [ "$first" = "$second" ]; then
            row PASS "two runs, $dtype" "$first" "the same"
        else
            row FAIL "two runs, $dtype" "${first:-none} and ${second:-none}" "the same"
        fi
    done
}

# losses FOLDER: iter and loss of each update.
losses() {
    sed -n 's/.*"event":"step","iter":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$out/runs/$1/log.jsonl"
}

# One of two begins, the other ends; the CPU's whole run is what they are held to, to the bounds of
# dev/test/test_cuda.sh.
part_move() {
    local dtype bound order from to distance
    if [ ! -x "$B/train_gpt2" ]; then
        row SKIP "from CPU to GPU and back" "no CPU program: see build.log"
        return
    fi
    for dtype in fp32:2e-5 bf16:0.0039; do
        bound=${dtype#*:}
        dtype=${dtype%:*}
        train_into "cpu-$dtype" "$B/train_gpt2" "--dtype=$dtype"
        for order in "$B/train_gpt2 $train CPU-GPU" "$train $B/train_gpt2 GPU-CPU"; do
            read -r from to order <<<"$order"
            train_into "$order-$dtype" "$from" "--dtype=$dtype" --max_iters=15 --snapshot_interval=15 \
                >/dev/null &&
                train_into "$order-$dtype" "$to" "--dtype=$dtype" --init_from=resume
            distance=$(paste -d' ' <(losses "$order-$dtype") <(losses "cpu-$dtype") | awk '
                NF != 4 || $1 != $3 { bad = 1 }
                { d = ($2 > $4 ? $2 - $4 : $4 - $2) / $4; if (d > worst) worst = d }
                END { print bad || NR != 30 ? "none" : worst + 0 }')
            if [ "$distance" = none ]; then
                row FAIL "$order, $dtype" "the runs did not end" "$bound"
            else
                judge "$order, $dtype: loss differs" "$distance" "at most $bound" "$distance <= $bound"
            fi
        done
    done
}

# ---- speed -------------------------------------------------------------------------------------------------
# figure NAME: a number of speed.json, nothing if it is not there.
figure() {
    "$python" -c 'import json, sys
value = json.load(open(sys.argv[1])).get(sys.argv[2])
print("" if value is None else f"{value:.6g}")' "$out/speed.json" "$1"
}

part_speed() {
    local shape=(--batch 64 --context 1024) ms mib other
    [ "$variant" = cuda ] || shape=(--batch 1 --context 8 --layers 1 --steps 6 --device cpu --eager)
    "$python" dev/bench/compare_pytorch_cuda.py "${shape[@]}" --program "$train" --json "$out/speed.json" ||
        return 1
    ms=$(figure ms)
    judge "GPT-2 124M, B 64, T 1024, bf16: an update" "$(printf '%.2f ms' "$ms")" "at most 92 ms" "$ms <= 92"
    row PASS "tokens a second, mfu" \
        "$(printf '%.0f, %.1f%%' "$(figure tok_per_s)" "$(awk "BEGIN { print 100 * $(figure mfu) }")")"
    judge "start to first step" "$(printf '%.2f s' "$(figure start_s)")" "at most 2 s" \
        "$(figure start_s) <= 2"
    row PASS "an update with --autotune=true, start" \
        "$(printf '%.2f ms, %.2f s' "$(figure autotuned_ms)" "$(figure autotuned_start_s)")" \
        "$(awk "BEGIN { printf \"%+.1f%%\", 100 * ($(figure autotuned_ms) / $ms - 1) }")"
    other=$(figure pytorch_ms)
    if [ -z "$other" ]; then
        row SKIP "beside PyTorch" "no PyTorch for $python"
        return
    fi
    judge "times PyTorch compiled ($(printf '%.2f ms' "$other"))" \
        "$(awk "BEGIN { printf \"%.2f\", $other / $ms }")" \
        "at least 1.25" "$other / $ms >= 1.25"
    mib=$(figure mib)
    other=$(figure pytorch_mib)
    if [ -z "$mib" ] || [ -z "$other" ]; then
        row SKIP "memory" "nvidia-smi does not say"
        return
    fi
    judge "memory, MiB (PyTorch: $(printf %.0f "$other"))" "$(printf '%.0f' "$mib")" "at most 0.8 of it" \
        "$mib <= 0.8 * $other"
}

part_operations() {
    local shape=() share
    [ "$variant" = cuda ] || shape=(1 64 64 2 300 --bandwidth=1e10 --flops=1e10 --rounds=1)
    "$B/ops/$variant/bench_cuda" "${shape[@]}" || return 1
    share=$(awk '/^all of a step/ { print $(NF - 1) }' "$out/operations.log")
    row PASS "all operations of a step, share of bound" "$share" "table above"
    # What published kernels reach for this shape on an H100, times 0.8.
    local pass rate goal flops
    for pass in forward:212:1 backward:144:2.5; do
        IFS=: read -r pass goal flops <<<"$pass"
        rate=$(awk -v pass="$pass" -v flops="$flops" '$1 == "attention" && $2 == pass {
            print flops * 2 * 64 * 1024 * 1024 * 768 / $4 / 1e9 }' "$out/operations.log")
        judge "attention $pass, TFLOP/s" "$(printf '%.0f' "$rate")" "at least $goal" "$rate >= $goal"
    done
}

# The median update of a short run, in ms.
median_ms() {
    sed -n 's/.*"event":"step","iter":\([0-9]*\),.*"ms":\([0-9.]*\),.*/\1 \2/p' "$1/log.jsonl" |
        awk '$1 >= 2 { print $2 }' | sort -g |
        awk '{ ms[NR] = $1 } END { print ms[int((NR + 1) / 2)] }'
}

make_tokens() {
    "$python" -c 'import array, random, sys
array.array("H", [random.randrange(50257) for _ in range(300000)]).tofile(open(sys.argv[1], "wb"))' \
        "$out/tokens.bin"
}

# Runs in turns, so that a card that slows down does so for both.
part_exact() {
    local shape=(--batch_size=64 --block_size=1024 --max_iters=8 --init_from=scratch --grad_clip=1
        --dtype=bf16)
    local turn reduce exact fp32
    [ "$variant" = cuda ] || shape+=(--batch_size=1 --block_size=8 --n_layer=1 --n_embd=64 --n_head=2 \
        --max_iters=5)
    make_tokens || return 1
    for turn in 1 2; do
        for reduce in exact fp32; do
            train_into exact-$reduce-$turn "$train" "${shape[@]}" --train_data="$out/tokens.bin" \
                --reduce=$reduce --gradient_accumulation_steps=4 || return 1
        done
    done
    exact=$( (median_ms "$out/runs/exact-exact-1" && median_ms "$out/runs/exact-exact-2") | sort -g |
        head -n 1)
    fp32=$( (median_ms "$out/runs/exact-fp32-1" && median_ms "$out/runs/exact-fp32-2") | sort -g | head -n 1)
    echo "exact $exact ms, fp32 $fp32 ms, 4 slots"
    judge "exact sums, 4 slots: part of an update" \
        "$(awk "BEGIN { printf \"%.2f%%\", 100 * ($exact / $fp32 - 1) }")" \
        "at most 1%" "$exact / $fp32 - 1 <= 0.01"
}


# ---- compute-sanitizer -------------------------------------------------------------------------------------
# sanitize TOOL LABEL COMMAND...: one row; 1 if the tool cannot work here at all.
sanitize() {
    local tool=$1 label="$1, $2" status
    shift 2
    timeout 40 "$sanitizer" --tool "$tool" --error-exitcode 99 "$@" >"$out/sanitizer-one.log" 2>&1
    status=$?
    echo "== $label: exit status $status"
    grep -E '^=========' "$out/sanitizer-one.log" | head -n 30
    if grep -qi 'device not supported' "$out/sanitizer-one.log"; then
        row SKIP "compute-sanitizer" "it does not support this device here"
        return 1
    fi
    case $status in
    0) row PASS "$label" "clean" ;;
    124) row SKIP "$label" "not done in 40 s" ;;
    *) row FAIL "$label" "$(grep -oE '(ERROR|RACECHECK) SUMMARY: .*' "$out/sanitizer-one.log" | tail -n 1)" ;;
    esac
}

part_sanitizer() {
    local tool name sanitizer
    sanitizer=$(command -v compute-sanitizer || echo "$(dirname "$NVCC")/compute-sanitizer")
    if [ ! -x "$sanitizer" ]; then
        row SKIP "compute-sanitizer" "not installed"
        return
    fi
    for tool in memcheck racecheck; do
        for name in heads_of_64 heads_of_5; do
            sanitize $tool $name "$test" dev/reference/$name || return 0
        done
        for name in test_cuda_layernorm test_cuda_elements test_cuda_embedding test_cuda_update \
            test_cuda_attention test_cuda_model; do
            [ ! -x "$B/ops/$variant/$name" ] || sanitize $tool $name "$B/ops/$variant/$name" || return 0
        done
    done
}

# ---- all of it ---------------------------------------------------------------------------------------------
# run_part NAME: in a process of its own, with a limit; one that says nothing has failed.
run_part() {
    local name=$1 limit=${limits[$1]} left=$((deadline - SECONDS)) before status start=$SECONDS
    [ "$left" -ge "$limit" ] || limit=$left
    if [ "$limit" -lt 5 ]; then
        row SKIP "$name" "no time left"
        return
    fi
    part_name=$name
    before=$(wc -l <"$out/rows")
    echo "== $name (at most $limit s)"
    GPU_CHECK_OUT=$out timeout -k 5 "$limit" "$self" --part "$name" >"$out/$name.log" 2>&1
    status=$?
    if [ $status -eq 124 ] || [ $status -eq 137 ]; then
        row FAIL "$name" "stopped after $limit s"
    elif [ $status -ne 0 ] && ! tail -n "+$((before + 1))" "$out/rows" | grep -q '^FAIL'; then
        row FAIL "$name" "exit status $status: see $name.log"
    fi
    # A part that went well is told in the table, but for those that print one of their own.
    case $name:$(tail -n "+$((before + 1))" "$out/rows" | grep -c '^FAIL') in
    operations:* | speed:* | *:[1-9]*) tail -n 45 "$out/$name.log" ;;
    *) tail -n 3 "$out/$name.log" ;;
    esac
    echo "== $name: exit status $status, $((SECONDS - start)) s"
}

case ${1:-} in
--carry)
    [ $# -eq 2 ] || { echo "usage: $0 --carry FOLDER" >&2 && exit 1; }
    carry "$2"
    exit
    ;;
--part)
    out=$GPU_CHECK_OUT
    part_name=$2
    find_libraries
    name_programs
    "part_$2"
    exit
    ;;
esac

if [ "$variant" = cuda ] && ! nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
    echo "no GPU: nothing to check"
    exit 1
fi
[ $# -eq 0 ] || parts=("$@")
for part in "${parts[@]}"; do
    [ -n "${limits[$part]:-}" ] ||
        { echo "gpu_check.sh: $part: expected one of: ${!limits[*]}" >&2 && exit 1; }
done
out=${GPU_CHECK_OUT:-$(mktemp -d)}
rm -rf "$out/runs" # of a check before this one
mkdir -p "$out/runs" && : >"$out/rows" || exit 1
out=$(readlink -f "$out")
deadline=${GPU_CHECK_SECONDS:-1500}
find_libraries
machine="no GPU: the script is tried out on the host build; figures mean nothing"
[ "$variant" != cuda ] || machine="$(nvidia-smi --query-gpu=name,driver_version,memory.total \
    --format=csv,noheader --id=0); CUDA $("$NVCC" --version | grep -o 'release.*')"
echo "$machine"
for part in "${parts[@]}"; do
    run_part "$part"
done
echo
date -u '+%Y-%m-%d %H:%M UTC'", $SECONDS s, logs and gpu_check.json in $out"
write_json "$machine"
print_table "$machine"
! grep -q '^FAIL' "$out/rows"
