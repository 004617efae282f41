/* Which files are a folder's shards while tokenize replaces them: all old ones or all new ones. */
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
#include "llmc/base/memory.h"
#include "llmc/data/characters_file.h"
#include "llmc/data/dataset.h"
#include "llmc/data/shard_folder.h"

enum { SHARDS = 5, TOKENS = 9, T = 8 };

static void make_folder(const char *name)
{
    mkdir(scratch_path(name), 0777);
}

/* A shard whose tokens tell its generation. */
static void write_shard(const char *folder, const char *name, int generation)
{
    uint16_t tokens[TOKENS];
    char path[256];
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = (uint16_t)generation;
    }
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    scratch_write(path, tokens, sizeof(tokens));
}

static void write_shards(const char *folder, int count, int generation)
{
    for (int i = 1; i <= count; i++) {
        char name[32];
        snprintf(name, sizeof(name), "train_%06d.bin", i);
        write_shard(folder, name, generation);
    }
}

static void write_text(const char *path, const char *text)
{
    scratch_write(path, text, strlen(text));
}

/* The generation of each shard, in their order, as digits. A thread may use scratch_path meanwhile. */
static const char *generations(const char *pattern)
{
    static char text[32];
    char path[512];
    Error error = {.text = ""};
    snprintf(path, sizeof(path), "%s/%s", scratch_folder, pattern);
    DataSet *set = data_set_open(path, T, &error);
    if (!set) {
        return strstr(error.text, "found no such file") ? "none" : "error";
    }
    int64_t windows = data_set_windows(set);
    for (int64_t w = 0; w < windows; w++) {
        int32_t tokens[T], targets[T];
        assert_int_equal(data_set_window(set, w, 50257, tokens, targets, &error), 0);
        text[w] = (char)('0' + tokens[0]);
    }
    text[windows] = '\0';
    data_set_free(set);
    return text;
}

static void test_names(void **state)
{
    (void)state;
    static const char *const ours[] = {"train.bin", "val.bin", "train_000001.bin", "val_999999.bin"};
    static const char *const others[] = {"train",
                                         "train.bin.tmp",
                                         "train_1.bin",
                                         "trainx.bin",
                                         "train_0000001.bin",
                                         "train_00000a.bin",
                                         "train_000001.bin2",
                                         "a.bin"};
    for (int i = 0; i < 4; i++) {
        assert_true(shard_name_is_ours(ours[i]));
    }
    for (int i = 0; i < 8; i++) {
        assert_false(shard_name_is_ours(others[i]));
    }
}

static const char *vocabulary_of(const char *folder)
{
    static char found[300];
    CharactersFile file;
    Error error = {.text = ""};
    if (characters_file_find(&file, scratch_path(folder), &error) != 0) {
        return "error";
    }
    snprintf(found, sizeof(found), "%s %c", file.characters ? strrchr(file.path, '/') + 1 : "none",
             file.characters ? (int)characters_code_point(file.characters, 0) : '-');
    characters_free(file.characters);
    return found;
}

/* The vocabulary is of the shards beside it, also while both are put in place. */
static void test_a_vocabulary_goes_with_its_shards(void **state)
{
    (void)state;
    static const char old[] = "{\"tokenizer\":\"char\",\"characters\":[\"o\",\"x\"]}";
    static const char new[] = "{\"tokenizer\":\"char\",\"characters\":[\"n\",\"x\"]}";
    assert_true(shard_folder_name_is_ours("characters.json") && shard_folder_name_is_ours("val.bin"));
    assert_false(shard_name_is_ours("characters.json") || shard_folder_name_is_ours("meta.pkl"));
    make_folder("v");
    assert_string_equal(vocabulary_of("v"), "none -");
    write_text("v/characters.json", old);
    assert_string_equal(vocabulary_of("v"), "characters.json o");
    make_folder("v/tokenize.commit");
    write_text("v/tokenize.commit/characters.json", new);
    assert_string_equal(vocabulary_of("v"), "characters.json o");
    write_text("v/tokenize.commit/shards", "characters.json\ntrain.bin\nend\n");
    assert_string_equal(vocabulary_of("v"), "characters.json n");
    unlink(scratch_path("v/tokenize.commit/characters.json"));
    write_text("v/characters.json", new); /* moved */
    assert_string_equal(vocabulary_of("v"), "characters.json n");
    write_text("v/tokenize.commit/shards", "train.bin\nend\n"); /* of new shards of GPT-2's tokens */
    assert_string_equal(vocabulary_of("v"), "none -");
    unlink(scratch_path("v/tokenize.commit/shards"));
    write_text("v/characters.json", "{}");
    assert_string_equal(vocabulary_of("v"), "error");
    unlink(scratch_path("v/characters.json"));
    write_text("v/meta.pkl", "no pickle");
    assert_string_equal(vocabulary_of("v"), "error");
    write_text("v/characters.json", old);
    assert_string_equal(vocabulary_of("v"), "error");
}

