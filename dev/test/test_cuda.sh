#!/usr/bin/env bash
# The CUDA program as the CPU runs it (dev/host_cuda): the reference folders, the same run as the CPU
# program's, runs that move between the two, the same weights always, and what it says where a GPU fails.
#   PROGRAMS=build/mpi1 dev/test/test_cuda.sh        prints TAP
set -u
. "$(dirname "$0")/tap.bash"
export LC_ALL=C OMP_NUM_THREADS=1
programs=$(cd "${PROGRAMS:-.}" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
training=$root/dev/test/training
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# ---- the whole model ---------------------------------------------------------------------------------------
folders=("$root"/dev/reference/*/)
"$programs/test_gpt2cu_checked" "${folders[@]}" >stdout 2>stderr
[ $? -eq 0 ] && grep -q "^${#folders[@]} of ${#folders[@]} folders hold" stdout
result $? "the reference folders hold, every access of a kernel checked"
for seed in 2 3; do
    HOST_CUDA_SEED=$seed "$programs/test_gpt2cu_host" "${folders[@]}" >stdout-$seed 2>stderr
    [ $? -eq 0 ] && [ "$(grep -v hold stdout-$seed)" = "$(grep -v hold stdout)" ]
    result $? "the same numbers in another order of threads (seed $seed)"
done

HOST_CUDA_EPILOGUES=0 "$programs/test_gpt2cu_host" "${folders[@]}" >stdout 2>stderr
[ $? -eq 0 ] && grep -q "^${#folders[@]} of ${#folders[@]} folders hold" stdout
result $? "they hold where cuBLASLt has no epilogues"
# GELU's slope in the product, but no sums of rows; neither.
for setting in HOST_CUDA_BGRAD=0 HOST_CUDA_CAPABILITY=80; do
    env "$setting" "$programs/test_gpt2cu_host" "$root"/dev/reference/heads_of_{64,72} >stdout 2>stderr
    [ $? -eq 0 ] && grep -q "^2 of 2 folders hold" stdout
    result $? "and with $setting"
done

# off TENSOR HOW: one element of a tensor 1% larger is seen, in that tensor.
off() {
    rm -rf folder
    cp -r "$root/dev/reference/heads_of_7" folder
    "$programs/test/damage" folder/reference.safetensors "$1" "$2" 1.01 >changed || exit 1
    "$programs/test_gpt2cu_host" folder >stdout 2>stderr
    [ $? -eq 1 ] && grep -qE "^  ${1#grad.transformer.} +largest error .*FAILED" stdout
    result $? "$(cat changed): refused"
}
off logits largest
off loss 0
off grad.transformer.wte.weight largest
off grad.transformer.h.0.attn.c_attn.weight largest
off grad.transformer.h.0.mlp.c_fc.bias largest

# ---- the same run ------------------------------------------------------------------------------------------
# The recipe of dev/reference/train_reference.py.
recipe=(--init_from="$root/dev/reference/heads_of_7" --train_data="$training/tokens.bin" --eval_interval=0
    --shuffle=false --batch_size=4 --block_size=32 --gradient_accumulation_steps=3 --max_iters=30
    --learning_rate=3e-3 --min_lr=3e-4 --warmup_iters=5 --lr_decay_iters=25 --weight_decay=0.1 --beta1=0.9
    --beta2=0.95 --grad_clip=0.42 --snapshot_interval=0 --threads=1)

# run PROGRAM OUT ARGUMENTS...: a run into the folder OUT; its exit code in $code, its weights in $weights.
run() {
    local program=$1 out=$2
    shift 2
    timeout "$(scaled 300)" "$programs/$program" "${recipe[@]}" --out_dir="$out" "$@" >stdout 2>stderr
    code=$?
    weights=$(tail -n 1 stdout | grep -E '^weights [0-9a-f]{16}$')
}

# steps OUT: iter, loss and norm of each update.
steps() {
    sed -n 's/.*"event":"step","iter":\([0-9]*\),"loss":\([^,]*\),"lr":[^,]*,"norm":\([^,]*\),.*/\1 \2 \3/p' \
        "$1/log.jsonl"
}

# agree A B LOSS NORM COUNT: the updates of two runs are this many, within these relative distances.
agree() {
    paste -d' ' <(steps "$1") <(steps "$2") | awk -v loss="$3" -v norm="$4" -v count="$5" '
        function distance(a, b) { return a == b ? 0 : (a > b ? a - b : b - a) / b }
        NF != 6 || $1 != $4 { print "# line " NR ": " $0; bad = 1 }
        { l = distance($2, $5); n = distance($3, $6) }
        l > worst_loss { worst_loss = l }
        n > worst_norm { worst_norm = n }
        l > loss || n > norm { print "# update " $1 ": " $0; bad = 1 }
        END { print "# largest distance: loss " worst_loss ", norm " worst_norm; exit bad || NR != count }'
}

# fp32: as near as the CPU program is to PyTorch. bf16: 2^-8 is what one rounding to bf16 may be off, and a
# mean over 384 tokens stays below it; the norm of two runs that both round differs by twice that for each of
# few large elements.
bounds_fp32=(2e-5 1e-3)
bounds_bf16=(0.0039 0.04)
for dtype in fp32 bf16; do
    declare -n bounds=bounds_$dtype
    run train_gpt2 cpu-$dtype --dtype=$dtype --dropout=0.1 --snapshot_interval=30
    run train_gpt2cu_host cuda-$dtype --dtype=$dtype --dropout=0.1
    whole=$weights
    [ $code -eq 0 ] && [ -n "$weights" ] && agree cuda-$dtype cpu-$dtype "${bounds[@]}" 30
    result $? "$dtype: 30 updates agree with the CPU program's, with dropout"
    HOST_CUDA_SEED=7 run train_gpt2cu_host again --dtype=$dtype --dropout=0.1
    [ $code -eq 0 ] && [ -n "$weights" ] && [ "$weights" = "$whole" ]
    result $? "$dtype: the same weights in another order of threads"
    run train_gpt2cu_host part-$dtype --dtype=$dtype --dropout=0.1 --max_iters=11 --snapshot_interval=4
    run train_gpt2cu_host part-$dtype --dtype=$dtype --dropout=0.1 --init_from=auto
    [ $code -eq 0 ] && [ -n "$weights" ] && [ "$weights" = "$whole" ]
    result $? "$dtype: stopped after 11 updates and resumed: the same weights"
    for first in train_gpt2 train_gpt2cu_host; do
        second=train_gpt2cu_host
        [ $first = train_gpt2 ] || second=train_gpt2
        run $first move-$first --dtype=$dtype --dropout=0.1 --max_iters=15 --snapshot_interval=15
        run $second move-$first --dtype=$dtype --dropout=0.1 --init_from=resume
        [ $code -eq 0 ] && agree move-$first cpu-$dtype "${bounds[@]}" 30
        result $? "$dtype: begun by $first, ended by $second"
        rm -rf move-$first
    done
done
# A stream in bf16: each of few blocks' sums is rounded once more, so the bounds of bf16 hold.
residual=(--dtype=bf16 --dropout=0.1 --residual=bf16)
run train_gpt2cu_host residual "${residual[@]}"
whole=$weights
[ $code -eq 0 ] && [ -n "$weights" ] && agree residual cuda-bf16 "${bounds_bf16[@]}" 30 &&
    [ "$(steps residual)" != "$(steps cuda-bf16)" ] && grep -q '"residual":"bf16"' residual/log.jsonl
result $? "residual=bf16: the same run within the bounds of bf16"
HOST_CUDA_SEED=7 run train_gpt2cu_host part-residual "${residual[@]}" --max_iters=11 --snapshot_interval=4
run train_gpt2cu_host part-residual "${residual[@]}" --init_from=auto
[ $code -eq 0 ] && [ -n "$weights" ] && [ "$weights" = "$whole" ]
result $? "and the same weights once stopped and resumed, in another order of threads"
run train_gpt2cu_host part-residual --dtype=bf16 --init_from=resume --max_iters=31
[ $code -eq 0 ] && grep -q '^notice: residual was "bf16" when the snapshot was written, is now "fp32"' stdout
result $? "a resume with another residual is told of"
run train_gpt2 residual-cpu "${residual[@]}"
[ $code -eq 1 ] && grep -q 'residual=bf16: only train_gpt2cu has it' stderr && [ ! -e residual-cpu ]
result $? "the CPU program refuses it"
run train_gpt2cu_host residual-fp32 --dtype=fp32 --residual=bf16
[ $code -eq 1 ] && grep -q 'residual=bf16: expected dtype=bf16 with it, found dtype=fp32' stderr
result $? "and so does dtype=fp32"
run train_gpt2 alone-cpu --dtype=fp32 --gradient_accumulation_steps=1
run train_gpt2cu_host alone --dtype=fp32 --gradient_accumulation_steps=1
in_fp32=$(grep -c 'attention has heads' stdout)
[ $code -eq 0 ] && agree alone alone-cpu "${bounds_fp32[@]}" 30
result $? "one slot an update, without an arena of integers"
run train_gpt2cu_host reduce --dtype=bf16 --reduce=fp32 --max_iters=5
[ $code -eq 0 ] && [ -n "$weights" ]
result $? "reduce=fp32"
grep -q '^notice: n_embd=21, n_head=3: attention has heads of 7, which take many times as long' stdout &&
    [ "$in_fp32" -eq 0 ]
result $? "a size of heads without tensor cores is told at start, in bf16"
timeout "$(scaled 300)" "$programs/train_gpt2cu_checked" "${recipe[@]}" --dtype=bf16 --dropout=0.1 \
    --max_iters=2 --out_dir=checked >stdout 2>stderr
[ $? -eq 0 ] && [ "$(steps checked)" = "$(steps cuda-bf16 | head -n 2)" ]
result $? "two updates with every access of a kernel checked"

# ---- autotune ----------------------------------------------------------------------------------------------
# On a device whose second algorithm, which sums in another order, is the quickest (HOST_CUDA_PREFERS).
# Resumed where the first is: timing again would choose that one.
plans() { # OUT: the plans that its log has, one line a start
    sed -n 's/.*"event":"plans","iter":[0-9]*,"repeated":[a-z]*,//p' "$1/log.jsonl"
}
run train_gpt2cu_host untuned --dtype=bf16 --max_iters=6
untuned=$weights
tuning=(--dtype=bf16 --max_iters=6 --snapshot_interval=3)
HOST_CUDA_PREFERS=2 run train_gpt2cu_host tuned "${tuning[@]}" --autotune=true
tuned=$weights
[ $code -eq 0 ] && [ -n "$tuned" ] && [ "$tuned" != "$untuned" ] &&
    agree tuned untuned "${bounds_bf16[@]}" 6 &&
    grep -qE '^plans: [0-9]+ products timed on host_cuda' stdout && [ "$(plans tuned | wc -l)" -eq 1 ] &&
    [ -z "$(plans untuned)" ] && grep -q ': 1 0 2 2 0 0 0 0 0"' tuned/log.jsonl
result $? "autotune: another choice, other bits, the same run within the bounds"
rm tuned/step-00000006.snap
for autotune in true false; do
    cp -r tuned resumed-$autotune
    HOST_CUDA_PREFERS=1 run train_gpt2cu_host resumed-$autotune "${tuning[@]}" \
        --autotune=$autotune --init_from=resume
    [ $code -eq 0 ] && [ "$weights" = "$tuned" ] && [ "$(plans resumed-$autotune | uniq | wc -l)" -eq 1 ] &&
        grep -qE '^plans: [0-9]+ products as in the snapshot, nothing timed' stdout
    result $? "resumed with --autotune=$autotune: the snapshot's choice, the same weights"
done
run train_gpt2 tuned --dtype=bf16 --max_iters=4 --snapshot_interval=4 --init_from=resume
run train_gpt2cu_host tuned --dtype=bf16 --max_iters=5 --snapshot_interval=5 --init_from=resume
[ $code -eq 0 ] && [ "$(plans tuned | wc -l)" -eq 2 ] && [ "$(plans tuned | uniq | wc -l)" -eq 1 ]
result $? "the choice outlasts an update on the CPU"
tuning=(--dtype=bf16 --max_iters=6 --snapshot_interval=6 --init_from=resume)
HOST_CUDA_CUBLASLT=130100 run train_gpt2cu_host tuned "${tuning[@]}"
[ $code -eq 0 ] && [ "$(plans tuned | wc -l)" -eq 2 ] && [ "$(grep -c '^notice: plans' stdout)" -eq 1 ] &&
    grep -qE '^notice: plans .* are for .* cuBLASLt 13.0.0, this is .* 13.1.0: they are not used' stdout
result $? "with another version of the library it is not used, and a line says so"
tuning=(--dtype=bf16 --max_iters=7 --snapshot_interval=7 --init_from=resume)
HOST_CUDA_CUBLASLT=130100 run train_gpt2cu_host tuned "${tuning[@]}" --autotune=true
[ $code -eq 0 ] && [ "$(plans tuned | wc -l)" -eq 3 ] &&
    grep -qE '^plans: [0-9]+ products timed on .* 13.1.0' stdout
result $? "and there --autotune=true chooses anew"
# Plans of another shape say nothing about this one's products.
tuning=(--dtype=bf16 --batch_size=5 --snapshot_interval=100 --init_from=resume)
HOST_CUDA_CUBLASLT=130100 run train_gpt2cu_host tuned "${tuning[@]}" --max_iters=8
[ $code -eq 0 ] && [ "$(plans tuned | wc -l)" -eq 3 ] && [ "$(grep -c '^notice: plans' stdout)" -eq 1 ] &&
    grep -q '^notice: plans .* are for another batch_size, block_size or dtype: they are not used' stdout
result $? "with another batch_size it is not used, and a line says so"
HOST_CUDA_CUBLASLT=130100 run train_gpt2cu_host tuned "${tuning[@]}" --max_iters=9 --autotune=true
[ $code -eq 0 ] && [ "$(plans tuned | wc -l)" -eq 4 ] && grep -qE '^plans: [0-9]+ products timed on' stdout
result $? "and there --autotune=true chooses anew"
run train_gpt2 autotune-cpu --dtype=fp32 --max_iters=1 --autotune=true
[ $code -eq 0 ] && grep -q '^notice: autotune: only the CUDA program has anything to tune' stdout
result $? "the CPU program has nothing to tune, and says so"
for options in "--reduce=fp32" "--gradient_accumulation_steps=1" "--dtype=fp32"; do
    run train_gpt2cu_host plain-slots --dtype=bf16 --max_iters=2 $options
    expected=$weights
    HOST_CUDA_PREFERS=1 run train_gpt2cu_host tuned-slots --dtype=bf16 --max_iters=2 $options --autotune=true
    [ $code -eq 0 ] && [ -n "$weights" ] && [ "$weights" = "$expected" ] && grep -q '^plans: ' stdout
    result $? "timing that finds the first choice quickest changes no bit ($options)"
    rm -rf plain-slots tuned-slots
done
"$programs/bench/host/tune_matmul" 2 8 64 2 4 64 --vocabulary=131 --ms=50 >stdout 2>stderr
[ $? -eq 0 ] && [ "$(grep -c '^    "host_cuda .* / cuBLASLt 13.0.0\\n"$' stdout)" -eq 2 ] &&
    [ "$(grep -c '",$' stdout)" -eq 2 ] &&
    { cat stdout && echo 'NULL, };'; } |
    sed '1i #include <stddef.h>\nconst char *const entries[] = {' | gcc -x c -fsyntax-only - &&
    grep -qE '^    "16x192x64 nt bf16 bf16 bias set ([0-9]+ ){2}[0-9]+: 1 0 [12] [02] 0 0 0 0 0\\n",?$' stdout
result $? "dev/bench/tune_matmul prints entries for the table of plans"

# A library that refuses what its own check took: the first of its algorithms, and all that have an epilogue.
# With a step that is replayed and one that is not.
for one in 1:true 1:false 100:true; do
    HOST_CUDA_REFUSES=${one%:*} run train_gpt2cu_host refuses --dtype=bf16 --max_iters=6 \
        --cuda_graph=${one#*:}
    [ $code -eq 0 ] && [ -n "$weights" ] && [ "$weights" != "$untuned" ] &&
        agree refuses untuned "${bounds_bf16[@]}" 6 &&
        [ "$(grep -cE '^notice: cuBLASLt refuses a product of .*NOT_SUPPORTED' stdout)" -eq 1 ] &&
        [ "$(grep -c '"event":"notice","iter":0,"text":"cuBLASLt refuses' refuses/log.jsonl)" -eq 1 ]
    result $? "HOST_CUDA_REFUSES=${one%:*}, cuda_graph=${one#*:}: another way is found, and told once"
    rm -rf refuses
done
for what in --eval_only=true "--sample_only=true --num_samples=2 --max_new_tokens=3 --start=A"; do
    HOST_CUDA_REFUSES=1 run train_gpt2cu_host refuses --dtype=bf16 --eval_iters=2 \
        --val_data="$training/tokens.bin" $what
    [ $code -eq 0 ] && [ "$(grep -acE '^notice: cuBLASLt refuses a product .*NOT_SUPPORTED' stdout)" -eq 1 ]
    result $? "${what%% *} tells of a refusal, once"
    rm -rf refuses
done
HOST_CUDA_REFUSES=1 "$programs/test_gpt2cu_host" "$root"/dev/reference/{heads_of_7,one_head} >stdout 2>stderr
[ $? -eq 0 ] && [ "$(grep -cE '^  notice: cuBLASLt refuses a product of .*NOT_SUPPORTED' stdout)" -eq 1 ]
result $? "test_gpt2cu tells of a refusal, once"

# ---- evaluation and samples --------------------------------------------------------------------------------
for program in train_gpt2 train_gpt2cu_host; do
    run $program eval --dtype=fp32 --init_from=cpu-fp32/step-00000030.snap --eval_only=true --eval_iters=4 \
        --val_data="$training/tokens.bin"
    grep '^step 0' stdout >$program.eval
    run $program sample --dtype=fp32 --init_from=cpu-fp32/step-00000030.snap --sample_only=true \
        --num_samples=2 --max_new_tokens=24 --temperature=0.8 --top_k=5 --start=A
    [ $code -eq 0 ] && grep -av -e '^weights' -e ' on cuda' -e ' on cpu' stdout >$program.sample
done
[ -s train_gpt2.eval ] && cmp train_gpt2.eval train_gpt2cu_host.eval >stderr
result $? "the same losses in evaluation"
"$root/dev/test/hellaswag/make_items.py" items.bin 50 129
answers() { # the accuracy and the mean loss of right endings
    sed -n 's/.*"event":"hellaswag",.*"accuracy":\(.*\),"loss":\(.*\)}/\1 \2/p' "$1/log.jsonl"
}
for program in train_gpt2 train_gpt2cu_host train_gpt2cu_checked; do
    run $program swag-$program --dtype=fp32 --init_from=cpu-fp32/step-00000030.snap --eval_only=true \
        --val_data="$training/tokens.bin" --eval_iters=1 --hellaswag=items.bin
    paste -d' ' <(answers swag-train_gpt2) <(answers swag-$program) >stdout
    [ $code -eq 0 ] && awk -v bound=${bounds_fp32[0]} '
        { d = ($2 - $4) / $2; exit !(NF == 4 && NR == 1 && $1 == $3 && d < bound && -d < bound) }' stdout
    result $? "$program: the same answers to HellaSwag, and the same losses"
done
[ -s train_gpt2.sample ] && cmp train_gpt2.sample train_gpt2cu_host.sample >stderr
result $? "the same samples, drawn with a key-value cache"

# ---- where a GPU fails -------------------------------------------------------------------------------------
# fails NAME CODE TEXT ENVIRONMENT ARGUMENTS...: one line on stderr that says so, and this exit code.
fails() {
    local name=$1 expected=$2 text=$3 setting=$4
    shift 4
    env "$setting" timeout "$(scaled 300)" "$programs/train_gpt2cu_host" "${recipe[@]}" "$@" >stdout 2>stderr
    code=$?
    [ $code -eq "$expected" ] && [ "$(wc -l <stderr)" -eq 1 ] && grep -qE "^train_gpt2cu: .*$text" stderr
    result $? "$name"
}
fails "no GPU" 1 "expected an NVIDIA GPU, found none .*train_gpt2 trains on the CPU" HOST_CUDA_DEVICES=0 \
    --out_dir=none
fails "no driver" 1 \
    "expected an NVIDIA driver, found no libcuda.so.1 .*install .*train_gpt2 trains on the CPU" \
    HOST_CUDA_DRIVER=missing --out_dir=none
fails "a driver too old" 1 "driver is too old: expected one for CUDA [0-9.]+, found [0-9.]+; install" \
    HOST_CUDA_DRIVER=old --out_dir=none
fails "a GPU too old" 1 "expected a GPU of compute capability 8.0 or newer, found 7.5" \
    HOST_CUDA_CAPABILITY=75 --out_dir=none
fails "not enough memory" 1 "out of memory: the model needs [0-9.]+ GiB on the GPU, .* lower batch_size=4" \
    HOST_CUDA_MEMORY_MB=20 --out_dir=none
fails "all algorithms are refused" 1 \
    "host_cuda .*: no algorithm for a product of .*, and those tried end with .*_NOT_SUPPORTED; try another" \
    HOST_CUDA_REFUSES=101 --dtype=bf16 --out_dir=refuses-all
fails "no algorithm for a product" 1 \
    "host_cuda .*: no algorithm for a product of 128 x 63 x 21, bf16 to bf16; try another" \
    HOST_CUDA_PRODUCTS=0 --dtype=bf16 --out_dir=no-products
[ ! -e none ]
result $? "nothing is left behind"
for conf in "$root"/scripts/config/*_80gb.conf; do
    HOST_CUDA_MEMORY_MB=20 "$programs/train_gpt2cu_host" "$conf" --dtype=bf16 --out_dir=none \
        --train_data="$training/tokens.bin" --eval_interval=0 >stdout 2>stderr
    needed=$(grep -oE 'the model needs [0-9.]+ GiB' stderr | grep -oE '[0-9.]+')
    awk -v needed="${needed:-99}" 'BEGIN { exit !(needed > 20 && needed < 76) }' &&
        grep -q " $(printf '%.0f' "$needed") GiB in bf16" "$conf"
    result $? "$(basename "$conf"): $needed GiB, as it says, fit into 80 GB"
done
fails "a fault before any snapshot" 76 \
    "GPU fault: .*any call before it: CUDA_LAUNCH_BLOCKING=1 .*cuda_graph=false tell which.*no snapshot was" \
    HOST_CUDA_FAIL_AT=900 --dtype=fp32 --out_dir=fault
fails "a fault in the middle" 76 "GPU fault: .*newest good snapshot: step-000000[0-2][0-9].snap; run again" \
    HOST_CUDA_FAIL_AT=3000 --dtype=fp32 --snapshot_interval=1 --out_dir=fault
run train_gpt2cu_host fault --dtype=fp32 --init_from=auto
[ $code -eq 0 ] && [ -n "$weights" ]
result $? "and it goes on from there"
fails "updates beyond what exact sums hold" 76 \
    "5 updates in a row had .* that is finite, but beyond 341.333 .*none was written; --reduce=fp32" \
    HOST_CUDA_SEED=1 --dtype=fp32 --learning_rate=100 --min_lr=100 --grad_clip=0 --warmup_iters=0 \
    --weight_decay=100 --max_iters=2000 --max_bad_steps=5 --out_dir=blown

# ---- dev/gpu_check.sh, tried out ---------------------------------------------------------------------------
# check [FAULT]: its first steps, whose table is in stdout.
check() {
    HOST_CUDA_FAIL_AT=${1:--1} GPU_CHECK_VARIANT=host GPU_CHECK_OUT=$work/check PROGRAMS=$programs MPI=1 \
        NVCC=no-nvcc-here \
        timeout "$(scaled 300)" "$root/dev/gpu_check.sh" device updates >stdout 2>stderr
    code=$?
    python3 -m json.tool check/gpu_check.json >json 2>&1
}
check
[ $code -eq 0 ] && [ "$(grep -cE '^\| PASS +\| three updates, one call at a time' stdout)" -eq 2 ] &&
    [ "$(grep -c '"result": "PASS"' json)" -eq 2 ] && grep -q '"failed": \[\]' json
result $? "gpu_check.sh: what went well is in its table and in gpu_check.json"
check 300
[ $code -eq 1 ] && [ "$(grep -cE '^\| FAIL +\| three updates.*GPU fault' stdout)" -eq 2 ] &&
    grep -q '^\*\*updates\*\* failed: a kernel .* Around it: --dtype=fp32' stdout &&
    [ "$(grep -c '"result": "FAIL"' json)" -eq 2 ] && grep -q '"around": "--dtype=fp32; a product' json
result $? "and what failed, with its meaning and a way around it; nothing stops it"
end_of_tests
