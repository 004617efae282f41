#!/usr/bin/env bash
# data_prep/tokenize as a user meets it: formats, archives, splits, shards, and every bad input.
#   PROGRAMS=build/mpi1 dev/test/test_tokenize_cli.sh        prints TAP
set -u
. "$(dirname "$0")/tap.bash"
export LC_ALL=C
tokenize=$(cd "${PROGRAMS:-.}" && pwd)/data_prep/tokenize
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# run ARGUMENTS...: output in the files stdout and stderr, exit code in $code.
run() {
    timeout "$(scaled 120)" "$tokenize" "$@" >stdout 2>stderr
    code=$?
}

# text_of SHARD...: what they decode to.
text_of() {
    local shard
    for shard; do "$tokenize" --decode "$shard" || return 1; done
}

# gives NAME EXPECTED_FILE -- ARGUMENTS...: the run succeeds, and all that it wrote decodes to the expected
# text.
gives() {
    local name=$1 expected=$2
    shift 3
    rm -rf out
    run -o out --val-tokens=0 "$@"
    [ "$code" -eq 0 ] && text_of out/train*.bin >decoded && cmp -s decoded "$expected"
    result $? "$name"
}

# refused NAME EXPECTED... -- ARGUMENTS...: exit 1, one line on stderr that holds every EXPECTED and begins
# with the program's name, nothing left in the folder `out`.
refused() {
    local name=$1 expected=() bad=0 text
    shift
    while [ "$1" != -- ]; do
        expected+=("$1")
        shift
    done
    shift
    rm -rf out
    run "$@"
    [ "$code" -eq 1 ] || { echo "# exit code: expected 1, found $code"; bad=1; }
    [ "$(wc -l <stderr)" -eq 1 ] || { echo "# lines on stderr: expected 1, found $(wc -l <stderr)"; bad=1; }
    for text in "tokenize: " "${expected[@]}"; do
        grep -qF -- "$text" stderr || { echo "# expected on stderr: $text"; bad=1; }
    done
    [ -z "$(ls -A out 2>/dev/null)" ] || { echo "# left behind: $(ls -A out)"; bad=1; }
    result "$bad" "$name"
}

# words COUNT: a text in which every word is another one.
words() {
    seq "$1" | sed 's/.*/line & of a text, it'\''s number &;/'
}

# hex FILE OFFSET COUNT: bytes as hexadecimal digits.
hex() {
    od -An -v -tx1 -j "$2" -N "$3" "$1" | tr -d ' \n'
}

# ---- one file ----------------------------------------------------------------------------------------------
words 20000 >book.txt
{ cat book.txt; printf '<|endoftext|>'; } >book.expected
gives 'a text is one document' book.expected -- book.txt
gives 'text from a pipe' book.expected -- - <book.txt
[ "$(hex out/train.bin 0 8)" = 88d8340101000000 ] &&
    [ "$(stat -c %s out/train.bin)" -eq $((1024 + 2 * $(od -An -td4 -j 8 -N 4 out/train.bin))) ]
result $? 'the header is that of llm.c and counts the tokens'
[ -s out/train.bin ] && [ -z "$(hex out/train.bin 12 1012 | tr -d 0)" ]
result $? 'the rest of the header is zero'

printf 'Hello world' >hello.txt
gives 'no end of text when none is asked for' hello.txt -- --eot=none hello.txt
run -o out --val-tokens=0 --header=none hello.txt
[ "$(hex out/train.bin 0 99)" = 883ce30350c4 ]
result $? 'tokens without header, end of text after'
run -o out --val-tokens=0 --header=none --eot=prepend hello.txt
[ "$(hex out/train.bin 0 99)" = 50c4883ce303 ]
result $? 'end of text before'
text_of out/train.bin >decoded && [ "$(cat decoded)" = '<|endoftext|>Hello world' ]
result $? 'a shard without header decodes'

