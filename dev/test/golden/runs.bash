# Sourced: short fp32 runs whose results are the same bits on every CPU, level and compiler. What each comes
# to stands in expected.txt beside this file: name, `weights` of the run, checksum of its losses, norms,
# learning rates, evaluation and sample.
golden_folder=$(dirname "${BASH_SOURCE[0]}")
golden_tokens=$golden_folder/../training/tokens.bin # 3,201 tokens of a vocabulary of 129
golden_names="one_slot three_slots wide whole_vocabulary"

# golden_options NAME: odd sizes and more than one tile of attention; dropout and a clipped gradient; one slot
# and several; sums over more than a thousand values; softmax over GPT-2's vocabulary.
golden_options() {
    case $1 in
    one_slot) echo "--vocab_size=129 --n_layer=2 --n_head=3 --n_embd=39 --block_size=77 --batch_size=2
        --dropout=0.1 --gradient_accumulation_steps=1 --lr_schedule=cosine --grad_clip=0.9 --max_iters=10" ;;
    three_slots) echo "--vocab_size=129 --n_layer=2 --n_head=1 --n_embd=72 --block_size=35 --batch_size=3
        --dropout=0.2 --gradient_accumulation_steps=3 --lr_schedule=wsd --grad_clip=0 --max_iters=8" ;;
    wide) echo "--vocab_size=129 --n_layer=1 --n_head=5 --n_embd=320 --block_size=33 --batch_size=1
        --dropout=0 --gradient_accumulation_steps=2 --lr_schedule=linear --grad_clip=1 --max_iters=3" ;;
    whole_vocabulary) echo "--vocab_size=50257 --n_layer=1 --n_head=2 --n_embd=26 --block_size=21
        --batch_size=2 --dropout=0 --gradient_accumulation_steps=1 --lr_schedule=constant --grad_clip=1
        --max_iters=3" ;;
    esac
}

# golden_levels TRAIN_GPT2: the levels of the instruction set that this machine runs, best first.
golden_levels() {
    CPU_LEVEL=which "$1" 2>&1 | sed -n 's/.*CPU_LEVEL=which: expected one that this machine runs: //p'
}

# golden_run TRAIN_GPT2 NAME OUT [OPTION...]: runs it into the fresh folder OUT; prints the line that
# expected.txt should have.
golden_run() {
    local program=$1 name=$2 out=$3 options weights rest
    shift 3
    options=$(golden_options "$name")
    # shellcheck disable=SC2086 # options are words
    "$program" --dtype=fp32 --train_data="$golden_tokens" --val_data="$golden_tokens" --eval_interval=100 \
        --eval_iters=2 --snapshot_interval=0 --learning_rate=3e-3 --min_lr=3e-4 --warmup_iters=2 \
        --lr_decay_iters=9 --weight_decay=0.1 --num_samples=1 --start=A --max_new_tokens=40 --top_k=50 \
        --threads=2 $options --out_dir="$out" "$@" >"$out.stdout" 2>"$out.stderr" || return
    weights=$(sed -n 's/^weights //p' "$out.stdout")
    rest=$({
        sed -n 's/.*"event":"step",\("iter":.*\),"ms":.*/\1/p; s/.*"event":"eval",//p' "$out/log.jsonl"
        sed -n '/^A/,/^----/p' "$out.stdout"
    } | cksum | cut -d' ' -f1)
    echo "$name $weights $rest"
}
