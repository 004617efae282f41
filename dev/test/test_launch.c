/* What the environment says of the launcher: mpirun, srun with and without PMIx, torchrun, or none. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/comm/launch.h"

static const char *const launcher_variables[] = {"OMPI_COMM_WORLD_SIZE",
                                                 "PMIX_RANK",
                                                 "PMI_RANK",
                                                 "PMI_SIZE",
                                                 "RANK",
                                                 "WORLD_SIZE",
                                                 "LOCAL_RANK",
                                                 "MASTER_ADDR",
                                                 "MASTER_PORT",
                                                 "SLURM_STEP_ID",
                                                 "SLURM_STEPID",
                                                 "SLURM_STEP_NUM_TASKS",
                                                 "SLURM_NTASKS",
                                                 "SLURM_PROCID",
                                                 "SLURM_LOCALID",
                                                 "SLURM_STEP_NODELIST",
                                                 "SLURM_JOB_NODELIST",
                                                 "SLURMD_NODENAME",
                                                 "SLURM_JOB_ID",
                                                 "TRAIN_GPT2_JOB",
                                                 "TORCHELASTIC_RUN_ID",
                                                 "TORCHELASTIC_USE_AGENT_STORE"};

static int clear_launcher(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(launcher_variables) / sizeof(launcher_variables[0]); i++) {
        unsetenv(launcher_variables[i]);
    }
    return 0;
}

/* An environment "A=1 B=2". */
static void set_launcher(const char *text)
{
    static char copy[1024];
    clear_launcher(NULL);
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
        char *value = strchr(word, '=');
        *value = 0;
        setenv(word, value + 1, 1);
    }
}

static Launch launch_of(const char *environment, int has_mpi)
{
    Error error = {.text = ""};
    Launch launch;
    set_launcher(environment);
    if (launch_detect(&launch, has_mpi, &error) != 0) {
        fail_msg("\"%s\": expected a launch, found error: %s", environment, error.text);
    }
    return launch;
}

