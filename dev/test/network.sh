#!/usr/bin/env bash
# Three machines with a network between them that fails: ranks over TCP in network namespaces, some of whose
# packets are dropped without a word. On demand, as root or where users may make namespaces (two minutes):
#   PROGRAMS=. dev/test/network.sh        prints TAP
set -u
if [ -z "${IN_NAMESPACE:-}" ]; then
    export PATH=$PATH:/usr/sbin:/sbin
    if ! unshare -rnmu iptables -S >/dev/null 2>&1; then
        echo "1..0 # SKIP namespaces are not allowed here, or there is no iptables"
        exit 0
    fi
    IN_NAMESPACE=1 exec unshare -rnmu "$0" "$@"
fi
. "$(dirname "$0")/tap.bash"
export LC_ALL=C OMP_NUM_THREADS=1
root=$(cd "$(dirname "$0")/../.." && pwd)
program=$(cd "${PROGRAMS:-$root}" && pwd)/train_gpt2
work=$(mktemp -d)
hosts=()
ranks=()
end_test() {
    local pid
    for pid in "${hosts[@]}" "${ranks[@]}"; do
        kill -KILL "$pid" && wait "$pid"
    done 2>/dev/null
    rm -rf "$work"
}
trap end_test EXIT
cd "$work" || exit 1
told() {
    tail -n 3 stderr.* | cut -c 1-300
}

