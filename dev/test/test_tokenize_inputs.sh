#!/usr/bin/env bash
# What data_prep/tokenize reads: folders, JSON lines under another key, texts that <|endoftext|> cuts,
# validation from inputs of its own, and what it refuses or passes over because it is no text.
#   PROGRAMS=build/mpi1 dev/test/test_tokenize_inputs.sh        prints TAP
set -u
. "$(dirname "$0")/tap.bash"
export LC_ALL=C
tokenize=$(cd "${PROGRAMS:-.}" && pwd)/data_prep/tokenize
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# run ARGUMENTS...: output in the files stdout and stderr, exit code in $code.
run() {
    timeout "$(scaled 120)" "$tokenize" "$@" >stdout 2>stderr
    code=$?
}

# gives NAME EXPECTED_FILE -- ARGUMENTS...: all that the run wrote decodes to the expected text.
gives() {
    local name=$1 expected=$2 shard
    shift 3
    rm -rf out
    run -o out "$@"
    for shard in out/train*.bin out/val*.bin; do
        [ ! -e "$shard" ] || "$tokenize" --decode "$shard"
    done >decoded
    [ "$code" -eq 0 ] && cmp -s decoded "$expected"
    result $? "$name"
}

# refused NAME EXPECTED -- ARGUMENTS...: exit 1, the last line on stderr holds EXPECTED, nothing is written.
refused() {
    local name=$1 expected=$2
    shift 3
    rm -rf out
    run -o out "$@"
    [ "$code" -eq 1 ] && tail -n 1 stderr | grep -qF -- "$expected" && [ -z "$(ls -A out 2>/dev/null)" ]
    result $? "$name"
}

told_by() {
    grep -qF -- "$2" stderr
    result $? "$1"
}

# ---- folders -----------------------------------------------------------------------------------------------
mkdir -p tree/b/deep tree/.hidden tree/empty tree/B
printf 'one' >tree/a.txt
printf 'two' >tree/b/2.txt
printf 'deep' >tree/b/deep/x
printf 'three' >tree/b.txt
printf 'big' >tree/B/z.txt
printf '{"text": "four"}\n{"text": "five"}\n' >tree/c.jsonl
printf 'six' | gzip >tree/d.txt.gz
printf 'seven' >elsewhere.txt
ln -s ../elsewhere.txt tree/e.txt
ln -s b tree/link
ln -s nowhere tree/broken
printf '\211PNG\r\n\032\n' >tree/picture.png
printf 'PAR1 and so on' >tree/table.parquet
printf 'secret' >tree/.hidden/y
printf 'dotted' >tree/.dot
mkfifo tree/pipe
: >tree/z-empty.txt
printf '%s<|endoftext|>' big one two deep three four five six seven '' >tree.expected
gives 'a folder: its files by the bytes of their names, folders in their place' tree.expected -- \
    --val-tokens=0 tree
told_by 'a hidden folder is passed over' 'tokenize: tree/.hidden: skipped: hidden'
told_by 'a hidden file too' 'tokenize: tree/.dot: skipped: hidden'
told_by 'a link to a folder too' 'tokenize: tree/link: skipped: a link to a folder'
told_by 'a link to nothing too' 'tokenize: tree/broken: skipped: a link that leads nowhere'
told_by 'a pipe too' 'tokenize: tree/pipe: skipped: no regular file'
told_by 'a picture too' 'tokenize: tree/picture.png: skipped: a PNG picture'
told_by 'a Parquet table too' 'tokenize: tree/table.parquet: skipped: a Parquet table'
[ "$(grep -c skipped stderr)" -eq 7 ]
result $? 'and nothing else is'
cp out/train.bin first.bin
gives 'several threads, a slash at the end' tree.expected -- --val-tokens=0 --threads=4 tree/
cmp -s out/train.bin first.bin
result $? 'the same bytes'
{ printf 'seven<|endoftext|>'; cat tree.expected; printf 'one<|endoftext|>'; } >mixed.expected
gives 'files and folders, as they are named' mixed.expected -- --val-tokens=0 elsewhere.txt tree tree/a.txt
refused 'a folder of nothing but what is no text' 'only: expected text in this folder, found none' -- \
    "$(mkdir only && cp tree/picture.png only && echo only)"
mkdir many && for i in $(seq 30); do : >"many/.$i"; done && printf 'x' >many/x
run -o out --val-tokens=0 many
[ "$code" -eq 0 ] && [ "$(grep -c ': skipped: ' stderr)" -eq 20 ] &&
    grep -q '^tokenize: many: 30 skipped in all' stderr
