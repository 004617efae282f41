/* Drives a fuzzer without libFuzzer, so that any compiler and sanitizer will do.
 *
 *     build/.../fuzz/fuzz_x [seconds=10] [runs=N] [seed=1] [first=0] [FILE...]
 *
 * Files, and the fuzzer's own seeds, are run as they are and then mutated. Run r depends on (seed, r) and
 * the files alone, so what a finding prints repeats it. Prints the number of runs; exits 1, or as the
 * sanitizer does, on a finding: a crash, a failed check, 30 s without an end. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dev/fuzz/fuzz.h"
#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/memory.h"
#include "llmc/base/random.h"

enum { SEEDS_MAX = 256, MUTATIONS_MAX = 8, RUN_SECONDS_MAX = 30 };

typedef struct Input {
    uint8_t *data; /* FUZZ_INPUT_BYTES_MAX */
    size_t bytes;
} Input;

typedef struct Corpus {
    Input inputs[SEEDS_MAX];
    int count;
} Corpus;

/* Random numbers of one run. */
typedef struct Dice {
    RandomKey key;
    uint64_t next;
} Dice;

static volatile uint64_t current_run;
static volatile uint64_t current_seed;
static volatile int is_running;

void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

/* How to see the finding again. */
static void print_repeat(void)
{
    if (is_running) {
        is_running = 0;
        char line[128];
        int bytes = snprintf(line, sizeof(line), "\nfinding: repeat with seed=%llu first=%llu runs=1\n",
                             (unsigned long long)current_seed, (unsigned long long)current_run);
        if (write(2, line, (size_t)bytes) < 0) {
            return;
        }
    }
}

static void on_failed_check(int exit_code)
{
    (void)exit_code;
    print_repeat();
}

static void on_signal(int number)
{
    print_repeat();
    signal(number, SIG_DFL);
    raise(number == SIGALRM ? SIGABRT : number);
}

/* 0 .. limit-1; 0 for limit 0. */
static size_t roll(Dice *dice, size_t limit)
{
    uint32_t numbers[4];
    random_block(numbers, &dice->key, dice->next++);
    uint64_t number = (uint64_t)numbers[0] << 32 | numbers[1];
    return limit ? (size_t)(number % limit) : 0;
}

/* Put bytes in at a place, as far as there is room. */
static void insert(Input *input, size_t place, const uint8_t *bytes, size_t count)
{
    size_t room = FUZZ_INPUT_BYTES_MAX - input->bytes;
    count = count < room ? count : room;
    memmove(input->data + place + count, input->data + place, input->bytes - place);
    memmove(input->data + place, bytes, count);
    input->bytes += count;
}

/* Numbers that limits are made of, in 1, 2, 4 or 8 bytes. */
static void overwrite_number(Input *input, Dice *dice)
{
    static const uint64_t numbers[] = {0,
                                       1,
                                       2,
                                       3,
                                       16,
                                       127,
                                       128,
                                       255,
                                       1000,
                                       0x7fff,
                                       0xffff,
                                       0x7fffffff,
                                       0x80000000u,
                                       0xffffffffu,
                                       (uint64_t)1 << 60,
                                       UINT64_MAX,
                                       (uint64_t)1 << 63};
    size_t width = (size_t)1 << roll(dice, 4);
    uint64_t number = numbers[roll(dice, sizeof(numbers) / sizeof(numbers[0]))];
    if (input->bytes >= width) {
        memcpy(input->data + roll(dice, input->bytes - width + 1), &number, width);
    }
}

static void insert_word(Input *input, Dice *dice)
{
    size_t count = 0;
    while (fuzz_words && fuzz_words[count]) {
        count++;
    }
    if (count > 0) {
        const char *word = fuzz_words[roll(dice, count)];
        size_t place = roll(dice, input->bytes + 1);
        size_t bytes = strlen(word);
        if (roll(dice, 2) && bytes <= input->bytes - place) {
            memcpy(input->data + place, word, bytes);
        } else {
            insert(input, place, (const uint8_t *)word, bytes);
        }
    }
}

/* Change one decimal digit, where there is one: numbers in text. */
static void change_digit(Input *input, Dice *dice)
{
    size_t start = roll(dice, input->bytes);
    for (size_t i = 0; i < input->bytes; i++) {
        uint8_t *byte = &input->data[(start + i) % input->bytes];
        if (*byte >= '0' && *byte <= '9') {
            *byte = (uint8_t)('0' + roll(dice, 10));
            return;
        }
    }
}

static void mutate(Input *input, Dice *dice, const Corpus *corpus)
{
    size_t place = roll(dice, input->bytes);
    size_t count = 1 + roll(dice, roll(dice, 4) ? 8 : input->bytes);
    switch (roll(dice, 10)) {
    case 0:
    case 1:
        if (input->bytes > 0) {
            input->data[place] ^= (uint8_t)(1 << roll(dice, 8));
        }
        break;
    case 2:
        if (input->bytes > 0) {
            input->data[place] = (uint8_t)roll(dice, 256);
        }
        break;
    case 3:
        overwrite_number(input, dice);
        break;
    case 4:
        count = count < input->bytes - place ? count : input->bytes - place;
        memmove(input->data + place, input->data + place + count, input->bytes - place - count);
        input->bytes -= count;
        break;
    case 5:
        count = count < input->bytes - place ? count : input->bytes - place;
        insert(input, roll(dice, input->bytes), input->data + place, count);
        break;
    case 6:
        insert_word(input, dice);
        break;
    case 7:
        change_digit(input, dice);
        break;
    case 8: {
        const Input *other = &corpus->inputs[roll(dice, (size_t)corpus->count)];
        size_t from = roll(dice, other->bytes);
        count = count < other->bytes - from ? count : other->bytes - from;
        insert(input, place, other->data + from, count);
        break;
    }
    default:
        if (roll(dice, 8) == 0) {
            input->bytes = place;
        }
    }
}

