#!/usr/bin/env bash
# Tokens that are characters: nanoGPT's ids and split to the last byte, the vocabulary beside the shards, and
# a run of train_gpt2 (both programs) that finds it, samples with it, keeps it and exports it.
#   PROGRAMS=build/mpi1 dev/test/test_tokenize_char.sh        prints TAP
set -u
. "$(dirname "$0")/tap.bash"
export LC_ALL=C OMP_NUM_THREADS=2
programs=$(cd "${PROGRAMS:-.}" && pwd)
source=$(cd "$(dirname "$0")/../.." && pwd)
tokenize=$programs/data_prep/tokenize
shakespeare=${SHAKESPEARE:-$source/data/tinyshakespeare/input.txt}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# run PROGRAM ARGUMENTS...: output in the files stdout and stderr, exit code in $code.
run() {
    timeout "$(scaled 120)" "$@" >stdout 2>stderr
    code=$?
}

# tells NAME TEXT FILE: the last run has said so.
tells() {
    grep -qF -- "$2" "$3"
    result $? "$1"
}

# refused NAME EXPECTED -- COMMAND...: exit 1, one line on stderr that holds EXPECTED, and no folder out.
refused() {
    local name=$1 expected=$2
    shift 3
    rm -rf out
    run "$@"
    [ "$code" -eq 1 ] && [ "$(wc -l <stderr)" -eq 1 ] && grep -qF -- "$expected" stderr &&
        [ -z "$(ls -A out 2>/dev/null)" ]
    result $? "$name"
}

# nanogpt TEXT FOLDER: what nanoGPT's data/shakespeare_char/prepare.py writes, by Python's own means.
nanogpt() {
    python3 - "$1" "$2" <<'END'
import array, os, pickle, sys
text = open(sys.argv[1], encoding="utf-8", newline="").read()
characters = sorted(set(text))
numbers = {character: number for number, character in enumerate(characters)}
os.makedirs(sys.argv[2], exist_ok=True)
cut = int(len(text) * 0.9)
for name, part in (("train.bin", text[:cut]), ("val.bin", text[cut:])):
    with open(os.path.join(sys.argv[2], name), "wb") as file:
        array.array("H", [numbers[character] for character in part]).tofile(file)
with open(os.path.join(sys.argv[2], "meta.pkl"), "wb") as file:
    pickle.dump({"vocab_size": len(characters), "itos": dict(enumerate(characters)), "stoi": numbers}, file)
END
}

# Texts whose characters have one to four bytes, some of them rare, and more of them than a byte can count.
python3 - <<'END'
words = ["thou", "art", "ÿes", "éa", "中文", "😀", "\t", "\"q\"", "\\", "\x01", "\u2028", "\r\n"]
with open("text.txt", "w", encoding="utf-8", newline="") as file:
    for i in range(20011):
        file.write(words[i * 5 % len(words)] + (" " if i % 7 else "\n"))
    file.write("the last line has a Z")
with open("many.txt", "w", encoding="utf-8", newline="") as file:
    for i in range(2500):
        file.write(chr(0x4E00 + i * 7 % 2500) + " ")
END
cp text.txt one.txt
head -c 3 text.txt >three.txt

# ---- tokenize ----------------------------------------------------------------------------------------------
for text in text many three; do
    nanogpt $text.txt nano_$text
    for threads in 1 3; do
        rm -rf out
        run "$tokenize" --tokenizer=char -o out --val-fraction=0.1 --header=none --threads=$threads $text.txt
        [ "$code" -eq 0 ] && cmp -s out/train.bin nano_$text/train.bin &&
            cmp -s out/val.bin nano_$text/val.bin
        result $? "the bytes of nanoGPT's prepare.py: $text.txt, $threads threads"
    done
    run "$tokenize" --decode out/train.bin
    cp stdout decoded
    run "$tokenize" --decode out/val.bin
    cat stdout >>decoded
    cmp -s decoded $text.txt
    result $? "a shard of characters decodes: $text.txt"
    run "$tokenize" --decode nano_$text/train.bin
    cmp -s <(head -c "$(wc -c <stdout)" $text.txt) stdout && [ -s stdout ]
    result $? "one of nanoGPT decodes by its meta.pkl: $text.txt"
