# shellcheck shell=bash
# Sourced by run.sh: what is run under faults, and what must hold afterwards. Each subject S has
#   prepare_S    makes the folder that each case begins with, as ./base, and what is expected, in ./ref
#   start_S      the run that the fault meets: with the variables in `faulty`, if any
#   judge_S      after it, with `status` of each process: prints nothing, or what is wrong
# A case runs in a folder of its own, where ref is ../S/ref.
subjects="scratch resume damaged scratch-2 resume-2 export tokenize tokenize-beside tokenize-first"

train_options=(--train_data=../data/train.bin --val_data=../data/val.bin --vocab_size=256 --n_layer=1
    --n_head=1 --n_embd=16 --block_size=8 --batch_size=1 --gradient_accumulation_steps=2 --warmup_iters=2
    --lr_decay_iters=20 --learning_rate=3e-3 --eval_interval=4 --eval_iters=1 --log_interval=1
    --snapshot_interval=2 --keep_snapshots=9 --dtype=fp32 --threads=1 --max_iters=6 --out_dir=out)

# started COUNT PROGRAM ARGUMENT...: with the fault, if `faulty` has one. What each process ended with, 124
# for who hung, is in `status`. Not by the shell's exit codes: once process ids come round, it mixes them up.
started() {
    local count=$1
    shift
    status=$("$programs/fault/start" "$count" "$limit" "$patience" "${faulty[@]}" "$@")
}

# train [ARGUMENT...]: one process, with its words in the files stdout and stderr.
train() {
    started 1 "$programs/train_gpt2" "${train_options[@]}" "$@"
}

# Two of them over TCP. Other tests take ports below these, and the system those above.
train_2() {
    export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((30000 + worker % 4 * 600 + RANDOM % 600))
    started 2 "$programs/train_gpt2" "${train_options[@]}" --comm_timeout="$(scaled 3)" "$@"
    unset MASTER_ADDR MASTER_PORT
    mv stdout.0 stdout
    mv stderr.0 stderr
}

weights() {
    tail -n 1 stdout | grep -E '^weights [0-9a-f]{16}$'
}

# ---- what holds of every run -------------------------------------------------------------------------------
# Hangs and crashes, and ends without a word. Exit codes are 0, 1, 75 and 76, and 137 where the fault kills.
judge_end() {
    local one number=0
    for one in $status; do
        case $one in
        0 | 1 | 75 | 76) ;;
        124) echo "hang" ;;
        137) # the fault's own
            [ $kills -eq 1 ] && { [[ $subject != *-2 ]] || [ $number -eq "$rank" ]; } || echo "crash: kill" ;;
        143) [[ $subject == *-2 ]] || echo "crash: SIGTERM" ;; # while it starts, from the launcher
        *) echo "crash: exit code $one" ;;
        esac
        number=$((number + 1))
    done
    if [[ $status =~ ^(1|75|76)( |$) ]] && [ "$call" != console ] && [ -z "$(cat stderr*)" ]; then
        echo "silent: exit code $status and no word"
    fi
}

# ---- training ----------------------------------------------------------------------------------------------
broken="damaged: step-00000004.snap" # a subject, and the snapshot that is damaged from the start

snapshots_in() { # FOLDER: their names, each with a hash of its tensors, or "damaged"
    (cd "$1" && "$programs/fault/inspect" --snapshots $(ls | grep -xE 'step-[0-9]{8}\.snap')) 2>/dev/null
}

# Every snapshot holds what the undisturbed run's does, and none of those of before is missing.
judge_snapshots() {
    local file found
    snapshots_in out >found.snapshots
    while read -r found; do
        grep -qxF "$found" "../$subject/snapshots" || [ "$subject: $found" = "$broken damaged" ] ||
            echo "wrong: $found, and not as the undisturbed run has it"
    done <found.snapshots
    for file in $(cd base && ls out 2>/dev/null | grep -xE 'step-[0-9]{8}\.snap'); do
        [ "$subject: $file" = "$broken" ] || [ -e "out/$file" ] || echo "lost: $file"
    done
    file=$(ls out 2>/dev/null | grep damaged)
    [ -z "$file" ] || [ "$subject" = damaged ] || echo "lost: $file was set aside"
}

# A log is whole lines.
judge_log() {
    ! grep -sqvE '^\{.*\}$' out/log.jsonl || echo "wrong: out/log.jsonl has a line that is no event"
    ! grep -sq '}{' out/log.jsonl || echo "wrong: out/log.jsonl has two events in one line"
}

judge_train() {
    judge_end
    judge_snapshots
    if [[ $status =~ ^0( 0)?$ ]] && [ "$call" != console ] && [ "$(weights)" != "$expected_weights" ]; then
        echo "wrong: weights of the run itself"
    fi
    mv stderr stderr.fault
    faulty=()
    train --init_from=auto
    judge_next
    [ -z "$(ls out | grep tmp)" ] || echo "left: $(ls out | grep tmp)"
}

judge_next() {
    [ "$status" = 0 ] || echo "wrong: the next run ends with $status: $(tail -n 1 stderr)"
    [ "$status" != 0 ] || [ "$(weights)" = "$expected_weights" ] || echo "wrong: weights of the next run"
    judge_snapshots
}

# The undisturbed run, its snapshots, and what a resume begins with.
prepare_train() { # STEPS that the folder to begin with has made
    train --snapshot_interval=1 # a run that stops early may have saved any of them
    [ "$status" = 0 ] || die "$subject: the undisturbed run ends with $status: $(tail -n 1 stderr)"
    weights >weights
    mkdir ref base
    snapshots_in out >snapshots
    [ "$(wc -l <snapshots)" -eq 6 ] && ! grep -q damaged snapshots || die "$subject: $(cat snapshots)"
    rm -r out
    if [ "$1" -gt 0 ]; then
        train --max_iters="$1"
        mv out base
    fi
}

