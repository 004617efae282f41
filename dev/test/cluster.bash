# Sourced by tests on demand that need several machines: slurm.sh, torchrun.sh, cluster_storm.sh. It executes
# the script once more in namespaces of its own (mounts, network, processes, host name), where three nodes,
# node1 .. node3, are network namespaces with host names and a bridge between them. Files are shared, as on a
# cluster. Nothing is left behind: when the script ends, all its processes do.
#   PROGRAMS=build/mpi1     where train_gpt2 is
# Exit code 77 and one line where namespaces are not allowed.
export LC_ALL=C
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
inside=(unshare --mount --net --pid --uts --fork --mount-proc --kill-child)

skip() {
    echo "1..0 # SKIP $*"
    exit 77
}

if [ -z "${CLUSTER_INSIDE:-}" ]; then
    "${inside[@]}" ip link add name probe type bridge 2>/dev/null ||
        skip "network namespaces are not allowed here (be root, outside of a container that forbids them)"
    [ -x "${PROGRAMS:-$root}/train_gpt2" ] || skip "no train_gpt2 in ${PROGRAMS:-$root}: make train_gpt2"
    CLUSTER_WORK=$(mktemp -d -p /var/tmp) CLUSTER_INSIDE=1 PROGRAMS=$(cd "${PROGRAMS:-$root}" && pwd)
    export CLUSTER_WORK CLUSTER_INSIDE PROGRAMS
    "${inside[@]}" bash "$0" "$@" &
    inner=$!
    trap 'kill -KILL $inner 2>/dev/null; rm -rf "$CLUSTER_WORK"' EXIT
    trap 'exit 130' INT TERM
    wait $inner
    exit $?
fi

work=$CLUSTER_WORK
cd "$work" || exit 1
cp "$PROGRAMS/train_gpt2" . && cp -r "$root/scripts" . || exit 1
. "$root/dev/test/tap.bash"
[ "$TEST_TIME_SCALE" -le 4 ] || TEST_TIME_SCALE=4 # an hour for what hangs is no use
for name in $(compgen -v SLURM) $(compgen -v OMPI) RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT; do
    unset "$name"
done
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive HOME=$work TMPDIR=$work
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
started_s=$SECONDS

# ---- the machines ------------------------------------------------------------------------------------------
nodes=(node1 node2 node3)
make_nodes() {
    local n
    # /dev/shm too: MPI's segments have the names of node and job, which another test may have as well
    mount --make-rprivate / && mount -t tmpfs none /run && mount -t tmpfs none /dev/shm || return 1
    mkdir -p /run/netns /run/uts
    printf '127.0.0.1 localhost\n10.77.0.254 controller\n' >hosts
    printf '10.77.0.%d node%d\n' 1 1 2 2 3 3 >>hosts
    mount --bind hosts /etc/hosts && hostname controller && ip link set lo up || return 1
    ip link add br0 type bridge && ip addr add 10.77.0.254/24 dev br0 && ip link set br0 up || return 1
    for n in 1 2 3; do
        ip netns add node$n && ip link add veth$n type veth peer name eth0 netns node$n &&
            ip link set veth$n master br0 && ip link set veth$n up && touch /run/uts/node$n &&
            unshare --uts=/run/uts/node$n hostname node$n && on node$n ip addr add 10.77.0.$n/24 dev eth0 &&
            on node$n ip link set eth0 up && on node$n ip link set lo up || return 1
    done
}

# on NODE COMMAND...: there. begin_on is the same in the background, with the command's own process id in $!.
on() {
    nsenter --net=/run/netns/"$1" --uts=/run/uts/"$1" "${@:2}"
}

begin_on() {
    nsenter --net=/run/netns/"$1" --uts=/run/uts/"$1" "${@:2}" &
}

cut_node() { # NODE: nothing reaches it any more, and nobody is told
    ip link set "veth${1#node}" down
}

mend_node() {
    ip link set "veth${1#node}" up
}

# The ranks that were started with the argument $1, on whichever node: their process ids.
ranks_of() {
    local file
    for file in /proc/[0-9]*/cmdline; do
        [ "$(readlink "${file%cmdline}exe")" = "$work/train_gpt2" ] && tr '\0' '\n' <"$file" |
            grep -qxF -- "$1" && echo "${file//[!0-9]/}"
    done 2>/dev/null
}

# ---- the run -----------------------------------------------------------------------------------------------
mkdir data
cat "$root"/llmc/*/*.c | head -c 200000 | iconv -f LATIN1 -t UTF-16LE >data/train.bin
cat >run.conf <<END
train_data = data/train.bin
vocab_size = 256
n_layer = 2
n_head = 2
n_embd = 32
block_size = 16
batch_size = 2
gradient_accumulation_steps = 6
warmup_iters = 2
lr_decay_iters = 20
learning_rate = 3e-3
dropout = 0.1
eval_interval = 0
snapshot_interval = 100
check_interval = 100
dtype = fp32
threads = 1
comm_timeout = $(scaled 15)
heartbeat_timeout = $(scaled 5)
END

# until_true SECONDS COMMAND...: seconds of a quiet machine. 1 when it does not become true.
until_true() {
    local end=$((SECONDS + $(scaled "$1")))
    shift
    until "$@" 2>/dev/null; do
        [ $SECONDS -lt $end ] || { echo "# waited in vain for: $*"; return 1; }
        sleep 0.1
    done
}

# How many updates a run has made; what a killed one lost is in the log twice.
updates() { # FOLDER
    local last
    last=$(grep '"event":"step"' "$1/log.jsonl" 2>/dev/null | tail -n 1)
    [[ $last =~ \"iter\":([0-9]+) ]] && echo $((BASH_REMATCH[1] + 1)) || echo 0
}

has_made() { # UPDATES FOLDER
    [ "$(updates "$2")" -ge "$1" ]
}

has_more_than() { # UPDATES FOLDER
    has_made $(($1 + 1)) "$2"
}

# The hash of the weights at the end of the run in folder $1, if it is done.
weights_of() {
    tail -n 1 "$1/log.jsonl" 2>/dev/null |
        sed -n 's/.*"event":"end".*"weights":"\([0-9a-f]*\)".*"done".*/\1/p'
}

# undisturbed UPDATES: what a run of so many comes to, in $expected.
undisturbed() {
    ./train_gpt2 run.conf --max_iters="$1" --out_dir="whole-$1" >stdout 2>stderr
    expected=$(weights_of "whole-$1")
    [ -n "$expected" ]
}

# ended_as_expected NAME FOLDER [STATUS]: a TAP line.
ended_as_expected() {
    local found
    found=$(weights_of "$2")
    [ "$found" = "$expected" ] && [ -n "$expected" ] && [ "${3:-0}" -eq 0 ]
    result $? "$1: weights ${found:-none}, undisturbed $expected ($(starts "$2") starts)"
}

starts() { # FOLDER: how often it was begun
    grep -c '"event":"start"' "$1/log.jsonl" 2>/dev/null
}
