/* Memory that runs out says nothing of a file: a whole snapshot is not called damaged, and nothing in its
 * folder changes. Nor does a window that is too large for us. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <zstd.h>

#include "dev/test/snapshot_fixture.h"
#include "llmc/snapshot/writer.h"

/* Limits on memory tell nothing where a sanitizer has reserved terabytes of addresses. */
static void skip_under_sanitizers(void)
{
    if (dlsym(RTLD_DEFAULT, "__asan_init") || dlsym(RTLD_DEFAULT, "__tsan_init")) {
        skip();
    }
}

/* Bytes of address space in use. */
static size_t address_bytes(void)
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_int_equal(fscanf(file, "%zu", &pages), 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* This process may take so many bytes more than it has now. */
static void limit_addresses(size_t more)
{
    malloc_trim(0);
    size_t limit = address_bytes() + more;
    struct rlimit limits = {limit, limit};
    setrlimit(RLIMIT_AS, &limits);
}

enum { OPENED, REFUSED, ENDED };

/* Open the newest snapshot of a folder with so much more memory. What came of it; the text of an error. */
static int open_with(const char *folder, size_t more, char text[1024])
{
    int said[2], status;
    assert_int_equal(pipe(said), 0);
    pid_t child = fork();
    if (child == 0) {
        Error error = {.text = ""};
        dup2(said[1], 2);
        limit_addresses(more);
        Snapshot *snapshot = snapshot_open_newest(NULL, folder, 1, &error);
        if (!snapshot && write(said[1], error.text, strlen(error.text)) < 0) {
            _exit(ENDED);
        }
        _exit(snapshot ? OPENED : REFUSED);
    }
    close(said[1]);
    size_t used = 0;
    for (ssize_t got = 1; got > 0; used += got > 0 ? (size_t)got : 0) {
        got = read(said[0], text + used, 1023 - used);
    }
    text[used] = '\0';
    close(said[0]);
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    /* a failed CHECK ends with 1, as REFUSED does, but begins with the program's name */
    return WEXITSTATUS(status) == REFUSED && strncmp(text, "train_gpt2: ", 12) == 0 ? ENDED
                                                                                    : WEXITSTATUS(status);
}

/* With less and less memory: opened, or an error that says why; the files stay. */
static void test_no_memory_is_no_damage(void **state)
{
    (void)state;
    skip_under_sanitizers();
    const ModelShape shape = {
        .block_size = 16, .vocab_size = 300, .n_layer = 200, .n_head = 1, .n_embd = 4}; /* a long header */
    const char *folder = new_folder();
    pid_t writer = fork(); /* whose heap is not this process's: what is free there would hide the limits */
    if (writer == 0) {
        Arenas arenas;
        arenas_init(&arenas, &shape);
        fill_finite(&arenas, 3);
        write_step(folder, 1, &arenas, 0);
        write_step(folder, 2, &arenas, 0);
        _exit(0);
    }
    int written;
    waitpid(writer, &written, 0);
    assert_int_equal(written, 0);
    enum { FINE_BYTES = 192 << 10, FINE_TRIES = 20, COARSE_BYTES = 2 << 20, TRIES = 42 };
    int counts[3] = {0};
    for (int i = 0; i < TRIES; i++) {
        char text[1024];
        /* zstd's share is taken first, and is smaller than that of the header's tree */
        size_t more = i < FINE_TRIES ? (size_t)i * FINE_BYTES : (size_t)(i - FINE_TRIES + 2) * COARSE_BYTES;
        int outcome = open_with(folder, more, text);
        counts[outcome]++;
        if (!path_exists(step_path(folder, 1)) || !path_exists(step_path(folder, 2)) ||
            (outcome == REFUSED && !strstr(text, "memory"))) {
            fail_msg("%zu KiB: the whole snapshots should stay, and memory be blamed; found '%s'", more >> 10,
                     text);
        }
    }
    if (counts[OPENED] == 0 || counts[REFUSED] == 0) { /* else too little or too much was tried */
        fail_msg("opened %d times, refused %d, ended %d", counts[OPENED], counts[REFUSED], counts[ENDED]);
    }
    print_message("# opened %d times, refused %d, ended %d\n", counts[OPENED], counts[REFUSED],
                  counts[ENDED]);
}

/* As `zstd --long=31` compresses again what `zstd -d` gave. */
static void test_large_windows_are_named(void **state)
{
    (void)state;
    Error error;
    Arenas arenas;
    arenas_init(&arenas, &small);
    const char *folder = new_folder();
    write_step(folder, 1, &arenas, 0);
    size_t bytes;
    unsigned char *data = scratch_read(step_path(folder, 1), &bytes);
    unsigned char *content = malloc(1 << 22), *compressed = malloc(1 << 22);
    ZSTD_DCtx *decoder = ZSTD_createDCtx();
    ZSTD_inBuffer in = {data, bytes, 0};
    ZSTD_outBuffer out = {content, 1 << 22, 0};
    while (in.pos < in.size) {
        assert_false(ZSTD_isError(ZSTD_decompressStream(decoder, &out, &in)));
    }
    ZSTD_CCtx *encoder = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(encoder, ZSTD_c_windowLog, 27);
    ZSTD_inBuffer again = {content, out.pos, 0};
    ZSTD_outBuffer packed = {compressed, 1 << 22, 0};
    /* in two calls, so that the size is not known when the window is written */
    ZSTD_inBuffer first = {content, 100, 0};
    assert_false(ZSTD_isError(ZSTD_compressStream2(encoder, &packed, &first, ZSTD_e_flush)));
    again.pos = 100;
    assert_int_equal(ZSTD_compressStream2(encoder, &packed, &again, ZSTD_e_end), 0);
    FILE *file = fopen(step_path(folder, 1), "wb");
    assert_int_equal(fwrite(compressed, 1, packed.pos, file), packed.pos);
    fclose(file);
    assert_null(snapshot_open_newest(NULL, folder, 1, &error));
    if (!strstr(error.text, "window") || !strstr(error.text, "zstd -d --long=31")) {
        fail_msg("expected an error that names the window, found '%s'", error.text);
    }
    assert_true(path_exists(step_path(folder, 1)));
    ZSTD_freeCCtx(encoder);
    ZSTD_freeDCtx(decoder);
    free(compressed);
    free(content);
    free(data);
    arenas_release(&arenas);
}

static SnapshotWriterConfig config_of(Arenas *arenas, const char *folder)
{
    return (SnapshotWriterConfig){
        .out_dir = folder, .table = &arenas->table, .source = {read_state, arenas}, .threads = 2};
}

/* All memory that the first snapshot needs is there, pages and all, before it is due. */
static void test_memory_is_taken_at_start(void **state)
{
    (void)state;
    skip_under_sanitizers();
    const ModelShape shape = {
        .block_size = 16, .vocab_size = 300, .n_layer = 2, .n_head = 1, .n_embd = 512}; /* 78 MB of state */
    Error error;
    Arenas arenas;
    arenas_init(&arenas, &shape);
    fill_finite(&arenas, 3);
    SnapshotWriterConfig config = config_of(&arenas, new_folder());
    size_t before = memory_peak_bytes();
    SnapshotWriter *writer = snapshot_writer_create(&config, &error);
    assert_non_null(writer);
    assert_false(snapshot_writer_is_direct(writer));
    size_t copy_bytes = (size_t)arenas.table.arena_count * sizeof(float) * SAVED_STATES;
    assert_true(snapshot_writer_bytes(&config) >= copy_bytes);
    snapshot_writer_free(writer); /* waits for the thread, which has touched it first */
    size_t touched = memory_peak_bytes();
    if (touched < before + copy_bytes) {
        fail_msg("expected %zu bytes touched at start, found %zu", copy_bytes, touched - before);
    }
    writer = snapshot_writer_create(&config, &error);
    for (int64_t step = 1; step <= 2; step++) {
        SnapshotInfo info = info_of(step, &shape);
        SnapshotResult result;
        snapshot_writer_start(writer, &info);
        snapshot_writer_wait(writer);
        assert_int_equal(snapshot_writer_poll(writer, &result), 1);
        assert_int_equal(result.has_failed, 0);
    }
    snapshot_writer_free(writer);
    size_t grown = memory_peak_bytes() - touched;
    if (grown > 8 << 20) {
        fail_msg("the first snapshot took %zu KiB that were not there at start", grown >> 10);
    }
    arenas_release(&arenas);
}

/* With any amount of memory a writer either cannot be made, or writes snapshots: where a copy does not fit,
 * the live state. */
static void test_what_starts_can_save(void **state)
{
    (void)state;
    skip_under_sanitizers();
    const ModelShape shape = {.block_size = 16, .vocab_size = 300, .n_layer = 2, .n_head = 1, .n_embd = 256};
    enum { DIRECT = 10, COPIED, NOT_MADE, NOT_SAVED, STEP_BYTES = 4 << 20, TRIES = 18 };
    Arenas arenas;
    arenas_init(&arenas, &shape);
    fill_finite(&arenas, 3);
    const char *folder = new_folder();
    int counts[NOT_SAVED + 1] = {0};
    for (int i = 0; i < TRIES; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            Error error;
            SnapshotResult result;
            SnapshotWriterConfig config = config_of(&arenas, folder);
            if (!freopen("/dev/null", "w", stderr)) {
                _exit(NOT_SAVED);
            }
            limit_addresses((size_t)i * STEP_BYTES);
            SnapshotWriter *writer = snapshot_writer_create(&config, &error);
            if (!writer) {
                _exit(NOT_MADE);
            }
            int is_direct = snapshot_writer_is_direct(writer);
            SnapshotInfo info = info_of(i, &shape);
            snapshot_writer_start(writer, &info);
            snapshot_writer_wait(writer);
            snapshot_writer_poll(writer, &result);
            _exit(result.has_failed ? NOT_SAVED : is_direct ? DIRECT : COPIED);
        }
        waitpid(child, &status, 0);
        assert_true(WIFEXITED(status));
        /* 1: a failed CHECK while memory is taken, at start, with the number of bytes */
        counts[WEXITSTATUS(status) == 1 ? NOT_MADE : WEXITSTATUS(status)]++;
    }
    if (counts[NOT_SAVED] > 0 || counts[DIRECT] == 0 || counts[COPIED] == 0) {
        fail_msg("not made %d, direct %d, copied %d, not saved %d", counts[NOT_MADE], counts[DIRECT],
                 counts[COPIED], counts[NOT_SAVED]);
    }
    arenas_release(&arenas);
}

int main(void)
{
    mallopt(M_MMAP_THRESHOLD, 1 << 16); /* what is freed goes back, and does not hide a limit */
    const struct CMUnitTest tests[] = {
        /* first, while this process's heap is small, and no thread has reserved addresses for one */
        cmocka_unit_test(test_no_memory_is_no_damage),
        cmocka_unit_test(test_what_starts_can_save),
        cmocka_unit_test(test_large_windows_are_named),
        cmocka_unit_test(test_memory_is_taken_at_start),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_remove);
}
