# Sourced by dev/gpu_check.sh: the steps that bring a first GPU up, in the order in which a fault is easiest
# to find, and the report, which says of each part that failed what that means and how to go around it.

# What a failure of a part means, and the switch that goes around it meanwhile.
declare -A means around
means[build]="compiler, toolkit or a library are not what the Makefile expects"
around[build]="NVCC=, CPATH=, NCCL=0, MPI=0, GPU_CHECK_LIBRARIES"
means[device]="the driver, its version, or who may see the GPU: nothing below can work"
around[device]="a newer driver; CUDA_VISIBLE_DEVICES; --gpus all for a container"
means[updates]="a kernel or a library's call faults: nothing is queued ahead here, so the line names the call"
around[updates]="--dtype=fp32; a product: --autotune=true; attention: heads of 64"
means[reference]="numbers are wrong: the first folder and tensor that fail tell which operation"
around[reference]="--dtype=fp32 if only bf16 fails"
means[sanitizer]="an access outside memory, or a race between threads of a block"
around[sanitizer]="none: results may be wrong without a fault"
means[graph]="recording or replaying a step does not work, gives other bits, or is slower"
around[graph]="--cuda_graph=false"
means[operations]="a kernel is far from its bound; the table in its log names it"
around[operations]="none: slow, not wrong"
means[autotune]="timing products, or repeating what was chosen, does not work"
around[autotune]="--autotune=false, the default"
means[speed]="an update is slower, or takes more memory, than the goal"
around[speed]="none: see operations and autotune"
means[llmc]="an update is slower than llm.c's, or llm.c was not built"
around[llmc]="none: see operations"
means[ranks]="NCCL, or what watches over lost ranks"
around[ranks]="one rank; NCCL_DEBUG=WARN and dev/notes/many_gpus.md"
means[ops]="an operation is wrong at some shape, which its line names"
around[ops]="--dtype=fp32 if only bf16 fails"
means[repeat]="two runs differ: a race, or a library that chooses by itself"
around[repeat]="none: bits are not repeated"
means[exact]="the exact sums cost more than counted"
around[exact]="--reduce=fp32, whose bits depend on the number of ranks; a larger batch_size"
means[move]="the GPU rounds otherwise than the bounds allow"
around[move]="--dtype=fp32 if only bf16 fails"

# ---- the first steps ---------------------------------------------------------------------------------------
part_device() {
    if [ "$variant" != cuda ]; then
        row SKIP "the device" "host build"
        return
    fi
    nvidia-smi
    nvidia-smi -q -d MEMORY,CLOCK,ECC -i 0 | head -n 80
    nvidia-smi topo -m
    local facts compute
    facts=$(nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader --id=0)
    compute=$(nvidia-smi --query-compute-apps=pid --format=csv,noheader | wc -l)
    row PASS "the device" "$facts"
    [ "$compute" -eq 0 ] || row SKIP "nobody else computes on it" "$compute processes do: times will vary"
    judge "compute capability" "${facts##*, }" "8.0 or newer" "${facts##*, } >= 8.0"
    "$train" --help >/dev/null || row FAIL "the program starts" "see device.log"
    ldd "$train" | grep -E 'cublasLt|not found'
}

# Three updates with every call waited for: a fault is reported by the call that made it.
part_updates() {
    local dtype weights
    for dtype in fp32 bf16; do
        weights=$(CUDA_LAUNCH_BLOCKING=1 train_into "updates-$dtype" "$train" "--dtype=$dtype" --max_iters=3 \
            --cuda_graph=false)
        if [ -n "$weights" ]; then
            row PASS "three updates, one call at a time, $dtype" "$weights"
        else
            row FAIL "three updates, one call at a time, $dtype" "$(grep -oE 'GPU fault: .{0,60}' \
                "$out/runs/updates-$dtype.log" || echo "see updates.log")"
        fi
    done
}

# What was timed is in the snapshot, and not timed again.
part_autotune() {
    local first second shape=(--dtype=bf16)
    first=$(train_into tuned "$train" "${shape[@]}" --autotune=true --snapshot_interval=15)
    rm -f "$out/runs/tuned/step-00000030.snap"
    second=$(train_into tuned "$train" "${shape[@]}" --init_from=resume)
    echo "autotune: $first, $second"
    if [ -n "$first" ] && [ "$first" = "$second" ] &&
        [ "$(grep -c '"event":"plans"' "$out/runs/tuned/log.jsonl")" -eq 2 ]; then
        row PASS "--autotune=true, resumed" "$first" "the same"
    else
        row FAIL "--autotune=true, resumed" "${first:-none} and ${second:-none}" "the same"
    fi
}