done
run "$tokenize" --tokenizer=char -o out --header=none text.txt
cmp -s out/val.bin nano_text/val.bin
result $? 'the last tenth is nanoGPT'"'"'s by default'
python3 - <<'END'
import json
vocabulary = json.load(open("out/characters.json", encoding="utf-8"))
text = open("text.txt", encoding="utf-8", newline="").read()
assert vocabulary == {"tokenizer": "char", "characters": sorted(set(text))}
END
result $? 'characters.json is JSON of the sorted characters'
run "$tokenize" --tokenizer=char -o shards --shard-tokens=9000 --val-tokens=10000 text.txt
for shard in shards/train_*.bin shards/val_*.bin; do "$tokenize" --decode $shard; done >decoded
cmp -s decoded text.txt && [ "$(ls shards | wc -l)" -gt 5 ]
result $? 'several shards of characters'
run "$tokenize" --tokenizer=char -o parts --val-input=three.txt text.txt
for shard in parts/train.bin parts/val.bin; do "$tokenize" --decode $shard; done >decoded
cat text.txt three.txt | cmp -s - decoded
result $? 'validation from a file of its own'
run "$tokenize" -o out text.txt
[ "$(ls out | tr '\n' ' ')" = 'train.bin val.bin ' ]
result $? 'the vocabulary goes with the shards that it was for'
cat text.txt | run "$tokenize" --tokenizer=char -o out --val-fraction=0.1 --header=none -
cmp -s out/train.bin nano_text/train.bin
result $? 'characters from a pipe'
printf '{"text": "ab\\u00e9"}\n{"text": "\\ud83d\\ude00"}\n' >lines.jsonl
printf 'ab\303\251\360\237\230\200' >lines.expected
run "$tokenize" --tokenizer=char -o out --val-tokens=0 lines.jsonl
"$tokenize" --decode out/train.bin | cmp -s - lines.expected
result $? 'documents of characters follow each other without a mark'

printf 'abc\351def' >latin1.txt
refused 'text that is not UTF-8' \
    'latin1.txt: expected UTF-8 for --tokenizer=char, found byte 0xe9 at byte 3; ' -- \
    "$tokenize" --tokenizer=char -o out text.txt latin1.txt
{ head -c 300001 /dev/zero | tr '\0' a; printf '\303'; } >cut.txt
refused 'a character that is cut by the end' 'found byte 0xc3 at byte 300001' -- \
    "$tokenize" --tokenizer=char -o out cut.txt
printf '{"text": "ok"}\n{"text": "\351"}\n' >latin1.jsonl
refused 'JSON that is not UTF-8' \
    'latin1.jsonl: expected UTF-8 for --tokenizer=char, found byte 0xe9 at line 2' -- \
    "$tokenize" --tokenizer=char -o out latin1.jsonl
refused 'a mark between characters' '--eot with --tokenizer=char' -- \
    "$tokenize" --tokenizer=char --eot=append -o out text.txt
refused 'an unknown tokenizer' '--tokenizer=bert: expected one of gpt2, char' -- \
    "$tokenize" --tokenizer=bert -o out text.txt
python3 -c 'print("".join(chr(c) for c in range(32, 70000) if not 0xD800 <= c <= 0xDFFF))' >all.txt
refused 'more characters than tokens' 'at most 65536 different characters' -- \
    "$tokenize" --tokenizer=char -o out all.txt
mkdir -p nano && cp nano_text/meta.pkl nano
run "$tokenize" --tokenizer=char -o nano text.txt
[ "$code" -eq 1 ] && grep -q 'nano/meta.pkl: expected no vocabulary of other programs' stderr &&
    [ "$(ls nano)" = meta.pkl ]