result $? 'of many files that are passed over the first are named, and all are counted'
printf '{"text": 5}\n' >many/bad.jsonl
refused 'a damaged file in a folder is no file to pass over' 'many/bad.jsonl: line 1' -- many
printf '\377\376x' >many/bad.jsonl
mkdir here && printf 'text' >here/t.txt
for _ in 1 2; do run -o here --val-tokens=0 here; done
"$tokenize" --decode here/train.bin >decoded
[ "$(cat decoded)" = 'text<|endoftext|>' ] && grep -q 'here/train.bin: skipped: what tokenize writes' stderr
result $? 'a folder that is read and written'
mkdir -p above && printf 'text' >above/t.txt
for _ in 1 2; do run -o above/data --val-tokens=0 above; done
[ "$code" -eq 0 ] && grep -q 'above/data: skipped: what tokenize writes' stderr &&
    [ "$("$tokenize" --decode above/data/train.bin)" = 'text<|endoftext|>' ]
result $? 'the output inside of what is read'
if [ "$(id -u)" -ne 0 ]; then
    mkdir closed && printf x >closed/x && chmod 000 closed
    refused 'a folder that may not be read' 'closed: cannot open' -- closed
    chmod 700 closed
fi

# ---- the key of JSON lines ---------------------------------------------------------------------------------
cat >keys.jsonl <<'END'
{"text": "no", "content": "one", "n": {"content": "no"}}
{"c\u006fntent": "two", "contents": "no", "conten": 1}
END
printf 'one<|endoftext|>two<|endoftext|>' >keys.expected
gives 'another key' keys.expected -- --val-tokens=0 --text-key=content keys.jsonl
printf '{"a b\303\251": "x"}\n' >odd.jsonl
printf 'x<|endoftext|>' >odd.expected
gives 'a key of any characters' odd.expected -- --val-tokens=0 --text-key="a b$(printf '\303\251')" odd.jsonl
refused 'a line without the key' 'keys.jsonl: line 2: expected an object with "text", found none' -- \
    keys.jsonl
refused 'the key twice' 'line 1: expected each key once in its object, found "n" twice' -- --text-key=n \
    --format=jsonl - <<<'{"n": "x", "n": "y"}'
refused 'a value that is no text' 'expected a string as value of "n"' -- --text-key=n keys.jsonl
refused 'an empty key' '--text-key: expected a name' -- --text-key= keys.jsonl
refused 'a key without end' '--text-key=' -- --text-key="$(printf 'k%.0s' $(seq 300))" keys.jsonl

# ---- <|endoftext|> in a text -------------------------------------------------------------------------------
eot='<|endoftext|>'
printf 'one%stwo words\n%s%s\nfour' "$eot" "$eot" "$eot" >marked.txt
run -o plain --val-tokens=0 --header=none marked.txt
gives 'it ends documents where that is asked for' <(cat marked.txt; printf %s "$eot") -- --val-tokens=0 \
    --eot-in-text=split --header=none marked.txt
[ "$(wc -c <out/train.bin)" -lt "$(wc -c <plain/train.bin)" ] && grep -q ' 4 documents' stderr
result $? 'else it is text'
gives 'a mark at the end ends the last document' <(printf 'a%sb%s' "$eot" "$eot") -- --val-tokens=0 \
    --eot-in-text=split - < <(printf 'a%sb%s' "$eot" "$eot")
gives 'marks before documents' <(printf '%sa%sb' "$eot" "$eot") -- --val-tokens=0 --eot-in-text=split \
    --eot=prepend - < <(printf 'a%sb%s' "$eot" "$eot")
gives 'what only begins like it is text' <(printf '<|endoftex|><|endof%s' "$eot") -- --val-tokens=0 \
    --eot-in-text=split - < <(printf '<|endoftex|><|endof')
gives 'in JSON, in which it never joins two lines' <(printf 'a%sb<|end%softext|>%s' "$eot" "$eot" "$eot") -- \
    --val-tokens=0 --eot-in-text=split --format=jsonl - <<END
{"text": "a${eot}b<|end"}
{"text": "oftext|>$eot"}
END
# Across chunks and reads, at every place: what is decoded from its tokens gives the same tokens again.
python3 - <<'END'
import random
random.seed(7)
mark = "<|endoftext|>"
with open("long.txt", "w") as file:
    for i in range(60000):
        file.write("w" * random.randrange(1, 40) + random.choice([" ", "\n", "", mark, mark + mark, "<|end"]))
    file.write("end")
END
for threads in 1 3; do
    run -o long$threads --val-tokens=0 --header=none --threads=$threads --eot-in-text=split long.txt
done
"$tokenize" --decode long1/train.bin >again.txt
run -o again --val-tokens=0 --header=none --eot-in-text=split again.txt
cmp -s long1/train.bin long3/train.bin && cmp -s long1/train.bin again/train.bin
result $? 'a decoded shard gives the same shard'
{ cat long.txt; printf %s "$eot"; } | cmp -s - again.txt
result $? 'and is the text, across chunks'
[ "$(tr '\n' ' ' <long.txt | sed 's/<|endoftext|>/\n/g;s/$/\n/' | wc -l)" -eq \
    "$(od -An -v -tu2 -w2 long1/train.bin | grep -c '^ *50256$')" ]
result $? 'with as many marks, and one at the end'