/* The list counts: what it names is taken from where it lies; an old shard that it does not name is none. */
static void test_a_commit_is_followed(void **state)
{
    (void)state;
    make_folder("a");
    write_shards("a", 5, 1);
    write_shard("a", "train_mine.bin", 7);
    assert_string_equal(generations("a/train*.bin"), "111117");
    make_folder("a/tokenize.commit");
    write_shards("a/tokenize.commit", 2, 2);
    assert_string_equal(generations("a/train*.bin"), "111117"); /* there is no list yet */
    write_text("a/tokenize.commit/shards", "train_000001.bin\ntrain_000002.bin\ntrain_000003.bin\nend\n");
    write_shard("a", "train_000003.bin", 2); /* moved already */
    assert_string_equal(generations("a/train*.bin"), "2227");
    assert_string_equal(generations("a/train_000002.bin"), "2");
    assert_string_equal(generations("?/train_00000[13].bin"), "22");
    assert_string_equal(generations("a/train_000005.bin"), "none");
    unlink(scratch_path("a/tokenize.commit/shards"));
    assert_string_equal(generations("a/train_000005.bin"), "1");
}

static void test_a_damaged_list_is_refused(void **state)
{
    (void)state;
    static const char *const lists[] = {"",
                                        "train_000001.bin\n",
                                        "train_000001.bin\nend",
                                        "../x\nend\n",
                                        "train_000001.bin\nend\nend\n",
                                        "train_000001.binnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\nend\n"};
    make_folder("b");
    make_folder("b/tokenize.commit");
    write_shards("b", 2, 1);
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        Error error = {.text = ""};
        write_text("b/tokenize.commit/shards", lists[i]);
        DataSet *set = data_set_open(scratch_path("b/train*.bin"), T, &error);
        if (set || !strstr(error.text, "b/tokenize.commit/shards: ")) {
            fail_msg("list %zu: expected an error that names it, found '%s'", i, error.text);
        }
    }
    write_text("b/tokenize.commit/shards", "end\n");
    assert_string_equal(generations("b/train*.bin"), "none");
}

static void test_a_set_tells_that_it_was_replaced(void **state)
{
    (void)state;
    Error error;
    make_folder("c");
    write_shards("c", 3, 1);
    DataSet *set = data_set_open(scratch_path("c/train*.bin"), T, &error);
    assert_non_null(set);
    assert_true(data_set_is_current(set));
    write_shard("c", "train_000004.bin", 1);
    assert_false(data_set_is_current(set));
    unlink(scratch_path("c/train_000004.bin"));
    assert_true(data_set_is_current(set));
    write_shard("c", "new", 1);
    rename(scratch_path("c/new"), scratch_path("c/train_000002.bin"));
    assert_false(data_set_is_current(set));
    data_set_free(set);
}

/* ---- somebody replaces them all the time ----------------------------------------------------------------*/

static atomic_int is_over;
static atomic_int rounds;

/* By exchanging the two folders. */
static void *exchange_folders(void *argument)
{
    char **folders = argument;
    while (!atomic_load(&is_over)) {
        renameat2(AT_FDCWD, folders[0], AT_FDCWD, folders[1], RENAME_EXCHANGE);
        atomic_fetch_add(&rounds, 1);
        usleep(200);
    }
    return NULL;
}

