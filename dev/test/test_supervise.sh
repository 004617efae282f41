#!/usr/bin/env bash
# scripts/supervise.sh with a program that ends as a plan says.
#   dev/test/test_supervise.sh        prints TAP
# shellcheck disable=SC1083,SC2016 # {ranks} and $(..) are for the script under test
set -u
export LC_ALL=C
unset SUPERVISE_SLOTS SLURM_NTASKS
supervise=$(cd "$(dirname "$0")/../../scripts" && pwd)/supervise.sh
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 1
tests=0
failures=0
. "$(dirname "$supervise")/../dev/test/time.bash"
deadline_s=$(scaled 60)

# Each start takes the next line of the file plan; after it maybe the number of a snapshot to leave. The
# program says in out/.end what it ends with, as train_gpt2 does where there is an out_dir.
#   CODE        ends with it
#   KILL        by a signal
#   HOLD        until SIGUSR1, then a snapshot and 75
#   DEAF        until killed
#   LAUNCHER    ends with 1 before there is a rank
#   MASKED N    a launcher whose ranks end with N, which itself ends with 1, as torchrun does
#   HANGS N     a launcher whose ranks have ended with N, and which does not end
#   VANISHES    a launcher that does not end, and whose ranks cannot say that they have
#   TORCHRUN    a launcher that dies of SIGUSR1, and passes SIGTERM on to its rank, which has its own session
cat >program <<'END'
#!/usr/bin/env bash
echo "$1" >>starts
echo $$ >started
echo "${*:2}" >>arguments
read -r act snapshot <<<"$(sed -n "$(wc -l <starts)p" plan)"
[ ${#snapshot} -lt 8 ] || : >"out/step-$snapshot.snap"
[[ ! $act =~ ^[0-9]+$ || ! -d out ]] || echo "$act said so" >out/.end
case $act in
LAUNCHER) exit 1 ;;
MASKED)
    echo "$snapshot said so" >out/.end
    exit 1
    ;;
HANGS)
    echo "$snapshot said so" >out/.end
    trap 'echo told >>heard' TERM
    while :; do sleep 0.05; done
    ;;
VANISHES)
    echo "process 1 on elsewhere since then" >out/.lock # and nobody touches it again
    while :; do sleep 0.05; done
    ;;
TORCHRUN)
    setsid bash -c 'echo $$ >rank; trap ": >out/step-00000009.snap; echo 75 told >out/.end; exit 75" TERM
        : >ready; while :; do sleep 0.05; done' &
    trap 'kill -TERM "$(cat rank)"; wait; exit 1' TERM
    wait
    ;;
KILL) kill -KILL $$ ;;
HOLD)
    trap ': >out/step-00000009.snap; exit 75' USR1
    : >ready
    while :; do sleep 0.05; done
    ;;
DEAF)
    trap 'echo "deaf" >>heard' USR1
    : >ready
    while :; do sleep 0.05; done
    ;;
*) exit "$act" ;;
esac
END
chmod +x program

# plan LINE...: a new game.
plan() {
    rm -rf out starts arguments ready heard rank down.*
    mkdir out
    printf '%s\n' "$@" >plan
}

# supervised ARGUMENTS...: the supervisor, its exit code in $code.
supervised() {
    timeout $deadline_s "$supervise" --wait=0 "$@" >stdout 2>stderr
    code=$?
}

# expect NAME CODE RANKS... : one TAP line; the exit code, and the number of ranks of each start.
expect() {
    local name=$1 bad=0 found
    tests=$((tests + 1))
    found=
    [ ! -e starts ] || found=$(xargs <starts)
    [ "$code" -eq "$2" ] || { echo "# exit code: expected $2, found $code"; bad=1; }
    [ "$found" = "${*:3}" ] || { echo "# ranks: expected ${*:3}, found $found"; bad=1; }
    if [ $bad -eq 0 ]; then
        echo "ok $tests - $name"
    else
        failures=$((failures + 1))
        echo "not ok $tests - $name"
        tail -n 10 stderr | sed 's/^/# /'
    fi
}

# until_true COMMAND...: waits for it.
until_true() {
    local end=$((SECONDS + deadline_s))
    until "$@"; do
        [ $SECONDS -lt $end ] || { echo "# waited in vain for: $*"; return 1; }
        sleep 0.02
    done
}