static void test_launchers_are_recognised(void **state)
{
    (void)state;
    static const struct {
        const char *environment;
        int has_mpi;
        LaunchKind kind;
    } cases[] = {
        {"", 1, LAUNCH_SINGLE},
        {"", 0, LAUNCH_SINGLE},
        {"MASTER_ADDR=host MASTER_PORT=29500", 1, LAUNCH_SINGLE},
        {"OMPI_COMM_WORLD_SIZE=4 PMIX_RANK=0", 1, LAUNCH_MPI},
        {"PMIX_RANK=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4", 1, LAUNCH_MPI},
        {"PMI_RANK=0 PMI_SIZE=2", 1, LAUNCH_MPI},
        {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=host MASTER_PORT=29500", 1, LAUNCH_TCP},
        {"RANK=0 WORLD_SIZE=1", 1, LAUNCH_SINGLE},
        /* wrappers that set both: MPI, unless there is none, or torchrun is nearer */
        {"PMIX_RANK=1 RANK=1 WORLD_SIZE=2 MASTER_ADDR=host MASTER_PORT=29500", 1, LAUNCH_MPI},
        {"PMIX_RANK=1 RANK=1 WORLD_SIZE=2 MASTER_ADDR=host MASTER_PORT=29500", 0, LAUNCH_TCP},
        {"PMIX_RANK=1 TORCHELASTIC_RUN_ID=a RANK=1 WORLD_SIZE=2 MASTER_ADDR=host MASTER_PORT=29500", 1,
         LAUNCH_TCP},
        /* one torchrun a node, under srun */
        {"SLURM_STEP_ID=0 SLURM_NTASKS=2 RANK=1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1", 1, LAUNCH_TCP},
        /* a batch script, which is in no step; one task of a step */
        {"SLURM_NTASKS=8 SLURM_PROCID=0", 1, LAUNCH_SINGLE},
        {"SLURM_STEP_ID=0 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=1", 1, LAUNCH_SINGLE},
        /* srun --mpi=none; with PMIx in a build without MPI; mpirun in a step of its own */
        {"SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_PROCID=1 SLURM_JOB_NODELIST=a", 1, LAUNCH_TCP},
        {"SLURM_STEPID=0 SLURM_NTASKS=2 SLURM_PROCID=1 MASTER_ADDR=a", 0, LAUNCH_TCP},
        {"PMIX_RANK=1 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_PROCID=1 SLURM_JOB_NODELIST=a", 0, LAUNCH_TCP},
        {"PMI_RANK=1 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_PROCID=1 SLURM_JOB_NODELIST=a", 1, LAUNCH_TCP},
        {"OMPI_COMM_WORLD_SIZE=2 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_PROCID=1", 1, LAUNCH_MPI},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        Launch launch = launch_of(cases[i].environment, cases[i].has_mpi);
        if (launch.kind != cases[i].kind) {
            fail_msg("\"%s\": expected kind %d, found %d", cases[i].environment, cases[i].kind, launch.kind);
        }
    }
}

static void test_torchrun_is_read(void **state)
{
    (void)state;
    Launch launch = launch_of("RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=node-1 MASTER_PORT=29500", 1);
    assert_int_equal(launch.rank, 5);
    assert_int_equal(launch.rank_count, 8);
    assert_int_equal(launch.local_rank, 1);
    assert_int_equal(launch.port, 29500);
    assert_string_equal(launch.address, "node-1");
    assert_false(launch.has_job);
    launch = launch_of(
        "RANK=5 WORLD_SIZE=8 MASTER_ADDR=node-1 MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True", 1);
    assert_int_equal(launch.port, 29501);
    assert_int_equal(launch.local_rank, -1);
    launch = launch_of(
        "RANK=5 WORLD_SIZE=8 MASTER_ADDR=node-1 MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=False", 1);
    assert_int_equal(launch.port, 29500);
}

/* What tells jobs apart: the first of these that is there. */
static void test_jobs_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        const char *environment;
        int job; /* 0: none; equal numbers: equal jobs */
    } cases[] = {{"", 0},
                 {"TORCHELASTIC_RUN_ID=none", 0},
                 {"TORCHELASTIC_RUN_ID=a", 1},
                 {"TORCHELASTIC_RUN_ID=a SLURM_JOB_ID=7", 1},
                 {"TORCHELASTIC_RUN_ID=b", 2},
                 {"TORCHELASTIC_RUN_ID=none SLURM_JOB_ID=7", 3},
                 {"SLURM_JOB_ID=7", 3},
                 {"SLURM_JOB_ID=8", 4},
                 {"TRAIN_GPT2_JOB=7 SLURM_JOB_ID=8", 5},
                 {"TRAIN_GPT2_JOB=7 TORCHELASTIC_RUN_ID=a", 5}};
    enum { CASES = sizeof(cases) / sizeof(cases[0]) };
    Launch launches[CASES];
    for (int i = 0; i < CASES; i++) {
        char environment[256];
        snprintf(environment, sizeof(environment), "RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1 %s",
                 cases[i].environment);
        launches[i] = launch_of(environment, 1);
        assert_int_equal(launches[i].has_job, cases[i].job != 0);
        for (int j = 0; j < i; j++) {
            int is_same = memcmp(launches[i].job, launches[j].job, JOB_BYTES) == 0;
            assert_int_equal(is_same, cases[i].job == cases[j].job);
        }
    }
}

static void assert_refused(const char *environment, int has_mpi, const char *first, const char *second)
{
    Error error = {.text = ""};
    Launch launch;
    set_launcher(environment);
    int status = launch_detect(&launch, has_mpi, &error);
    if (status == 0) {
        fail_msg("\"%s\": expected an error, found none", environment);
    }
    if (!strstr(error.text, first) || !strstr(error.text, second)) {
        fail_msg("\"%s\": expected %s and %s, found %s", environment, first, second, error.text);
    }
}

static void test_bad_environments_are_refused(void **state)
{
    (void)state;
    assert_refused("RANK=1", 1, "expected WORLD_SIZE", "found none");
    assert_refused("WORLD_SIZE=2", 1, "expected RANK", "found none");
    assert_refused("RANK=1 WORLD_SIZE=2 MASTER_ADDR=host", 1, "expected MASTER_PORT", "found none");
    assert_refused("RANK=1 WORLD_SIZE=2 MASTER_PORT=29500", 1, "expected MASTER_ADDR", "found none");
    assert_refused("RANK=2 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1", 1, "RANK of 0 to 1", "found \"2\"");
    assert_refused("RANK=-1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1", 1, "RANK of 0 to 1", "found \"-1\"");
    assert_refused("RANK=1x WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1", 1, "RANK of 0 to 1", "found \"1x\"");
    assert_refused("RANK=0 WORLD_SIZE=0 MASTER_ADDR=h MASTER_PORT=1", 1, "WORLD_SIZE of 1", "found \"0\"");
    assert_refused("RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=65536", 1, "MASTER_PORT of 1 to 65535",
                   "65536");
    assert_refused("RANK=0 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=h MASTER_PORT=1", 1, "LOCAL_RANK",
                   "found \"1\"");
    assert_refused("OMPI_COMM_WORLD_SIZE=2", 0, "built with MPI=0", "torchrun");
    assert_refused("PMIX_RANK=0", 0, "built with MPI=0", "MPI=1");
}

