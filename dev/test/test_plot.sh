#!/usr/bin/env bash
# scripts/plot.sh: what it reads of logs that were torn, resumed and gone on with, and what it draws.
#   dev/test/test_plot.sh        prints TAP
set -u
. "$(dirname "$0")/tap.bash"
root=$(cd "$(dirname "$0")/../.." && pwd)
plot=$root/scripts/plot.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export LC_ALL=C
unset COLUMNS LINES

# plot ARGUMENTS...: with its output in the files stdout and stderr, its exit code in $code.
plot() {
    "$plot" "$@" >stdout 2>stderr
    code=$?
}

# refused NAME TEXT ARGUMENTS...: exit 1 and one line on stderr that begins with the program's name.
refused() {
    plot "${@:3}"
    [ $code -eq 1 ] && [ "$(wc -l <stderr)" -eq 1 ] && grep -q '^plot.sh: ' stderr && grep -qF -- "$2" stderr
    result $? "$1"
}

start() { # MORE
    echo '{"event":"start","version":"0.1.0","backend":"cpu","ranks":2,"parameters":124439808,"data":"0f",'\
'"options":{"eval_only":false,"sample_only":false,"dataset":"openwebtext","train_data":"","batch_size":2,'\
'"block_size":5,"gradient_accumulation_steps":10,"dtype":"fp32"'"${1:-}}}"
}
step() { # ITER LOSS
    echo '{"event":"step","iter":'"$1"',"loss":'"$2"',"lr":0.0006,"norm":1.5,"ms":100,"tok_per_s":1000,'\
'"compute_ms":80,"comm_ms":40,"exposed_ms":10}'
}
evaluation() { # ITER LOSS
    echo '{"event":"eval","iter":'"$1"',"train_loss":1,"val_loss":'"$2"'}'
}

# 100 tokens and 100 ms an update. Killed while it wrote update 5; gone on with from update 3; a loss that is
# not finite; an evaluation beside it; half a line at the end, as after a crash.
mkdir run
{
    start
    evaluation 0 9
    step 0 8
    step 1 7
    step 2 6
    evaluation 3 5.5
    step 3 5
    step 4 999
    evaluation 5 999
    step 5 888 | head -c 40
    echo
    start
    step 3 4.5
    step 4 4
    step 5 null
    evaluation 6 3.5
    start | sed 's/"eval_only":false/"eval_only":true/'
    evaluation 6 777
    echo '{"event":"end","iter":6,"weights":"00","reason":"done"}'
    start
    step 6 3
    step 7 2 | head -c 60
} >run/log.jsonl
awk -v points=100 -f "$root/scripts/plot/read.awk" <run/log.jsonl >read
cut -d' ' -f1-4 read | grep -v facts >stdout
diff - stdout >stderr <<'EXPECTED'
step 0 0 8
step 100 0.1 7
step 200 0.2 6
step 300 0.3 4.5
step 400 0.4 4
step 600 0.6 3
eval 0 0 9
eval 300 0.3 5.5
eval 600 0.6 3.5
EXPECTED
result $? "updates that were made again count once, the later one; torn lines and eval_only do not"
grep -q '^step 600 0.6 3 3 1000 1000 40 10 1.5$' read && grep -qx 'facts updates 7' read &&
    grep -qx 'facts dataset openwebtext' read
result $? "throughput, communication and norm"

# Where not each update is logged: time and tokens of those between; means where there are many.
mkdir sparse many
{ start; step 0 8; step 10 6; step 20 4; evaluation 25 3; } >sparse/log.jsonl
{ start; for ((i = 0; i < 1000; i++)); do step $i 3.5; done; } >many/log.jsonl
awk -v points=100 -f "$root/scripts/plot/read.awk" <sparse/log.jsonl >stdout
awk -v points=100 -f "$root/scripts/plot/read.awk" <many/log.jsonl >>stdout
grep -q '^step 1000 1 6 ' stdout && grep -q '^eval 2500 2.5 3$' stdout &&
    [ "$(grep -c '^step .* 3.5 3.5 1000 ' stdout)" -eq 100 ]
