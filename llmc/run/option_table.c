#include "llmc/run/option_table.h"

#include <math.h>
#include <string.h>

#include "llmc/model/shape.h"
#include "llmc/run/json_text.h"
#include "llmc/run/nanogpt.h"
#include "llmc/run/number_text.h"

/* One row a macro: name, default as a user would write it, range or choices, help. RUN rows change what a run
 * does, RESULT rows also the numbers it gives. */
#define AT(field) offsetof(Options, field)
#define BOOL(group, alters, name, standard, help)                                                            \
    {                                                                                                        \
        group, #name, OPTION_BOOL, alters, AT(name), 0, 1, NULL, standard, help                              \
    }
#define INTEGER(group, alters, name, standard, least, most, help)                                            \
    {                                                                                                        \
        group, #name, OPTION_INTEGER, alters, AT(name), least, most, NULL, standard, help                    \
    }
#define NUMBER(group, alters, name, standard, least, most, help)                                             \
    {                                                                                                        \
        group, #name, OPTION_NUMBER, alters, AT(name), least, most, NULL, standard, help                     \
    }
#define CHOICE(group, alters, name, standard, choices, help)                                                 \
    {                                                                                                        \
        group, #name, OPTION_CHOICE, alters, AT(name), 0, 0, choices, standard, help                         \
    }
#define TEXT(group, alters, name, standard, help)                                                            \
    {                                                                                                        \
        group, #name, OPTION_TEXT, alters, AT(name), 0, 0, NULL, standard, help                              \
    }

enum { RUN = 0, RESULT = 1 };

#define STEPS_MAX 99999999 /* so that names of snapshots, step-%08d, sort as their steps do */
#define COUNT_MAX 1000000000
#define SEED_MAX 9007199254740992.0 /* 2^53: exact wherever JSON is read */
#define BETA_MAX 0.9999999          /* below 1 also in fp32 */