#define STEP "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_NTASKS=4 "

static void test_tasks_of_srun_are_read(void **state)
{
    (void)state;
    Launch launch = launch_of(STEP "SLURM_PROCID=3 SLURM_LOCALID=1 SLURM_STEP_NODELIST=n[07-08] "
                                   "SLURM_JOB_NODELIST=n[01-08] SLURMD_NODENAME=n08",
                              1);
    assert_int_equal(launch.rank, 3);
    assert_int_equal(launch.rank_count, 4);
    assert_int_equal(launch.local_rank, 1);
    assert_string_equal(launch.address, "n07");
    assert_in_range(launch.port, SLURM_PORT_FIRST, SLURM_PORT_FIRST + SLURM_PORT_COUNT - 1);
    assert_true(launch.has_job);
    Launch first = launch_of(STEP "SLURM_PROCID=0 SLURM_JOB_NODELIST=n[01-08] SLURMD_NODENAME=n01", 1);
    assert_string_equal(first.address, "n01");
    assert_int_equal(first.local_rank, -1);
    assert_int_equal(first.port, launch.port);
    assert_memory_equal(first.job, launch.job, JOB_BYTES);
    Launch other =
        launch_of("SLURM_JOB_ID=7 SLURM_STEP_ID=1 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 "
                  "SLURM_JOB_NODELIST=n[01-08] MASTER_ADDR=10.0.0.1 MASTER_PORT=29500",
                  1);
    assert_int_equal(other.rank_count, 2);
    assert_string_equal(other.address, "10.0.0.1");
    assert_int_equal(other.port, 29500);
    assert_memory_not_equal(other.job, launch.job, JOB_BYTES);
    assert_refused(STEP "SLURM_JOB_NODELIST=a", 1, "expected SLURM_PROCID", "found none");
    assert_refused(STEP "SLURM_JOB_NODELIST=a SLURM_PROCID=4", 1, "SLURM_PROCID of 0 to 3", "found \"4\"");
    assert_refused(STEP "SLURM_PROCID=0", 1, "SLURM_JOB_NODELIST", "set MASTER_ADDR");
    assert_refused(STEP "SLURM_PROCID=0 SLURM_JOB_NODELIST=a,b SLURMD_NODENAME=b", 1, "expected task 0 on a",
                   "found it on b");
}

static void test_first_hosts_are_read(void **state)
{
    (void)state;
    static const char *const lists[][2] = {{"login", "login"},
                                           {"a,b", "a"},
                                           {"node[01-03,7]", "node01"},
                                           {"node[7,01-03],login", "node7"},
                                           {"rack[2-3]n[10,12]-ib", "rack2n10-ib"},
                                           {"gpu-a1,gpu-b[1-9]", "gpu-a1"},
                                           {"tux[0-1023]", "tux0"}};
    char host[ADDRESS_BYTES];
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        assert_int_equal(launch_first_host(host, lists[i][0]), 0);
        assert_string_equal(host, lists[i][1]);
    }
    char longest[2 * ADDRESS_BYTES];
    memset(longest, 'a', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(launch_first_host(host, longest), -1);
    assert_int_equal(launch_first_host(host, ""), -1);
    assert_int_equal(launch_first_host(host, ",a"), -1);
    assert_int_equal(launch_first_host(host, "a[1"), -1);
}

static void test_singletons_are_refused(void **state)
{
    (void)state;
    Error error;
    Launch launch = launch_of("PMIX_RANK=3 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4", 1);
    assert_int_equal(launch_check_mpi(&launch, 4, &error), 0);
    assert_int_equal(launch_check_mpi(&launch, 1, &error), -1);
    assert_non_null(strstr(error.text, "srun --mpi=none"));
    launch = launch_of("OMPI_COMM_WORLD_SIZE=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4", 1);
    assert_int_equal(launch_check_mpi(&launch, 1, &error), 0); /* mpirun -np 1 on an allocation of four */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_launchers_are_recognised, clear_launcher),
        cmocka_unit_test_teardown(test_torchrun_is_read, clear_launcher),
        cmocka_unit_test_teardown(test_jobs_are_told_apart, clear_launcher),
        cmocka_unit_test_teardown(test_bad_environments_are_refused, clear_launcher),
        cmocka_unit_test_teardown(test_tasks_of_srun_are_read, clear_launcher),
        cmocka_unit_test(test_first_hosts_are_read),
        cmocka_unit_test_teardown(test_singletons_are_refused, clear_launcher),
    };
    return cmocka_run_group_tests(tests, clear_launcher, NULL);
}