/* Runs get a block of exactly their size, so that a sanitizer sees each byte beyond it. */
static void run_one(const Input *input)
{
    uint8_t *exact = malloc(input->bytes ? input->bytes : 1);
    CHECK(exact, "out of memory for an input");
    memcpy(exact, input->data, input->bytes);
    alarm(RUN_SECONDS_MAX);
    is_running = 1;
    LLVMFuzzerTestOneInput(exact, input->bytes);
    is_running = 0;
    alarm(0);
    free(exact);
}

static void run_number(uint64_t run, Input *scratch, const Corpus *corpus)
{
    current_run = run;
    Dice dice = {.key = {.seed = current_seed,
                         .purpose = RANDOM_TEST,
                         .step = (uint32_t)run,
                         .slot = (uint32_t)(run >> 32)}};
    if (run < (uint64_t)corpus->count) {
        run_one(&corpus->inputs[run]);
        return;
    }
    const Input *base = &corpus->inputs[roll(&dice, (size_t)corpus->count)];
    memcpy(scratch->data, base->data, base->bytes);
    scratch->bytes = base->bytes;
    size_t mutations = 1 + roll(&dice, MUTATIONS_MAX);
    for (size_t i = 0; i < mutations; i++) {
        mutate(scratch, &dice, corpus);
    }
    run_one(scratch);
}

static Input *add_input(Corpus *corpus)
{
    CHECK(corpus->count < SEEDS_MAX, "more than %d files", SEEDS_MAX);
    Input *input = &corpus->inputs[corpus->count++];
    input->data = memory_alloc_zeroed(FUZZ_INPUT_BYTES_MAX, 1, "input");
    return input;
}

static void add_file(Corpus *corpus, const char *path)
{
    Error error;
    Input *input = add_input(corpus);
    char *data = file_read(path, FUZZ_INPUT_BYTES_MAX, &input->bytes, &error);
    if (!data) {
        error_exit(EXIT_FAILED, "%s", error.text);
    }
    memcpy(input->data, data, input->bytes);
    memory_free(data);
}

static void add_seeds(Corpus *corpus)
{
    for (int i = 0; fuzz_seed; i++) {
        Input *input = add_input(corpus);
        input->bytes = fuzz_seed(input->data, i);
        if (input->bytes == 0) {
            break; /* the empty input is a seed, too */
        }
    }
    if (corpus->count == 0) {
        add_input(corpus);
    }
}

const char *fuzz_file(const uint8_t *data, size_t bytes)
{
    static char path[64];
    static int descriptor = -1;
    if (descriptor < 0) {
        descriptor = memfd_create("fuzz", MFD_CLOEXEC);
        CHECK(descriptor >= 0, "cannot make a file in memory");
        snprintf(path, sizeof(path), "/proc/self/fd/%d", descriptor);
    }
    CHECK(ftruncate(descriptor, 0) == 0 && pwrite(descriptor, data, bytes, 0) == (ssize_t)bytes,
          "cannot write to a file in memory");
    return path;
}

/* "name=NUMBER"; 1 when it is that option. */
static int parse_option(uint64_t *value, const char *argument, const char *name)
{
    size_t bytes = strlen(name);
    char *end;
    if (strncmp(argument, name, bytes) != 0 || argument[bytes] != '=') {
        return 0;
    }
    *value = strtoull(argument + bytes + 1, &end, 10);
    if (*end != '\0' || end == argument + bytes + 1) {
        error_exit(EXIT_FAILED, "%s: expected a number", argument);
    }
    return 1;
}

int main(int argc, char **argv)
{
    static Corpus corpus;
    uint64_t seconds = 10;
    uint64_t runs = UINT64_MAX;
    uint64_t seed = 1;
    uint64_t first = 0;
    error_set_program(argv[0]);
    for (int i = 1; i < argc; i++) {
        if (!parse_option(&seconds, argv[i], "seconds") && !parse_option(&runs, argv[i], "runs") &&
            !parse_option(&seed, argv[i], "seed") && !parse_option(&first, argv[i], "first")) {
            add_file(&corpus, argv[i]);
        }
    }
    add_seeds(&corpus);
    current_seed = seed;
    signal(SIGALRM, on_signal);
    signal(SIGABRT, on_signal);
    error_set_abort_hook(on_failed_check);
    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(print_repeat);
    } else {
        signal(SIGSEGV, on_signal);
        signal(SIGBUS, on_signal);
        signal(SIGFPE, on_signal);
    }
    Input scratch = {memory_alloc_zeroed(FUZZ_INPUT_BYTES_MAX, 1, "input"), 0};
    double end_ms = clock_ms() + 1000.0 * (double)seconds;
    uint64_t done = 0;
    while (done < runs && clock_ms() < end_ms) {
        run_number(first + done, &scratch, &corpus);
        done++;
    }
    printf("%s: %llu runs, seed %llu, peak %zu MiB, no finding\n", argv[0], (unsigned long long)done,
           (unsigned long long)seed, memory_peak_bytes() >> 20);
    memory_free(scratch.data);
    for (int i = 0; i < corpus.count; i++) {
        memory_free(corpus.inputs[i].data);
    }
    return 0;
}