mkdir data
cat "$root"/llmc/*/*.c | head -c 200000 | iconv -f LATIN1 -t UTF-16LE >data/train.bin
options=(--train_data="$work/data/train.bin" --vocab_size=256 --n_layer=2 --n_head=2 --n_embd=32
    --block_size=16
    --batch_size=2 --gradient_accumulation_steps=9 --warmup_iters=2 --eval_interval=0 --snapshot_interval=0
    --dtype=fp32 --threads=1 --max_iters=90000000)

# Host i is a namespace, kept by a sleeping process, with the name host$i and the address 10.9.0.i+1 at a
# bridge of this one.
ip link add bridge type bridge && ip link set bridge up
in_host() {
    nsenter -t "${hosts[$1]}" -n -u "${@:2}"
}
for i in 0 1 2; do
    unshare -nu sh -c "hostname host$i; exec sleep 100000" &
    hosts[i]=$!
    ip link add port$i type veth peer name eth$i
    until ip link set eth$i netns "${hosts[i]}" && [ "$(readlink /proc/${hosts[i]}/ns/net)" != \
        "$(readlink /proc/self/ns/net)" ]; do
        sleep 0.05
    done
    ip link set port$i master bridge up
    in_host $i ip link set lo up
    in_host $i ip addr add 10.9.0.$((i + 1))/24 dev eth$i
    in_host $i ip link set eth$i up
done

# drop HOST MATCH...: from now on such packets that come to that host are lost.
drop() {
    in_host "$1" iptables -A INPUT "${@:2}" -j DROP
}
restore() {
    local i
    for i in 0 1 2; do
        in_host $i iptables -F
    done
}

# begin ARGUMENTS...: a rank on each host.
begin() {
    local i
    rm -rf out stderr.* stdout.*
    for i in 0 1 2; do
        RANK=$i WORLD_SIZE=3 MASTER_ADDR=10.9.0.1 MASTER_PORT=29500 TRAIN_GPT2_JOB=network LOCAL_RANK=0 \
            nsenter -t "${hosts[$i]}" -n -u timeout "$(scaled 200)" \
            "$program" "${options[@]}" --out_dir=out "$@" \
            >stdout.$i 2>stderr.$i &
        ranks[i]=$!
    done
    begin_s=$SECONDS
}

# finish: waits for all; $codes, and the $seconds since begin.
finish() {
    local i
    codes=
    for i in 0 1 2; do
        wait "${ranks[i]}"
        codes+="$? "
    done
    seconds=$((SECONDS - begin_s))
    ranks=()
}
await_step() { # N: that update is in the log
    local end=$((SECONDS + $(scaled 60)))
    until grep -qs "\"event\":\"step\",\"iter\":$1," out/log.jsonl; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}

begin --max_iters=20
finish
[ "$codes" = "0 0 0 " ]
result $? "three hosts train ($seconds s)"

# Rank 1 sends to rank 2, which sends to rank 0; both still reach rank 0.
begin --heartbeat_timeout="$(scaled 6)"
await_step 20
drop 2 -s 10.9.0.2
begin_s=$SECONDS
finish
[ "$codes" = "76 76 76 " ] && [ $seconds -lt "$(scaled 40)" ] &&
    grep -qE 'network between rank 1 \(host1\) and rank 2 \(host2\) is cut' stderr.0 stderr.1
result $? "a cut between two other ranks names both ($seconds s after it)"
restore

# Eight seconds without a network are survived; and with answers that get lost instead.
begin --heartbeat_timeout=30 --max_iters=3000
await_step 20
drop 2 -s 10.9.0.2
sleep 8
restore
finish
[ "$codes" = "0 0 0 " ]
result $? "eight seconds without a network are survived ($seconds s)"

# A firewall that knows of MASTER_PORT alone.
for i in 0 1 2; do
    drop $i -p tcp --syn --dport 29501:65535
done
begin
finish
[[ $codes =~ ^(76 )+$ ]] && [ $seconds -lt "$(scaled 30)" ] &&
    grep -qE 'rank [0-2] \(.*\) cannot reach rank [12].* port [0-9]+: .*timed out.*port_range' stderr.*
result $? "closed ports end the start within seconds, and the line names the way out ($seconds s)"
restore
for i in 0 1 2; do
    drop $i -p tcp --syn --dport 29501:29999
    drop $i -p tcp --syn --dport 30100:65535
done
begin --max_iters=20 --port_range=30000-30099
finish
[ "$codes" = "0 0 0 " ]
result $? "port_range keeps to the open ports ($seconds s)"
restore

# Nobody reaches rank 0.
drop 0 -p tcp --syn --dport 29500
begin --join_timeout="$(scaled 12)"
finish
[ "$codes" = "76 76 76 " ] && [ $seconds -lt "$(scaled 30)" ] &&
    grep -q 'waits for 2 of 3 ranks to come, .*missing: 1, 2' stderr.0 &&
    grep -qE 'rank 1 \(.*\) waits for rank 0.*10.9.0.1 port 29500: .*Connection timed out' stderr.1
result $? "ranks that do not reach rank 0 say so, and end after join_timeout ($seconds s)"
restore

# ---- under mpirun ------------------------------------------------------------------------------------------
if ! ldd "$program" | grep -q libmpi || ! mpirun --version | grep -q 'Open MPI) 4'; then
    echo "# without Open MPI 4: its cases are left out"
    end_of_tests
    exit
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$work HOME=${HOME:-/}
let_ranks_end
# What mpirun calls in place of ssh: HOST COMMAND.
{
    echo '#!/usr/bin/env bash'
    echo "hosts=(${hosts[*]})"
    echo 'host=${1##*.}'
    echo 'exec nsenter -t "${hosts[host - 1]}" -n -u bash -c "${*:2}"'
} >agent
chmod +x agent
begin_mpi() {
    rm -rf out stderr.* stdout.*
    in_host 0 timeout "$(scaled 200)" mpirun --mca plm_rsh_agent "$work/agent" --mca btl tcp,self \
        --mca btl_tcp_if_include 10.9.0.0/24 --mca oob_tcp_if_include 10.9.0.0/24 \
        --host 10.9.0.1,10.9.0.2,10.9.0.3 -np 3 "$program" "${options[@]}" --out_dir="$work/out" "$@" \
        >stdout.0 2>stderr.0 &
    ranks=($!)
    begin_s=$SECONDS
}
finish_mpi() {
    wait "${ranks[0]}"
    codes=$?
    seconds=$((SECONDS - begin_s))
    ranks=()
}
begin_mpi --max_iters=20
finish_mpi
[ "$codes" = 0 ]
result $? "mpirun: three hosts train ($seconds s)"
begin_mpi --heartbeat_timeout="$(scaled 6)"
await_step 20
drop 2 -s 10.9.0.2
begin_s=$SECONDS
finish_mpi
[ "$codes" = 76 ] && [ $seconds -lt "$(scaled 40)" ] &&
    grep -qE 'network between rank [12] \(host[12]\) and rank [12] \(host[12]\) is cut' stderr.0
result $? "mpirun: a cut between two other ranks names both ($seconds s after it)"
restore

end_of_tests