/* dtype=bf16 is nanoGPT's choice on hardware that has it; master weights and moments are fp32 either way. */
const OptionSpec option_specs[] = {
    TEXT("run", RUN, out_dir, "out", "folder of snapshots and log.jsonl"),
    TEXT("run", RUN, init_from, "scratch",
         "scratch | resume (newest snapshot in out_dir) | resume:PATH (that snapshot; later ones in out_dir "
         "are "
         "set aside) | auto (resume if there is one, else scratch) | auto:PATH (resume if there is one, else "
         "from PATH) | PATH of a snapshot, Hugging Face folder, model.safetensors or llm.c .bin: a new run "
         "from these weights"),
    BOOL("run", RUN, eval_only, "false",
         "evaluate once and end (dropout off), also where there is only val_data or hellaswag"),
    BOOL("run", RUN, sample_only, "false", "only sample; resumes unless init_from is given"),
    INTEGER("run", RUN, max_iters, "600000", 0, STEPS_MAX, "updates in the whole run"),
    NUMBER(
        "run", RUN, max_epochs, "0", 0, 1e6,
        "epochs of the training data in the whole run, where that is fewer updates than max_iters; 0: any"),
    INTEGER("run", RUN, eval_interval, "2000", 0, STEPS_MAX, "updates between evaluations; 0: none"),
    INTEGER("run", RUN, eval_iters, "200", 0, COUNT_MAX, "batches of each split; 0: the whole of val"),
    INTEGER("run", RUN, log_interval, "1", 0, STEPS_MAX, "updates between iter lines; 0: none"),
    INTEGER("run", RUN, snapshot_interval, "1000", 0, STEPS_MAX,
            "updates between snapshots, and one at the end; 0: only when a signal stops the run"),
    INTEGER("run", RUN, keep_snapshots, "2", 1, COUNT_MAX, "newest snapshots that are kept"),
    CHOICE(
        "run", RUN, snapshot_on, "first", "first|every_node",
        "who writes snapshots: rank 0, or one rank of each machine too where out_dir is a disk of its own"),
    INTEGER("run", RUN, milestone_interval, "0", 0, STEPS_MAX,
            "snapshots of steps that this divides are kept for good; 0: none"),
    BOOL("run", RUN, tensorboard, "false",
         "also write out_dir/events.out.tfevents.*, which TensorBoard draws"),
    BOOL("run", RUN, status_line, "true",
         "on a terminal, a line below all others that tells how the run stands; elsewhere there is none"),
    INTEGER("run", RESULT, seed, "1337", 0, SEED_MAX,
            "seed of initial weights, data order, dropout, sampling"),

    TEXT("data", RUN, dataset, "openwebtext", "reads data/NAME/train*.bin and val*.bin"),
    TEXT("data", RUN, train_data, "", "path or glob of training shards, instead of dataset's"),
    TEXT("data", RUN, val_data, "", "path or glob of validation shards, instead of dataset's"),
    TEXT("data", RUN, hellaswag, "",
         "file of HellaSwag (hellaswag_val.jsonl, or llm.c's hellaswag_val.bin): each evaluation also tells "
         "how "
         "many of its questions the model answers"),
    BOOL("data", RESULT, shuffle, "true", "visit windows in a random order, each once an epoch"),

    INTEGER("batch", RESULT, batch_size, "12", 1, 65536, "rows of a micro-batch (B)"),
    INTEGER("batch", RESULT, block_size, "1024", 1, 1048576, "tokens of a row (T)"),
    INTEGER("batch", RESULT, gradient_accumulation_steps, "40", 1, 1048576,
            "micro-batches of an update (G), over all ranks"),

    INTEGER("model", RESULT, n_layer, "12", 1, MODEL_LAYERS_MAX, "blocks (L)"),
    INTEGER("model", RESULT, n_head, "12", 1, 4096, "attention heads (NH)"),
    INTEGER("model", RESULT, n_embd, "768", 1, 65536, "channels (C), a multiple of n_head"),
    INTEGER("model", RESULT, vocab_size, "50257", 1, 65536, "tokens known (V); padded in memory only"),
    NUMBER("model", RESULT, dropout, "0.0", 0, 0.99,
           "share of activations set to 0; 0 for pretraining, 0.1 and more for fine-tuning"),

    NUMBER("optim", RESULT, learning_rate, "6e-4", 0, 100, "highest learning rate"),
    CHOICE(
        "optim", RESULT, lr_schedule, "cosine", "cosine|linear|constant|wsd",
        "how the rate falls after the warm-up; wsd: constant, then down in the last fifth of lr_decay_iters"),
    INTEGER("optim", RESULT, warmup_iters, "2000", 0, STEPS_MAX, "updates of linear warm-up; 0: none"),
    INTEGER("optim", RESULT, lr_decay_iters, "600000", 1, STEPS_MAX, "update at which min_lr is reached"),
    NUMBER("optim", RESULT, min_lr, "6e-5", 0, 100, "lowest learning rate, after the decay"),
    NUMBER("optim", RESULT, weight_decay, "0.1", 0, 100,
           "AdamW's weight decay, of matrices and embeddings alone"),
    NUMBER("optim", RESULT, beta1, "0.9", 0, BETA_MAX, "AdamW's decay of the first moment"),
    NUMBER("optim", RESULT, beta2, "0.95", 0, BETA_MAX, "AdamW's decay of the second moment"),
    NUMBER("optim", RESULT, grad_clip, "1.0", 0, 1e9, "largest norm of the gradient; 0: no clipping"),

    CHOICE("system", RESULT, dtype, "bf16", "fp32|bf16",
           "type of products and activations; weights and moments are kept in fp32"),
    CHOICE("system", RESULT, residual, "fp32", "fp32|bf16",
           "type of the residual stream and its gradient; bf16, in train_gpt2cu alone, moves fewer bytes"),
    CHOICE("system", RESULT, reduce, "exact", "exact|fp32|bf16",
           "sums of gradients: exact gives the same bits at any number of ranks, the others save network"),
    NUMBER("system", RUN, bucket_cap_mb, "25", 0.001, 4096, "megabytes reduced together between ranks"),
    INTEGER("system", RUN, threads, "0", 0, 1024, "threads of this process; 0: one for each core"),
    INTEGER("system", RUN, check_interval, "1000", 0, STEPS_MAX,
            "updates between comparisons of the weights of all ranks; 0: none"),
    INTEGER("system", RUN, max_bad_steps, "10", 1, COUNT_MAX,
            "updates skipped in a row (loss or gradient not finite) before the run stops"),
    INTEGER("system", RUN, comm_timeout, "600", 1, 86400,
            "seconds after which the run stops because a rank neither works nor comes to a collective"),
    INTEGER("system", RUN, heartbeat_timeout, "30", 1, 86400,
            "seconds after which the run stops because a rank is silent, or the network between two is cut"),
    INTEGER("system", RUN, join_timeout, "60", 1, 86400, "seconds that ranks wait for each other to start"),
    TEXT("system", RUN, port_range, "",
         "FIRST-LAST: ports at which ranks wait for each other's connections; empty: any"),
    BOOL("system", RUN, overlap, "true", "all-reduce while backward runs; false to measure what that gains"),
    BOOL("system", RUN, cuda_graph, "true",
         "the GPU replays a step's recorded work (not with dropout); the same bits either way"),
    BOOL("system", RUN, share_gpus, "false", "for tests: several ranks on one GPU"),
    BOOL("system", RESULT, autotune, "false",
         "the GPU times its matrix products before the first step and takes the quickest; log and snapshots "
         "keep the choice, a resume repeats it"),
    INTEGER("system", RUN, trace, "0", 0, 10000, "updates written to out_dir/trace.json; 0: none"),

    TEXT("sample", RUN, start, "\n", "text that samples go on from; FILE:PATH reads it from a file"),
    INTEGER("sample", RUN, num_samples, "0", 0, COUNT_MAX,
            "samples drawn when the run ends; sample_only draws 10 unless told otherwise"),
    INTEGER("sample", RUN, max_new_tokens, "500", 1, COUNT_MAX, "tokens of a sample"),
    NUMBER("sample", RUN, temperature, "0.8", 0, 100,
           "1: as the model has it; 0: always the most likely token"),
    INTEGER("sample", RUN, top_k, "200", 0, COUNT_MAX, "sample from the k most likely tokens; 0: from all"),

    TEXT("export", RUN, export_hf, "", "folder for a Hugging Face model when the run ends"),
    TEXT("export", RUN, export_llmc, "", "file for an llm.c model when the run ends"),
};