plan 0
supervised --slots=3 -- ./program {ranks}
expect 'a run that is done is not started again' 0 3

plan 1 0
supervised --slots=3 -- ./program {ranks}
expect 'an error that would come again is passed on' 1 3

plan 0
supervised --slots=2 -- ./no-such-program
expect 'a command that does not exist is passed on' 127

plan '75 00000001' 0
supervised --slots-command='echo $((4 - $(cat starts 2>/dev/null | wc -l)))' -- ./program {ranks}
expect 'a run that asks for it goes on with the room there is then' 0 4 3

# ---- what the launcher's exit code does not say ----
plan 'MASKED 75' 'MASKED 76' 'MASKED 1'
supervised --slots=2 -- ./program {ranks}
expect "the run's own word counts before the launcher's code" 1 2 2 2

plan LAUNCHER '75 00000001' LAUNCHER 0
supervised --slots=2 -- ./program {ranks}
grep -q 'a launch failure' stderr || code=-1
expect 'a launcher that fails before the run is tried again' 0 2 2 2 2

plan LAUNCHER LAUNCHER LAUNCHER LAUNCHER
supervised --slots=2 -- ./program {ranks}
expect 'but not for ever either' 76 2 2 2

plan LAUNCHER
rm -r out
supervised --slots=2 -- ./program {ranks}
expect 'nor where nothing has ever begun' 1 2

plan 'HANGS 76' 0
supervised --slots=2 --end-wait=1 -- ./program {ranks}
grep -q 'the ranks have ended, and ./program has not for 1 s' stderr && [ -e heard ] || code=-1
expect 'a launcher that outlives its ranks is ended' 0 2 2

plan VANISHES 0
supervised --slots=2 --end-wait=0 --silence=2 -- ./program {ranks}
expect 'also where the ranks could not say that they have' 0 2 2

plan '76 00000001' '76 00000002' 0
: >down.b
supervised --hosts=a:2,b:3,c:1 --host-check='[ {host} = a ] || ! [ -e down.{host} ]' -- \
    ./program {ranks} --host {hosts} 2>stderr
printf '%s\n' '--host a:2,c:1'{,' --init_from=resume'{,}} | cmp -s - arguments || code=-1
expect 'a host that does not answer is left out' 0 3 3 3

plan 0
supervised --hosts=a,b:3 -- ./program {ranks}
grep -q 'hosts: expected HOST:N' stderr || code=-1
expect 'hosts without a number of ranks are refused' 1

plan 76 76 76 76
supervised --slots=2 -- ./program {ranks}
grep -q 'giving up: exit code 76, and no newer snapshot in out after 3 tries' stderr || code=-1
expect 'faults without progress come to an end' 76 2 2 2

plan '76 00000001' 75 76 0
supervised --slots=2 --tries=2 -- ./program {ranks}
expect 'so do requests to go on without progress' 76 2 2 2

plan '76 00000001' '76 00000002' '76 00000003' '76 00000010' 0
supervised --slots=2 --tries=1 -- ./program {ranks}
expect 'faults with progress do not' 0 2 2 2 2 2

plan 76 76 '76 00000001' 76 76 0
supervised --slots=2 -- ./program {ranks}
expect 'progress makes up for the tries before it' 0 2 2 2 2 2 2

plan 76 '76 00000001' 0
supervised --slots=2 -- ./program {ranks} --init_from=models/gpt2
printf '%s\n' --init_from=models/gpt2{,} '--init_from=models/gpt2 --init_from=resume' | cmp -s - arguments ||
    code=-1
expect 'a restart resumes once there is a snapshot, and begins as told until then' 0 2 2 2

plan KILL 0
supervised --slots=2 -- ./program {ranks}
expect 'a run that was killed is started again' 0 2 2

plan 0
printf 'gradient_accumulation_steps = 6 # G\nout_dir = "elsewhere"\n' >run.conf
supervised --slots=9 -- ./program {ranks} run.conf
expect "never more ranks than the config's gradient_accumulation_steps" 0 6

plan 0
supervised --slots=9 -- ./program {ranks} run.conf --gradient_accumulation_steps=4
expect 'nor than that of the command line, which comes later' 0 4