# ---- validation of its own ---------------------------------------------------------------------------------
printf 'train' >t.txt
printf 'val one' >v1.txt
mkdir vals && printf 'val two' >vals/v2.txt
run -o out --val-input=v1.txt t.txt --val-input vals
[ "$code" -eq 0 ] && [ "$("$tokenize" --decode out/train.bin)" = "train$eot" ] &&
    [ "$("$tokenize" --decode out/val.bin)" = "val one${eot}val two$eot" ]
result $? 'inputs for validation, a folder among them'
seq 200000 >numbers.txt
seq 300000 340000 >more.txt
run -o out --val-input=more.txt --shard-tokens=50000 --header=none numbers.txt
run -o whole --val-tokens=0 --header=none numbers.txt
run -o other --val-tokens=0 --header=none more.txt
cat out/train_*.bin | cmp -s - whole/train.bin && cat out/val_*.bin | cmp -s - other/train.bin &&
    [ "$(wc -c <out/train_000001.bin)" -eq 100000 ] && [ "$(wc -c <out/val_000001.bin)" -eq 100000 ]
result $? 'both in shards, each as alone'
refused 'both ways of validation' '--val-tokens and --val-input: expected one of them' -- --val-tokens=5 \
    --val-input=v1.txt t.txt
: >empty.txt
refused 'validation without text' '--val-input=empty.txt: expected text, found none' -- \
    --val-input=empty.txt t.txt
refused 'validation and no training' 'INPUT is missing' -- --val-input=t.txt
refused 'one pipe for both' 'expected once, found 2 times' -- --val-input=- - <t.txt
refused 'a missing file for validation' 'nosuch.txt: cannot open' -- --val-input=nosuch.txt t.txt
refused 'shuffled documents with it' '--shuffle-documents with --val-input' -- --shuffle-documents=1 \
    --val-input=v1.txt t.txt

# ---- what is no text ---------------------------------------------------------------------------------------
# foreign NAME EXPECTED: the bytes on stdin are refused by what they are, alone and in a gz.
foreign() {
    cat >"$1"
    refused "$1 is no text" "$1: expected text, found $2" -- "$1"
    gzip -kf "$1"
    refused "$1, compressed" "expected text, found $2" -- "$1.gz"
    rm "$1.gz"
}
printf 'PAR1\25\4' |
    foreign parquet 'a Parquet table; read its texts with duckdb: duckdb -c "COPY (SELECT text FROM'
printf '%%PDF-1.7\n%%' | foreign pdf 'a PDF document; convert it first: pdftotext FILE'
printf '{\\rtf1 x}' | foreign rtf 'an RTF document; convert it first: pandoc'
printf '\320\317\021\340\241\261\032\341 doc' | foreign doc 'a document of Microsoft Office'
printf '\200\4\225\5\0\0\0' | foreign pickle 'a pickle of Python'
printf '\150\1\0\0\0\0\0\0{"__metadata__":{"format":"pt"}, "wte.weight":{"dtype":"F32"}}' |
    foreign safetensors 'a safetensors file: a model, no text'
printf '\377\376h\0e\0' | foreign utf16 'text in UTF-16; convert it first: iconv'
printf 'h\0e\0l\0l\0o\0' | foreign utf16-unmarked 'binary data or UTF-16'
python3 -c 'import array, sys; sys.stdout.buffer.write(array.array("H", [1, 50, 64] * 300).tobytes())' |
    foreign char-tokens 'binary data or UTF-16, a quarter or more of it zero bytes'

# ---- Parquet through another program -----------------------------------------------------------------------
# Stands for duckdb: two lines of text, and a failure where it is asked for one.
mkdir -p root bin
cp -r "$source/data_prep" root
cp "$tokenize" root/data_prep/tokenize
cat >bin/duckdb <<'END'
#!/bin/sh
printf '%s\n' "$@" >>"$DUCKDB_ASKED"
printf '{"text": "one"}\n{"text": "two"}\n'
exit "$DUCKDB_EXIT"
END
chmod +x bin/duckdb
export DUCKDB_ASKED=$work/asked DUCKDB_EXIT=0
printf 'PAR1' >"it's.parquet"
PATH=$work/bin:$PATH root/data_prep/fineweb.sh "it's.parquet" >stdout 2>stderr &&
    [ "$("$tokenize" --decode root/data/fineweb/train_000001.bin)" = "one${eot}two$eot" ] &&
    grep -qF "'$work/it''s.parquet'" asked
result $? 'fineweb.sh reads Parquet tables through duckdb'
cp root/data/fineweb/train_000001.bin kept.bin
DUCKDB_EXIT=1 PATH=$work/bin:$PATH root/data_prep/fineweb.sh "it's.parquet" >stdout 2>stderr
[ $? -eq 1 ] && cmp -s root/data/fineweb/train_000001.bin kept.bin &&
    [ "$(ls -A root/data/fineweb)" = train_000001.bin ]
result $? 'and writes nothing where that fails'

end_of_tests