prepare_scratch() { prepare_train 0; }
prepare_resume() { prepare_train 4; }
prepare_damaged() {
    prepare_train 4
    printf 'X' | dd of=base/out/step-00000004.snap bs=1 seek=200 conv=notrunc status=none
}
prepare_scratch-2() { prepare_train 0; }
prepare_resume-2() { prepare_train 4; }
start_scratch() { train; }
start_resume() { train --init_from=resume; }
start_damaged() { train --init_from=auto; }
start_scratch-2() { train_2; }
start_resume-2() { train_2 --init_from=resume; }
judge_scratch() { judge_train; }
judge_resume() { judge_train; }
judge_damaged() { judge_train; }
judge_scratch-2() { judge_train; }
judge_resume-2() { judge_train; }

# ---- export ------------------------------------------------------------------------------------------------
exporting=(--init_from=auto --export_hf=hf --export_llmc=model.bin)
prepare_export() {
    prepare_train 6
    cp -r base/out out
    train "${exporting[@]}"
    [ "$status" = 0 ] || die "export: ends with $status: $(tail -n 1 stderr)"
    mv hf model.bin ref
    rm -r out
}
start_export() { train "${exporting[@]}"; }

exported() { # FOLDER: the names of what was exported to it, whole or not
    (cd "$1" && ls -d hf/* model.bin* 2>/dev/null)
}

# A file under its own name is whole.
judge_export_files() {
    local file
    for file in hf/* model.bin; do
        [[ ! -e $file || $file == *tmp* ]] || cmp -s "$file" "../export/ref/$file" || echo "wrong: $file"
    done
}

judge_export() {
    judge_end
    judge_snapshots
    judge_export_files
    [ "$status" != 0 ] || [ "$(exported . | grep -v tmp)" = "$(exported ../export/ref)" ] ||
        echo "lost: exit code 0 without all files"
    mv stderr stderr.fault
    faulty=()
    train "${exporting[@]}"
    judge_next
    judge_export_files
    [ "$(exported .)" = "$(exported ../export/ref)" ] || echo "left: there are $(exported . | tr '\n' ' ')"
}

# ---- tokenize ----------------------------------------------------------------------------------------------
tokenizing=(--threads=1 --header=none)
tokenize() {
    started 1 "$programs/data_prep/tokenize" "${tokenizing[@]}" "$@"
}

# What programs find in the folder: by its files alone, and by the reader that training uses.
shards_by_name() { (cd out 2>/dev/null && cksum -- *.bin 2>/dev/null); }
shards_by_reader() { "$programs/fault/inspect" --shards 'out/*.bin' 2>/dev/null; }

prepare_tokenize() {
    mkdir -p base ref
    head -c 30000 "$book" >../old.txt
    tail -c 40000 "$book" >../new.txt
    [ "$subject" = tokenize-first ] || tokenize -o base/out --shard-tokens=3000 ../old.txt
    [ "$subject" != tokenize-beside ] || echo mine >base/out/notes.txt
    for state in old new; do
        [ $state = old ] || start_tokenize
        [ $state = new ] || { rm -rf out && cp -r base/. .; }
        shards_by_name >ref/$state.names
        shards_by_reader >ref/$state.reader
    done
    [ "$status" = 0 ] || die "$subject: ends with $status: $(tail -n 1 stderr)"
    [ -s ref/new.reader ] && ! cmp -s ref/old.reader ref/new.reader || die "$subject: no states to tell apart"
    ls -A out >ref/listing
    rm -r out
}
start_tokenize() { tokenize -o out --shard-tokens=2000 ../new.txt; }

judge_state() { # KIND: by name or by reader
    local kind=$1 found=wrong
    shards_by_"$kind" >found."$kind"
    for state in old new; do
        ! cmp -s found."$kind" "../$subject/ref/$state.${kind/name/names}" || found=$state
    done
    [ $found != wrong ] || echo "wrong: by $kind the folder is neither the old nor the new one"
    case $status in
    0) [ $found = new ] || echo "wrong: exit code 0, and by $kind the folder is $found" ;;
    1 | 76) [ $found = old ] || grep -q 'could not be undone\|are in place' stderr ||
        echo "wrong: exit code $status, and by $kind the folder is $found" ;;
    esac
}

judge_tokenize() {
    judge_end
    judge_state reader
    # With files of others in the folder, shards move one by one; training knows (llmc/data/shard_folder.h).
    if [ "$subject" != tokenize-beside ] || { [ $kills -eq 0 ] && [ ! -d out/tokenize.commit ]; }; then
        judge_state name
    fi
    mv stderr stderr.fault
    faulty=()
    start_tokenize
    [ "$status" = 0 ] || echo "wrong: the next run ends with $status: $(tail -n 1 stderr)"
    judge_state name
    judge_state reader
    [ "$(ls -A out)" = "$(cat "../$subject/ref/listing")" ] || echo "left: in out:" $(ls -A out)
    [ -z "$(ls -A | grep -x 'out\..*')" ] || echo "left: $(ls -A | grep -x 'out\..*' | tr '\n' ' ')"
    [ "$subject" != tokenize-beside ] || [ "$(cat out/notes.txt)" = mine ] || echo "lost: out/notes.txt"
}
prepare_tokenize-beside() { prepare_tokenize; }
prepare_tokenize-first() { prepare_tokenize; }
start_tokenize-beside() { start_tokenize; }
start_tokenize-first() { start_tokenize; }
judge_tokenize-beside() { judge_tokenize; }
judge_tokenize-first() { judge_tokenize; }