plan 0
supervised --slots=9 --max-ranks=2 -- ./program {ranks} run.conf
expect 'nor than max-ranks' 0 2

plan 76
mkdir -p elsewhere
supervised --slots=1 --tries=1 -- ./program {ranks} run.conf
grep -q 'no newer snapshot in elsewhere after' stderr || code=-1
expect "snapshots are looked for in the config's out_dir" 76 1

plan 0
SUPERVISE_SLOTS=5 supervised -- ./program {ranks}
expect 'SUPERVISE_SLOTS says how much room there is' 0 5

plan 0
: >asked
supervised --min-ranks=2 --slots-command='echo x >>asked; grep -c x asked' -- ./program {ranks}
expect 'with too little room it waits' 0 2

plan 0
supervised --slots=0 -- ./program {ranks}
expect 'but not for ever' 76

plan 0
supervised --slots=1 --tries=many -- ./program {ranks}
grep -q 'tries: expected a whole number, found "many"' stderr || code=-1
expect 'a bad option is refused' 1

plan 0
supervised --slots=1 ./program
expect 'a command without -- is refused' 1

# in_background ARGUMENTS...: the supervisor as $pid. SIGINT is ignored where this test itself was started in
# the background by a script, and a shell cannot change that for what it starts; env can.
in_background() {
    env --default-signal=INT "$supervise" "$@" >stdout 2>stderr &
    pid=$!
}

has_ended() {
    ! kill -0 "$pid" 2>/dev/null
}

finish() {
    until_true has_ended || kill -KILL "$pid"
    wait "$pid"
    code=$?
    pid=
}

lives() { # PID: and is no process that has ended and that nobody has asked about
    grep -qs '^State:.[^ZX]' "/proc/$1/status"
}

for signal in TERM INT USR1 HUP; do
    plan HOLD 0
    set -m # a background job of a script ignores SIGINT otherwise
    in_background --slots=2 -- ./program {ranks}
    set +m
    until_true test -e ready
    kill "-$signal" "$pid"
    finish
    [ -e out/step-00000009.snap ] || code=-1
    expect "SIG$signal ends the run in good order, for good" 75 2
done

plan DEAF 0
in_background --slots=2 -- ./program {ranks}
until_true test -e ready
kill -TERM "$pid"
until_true test -e heard
kill -TERM "$pid" # the same event, told twice
sleep 6
kill -0 "$(cat started)" || code=-2
kill -TERM "$pid"
finish
expect 'a second signal, some seconds after the first, ends it at once' 75 2

plan TORCHRUN 0
in_background --slots=2 -- ./program {ranks}
until_true test -e ready
kill -USR1 "$pid"
finish
[ -e out/step-00000009.snap ] && ! lives "$(cat rank)" || code=-1
expect 'a launcher that would die of SIGUSR1 gets SIGTERM' 75 2

plan TORCHRUN 0
in_background --slots=2 -- ./program {ranks}
until_true test -e ready
kill -KILL "$(cat started)"
finish
[ -e out/step-00000009.snap ] && ! lives "$(cat rank)" || code=-1
expect 'ranks that a killed launcher leaves behind are ended in good order' 0 2 2

# A terminal that goes away sends it more than once; after the first there is nothing new.
plan HOLD 0
in_background --slots=2 -- ./program {ranks}
until_true test -e ready
kill -HUP "$pid"
kill -HUP "$pid" 2>/dev/null
kill -HUP "$pid" 2>/dev/null
finish
[ -e out/step-00000009.snap ] || code=-1
expect 'several SIGHUPs are one' 75 2

plan '75 00000001' '75 00000002' 0
supervised_into() { # what reads its lines ends after the first
    timeout $deadline_s "$supervise" --wait=0 "$@" 2>&1 | head -n 1 >stderr
    code=${PIPESTATUS[0]}
}
supervised_into --slots=2 -- ./program {ranks}
expect 'a console that nobody reads does not end it' 0 2 2 2

plan '76 00000001' 0
in_background --slots=2 --wait=600 -- ./program {ranks}
until_true grep -q 'starting again' stderr
kill -TERM "$pid"
finish
expect 'a signal between two starts prevents the second' 75 2

echo "1..$tests"
[ "$failures" -eq 0 ]