static void move(const char *from_folder, const char *to_folder, int number)
{
    char from[600], to[600];
    snprintf(from, sizeof(from), "%s/train_%06d.bin", from_folder, number);
    snprintf(to, sizeof(to), "%s/train_%06d.bin", to_folder, number);
    rename(from, to);
}

/* One by one under a list, as data_prep/commit.c does it: of three shards, then of five, and so on. */
static void *move_shards(void *argument)
{
    const char *folder = argument;
    for (int generation = 2; !atomic_load(&is_over); generation = generation % 8 + 1) {
        char staging[400], commit[400], list[420];
        int count = generation % 2 ? 5 : 3;
        snprintf(staging, sizeof(staging), "%s/tokenize.tmp.AbCdEf", folder);
        snprintf(commit, sizeof(commit), "%s/%s", folder, SHARD_COMMIT_FOLDER);
        snprintf(list, sizeof(list), "%s/%s", commit, SHARD_COMMIT_LIST);
        mkdir(staging, 0777);
        write_shards("e/tokenize.tmp.AbCdEf", count, generation);
        write_text("e/tokenize.tmp.AbCdEf/shards",
                   count == 5 ? "train_000001.bin\ntrain_000002.bin\ntrain_000003.bin\ntrain_000004.bin\n"
                                "train_000005.bin\nend\n"
                              : "train_000001.bin\ntrain_000002.bin\ntrain_000003.bin\nend\n");
        rename(staging, commit);
        for (int i = 1; i <= 5; i++) {
            char stale[420];
            snprintf(stale, sizeof(stale), "%s/train_%06d.bin", folder, i);
            unlink(stale);
            usleep(50);
        }
        for (int i = 1; i <= count; i++) {
            move(commit, folder, i);
            usleep(50);
        }
        unlink(list);
        rmdir(commit);
        atomic_fetch_add(&rounds, 1);
        usleep(300);
    }
    return NULL;
}

/* Open the set again and again meanwhile: never a mixture, and both kinds are met. */
static void open_meanwhile(const char *pattern, void *(*replace)(void *), void *argument)
{
    pthread_t thread;
    char first[32];
    int others = 0;
    atomic_store(&is_over, 0);
    atomic_store(&rounds, 0);
    snprintf(first, sizeof(first), "%s", generations(pattern));
    assert_int_equal(pthread_create(&thread, NULL, replace, argument), 0);
    for (int i = 0; i < 300 || ((atomic_load(&rounds) < 50 || others == 0) && i < 100000); i++) {
        const char *found = generations(pattern);
        size_t count = strlen(found);
        if ((count != 3 && count != 5) || strspn(found, (char[]){found[0], '\0'}) != count) {
            atomic_store(&is_over, 1);
            pthread_join(thread, NULL);
            fail_msg("round %d: expected shards of one generation, found %s", i, found);
        }
        others += strcmp(found, first) != 0;
    }
    atomic_store(&is_over, 1);
    pthread_join(thread, NULL);
    assert_true(others > 0);
}

static void test_opened_while_folders_are_exchanged(void **state)
{
    (void)state;
    char one[300], two[300];
    char *folders[2] = {one, two};
    snprintf(one, sizeof(one), "%s/d", scratch_folder);
    snprintf(two, sizeof(two), "%s/d.tokenize.tmp.AbCdEf", scratch_folder);
    make_folder("d");
    make_folder("d.tokenize.tmp.AbCdEf");
    write_shards("d", 5, 1);
    write_shards("d.tokenize.tmp.AbCdEf", 3, 2);
    open_meanwhile("d/train*.bin", exchange_folders, folders);
}

static void test_opened_while_shards_are_moved(void **state)
{
    (void)state;
    char folder[300];
    snprintf(folder, sizeof(folder), "%s/e", scratch_folder);
    make_folder("e");
    write_shards("e", 5, 1);
    open_meanwhile("e/train*.bin", move_shards, folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_a_vocabulary_goes_with_its_shards),
        cmocka_unit_test(test_a_commit_is_followed),
        cmocka_unit_test(test_a_damaged_list_is_refused),
        cmocka_unit_test(test_a_set_tells_that_it_was_replaced),
        cmocka_unit_test(test_opened_while_folders_are_exchanged),
        cmocka_unit_test(test_opened_while_shards_are_moved),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_remove);
}
