/* Plans of matrix products: the text and what it refuses, tables of them, and which rank times them. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/test/comm_job.h"
#include "llmc/base/memory.h"
#include "llmc/comm/comm.h"
#include "llmc/model/dtype.h"
#include "llmc/model/plans.h"
#include "llmc/run/run.h"

#define DEVICE "A device / its library 1.2.3\n"
#define LINE "65536x2304x768 nt bf16 bf16 bias set 256 256 16: 66 20 1 0 0 0 36 0 5\n"

/* ---- the text ------------------------------------------------------------------------------------------ */

static void test_what_a_text_says(void **state)
{
    (void)state;
    Error error = {.text = ""};
    Plans plans;
    if (plans_parse(&plans, DEVICE LINE, &error) != 0) {
        fail_msg("%s", error.text);
    }
    const ProductKey expected = {65536, 2304, 768, 0, 1, DTYPE_BF16, DTYPE_BF16, 1, 0, 256, 256, 16};
    const uint32_t settings[PLAN_SETTINGS] = {66, 20, 1, 0, 0, 0, 36, 0, 5};
    assert_string_equal(plans.device, "A device / its library 1.2.3");
    assert_int_equal(plans.count, 1);
    assert_memory_equal(&plans.plans[0].key, &expected, sizeof(expected));
    assert_memory_equal(plans.plans[0].settings, settings, sizeof(settings));
    assert_ptr_equal(plans_find(&plans, &expected), &plans.plans[0]);
    ProductKey other = expected;
    other.b_alignment = 32;
    assert_null(plans_find(&plans, &other));
}

/* The longest text of all: every product of the largest numbers. */
static void test_a_text_comes_back(void **state)
{
    (void)state;
    Error error = {.text = ""};
    Plans *plans = calloc(1, sizeof(*plans)), *again = calloc(1, sizeof(*again));
    memset(plans->device, '~', PLAN_DEVICE_BYTES - 1);
    for (plans->count = 0; plans->count < PLANS_MAX; plans->count++) {
        ProductPlan *plan = &plans->plans[plans->count];
        int i = plans->count;
        plan->key = (ProductKey){999999999 - i, 999999999, 999999999,  i & 1, i >> 1 & 1,   i >> 2 & 1,
                                 i >> 3 & 1,    3,         i >> 4 & 1, 256,   1 << (i & 7), 256};
        for (int j = 0; j < PLAN_SETTINGS; j++) {
            plan->settings[j] = UINT32_MAX - (uint32_t)(i * j);
        }
    }
    char *text = plans_to_text(plans);
    assert_in_range(strlen(text), PLANS_MAX * 100, PLANS_BYTES_MAX - 1);
    if (plans_parse(again, text, &error) != 0) {
        fail_msg("%s", error.text);
    }
    assert_memory_equal(again, plans, sizeof(*plans));
    char *longer = malloc(strlen(text) + sizeof(LINE));
    sprintf(longer, "%s" LINE, text);
    assert_int_equal(plans_parse(again, longer, &error), -1);
    assert_non_null(strstr(error.text, "line 130: expected at most 128 products"));
    free(longer);
    memory_free(text);
    free(plans);
    free(again);
}