head -c 300000 /dev/urandom >random.bin
printf 'x' | cat - random.bin >noise.txt
gives 'random bytes come back as they were' noise.txt -- --eot=none noise.txt
printf 'a\0b\0\0\r\n \r\n\303\251 \355\240\200 \377\376  ' >odd.txt
gives 'NUL, CRLF and half characters come back as they were' odd.txt -- --eot=none odd.txt
gives 'options may follow inputs, values may follow spaces' hello.txt -- hello.txt --eot none
gives 'a file whose name begins with a dash' hello.txt -- --eot=none -- ./hello.txt
head -c 3000000 /dev/zero | tr '\0' a >long.txt
gives 'one word longer than many chunks' long.txt -- --eot=none long.txt
head -c 900000 /dev/zero | tr '\0' ' ' >blank.txt
gives 'white space longer than a chunk' blank.txt -- --eot=none blank.txt
yes 'ä中 '"'"'s' | head -c 1500001 >many.txt
gives 'characters across chunks' many.txt -- --eot=none many.txt
for lines in 1 2 150000; do
    yes ' some tokenization, characters, word2' | head -n $lines >lines.txt
    run -o lines$lines --val-tokens=0 --header=none lines.txt
done
one=$(stat -c %s lines1/train.bin)
two=$(stat -c %s lines2/train.bin)
[ "$(stat -c %s lines150000/train.bin)" -eq $((one + 149999 * (two - one))) ]
result $? 'chunks do not cut words'
: >empty.txt
{ cat book.txt; printf '<|endoftext|>'; cat hello.txt; printf '<|endoftext|><|endoftext|>'; } \
    >several.expected
gives 'many inputs, one of them empty' several.expected -- book.txt hello.txt empty.txt

# ---- threads -----------------------------------------------------------------------------------------------
for i in 1 2 3 4 5 6 7 8; do cat book.txt noise.txt; done >large.txt
rm -rf out1
"$tokenize" -o out1 --threads=1 large.txt book.txt hello.txt 2>/dev/null
for threads in 2 3 16; do
    rm -rf out
    run -o out --threads=$threads large.txt book.txt hello.txt
    cmp -s out/train.bin out1/train.bin && cmp -s out/val.bin out1/val.bin
    result $? "$threads threads give the same bytes as one"
done

# ---- validation --------------------------------------------------------------------------------------------
run -o all --val-tokens=0 --header=none book.txt
tokens=$(($(stat -c %s all/train.bin) / 2))
[ ! -e all/val.bin ]
result $? 'no val.bin when no tokens are for validation'
# split_is NAME TRAIN_TOKENS -- ARGUMENTS: train and val together are the whole text, cut behind that many
# tokens.
split_is() {
    local name=$1 expected=$2
    shift 3
    rm -rf out
    run -o out --header=none "$@"
    cat out/train*.bin out/val*.bin 2>/dev/null | cmp -s - all/train.bin &&
        [ "$(cat out/train*.bin | wc -c)" -eq $((2 * expected)) ]
    result $? "$name"
}
split_is 'the last tenth by default' $((tokens - tokens / 10)) -- book.txt
split_is 'the last tokens by number' $((tokens - 1001)) -- --val-tokens=1001 book.txt
split_is 'the last fraction' $((tokens - (tokens + 2) / 4)) -- --val-fraction=0.25 book.txt
split_is 'the last fraction of a pipe' $((tokens - (tokens + 1) / 2)) -- --val-fraction=0.5 - <book.txt
split_is 'shards' $((tokens - 12345)) -- --val-tokens=12345 --shard-tokens=10000 book.txt
[ "$(ls out | tr '\n' ' ')" = "$(for i in $(seq $(((tokens - 12345 + 9999) / 10000))); do
    printf 'train_%06d.bin ' "$i"; done)val_000001.bin val_000002.bin " ]
result $? 'shards have six digits'
[ "$(stat -c %s out/train_000001.bin)" -eq 20000 ] && [ "$(stat -c %s out/val_000001.bin)" -eq 20000 ]
result $? 'a shard has the tokens that were asked for'
split_is 'more shards of validation than of training' 700 -- --val-tokens=$((tokens - 700)) \
    --shard-tokens=1000 book.txt