result $? "log_interval, and long runs"

# ---- in the terminal ---------------------------------------------------------------------------------------
COLUMNS=44 LINES=12 plot run --high=8
cp stdout drawn
[ $code -eq 0 ] && diff - drawn >stderr <<'EXPECTED'
  loss
        |***
        |   ******
        |         ****
      5 |             *** o
        |                ************
        |----GPT-2 124M as released (*****o
        |----------------------------------
        +----------------------------------
         0         200        400        600
                                    tokens
  * training loss (running mean)   o validation loss
  last: loss 3.0000, validation 3.5000
EXPECTED
result $? "a curve in characters"
COLUMNS=60 LINES=16 LC_ALL=C.UTF-8 plot --over=time run
[ $code -eq 0 ] && grep -q '⠉' stdout && grep -q '●' stdout && grep -q 'seconds of training' stdout &&
    [ "$(awk '{ n = gsub(/[^\200-\277]/, ""); if (n > most) most = n } END { print most }' stdout)" -le 60 ]
result $? "a curve in braille, over time, no wider than the terminal"
COLUMNS=60 plot one=run 'two=many/log.jsonl'
[ $code -eq 0 ] && grep -q '^  1  one: loss 3.0000, validation 3.5000$' stdout &&
    grep -q '^  2  two: loss 3.5000$' stdout && grep -q '^ *[0-9.]* |.*2.*2' stdout
result $? "two runs, by their names"
plot --low=2 --high=4 run
grep -q 'nanoGPT 124M, 600,000 updates (2.85)' stdout && ! grep -q 1558M stdout
published=$?
plot --low=2 --high=4 --published=openwebtext run
grep -q 'GPT-2 1558M as released (2.54)' stdout && [ $published -eq 0 ]
published=$?
plot --low=2 --high=4 --published=none run
[ $published -eq 0 ] && ! grep -q 'GPT' stdout
result $? "published losses: of this size and data, of these data, none"

# ---- pictures ----------------------------------------------------------------------------------------------
mkdir tools
for tool in bash dirname basename sed awk grep cat; do ln -s "$(command -v $tool)" tools; done
PATH=$work/tools "$plot" -o a.png run >stdout 2>stderr
[ $? -eq 1 ] && grep -q 'a.png: a picture takes gnuplot, found none; scripts/install_deps.sh --plot' stderr &&
    [ ! -e a.png ]
result $? "without gnuplot: how to get it"
if command -v gnuplot >/dev/null; then
    plot -o a.png --title="it's 'quoted' 100% \\n" run two=many
    [ $code -eq 0 ] && [ "$(head -c 4 a.png | tail -c 3)" = PNG ] && [ "$(wc -c <a.png)" -gt 20000 ]
    result $? "a PNG"
    plot -o a.svg run
    found=0
    for text in 'run: 124M parameters on openwebtext, fp32, 2 ranks, cpu' 'Loss over tokens' \
        'Loss over time' Throughput 'Communication between ranks' 'GPT-2 124M as released (3.12)' \
        'validation loss'; do
        grep -qF "$text" a.svg || { found=1 && echo "# not in the picture: $text"; }
    done
    [ $code -eq 0 ] && [ $found -eq 0 ]
    result $? "an SVG with all panels"
    refused "a picture that cannot be written" "nowhere/a.png: cannot be written" -o nowhere/a.png run
else
    echo "# no gnuplot here: pictures are not tried"
fi

# ---- mistakes ----------------------------------------------------------------------------------------------
echo '{"event":"start","options":{}}' >empty.jsonl
refused "no run" "expected the out_dir of a run"
refused "a run that is not there" "nowhere: expected a run's log.jsonl" nowhere
refused "a folder without a log" "tools/log.jsonl: expected" tools
refused "a log without steps" "empty.jsonl: expected steps or evaluations" empty.jsonl
refused "another kind of picture" "a.pdf: expected a name that ends in .png or .svg" -o a.pdf run
refused "a data set without published losses" "one of fineweb openwebtext shakespeare_char" --published=x run
refused "an unknown option" "--colour: expected" --colour run
end_of_tests