static void test_refused_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"", "line 1: expected a line"},
        {"\n", "line 1: expected the name of a device"},
        {"A device", "line 1: expected a line"},
        {"A\tdevice\n", "line 1: expected the name of a device"},
        {"A device\xc3\xa9\n", "line 1: expected the name of a device"},
        {DEVICE "\n", "line 2: expected a product"},
        {DEVICE LINE LINE, "line 3: the product has an algorithm already"},
        {DEVICE "8x8x8", "line 2: expected a line"},
        {DEVICE "8x8x8 nn fp32 fp32 plain set 1 1 1: 1 0 1 0 0 0 0 0\n", "line 2: expected a product"},
        {DEVICE "8x8x8 nn fp32 fp32 plain set 1 1 1: 1 0 1 0 0 0 0 0 0 0\n", "expected a product"},
        {DEVICE "8x8x8 nn fp32 fp32 plain set 1 1 1: 1 0 1 0 0 0 0 0 0 \n", "expected a product"},
        {DEVICE "8x8x8  nn fp32 fp32 plain set 1 1 1: 1 0 1 0 0 0 0 0 0\n", "expected a product"},
        {DEVICE "8x8x08 nn fp32 fp32 plain set 1 1 1: 1 0 1 0 0 0 0 0 0\n", "expected a product"},
        {DEVICE "8x8x0 nn fp32 fp32 plain set 1 1 1: 1 0 1 0 0 0 0 0 0\n", "expected a product"},
        {DEVICE "8x-8x8 nn fp32 fp32 plain set 1 1 1: 1 0 1 0 0 0 0 0 0\n", "expected a product"},
        {DEVICE "8x8x8000000000 nn fp32 fp32 plain set 1 1 1: 1 0 1 0 0 0 0 0 0\n", "expected a product"},
        {DEVICE "8x8x8 nx fp32 fp32 plain set 1 1 1: 1 0 1 0 0 0 0 0 0\n", "expected a product"},
        {DEVICE "8x8x8 nn fp16 fp32 plain set 1 1 1: 1 0 1 0 0 0 0 0 0\n", "expected a product"},
        {DEVICE "8x8x8 nn fp32 tf32 plain set 1 1 1: 1 0 1 0 0 0 0 0 0\n", "expected a product"},
        {DEVICE "8x8x8 nn fp32 fp32 relu set 1 1 1: 1 0 1 0 0 0 0 0 0\n", "expected a product"},
        {DEVICE "8x8x8 nn fp32 fp32 plain sub 1 1 1: 1 0 1 0 0 0 0 0 0\n", "expected a product"},
        {DEVICE "8x8x8 nn fp32 fp32 plain set 0 1 1: 1 0 1 0 0 0 0 0 0\n", "expected a product"},
        {DEVICE "8x8x8 nn fp32 fp32 plain set 1 3 1: 1 0 1 0 0 0 0 0 0\n", "expected a product"},
        {DEVICE "8x8x8 nn fp32 fp32 plain set 1 1 512: 1 0 1 0 0 0 0 0 0\n", "expected a product"},
        {DEVICE "8x8x8 nn fp32 fp32 plain set 1 1 1: 1 0 -1 0 0 0 0 0 0\n", "expected a product"},
        {DEVICE "8x8x8 nn fp32 fp32 plain set 1 1 1: 1 0 4294967296 0 0 0 0 0 0\n", "expected a product"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        Error error = {.text = ""};
        Plans plans;
        if (plans_parse(&plans, cases[i].text, &error) == 0 || !strstr(error.text, cases[i].expected)) {
            fail_msg("%s: expected an error with '%s', found '%s'", cases[i].text, cases[i].expected,
                     error.text);
        }
    }
    Error error;
    Plans plans;
    char *longer = malloc(1 << 20);
    memset(longer, 'x', 1 << 20);
    memcpy(longer + (1 << 20) - 2, "\n", 2);
    assert_int_equal(plans_parse(&plans, longer, &error), -1);
    free(longer);
}

static void test_looking_up_a_table(void **state)
{
    (void)state;
    static const char *const table[] = {
        "Another device\n" LINE, DEVICE LINE,
        DEVICE "8x8x8 nn fp32 fp32 plain set 256 256 256: 7 0 1 0 0 0 0 0 0\n" LINE, NULL};
    ProductKey first = {65536, 2304, 768, 0, 1, DTYPE_BF16, DTYPE_BF16, 1, 0, 256, 256, 16};
    ProductKey second = {8, 8, 8, 0, 0, DTYPE_FP32, DTYPE_FP32, 0, 0, 256, 256, 256};
    ProductPlan plan;
    assert_int_equal(plans_look_up(&plan, table, "A device / its library 1.2.3", &first), 1);
    assert_int_equal(plan.settings[0], 66);
    assert_int_equal(plans_look_up(&plan, table, "A device / its library 1.2.3", &second), 1);
    assert_int_equal(plan.settings[0], 7);
    assert_int_equal(plans_look_up(&plan, table, "Another device", &second), 0);
    assert_int_equal(plans_look_up(&plan, table, "Another", &first), 0);
    assert_int_equal(plans_look_up(&plan, table, "Another device 2", &first), 0);
    assert_int_equal(plans_look_up(&plan, table + 3, "Another device", &first), 0);
}

