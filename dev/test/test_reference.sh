#!/usr/bin/env bash
# test_gpt2 on the committed reference folders: they hold at every level of the instruction set, and a folder
# in which anything is off by one hundredth, missing or cut is refused with its name.
#   PROGRAMS=build/mpi1 dev/test/test_reference.sh        prints TAP
set -u
. "$(dirname "$0")/tap.bash"
export LC_ALL=C
programs=$(cd "${PROGRAMS:-.}" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
told() {
    grep -E 'FAILED|test_gpt2:|hold' output
}

# copy NAME: a fresh copy of a committed folder as ./folder.
copy() {
    rm -rf folder
    cp -r "$root/dev/reference/$1" folder
}

# refused NAME TEXT: ./folder is refused with exit code 1, and TEXT is in what is said.
refused() {
    "$programs/test_gpt2" folder >output 2>&1
    local code=$?
    [ $code -eq 1 ] && grep -qE -- "$2" output
    local status=$?
    [ $status -eq 0 ] || echo "# exit code $code; expected: $2"
    result $status "$1"
}

# off NAME TENSOR HOW: one element of a tensor 1% larger is seen, in that tensor and in fp32.
off() {
    copy "$1"
    "$programs/test/damage" folder/reference.safetensors "$2" "$3" 1.01 >changed || exit 1
    local name=${2#grad.transformer.}
    refused "$1: $(cat changed)" "^  $name +largest error .*FAILED"
}

folders=("$root"/dev/reference/*/)
# hold PROGRAM LEVEL: all the committed folders.
hold() {
    CPU_LEVEL=$2 "$programs/$1" "${folders[@]}" >output 2>&1 &&
        grep -q "^${#folders[@]} of ${#folders[@]} folders hold" output
}

for level in $(CPU_LEVEL=which "$programs/train_gpt2" 2>&1 | sed -n 's/.*one that this machine runs: //p'); do
    hold test_gpt2 "$level"
    result $? "the committed folders hold on $level"
done
[ "$tests" -gt 0 ]
result $? "there is a level that this machine runs"
for level in x86-64-v4-amx x86-64-v4-avx512_bf16; do
    hold test_gpt2_emulated $level
    result $? "the committed folders hold on an emulated $level"
done

for how in 100% 50% 10% 2%; do
    off one_head logits $how
    off one_head grad.transformer.wte.weight $how
    off heads_of_7 grad.transformer.h.0.attn.c_attn.weight $how
    off heads_of_5 grad.transformer.h.0.mlp.c_fc.weight $how
    off twelve_layers grad.transformer.h.0.mlp.c_proj.weight $how
done
off large_logits logits 50%
off large_logits grad.transformer.wte.weight 50%
off large_logits grad.transformer.wte.weight 90%
off one_token grad.transformer.wpe.weight 50%
off twelve_layers grad.transformer.h.5.ln_1.weight 50%
off twelve_layers grad.transformer.h.11.attn.c_proj.bias 50%
off heads_of_7 grad.transformer.ln_f.bias 50%
off sharp_attention grad.transformer.h.1.attn.c_proj.weight 50%
off one_head loss 0

change() { # NAME TENSOR ELEMENT FACTOR
    copy "$1"
    "$programs/test/damage" folder/reference.safetensors "$2" "$3" "$4" >changed || exit 1
}
change one_head targets 3 131
refused "a target that is not in the vocabulary" \
    'reference.safetensors: expected targets in 0 .. 130, found 131 at element 3'
change one_head tokens 0 -1
refused "a negative token" 'expected tokens in 0 .. 130, found -1 at element 0'
change one_head logits 7 nan
refused "a logit that is not a number" 'expected finite numbers in tensor logits, found -?nan at element 7'
change one_head grad.transformer.ln_f.bias 0 inf
refused "a gradient that is infinite" 'expected finite numbers in tensor grad.transformer.ln_f.bias'

# rename OLD NEW FILE: a text of the same length in a safetensors header or a config.
rename() {
    LC_ALL=C sed -i "1s/$1/$2/" "folder/$3"
}
copy one_head
rename grad.transformer.ln_f.bias grad.transformer.ln_f.bios reference.safetensors
refused "a missing gradient" 'expected tensor grad.transformer.ln_f.bias F32 \(20\), found none'
copy one_head
rename '"logits":{"dtype":"F32","shape":\[3,17,131\]' '"logits":{"dtype":"F32","shape":[17,3,131]' \
    reference.safetensors
refused "logits of another shape" 'expected tensor logits to be F32 \(3,17,131\), found F32 \(17,3,131\)'
copy one_head
rename '"logits":{"dtype":"F32"' '"logits":{"dtype":"I32"' reference.safetensors
refused "logits of another dtype" 'expected tensor logits to be F32 .*found I32'
copy one_head
truncate -s -5 folder/reference.safetensors
refused "a cut reference" 'folder/reference.safetensors: '
copy one_head
truncate -s -5 folder/model.safetensors
refused "a cut model" 'folder/model.safetensors: '
copy one_head
rm folder/reference.safetensors
refused "a folder without reference" 'folder/reference.safetensors: '
copy one_head
sed -i 's/"gelu_new"/"relu"/' folder/config.json
refused "a config that asks for another activation" 'config.json: .*relu'
rm -rf folder
refused "no folder" 'folder: expected a reference folder, found nothing'
"$programs/test_gpt2" >output 2>&1
[ $? -eq 1 ] && grep -q '^test_gpt2: usage' output
result $? "no argument"
"$programs/test_gpt2" nowhere "$root/dev/reference/one_token" >output 2>&1
[ $? -eq 1 ] && grep -q '^1 of 2 folders hold' output
result $? "one bad folder among good ones"
end_of_tests
