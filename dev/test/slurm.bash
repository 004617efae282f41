# Sourced after cluster.bash: a Slurm on its nodes, and what tests ask of it.
export SLURM_CONF=$work/slurm/slurm.conf

start_slurm() {
    local n socket=$work/munge.socket
    for n in slurmctld slurmd munged; do
        command -v $n >/dev/null || return 1
    done
    make_nodes && mkdir -p slurm/state || return 1
    chmod 755 "$work"
    head -c 1024 /dev/urandom >key && chmod 400 key
    munged --force --key-file="$work/key" --socket="$socket" --pid-file="$work/munged.pid" \
        --log-file="$work/slurm/munged.log" --seed-file="$work/munged.seed" || return 1
    cat >"$SLURM_CONF" <<END
ClusterName=test
SlurmctldHost=controller(10.77.0.254)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$socket
CredType=cred/munge
StateSaveLocation=$work/slurm/state
SlurmdSpoolDir=$work/slurm/spool.%n
SlurmctldPidFile=$work/slurm/slurmctld.pid
SlurmdPidFile=$work/slurm/slurmd.%n.pid
SlurmctldLogFile=$work/slurm/slurmctld.log
SlurmdLogFile=$work/slurm/slurmd.%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmdTimeout=15
KillWait=20
MessageTimeout=10
SchedulerParameters=bf_interval=5,sched_interval=2
NodeName=node[1-3] CPUs=16 State=UNKNOWN
PartitionName=all Nodes=node[1-3] Default=YES MaxTime=INFINITE State=UP
END
    slurmctld -f "$SLURM_CONF" || return 1
    for n in 1 2 3; do
        mkdir -p slurm/spool.node$n
        # a /tmp of its own, in which PMIx makes folders of the same name on each node
        on node$n unshare --mount bash -c 'mount -t tmpfs none /tmp && slurmd -f "$0" -N "$1"' "$SLURM_CONF" \
            node$n || return 1
    done
    until_true 30 are_idle
}

are_idle() {
    [ "$(sinfo -h -t idle -o %D)" = 3 ]
}

# submit OPTIONS AND ARGUMENTS OF THE SCRIPT...: what begins with -- before the config file is sbatch's.
# Prints the job's number.
submit() {
    local options=()
    while [[ $1 == --* ]]; do
        options+=("$1")
        shift
    done
    sbatch --parsable --cpus-per-task=1 "${options[@]}" scripts/slurm_many_nodes.sbatch "$@"
}

job() {
    scontrol show job -o "$1"
}

# A requeued job waits for two minutes: not in a test.
has_state() { # JOB STATE
    local found
    found=$(job "$1")
    [[ $found != *JobState=PENDING*Reason=BeginTime* ]] || scontrol update jobid="$1" starttime=now
    [[ $found == *"JobState=$2 "* ]]
}

await_job() { # SECONDS JOB STATE
    until_true "$1" has_state "$2" "$3" || {
        job "$2" | tr ' ' '\n' | grep -E '^(JobState|Reason|Restarts|ExitCode|NodeList)=' | xargs echo "#"
        tail -n 5 "slurm-$2.out" | cut -c 1-200 | sed 's/^/# /'
        return 1
    }
}

# Whether the newest snapshot of a folder is of its last update.
is_saved() {
    [ -e "$1/step-$(printf %08d "$(updates "$1")").snap" ]
}

# begin_job FOLDER OPTIONS...: a job of two tasks a node that trains in that folder until finish. What out_dir
# is the program says: quotes and blanks are no matter.
begin_job() {
    local folder=$1
    shift
    printf '\n  out_dir =   "%s"   # where\n' "$folder" | cat run.conf - >"$folder.conf"
    submit --ntasks-per-node=2 "$@" "$folder.conf"
}

is_back() { # JOB
    local found
    found=$(job "$1")
    [[ $found == *JobState=PENDING* && $found != *Restarts=0* ]]
}

# finish JOB FOLDER NAME: once the job is back in the queue it goes on for 100 updates, and ends by itself in
# the weights of a run to which nothing happened. A TAP line.
finish() {
    local goal
    until_true 150 is_back "$1"
    goal=$(($(updates "$2") + 100))
    echo "max_iters = $goal" >>"$2.conf"
    undisturbed $goal
    await_job 150 "$1" COMPLETED && [ "$(starts "$2")" -gt 1 ]
    ended_as_expected "$3" "$2" $?
}