result $? 'a vocabulary of nanoGPT is not mixed in'
mkdir -p names && echo '["Romeo"]' >names/characters.json
run "$tokenize" -o names text.txt
[ "$code" -eq 1 ] && grep -q 'names/characters.json: expected no vocabulary of other' stderr &&
    [ "$(ls names)" = characters.json ]
result $? "a file of another's stays"

# ---- tiny Shakespeare --------------------------------------------------------------------------------------
# sums EXPECTED FILE...: the first 16 digits of each one's SHA-256.
sums() {
    local expected=$1
    shift
    [ "$(sha256sum "$@" | cut -c 1-16 | tr '\n' ' ')" = "$expected" ]
}
if [ -r "$shakespeare" ]; then
    run "$tokenize" --tokenizer=char -o out --header=none "$shakespeare"
    sums '6ec305602a99ac28 d37d30cc0c8327c2 ' out/train.bin out/val.bin
    result $? 'tiny Shakespeare: the files of nanoGPT'"'"'s shakespeare_char'
    mkdir root && cp -r "$source/data_prep" root && cp "$tokenize" root/data_prep/tokenize
    run root/data_prep/tinyshakespeare.sh "$shakespeare"
    tail -q -c +1025 root/data/tinyshakespeare/train.bin >train.bin
    tail -q -c +1025 root/data/tinyshakespeare/val.bin >val.bin
    sums '502a2bdc8210d1ac 68a53422394c26a6 ' train.bin val.bin &&
        [ "$(wc -c <train.bin)" -eq $((2 * 301966)) ] && [ "$(wc -c <val.bin)" -eq $((2 * 36059)) ]
    result $? 'tiny Shakespeare: the 301,966 and 36,059 tokens of nanoGPT'"'"'s shakespeare'
else
    echo "# no tiny Shakespeare here (SHAKESPEARE=FILE names it): its counts are left out"
fi