run -o out --shard-tokens=10000 --val-tokens=10000 book.txt
for shard in out/*.bin; do
    [ "$(od -An -td4 -j 8 -N 4 "$shard")" -eq $((($(stat -c %s "$shard") - 1024) / 2)) ] || break
done
result $? 'each shard counts its tokens'

# ---- what is in the folder already -------------------------------------------------------------------------
rm -rf out
"$tokenize" -o out --shard-tokens=10000 book.txt 2>/dev/null
run -o out --shard-tokens=100000 book.txt
[ "$(text_of out/train* out/val*| cmp - book.expected 2>&1)" = '' ] &&
    grep -q 'removed .* shards of an earlier run' stderr
result $? 'shards of an earlier run are replaced as a whole'
run -o out book.txt
[ "$(ls out | tr '\n' ' ')" = 'train.bin val.bin ' ]
result $? 'one shard replaces many'
run -o out --val-tokens=0 book.txt
[ "$(ls out)" = train.bin ]
result $? 'a val.bin of an earlier run does not stay'
cp out/train.bin kept.bin
run -o out --format=jsonl book.txt
[ "$code" -eq 1 ] && cmp -s out/train.bin kept.bin && [ "$(ls out)" = train.bin ]
result $? 'a run that fails leaves the earlier shards as they were'
cp out/train.bin out/train_mine.bin
run -o out book.txt
[ "$code" -eq 1 ] && grep -q 'out/train_mine.bin: ' stderr && cmp -s out/train.bin kept.bin
result $? 'shards of others are not mixed in'
rm -rf out && mkdir -p out/train.bin
run -o out book.txt
[ "$code" -eq 1 ] && grep -q 'out/train.bin: ' stderr && [ "$(ls out)" = train.bin ]
result $? 'a folder in the place of a shard'

# ---- JSON lines --------------------------------------------------------------------------------------------
cat >good.jsonl <<'END'
{"text": "one"}
{"id": -1.5e+3, "y": {"text": "no", "a": [1, {"text": 2}, null, true]}, "text": "t\u0077o \"\\\/\b\f\n\r\t"}

  {"text":"\ud83d\ude00 \u00e9 é \u0000!", "z": [], "y": {}}  
{"te\u0078t": ""}
END
printf '{"text": "last, without line break"}' >>good.jsonl
{
    printf 'one<|endoftext|>two "\\/\b\f\n\r\t<|endoftext|>'
    printf '\360\237\230\200 \303\251 \303\251 \0!<|endoftext|>'
    printf '<|endoftext|>last, without line break<|endoftext|>'
} >json.expected
gives 'JSON lines by their name' json.expected -- good.jsonl
gives 'JSON lines by option' json.expected -- --format=jsonl - <good.jsonl
sed 's/$/\r/' good.jsonl | { printf '\357\273\277'; cat; } >windows.ndjson
gives 'JSON lines from Windows' json.expected -- windows.ndjson
gives 'JSON as text where that is asked for' good.jsonl -- --format=text --eot=none good.jsonl
printf '{"text": "\377\355\240\200"}\n' >bytes.jsonl
printf '\377\355\240\200' >bytes.expected
gives 'bytes in JSON that are not UTF-8' bytes.expected -- --eot=none bytes.jsonl
{ printf '{"text": "'; cat long.txt; printf '"}\n'; } >longline.jsonl
gives 'a line longer than many chunks' long.txt -- --eot=none longline.jsonl
{
    printf '{"text": "x'
    yes '\ud83d\ude00\u4e2d\u00e9' | head -n 60000 | tr -d '\n'
    printf '"}'
} >escapes.jsonl
{ printf 'x'; yes '😀中é' | head -n 60000 | tr -d '\n'; } >escapes.expected
gives 'escapes across chunks' escapes.expected -- --eot=none escapes.jsonl
awk 'BEGIN { for (i = 0; i < 50000; i++) print "{\"text\": \"\"}"; print "{\"text\": \"x\"}" }' >empties.jsonl
rm -rf out
run -o out --val-tokens=0 --header=none empties.jsonl
[ "$(stat -c %s out/train.bin)" -eq $((2 * 50002)) ]
result $? 'many empty documents'
# bad_json NAME EXPECTED LINE: as the second line of a file.
bad_json() {
    printf '{"text": "fine"}\n%s\n' "$3" >bad.jsonl
    refused "JSON: $1" "bad.jsonl: line 2: expected " "$2" -- -o out bad.jsonl
}
bad_json 'no text' '"text"' '{"txt": "x"}'
bad_json 'text only inside' '"text"' '{"a": {"text": "x"}}'
bad_json 'text that is no string' 'a string as value of "text"' '{"text": 5}'
bad_json 'text that is null' 'a string as value of "text"' '{"text": null}'
bad_json 'text twice' '"text" twice' '{"text": "a", "text": "b"}'
bad_json 'another key twice' 'a key twice' '{"text": "a", "b": 1, "\u0062": 2}'
bad_json 'a key twice inside' 'a key twice' '{"text": "a", "b": [{"c": 1, "c": 2}]}'
bad_json 'behind the object' 'the end of the line' '{"text": "a"} x'
bad_json 'two objects in a line' 'the end of the line' '{"text": "a"}{"text": "b"}'
bad_json 'not an object' 'an object' '["text"]'
bad_json 'plain text' 'an object' 'Once upon a time'
bad_json 'an open object' 'found the end of the line' '{"text": "a"'
bad_json 'an open string' 'control characters' '{"text": "a'
bad_json 'a raw tab in a string' 'byte 0x09' $'{"text": "a\tb"}'
bad_json 'an unknown escape' "found 'x'" '{"text": "\x41"}'
bad_json 'a cut escape' 'four hexadecimal digits' '{"text": "\u12"}'
bad_json 'the first half of a surrogate pair' 'surrogate pair' '{"text": "\ud83d"}'
bad_json 'the first half twice' 'surrogate pair' '{"text": "\ud83d\ud83d"}'
bad_json 'the second half of a surrogate pair' 'surrogate pair' '{"text": "\ude00"}'
bad_json 'a number that begins with 0' 'found' '{"text": "a", "n": 01}'
bad_json 'a number that ends with a point' 'a digit' '{"text": "a", "n": 1.}'
bad_json 'NaN' 'a value' '{"text": "a", "n": NaN}'
bad_json 'a misspelt literal' 'true, false or null' '{"text": "a", "n": nul}'
bad_json 'a comma too many' 'a key' '{"text": "a",}'
bad_json 'a comma too many in an array' 'a value' '{"text": "a", "n": [1,]}'
bad_json 'a missing colon' 'a colon' '{"text" "a"}'
bad_json 'single quotes' 'a key' "{'text': 'a'}"
bad_json 'a bracket that does not match' 'a comma or ]' '{"text": "a", "n": [1}'
bad_json 'too deep' 'at most 1000' "{\"text\": \"a\", \"n\": $(printf '[%.0s' $(seq 2000))"
printf '{"text": "cut' >bad.jsonl
refused 'JSON: a file that ends inside a line' 'bad.jsonl: line 1: ' 'the end of the file' -- -o out bad.jsonl

# ---- archives ----------------------------------------------------------------------------------------------
mkdir -p tree/sub
cp hello.txt tree/a.txt
cp book.txt tree/sub/b.txt
cp good.jsonl tree/c.jsonl
: >tree/sub/none.txt
ln -s a.txt tree/link.txt
members="tree/a.txt tree/sub/b.txt tree/c.jsonl tree/sub/none.txt"
{ cat hello.txt; printf '<|endoftext|>'; cat book.expected json.expected; printf '<|endoftext|>'; } \
    >tree.expected
tar cf tree.tar --no-recursion tree/link.txt tree/sub $members
zip -q tree.zip $members
gzip -k tree.tar && xz -k tree.tar && zstd -q tree.tar && bzip2 -k tree.tar
cp tree.tar.gz tree.tgz
mkdir parts
tar cJf parts/1.xz tree/a.txt tree/sub/b.txt
tar cJf parts/2.xz tree/c.jsonl tree/sub/none.txt
tar cf nested.tar parts/1.xz parts/2.xz
zip -q nested.zip nested.tar
cat tree.tar >twice.tar && cat tree.tar >>twice.tar
cat tree.expected tree.expected >twice.expected
for archive in tree.tar tree.zip tree.tar.gz tree.tgz tree.tar.xz tree.tar.zst tree.tar.bz2 nested.tar \
    nested.zip; do
    gives "$archive" tree.expected -- $archive
    gives "$archive from a pipe" tree.expected -- - <$archive
done
gives 'two tar files one after the other' twice.expected -- twice.tar
cp tree.tar.xz misnamed.txt
gives 'an archive is known by its content' tree.expected -- misnamed.txt
gzip -c good.jsonl >good.jsonl.gz
zstd -qc good.jsonl >good.jsonl.zst
gives 'compressed JSON lines' json.expected -- good.jsonl.gz
gives 'JSON lines in a zip, by option' json.expected -- --format=jsonl good.jsonl.zst
gzip -c book.txt >book.txt.gz
gives 'a compressed text' book.expected -- book.txt.gz
cat book.txt.gz book.txt.gz >double.gz
{ cat book.txt book.txt; printf '<|endoftext|>'; } >double.expected
gives 'two compressed parts are one text' double.expected -- double.gz
head -c 1000 /dev/zero >>double.gz
gives 'zero bytes behind a gz are padding' double.expected -- double.gz
printf 'rest' >>double.gz
refused 'other bytes behind a gz' 'double.gz: damaged' -- -o out double.gz
printf 'PK and BZh are no archives' >pk.txt
gives 'a text that begins like an archive' pk.txt -- --eot=none pk.txt

# Holes of a sparse file are zero bytes, at its end too; a file that is nothing but a hole is no text.
mkdir holes && head -c 1000 book.txt >holes/a.txt
{ cat holes/a.txt; head -c 40000 /dev/zero; printf 'more'; head -c 60000 /dev/zero; } >holes.expected
printf 'more' | dd of=holes/a.txt bs=1 seek=41000 conv=notrunc status=none && truncate -s 101004 holes/a.txt
truncate -s 200000 holes/b.txt
for format in gnu pax; do
    tar cSf sparse_$format.tar --format=$format -C holes a.txt
    gives "a sparse file in a tar, $format" holes.expected -- --eot=none sparse_$format.tar
    tar cSf hole_$format.tar --format=$format -C holes b.txt
    refused "a file in a tar that is one hole, $format" "hole_$format.tar: b.txt: expected text" \
        'zero bytes' -- -o out hole_$format.tar
done

# cut_refused ARCHIVE BYTES...: cut to so many bytes, by name and from a pipe.
cut_refused() {
    local archive=$1 bad=0 keep
    shift
    for keep; do
        head -c "$keep" "$archive" >"cut_$archive"
        rm -rf out
        run -o out "cut_$archive"
        [ "$code" -eq 1 ] && grep -q "^tokenize: cut_$archive: " stderr && [ -z "$(ls -A out)" ] || bad=$keep
        run -o out - <"cut_$archive"
        [ "$code" -eq 1 ] && grep -q '^tokenize: stdin: ' stderr && [ -z "$(ls -A out)" ] || bad=$keep
    done
    [ "$bad" -eq 0 ] || echo "# cut to $bad bytes"
    result "$bad" "$archive, cut"
}
cut_refused tree.tar 600 2000 100000 400000 700000
cut_refused nested.tar 600 2000 10000
for archive in tree.zip tree.tar.gz tree.tar.xz tree.tar.zst tree.tar.bz2 book.txt.gz nested.zip; do
    bytes=$(stat -c %s $archive)
    cut_refused $archive 300 $((bytes / 3)) $((bytes / 2)) $((bytes * 9 / 10)) $((bytes - 9)) $((bytes - 1))
done
tar cf noend.tar tree/a.txt && head -c 1024 noend.tar >cutend.tar
refused 'a tar without its end' 'cutend.tar: ' 'end is missing' -- -o out cutend.tar
cp book.txt wrong.tar
refused 'a name that promises an archive' 'wrong.tar: expected tar' -- -o out wrong.tar
cp tree.tar.xz broken.tar.xz && printf 'XXXX' | dd of=broken.tar.xz bs=1 seek=2000 conv=notrunc 2>/dev/null
refused 'a damaged xz' 'broken.tar.xz: ' 'damaged' -- -o out broken.tar.xz
printf 'BZh01AY&SY and more' >broken.txt
refused 'a damaged header' 'broken.txt: ' 'header is damaged' -- -o out broken.txt
xz -c book.txt | gzip -c >double.txt.xz.gz
bytes=$(stat -c %s double.txt.xz.gz)
cut_refused double.txt.xz.gz 300 $((bytes - 9)) $((bytes - 1))
cp tree.zip broken.zip && printf 'XXXX' | dd of=broken.zip bs=1 seek=2000 conv=notrunc 2>/dev/null
refused 'a damaged zip' 'broken.zip: ' 'damaged' -- -o out broken.zip
gzip -c book.txt >broken.gz && printf 'XXXX' | dd of=broken.gz bs=1 seek=2000 conv=notrunc 2>/dev/null
refused 'a damaged gz' 'broken.gz: damaged' -- -o out broken.gz
head -c 50000 random.bin >stored && gzip -c stored >stored.gz
printf 'XX' | dd of=stored.gz bs=1 seek=30000 conv=notrunc 2>/dev/null
refused 'a damaged gz that unpacks to as many bytes' 'stored.gz: damaged' -- -o out stored.gz
printf '{"txt": 1}\n' >tree/c.jsonl && tar cf badentry.tar tree/a.txt tree/c.jsonl
refused 'a bad file in an archive' 'badentry.tar: tree/c.jsonl: line 1: ' -- -o out badentry.tar
cp hello.txt deep
for _ in $(seq 14); do rm -f deep.zip && zip -q deep.zip deep && mv deep.zip deep; done
refused 'too many archives inside each other' 'deep: ' 'too deep' -- -o out deep

# ---- no text -----------------------------------------------------------------------------------------------
# foreign FILE WHAT: as a file, in a tar, compressed, and through a pipe.
foreign() {
    refused "$1 is no text" "$1: expected text, found " "$2" -- -o out "$1"
    cp "$1" inner.txt && tar cf foreign.tar hello.txt inner.txt && gzip -c "$1" >foreign.gz
    refused "$1 in a tar" 'foreign.tar: inner.txt: expected text' "$2" -- -o out foreign.tar
    refused "$1, compressed" 'foreign.gz: expected text' "$2" -- -o out foreign.gz
    refused "$1 from a pipe" 'stdin: expected text' "$2" -- -o out --format=text - <"$1"
}
iconv -t UTF-16 hello.txt >utf16
{ printf '\376\377'; iconv -t UTF-16BE hello.txt; } >utf16be
iconv -t UTF-16LE book.txt >utf16le
iconv -t UTF-32 hello.txt >utf32
printf '{"text": "one"}\n' | iconv -t UTF-16 >utf16.jsonl
{ printf 'PAR1\25\4'; cat random.bin; } >parquet
{ printf '%%PDF-1.7\n'; cat random.bin; } >document
cp out1/train.bin shard
head -c 5000 /dev/zero >zeros
for one in utf16:UTF-16 utf16be:UTF-16 utf16le:UTF-16 utf32:UTF-32 utf16.jsonl:UTF-16 parquet:Parquet \
    document:PDF shard:'shard of tokens' zeros:'zero bytes'; do
    foreign "${one%:*}" "${one#*:}"
done

# ---- mistakes ----------------------------------------------------------------------------------------------
refused 'no output' '-o PREFIX is missing' -- book.txt
refused 'no input' 'INPUT is missing' -- -o out
refused 'an unknown option' '--frobnicate' -- -o out --frobnicate book.txt
refused 'an option that only begins right' '--val-fractions=0.1' -- -o out --val-fractions=0.1 book.txt
refused 'an option without its value' '--threads: ' -- -o out book.txt --threads
refused 'a fraction of 1' '--val-fraction=1: expected' -- -o out --val-fraction=1 book.txt
refused 'a fraction below 0' '--val-fraction=-0.1: expected' -- -o out --val-fraction=-0.1 book.txt
refused 'a fraction that is no number' '--val-fraction=nan: expected' -- -o out --val-fraction=nan book.txt
refused 'tokens that are no number' '--val-tokens=10x: expected' -- -o out --val-tokens=10x book.txt
refused 'more tokens than 64 bits' '--val-tokens=' 'expected' -- -o out --val-tokens=99999999999999999999 \
    book.txt
refused 'both ways to split' '--val-fraction and --val-tokens' -- -o out --val-tokens=1 --val-fraction=0.1 \
    book.txt
refused 'more validation than text' '--val-tokens=' "expected less than the $tokens tokens" -- \
    -o out --val-tokens=$tokens book.txt
refused 'shards of nothing' '--shard-tokens=0: expected' -- -o out --shard-tokens=0 book.txt
refused 'shards that a header cannot count' '--header=none' -- -o out --shard-tokens=2147483648 book.txt
refused 'no threads' '--threads=0: expected' -- -o out --threads=0 book.txt
refused 'an unknown format' '--format=pdf: expected one of auto, text, jsonl' -- -o out --format=pdf book.txt
refused 'an unknown place' '--eot=both: expected' -- -o out --eot=both book.txt
refused 'an unknown header' '--header=npy: expected' -- -o out --header=npy book.txt
refused 'stdin twice' 'once' -- -o out - book.txt -
refused 'a missing file' 'nosuch.txt: cannot open' -- -o out book.txt nosuch.txt
[ ! -e out ]
result $? 'a missing file is found before anything is made'
mkdir -p bare/folder
refused 'a folder without text' 'bare: expected text in this folder, found none' -- -o out bare
refused 'nothing but empty files' 'empty.txt: expected text' -- -o out empty.txt
refused 'an empty pipe' '-: expected text' -- -o out - </dev/null
refused 'an output that is a file' 'hello.txt: ' -- -o hello.txt book.txt
refused 'an output that cannot be made' '/proc/nowhere' -- -o /proc/nowhere book.txt
if [ "$(id -u)" -ne 0 ]; then
    cp book.txt secret.txt && chmod 000 secret.txt
    refused 'a file that may not be read' 'secret.txt: cannot open' -- -o out secret.txt
fi
(
    ulimit -f 100
    rm -rf out
    run -o out large.txt
    [ "$code" -eq 1 ] && grep -q 'out/train.bin: cannot write: ' stderr && [ -z "$(ls -A out)" ]
)
result $? 'a full disk'

# ---- decoding ----------------------------------------------------------------------------------------------
refused 'decoding a missing file' 'nosuch.bin: cannot open' -- --decode nosuch.bin
printf 'abc' >odd.bin
refused 'decoding an odd number of bytes' 'odd.bin: ' -- --decode odd.bin
printf '\377\377' >high.bin
refused 'decoding no token' 'high.bin: ' 'found 65535' -- --decode high.bin
"$tokenize" -o out1 book.txt 2>/dev/null
head -c 3000 out1/train.bin >short.bin
refused 'decoding a cut shard' 'short.bin: ' 'file holds 988' -- --decode short.bin
head -c 500 out1/train.bin >short.bin
refused 'decoding a cut header' 'short.bin: ' -- --decode short.bin
{ head -c 4 out1/train.bin; printf '\2'; tail -c +6 out1/train.bin; } >version.bin
refused 'decoding another version' 'version.bin: ' 'version' -- --decode version.bin
refused 'decoding and encoding at once' '--decode' -- --decode out1/train.bin book.txt
"$tokenize" --decode out1/train.bin >/dev/full 2>stderr
[ $? -eq 1 ] && grep -q 'cannot write' stderr
result $? 'decoding to a full disk'
run --help
[ "$code" -eq 0 ] && grep -q -- '--val-fraction' stdout && [ ! -s stderr ]
result $? 'help'

# ---- signals -----------------------------------------------------------------------------------------------
# stopped SIGNAL: while the program waits for its pipe.
stopped() {
    rm -rf out pipe
    mkfifo pipe
    env --default-signal=INT,HUP "$tokenize" -o out - <pipe >stdout 2>stderr &
    local program=$!
    exec 9>pipe
    cat book.txt book.txt book.txt >&9
    local deadline=$((SECONDS + $(scaled 60)))
    until [ -n "$(ls out 2>/dev/null)" ] || [ $SECONDS -ge $deadline ]; do
        sleep 0.02
    done
    [ -n "$(ls out)" ] || echo "# not begun"
    kill -s "$1" $program
    deadline=$((SECONDS + $(scaled 60)))
    while kill -0 $program 2>/dev/null && [ $SECONDS -lt $deadline ]; do
        sleep 0.02
    done
    exec 9>&- # which ends a program that the signal did not
    wait $program
    local status=$?
    [ "$status" -eq $((128 + $(kill -l "$1"))) ] && [ -z "$(ls -A out)" ] &&
        grep -q 'nothing was written' stderr
    result $? "stopped by $1: nothing stays"
}
# A shell starts its background jobs with SIGINT ignored, and so does nohup with SIGHUP; env undoes that.
stopped TERM
stopped INT
stopped HUP

end_of_tests