# llm.c, built from the folder GPU_CHECK_LLMC, and train_gpt2cu on the same tokens in the same shape.
part_llmc() {
    local theirs ours
    if [ -z "${GPU_CHECK_LLMC:-}" ] || [ "$variant" != cuda ]; then
        row SKIP "beside llm.c" "GPU_CHECK_LLMC=FOLDER of its sources"
        return
    fi
    make_tokens || return 1
    "$python" -c 'import array, sys
tokens = open(sys.argv[1], "rb").read()
header = array.array("i", [20240520, 1, len(tokens) // 2] + [0] * 253).tobytes()
open(sys.argv[2], "wb").write(header + tokens)' "$out/tokens.bin" "$out/tokens-llmc.bin" || return 1
    make -C "$GPU_CHECK_LLMC" NVCC="$NVCC" NO_MULTI_GPU=1 ${GPU_CHECK_LLMC_MAKE:-} train_gpt2cu || return 1
    (cd "$GPU_CHECK_LLMC" && ./train_gpt2cu -i "$out/tokens-llmc.bin" -j "$out/tokens-llmc.bin" -e d12 -b 64 \
        -t 1024 -d 65536 -x 30 -v 1000 -s 1000 -r 0 -h 0 -l 6e-4) | tee "$out/llmc-run.log" || return 1
    theirs=$(grep -oE '\| +[0-9.]+ ms \|' "$out/llmc-run.log" | tail -n 20 | grep -oE '[0-9.]+' | sort -g |
        sed -n 10p)
    train_into llmc "$train" --train_data="$out/tokens.bin" --batch_size=64 --block_size=1024 --max_iters=30 \
        --init_from=scratch --grad_clip=1 --dtype=bf16 --gradient_accumulation_steps=1 || return 1
    ours=$(median_ms "$out/runs/llmc")
    judge "times llm.c ($(printf '%.2f ms' "$theirs"))" \
        "$(awk "BEGIN { printf \"%.2f\", $theirs / $ours }")" "at least 1" "$theirs / $ours >= 1"
}

# ---- the report --------------------------------------------------------------------------------------------
# Rows are result|what|value|goal|part, in the file rows. Text for JSON.
quoted() {
    printf '"%s"' "$(printf '%s' "$1" | tr '\n\t' '  ' | sed 's/["\\]/\\&/g')"
}

# failed_parts: the names of parts with a failed row, in their order.
failed_parts() {
    awk -F'|' '$1 == "FAIL" && !seen[$5]++ { print $5 }' "$out/rows"
}

# write_json MACHINE: gpu_check.json.
write_json() {
    local status what value goal part comma=
    {
        printf '{"machine":%s,"toolkit":%s,"commit":%s,"date":%s,"seconds":%d,"rows":[' "$(quoted "$1")" \
            "$(quoted "$("$NVCC" --version 2>/dev/null | grep -o 'release.*')")" \
            "$(quoted "$(git describe --always --dirty 2>/dev/null)")" \
            "$(quoted "$(date -u '+%Y-%m-%d %H:%M UTC')")" "$SECONDS"
        while IFS='|' read -r status what value goal part; do
            printf '%s\n{"part":%s,"result":%s,"what":%s,"value":%s,"goal":%s}' "$comma" "$(quoted "$part")" \
                "$(quoted "$status")" "$(quoted "$what")" "$(quoted "$value")" "$(quoted "$goal")"
            comma=,
        done <"$out/rows"
        printf '],"failed":['
        comma=
        while read -r part; do
            printf '%s\n{"part":%s,"means":%s,"around":%s}' "$comma" "$(quoted "$part")" \
                "$(quoted "${means[$part]}")" "$(quoted "${around[$part]}")"
            comma=,
        done < <(failed_parts)
        printf ']}\n'
    } >"$out/gpu_check.json"
}

# print_table MACHINE: in Markdown, to be pasted into an issue.
print_table() {
    local part
    echo "$1; $(git describe --always --dirty 2>/dev/null)"
    echo
    { echo 'result|what|value|goal|' && echo '---|---|---|---|' && cat "$out/rows"; } |
        awk -F'|' '{ printf "| %-6s | %-48s | %-34s | %s |\n", $1, $2, $3, $4 }'
    while read -r part; do
        printf '\n**%s** failed: %s. Around it: %s.\n' "$part" "${means[$part]}" "${around[$part]}"
    done < <(failed_parts)
}