# ---- training ----------------------------------------------------------------------------------------------
"$tokenize" --tokenizer=char -o data/chars text.txt 2>/dev/null
nanogpt text.txt data/nano
mkdir -p data/bare data/other alone
cp data/chars/*.bin data/bare
"$tokenize" --tokenizer=char -o data/other many.txt 2>/dev/null
size=$(python3 -c 'print(len(set(open("text.txt", encoding="utf-8", newline="").read())))')
small="--n_layer=1 --n_head=2 --n_embd=16 --block_size=16 --batch_size=2 --gradient_accumulation_steps=1 \
    --max_iters=4 --warmup_iters=1 --lr_decay_iters=4 --eval_interval=2 --eval_iters=1 --snapshot_interval=2"
for program in train_gpt2 train_gpt2cu_host; do
    [ -x "$programs/$program" ] || continue
    train=$programs/$program
    rm -rf chars nano hf
    # shellcheck disable=SC2086
    run "$train" $small --dataset=chars --out_dir=chars --num_samples=1 --max_new_tokens=40 --export_hf=hf
    tells "$program: the vocabulary beside the data" \
        "vocabulary: $size characters of data/chars/characters.json" stdout
    weights=$(tail -n 1 stdout)
    sed -n '/^exported hf/,/^-----/p' stdout | sed '1d;$d' >sample.txt
    python3 - <<'END'
sample = open("sample.txt", encoding="utf-8", newline="").read()
text = open("text.txt", encoding="utf-8", newline="").read()
assert 40 <= len(sample) <= 43 and set(sample) <= set(text), repr(sample)
END
    result $? "$program: a sample is characters of the text"
    # shellcheck disable=SC2086
    run "$train" $small --dataset=nano --out_dir=nano
    grep -q "vocabulary: $size characters of data/nano/meta.pkl" stdout &&
        [ "$(tail -n 1 stdout)" = "$weights" ]
    result $? "$program: nanoGPT's data and meta.pkl give the same weights"
    run "$train" --out_dir=../nowhere --init_from=chars/step-00000004.snap --sample_only=true \
        --num_samples=1 --max_new_tokens=9 --start='thou ÿes'
    grep -q '^thou ÿes' stdout && grep -q "vocabulary: $size characters of chars/step-00000004.snap" stdout
    result $? "$program: a snapshot knows its vocabulary"
    (cd alone && run "$train" --out_dir=../chars --sample_only=true --num_samples=1 --max_new_tokens=9 \
        --start='thou ÿes' && cp stdout ../alone.txt)
    grep -q '^thou ÿes' alone.txt
    result $? "$program: sample_only needs nothing but out_dir"
    (cd alone && run "$train" --init_from=../hf --sample_only=true --num_samples=1 --max_new_tokens=9 \
        --start='thou ÿes' && cp stdout ../alone.txt)
    grep -q '^thou ÿes' alone.txt && grep -q 'characters of ../hf/characters.json' alone.txt
    result $? "$program: nor does an exported model"
    # shellcheck disable=SC2086
    refused "$program: a start of other characters, before the first update" \
        "start: expected characters of the vocabulary of $size, found 'ö' (U+00F6)" -- \
        "$train" $small --dataset=chars --out_dir=out --num_samples=1 --start=thöu
    # shellcheck disable=SC2086
    refused "$program: another vocab_size" \
        "vocab_size=50257: expected $size, the characters of data/chars" -- \
        "$train" $small --dataset=chars --out_dir=out --vocab_size=50257
    # shellcheck disable=SC2086
    run "$train" $small --dataset=other --out_dir=chars --init_from=resume --max_iters=6
    [ "$code" -eq 1 ] &&
        grep -q 'data/other/characters.json: expected the vocabulary of chars/step-00000004.snap' stderr
    result $? "$program: a run does not go on with other characters"
    # shellcheck disable=SC2086
    run "$train" $small --dataset=bare --out_dir=chars --init_from=resume --max_iters=6
    [ "$code" -eq 0 ] && grep -q '^notice: no vocabulary lies beside the data' stdout &&
        zstd -dc chars/step-00000006.snap | head -c 4000 | grep -qa '"characters"'
    result $? "$program: a snapshot keeps the vocabulary where the data have none"
done
train=$programs/train_gpt2
# shellcheck disable=SC2086
run "$train" $small --dataset=bare --out_dir=bare
tells 'tokens far below vocab_size' 'notice: vocab_size=50257, but the first' stdout
python3 - <<'END'
import json
tokenizer = json.load(open("hf/tokenizer.json", encoding="utf-8"))
vocabulary = json.load(open("hf/characters.json", encoding="utf-8"))["characters"]
assert tokenizer["model"]["vocab"] == {character: i for i, character in enumerate(vocabulary)}
config = json.load(open("hf/config.json"))
assert config["vocab_size"] == len(vocabulary) and config["eos_token_id"] is None
END
result $? 'tokenizer.json has the same ids'
# shellcheck disable=SC2086
run "$train" $small --dataset=bare --vocab_size=99 --max_iters=0 --export_hf=hf --out_dir=empty
[ "$code" -eq 0 ] && [ ! -e hf/characters.json ]
result $? 'an export of other tokens leaves no vocabulary behind'
cp data/other/characters.json data/nano
# shellcheck disable=SC2086
refused 'two vocabularies' 'data/nano/characters.json and meta.pkl: expected one vocabulary' -- \
    "$train" $small --dataset=nano --out_dir=out
printf '\200\4cos\nsystem\n.' >data/bare/meta.pkl
# shellcheck disable=SC2086
refused 'a meta.pkl that would run code' 'data/bare/meta.pkl: no meta.pkl as nanoGPT' -- \
    "$train" $small --dataset=bare --out_dir=out
grep -q 'GLOBAL, which loads code at byte 2' stderr
result $? 'what it would do is said'

end_of_tests