const int option_spec_count = sizeof(option_specs) / sizeof(option_specs[0]);
_Static_assert(sizeof(option_specs) / sizeof(option_specs[0]) <= OPTIONS_MAX, "raise OPTIONS_MAX");

int option_find(const char *name, size_t name_bytes)
{
    for (int i = 0; i < option_spec_count; i++) {
        if (strlen(option_specs[i].name) == name_bytes &&
            memcmp(option_specs[i].name, name, name_bytes) == 0) {
            return i;
        }
    }
    return -1;
}

/* ---- values ------------------------------------------------------------------------------------------- */

static int fail(const OptionSpec *spec, const char *value, const char *expected, Error *error)
{
    return error_set(error, "%s=%.100s: expected %s", spec->name, value, expected);
}

static int fail_range(const OptionSpec *spec, const char *value, Error *error)
{
    char expected[128];
    if (spec->kind == OPTION_INTEGER) {
        snprintf(expected, sizeof(expected), "an integer from %.0f to %.0f", spec->least, spec->most);
    } else {
        snprintf(expected, sizeof(expected), "a number from %.9g to %.9g", spec->least, spec->most);
    }
    return fail(spec, value, expected, error);
}

/* A sign and a literal, and nothing else: no hexadecimal, inf, nan or blanks. *out is without the sign, which
 * is returned: -1 or 1; 0 where it is no such number. */
static int read_signed(NumberText *out, const char *value)
{
    const char *digits = value + (value[0] == '-' || value[0] == '+');
    size_t bytes = number_text_read(out, digits);
    int is_number = bytes > 0 && digits[bytes] == '\0';
    return !is_number ? 0 : value[0] == '-' ? -1 : 1;
}

/* 6e5 is an integer, too. */
static int parse_integer(int64_t *out, const OptionSpec *spec, const char *value, Error *error)
{
    NumberText literal;
    int sign = read_signed(&literal, value);
    int64_t integer = literal.integer;
    if (!sign || (!literal.is_integer && !number_text_integral(&integer, literal.number)) ||
        sign * integer < (int64_t)spec->least || sign * integer > (int64_t)spec->most) {
        return fail_range(spec, value, error);
    }
    *out = sign * integer;
    return 0;
}