/* ---- whose choice it is --------------------------------------------------------------------------------
 * A device whose timing finds something else each time: rank, and a text that says so. */

struct Model {
    char *plans;
    int was_timed;
};

static Model *fickle_create(const ModelConfig *config, Error *error)
{
    (void)error;
    Model *model = calloc(1, sizeof(*model));
    model->was_timed = config->autotunes && !config->plans;
    if (config->plans) {
        model->plans = strdup(config->plans);
    } else if (config->autotunes) {
        assert_true(asprintf(&model->plans, "timed on rank %d\n" LINE, comm_rank()) > 0);
    }
    return model;
}

static void fickle_release(Model *model)
{
    free(model->plans);
    free(model);
}

static void fickle_describe(ModelFacts *facts, const Model *model)
{
    *facts = (ModelFacts){.plans = model->plans};
}

static const Backend fickle = {
    .name = "fickle", .create = fickle_create, .release = fickle_release, .describe = fickle_describe};

static Run *open_run(const char *recorded, int autotune)
{
    Error error = {.text = ""};
    Run *run = calloc(1, sizeof(*run));
    ModelConfig config = {.shape = {8, 8, 1, 1, 8}};
    run->rank = comm_rank();
    run->rank_count = comm_rank_count();
    run->is_training = 1;
    run->options.autotune = autotune;
    CHECK(run_create_model(run, &fickle, &config, recorded, &error) == 0, "%s", error.text);
    return run;
}

static void close_run(Run *run)
{
    run_model_release(&run->model);
    memory_free(run->plans);
    free(run);
}

static void test_one_rank(void **state)
{
    (void)state;
    static const struct {
        const char *recorded;
        int autotune;
        const char *plans;
        PlansOrigin origin;
    } cases[] = {{NULL, 0, NULL, PLANS_NONE},
                 {NULL, 1, "timed on rank 0\n" LINE, PLANS_TIMED},
                 {DEVICE LINE, 0, DEVICE LINE, PLANS_REPEATED},
                 {DEVICE LINE, 1, DEVICE LINE, PLANS_REPEATED}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        Run *run = open_run(cases[i].recorded, cases[i].autotune);
        assert_int_equal(run->plans_origin, cases[i].origin);
        assert_int_equal(!run->plans, !cases[i].plans);
        if (run->plans) {
            assert_string_equal(run->plans, cases[i].plans);
        }
        close_run(run);
    }
}

/* One of three processes: whatever its own timing would find, it uses rank 0's. */
static int worker_main(int argc, char **argv)
{
    Error error;
    comm_set_timeout(60);
    CHECK(comm_init(&argc, &argv, &error) == 0, "%s", error.text);
    Run *run = open_run(NULL, 1);
    CHECK(strcmp(run->plans, "timed on rank 0\n" LINE) == 0, "expected rank 0's plans, found %s", run->plans);
    CHECK(run->model.model->was_timed == (comm_rank() == 0), "rank %d: timed: %d", comm_rank(),
          run->model.model->was_timed);
    close_run(run);
    run = open_run(DEVICE LINE, 1);
    CHECK(strcmp(run->plans, DEVICE LINE) == 0 && !run->model.model->was_timed, "timed again");
    close_run(run);
    comm_finish();
    return 0;
}

static void test_ranks_follow_the_first(void **state)
{
    (void)state;
    Job job;
    job_init(&job, 3, "plans", "");
    job_start(&job);
    for (int i = 0; i < job.count; i++) {
        job_expect(&job, i, 0, NULL, NULL);
    }
    job_release(&job);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "worker") == 0) {
        return worker_main(argc, argv);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_text_says), cmocka_unit_test(test_a_text_comes_back),
        cmocka_unit_test(test_refused_texts),    cmocka_unit_test(test_looking_up_a_table),
        cmocka_unit_test(test_one_rank),         cmocka_unit_test(test_ranks_follow_the_first),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_remove);
}
