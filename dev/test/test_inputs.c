/* The two data sets of a run, opened while tokenize replaces both: they belong together. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "dev/test/scratch.h"
#include "llmc/run/inputs.h"

enum { TOKENS = 9, T = 8 };

static void write_shard(const char *name, int generation)
{
    uint16_t tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = (uint16_t)generation;
    }
    scratch_write(name, tokens, sizeof(tokens));
}

static int generation_of(const DataSet *set)
{
    int32_t tokens[T], targets[T];
    Error error;
    assert_int_equal(data_set_window(set, 0, 50257, tokens, targets, &error), 0);
    return tokens[0];
}

typedef struct Exchange {
    char one[300];
    char two[300];
    atomic_int rounds;
    atomic_int is_over;
} Exchange;

/* New files each time, as tokenize makes them: what was replaced never comes back. */
static void *exchange_folders(void *argument)
{
    Exchange *exchange = argument;
    for (int generation = 2; !atomic_load(&exchange->is_over); generation = generation % 50000 + 1) {
        unlink(scratch_path("other/train.bin"));
        unlink(scratch_path("other/val.bin"));
        write_shard("other/train.bin", generation);
        write_shard("other/val.bin", generation);
        renameat2(AT_FDCWD, exchange->one, AT_FDCWD, exchange->two, RENAME_EXCHANGE);
        atomic_fetch_add(&exchange->rounds, 1);
        usleep(100);
    }
    return NULL;
}

static void test_both_are_of_one_commit(void **state)
{
    (void)state;
    Exchange exchange = {.rounds = 0};
    Options options;
    pthread_t thread;
    mkdir(scratch_path("data"), 0777);
    mkdir(scratch_path("other"), 0777);
    write_shard("data/train.bin", 1);
    write_shard("data/val.bin", 1);
    snprintf(exchange.one, sizeof(exchange.one), "%s/data", scratch_folder);
    snprintf(exchange.two, sizeof(exchange.two), "%s/other", scratch_folder);
    options_set_defaults(&options);
    options.block_size = T;
    snprintf(options.train_data, sizeof(options.train_data), "%s/data/train*.bin", scratch_folder);
    snprintf(options.val_data, sizeof(options.val_data), "%s/data/val*.bin", scratch_folder);
    assert_int_equal(pthread_create(&thread, NULL, exchange_folders, &exchange), 0);
    int train_generation = 0, val_generation = 0;
    for (int i = 0; i < 500 && train_generation == val_generation; i++) {
        DataSet *train, *val;
        Error error = {.text = ""};
        if (inputs_open(&train, &val, &options, 1, &error) != 0) {
            train_generation = -1;
            print_message("%s\n", error.text);
            break;
        }
        train_generation = generation_of(train);
        val_generation = generation_of(val);
        data_set_free(train);
        data_set_free(val);
    }
    atomic_store(&exchange.is_over, 1);
    pthread_join(thread, NULL);
    assert_int_equal(train_generation, val_generation);
    assert_true(atomic_load(&exchange.rounds) > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_both_are_of_one_commit)};
    return cmocka_run_group_tests(tests, scratch_create, scratch_remove);
}