static int parse_number(double *out, const OptionSpec *spec, const char *value, Error *error)
{
    NumberText literal;
    int sign = read_signed(&literal, value);
    double number = sign * literal.number;
    if (!sign || !isfinite(number) || !(number >= spec->least) || !(number <= spec->most)) {
        return fail_range(spec, value, error);
    }
    *out = number;
    return 0;
}

int option_is_bool_word(int *out, const char *word)
{
    static const struct {
        const char *text;
        int value;
    } words[] = {{"true", 1}, {"True", 1}, {"1", 1}, {"false", 0}, {"False", 0}, {"0", 0}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(word, words[i].text) == 0) {
            *out = words[i].value;
            return 1;
        }
    }
    return 0;
}

static int parse_bool(int *out, const OptionSpec *spec, const char *value, Error *error)
{
    return option_is_bool_word(out, value) ? 0 : fail(spec, value, "true or false", error);
}

static int parse_choice(int *out, const OptionSpec *spec, const char *value, Error *error)
{
    value = nanogpt_choice(spec, value, error);
    if (!value) {
        return -1;
    }
    size_t value_bytes = strlen(value);
    int place = 0;
    for (const char *word = spec->choices; word; place++) {
        const char *bar = strchr(word, '|');
        size_t word_bytes = bar ? (size_t)(bar - word) : strlen(word);
        if (word_bytes == value_bytes && memcmp(word, value, value_bytes) == 0) {
            *out = place;
            return 0;
        }
        word = bar ? bar + 1 : NULL;
    }
    return fail(spec, value, spec->choices, error);
}

static int parse_text(char *out, const OptionSpec *spec, const char *value, Error *error)
{
    size_t bytes = strlen(value);
    if (bytes >= OPTION_TEXT_BYTES) {
        return fail(spec, value, "at most 4095 bytes (start=FILE:PATH reads longer text)", error);
    }
    memcpy(out, value, bytes + 1);
    return 0;
}

int option_parse_value(Options *options, const OptionSpec *spec, const char *value, Error *error)
{
    char *field = (char *)options + spec->offset;
    switch (spec->kind) {
    case OPTION_BOOL:
        return parse_bool((int *)field, spec, value, error);
    case OPTION_INTEGER:
        return parse_integer((int64_t *)field, spec, value, error);
    case OPTION_NUMBER:
        return parse_number((double *)field, spec, value, error);
    case OPTION_CHOICE:
        return parse_choice((int *)field, spec, value, error);
    case OPTION_TEXT:
        return parse_text(field, spec, value, error);
    }
    return -1;
}

static void print_choice(int place, const OptionSpec *spec, FILE *out)
{
    const char *word = spec->choices;
    for (; place > 0; place--) {
        word = strchr(word, '|') + 1;
    }
    fprintf(out, "%.*s", (int)strcspn(word, "|"), word);
}

void option_print_value(const Options *options, const OptionSpec *spec, FILE *out)
{
    const char *field = (const char *)options + spec->offset;
    switch (spec->kind) {
    case OPTION_BOOL:
        fputs(*(const int *)field ? "true" : "false", out);
        break;
    case OPTION_INTEGER:
        fprintf(out, "%lld", (long long)*(const int64_t *)field);
        break;
    case OPTION_NUMBER:
        fprintf(out, "%.9g", *(const double *)field);
        break;
    case OPTION_CHOICE:
        print_choice(*(const int *)field, spec, out);
        break;
    case OPTION_TEXT:
        fputs(field, out);
        break;
    }
}

void option_print_json(const Options *options, const OptionSpec *spec, FILE *out)
{
    const char *field = (const char *)options + spec->offset;
    if (spec->kind == OPTION_TEXT) {
        json_print_string(out, field);
        return;
    }
    const char *quote = spec->kind == OPTION_CHOICE ? "\"" : "";
    fputs(quote, out);
    option_print_value(options, spec, out);
    fputs(quote, out);
}
