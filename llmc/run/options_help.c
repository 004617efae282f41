/* The page of help that the table of options makes. */
#include <stdio.h>
#include <string.h>

#include "llmc/base/help.h"
#include "llmc/base/version.h"
#include "llmc/run/option_table.h"

enum { RANGE_BYTES = 64, SHOWN_BYTES = 64 };

static const HelpText before[] = {
    {"", "Trains GPT-2 from token shards, on the CPU (train_gpt2) or on NVIDIA GPUs (train_gpt2cu); also "
         "evaluates, samples and exports.\n"
         "\n"
         "An argument that does not begin with a dash is a config file: lines of `name = value` and `#` "
         "comments, "
         "or, where its name ends in .py, a config of nanoGPT's. --name value is --name=value, unless value "
         "begins "
         "with --. An option that is true or false may stand alone: --name is --name=true. What comes later "
         "wins.\n"
         "\n"
         "--help=SECTION prints one section of the options, --version what this program was built with, "
         "--print=NAME the value that option NAME then has, for scripts."},
    {NULL, NULL}};

static const HelpText after[] = {
    {"Exit status",
     "0: done. 1: an error that a rerun would meet again. 75: stopped by a signal, after a snapshot; "
     "run again with --init_from=auto. 76: a fault that a rerun may pass."},
    {"Signals",
     "SIGTERM, SIGINT, SIGUSR1 or SIGHUP to any rank ends the run with a snapshot. A second one, 5 seconds "
     "or more after the first, ends it at once."},
    {"Files", "  data/NAME/train*.bin, data/NAME/val*.bin   token shards of dataset=NAME\n"
              "  OUT_DIR/step-NNNNNNNN.snap                  snapshots, after that many updates\n"
              "  OUT_DIR/log.jsonl                           what the run told, an object a line\n"
              "  models/gpt2, models/gpt2-xl ..              weights that init_from=gpt2 and the like take"},
    {"Environment",
     "CPU_LEVEL=x86-64-v3 (or another level that --version names) computes as another machine would. "
     "OMP_NUM_THREADS sets the threads where --threads does not."},
    {"Examples", "  train_gpt2 scripts/config/gpt2_124m.conf --dataset=mine --out_dir=out/mine\n"
                 "  mpirun -np 8 train_gpt2cu run.conf --init_from=auto\n"
                 "  train_gpt2 --sample_only --out_dir=out/mine --start='Once upon'\n"
                 "  train_gpt2 --out_dir=out/mine --init_from=resume --max_iters=0 --export_hf=out/hf"},
    {NULL, NULL}};

/* Text options that are paths; others are words. */
static HelpValue value_of(const OptionSpec *spec)
{
    static const struct {
        const char *name;
        HelpValue value;
    } paths[] = {{"out_dir", HELP_FOLDER},  {"init_from", HELP_FILE}, {"train_data", HELP_FILE},
                 {"val_data", HELP_FILE},   {"hellaswag", HELP_FILE}, {"export_hf", HELP_FOLDER},
                 {"export_llmc", HELP_FILE}};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        if (strcmp(spec->name, paths[i].name) == 0) {
            return paths[i].value;
        }
    }
    return spec->kind == OPTION_BOOL ? HELP_BOOL : spec->kind == OPTION_CHOICE ? HELP_CHOICE : HELP_WORD;
}

/* "1 to 65536", "true|false"; "" for text. */
static void print_range(char range[RANGE_BYTES], const OptionSpec *spec)
{
    static const char *const formats[] = {
        [OPTION_INTEGER] = "%.0f to %.0f", [OPTION_NUMBER] = "%.9g to %.9g"};
    range[0] = '\0';
    if (spec->kind == OPTION_CHOICE || spec->kind == OPTION_BOOL) {
        snprintf(range, RANGE_BYTES, "%s", spec->kind == OPTION_BOOL ? "true|false" : spec->choices);
    } else if (spec->kind != OPTION_TEXT) {
        snprintf(range, RANGE_BYTES, formats[spec->kind], spec->least, spec->most);
    }
}

/* The default on one line: line breaks as \n. */
static void print_shown(char shown[SHOWN_BYTES], const char *text)
{
    size_t used = 0;
    for (; *text && used + 3 < SHOWN_BYTES; text++) {
        if (*text == '\n') {
            shown[used++] = '\\';
        }
        shown[used++] = *text == '\n' ? 'n' : *text;
    }
    shown[used] = '\0';
}

int options_print_help(FILE *out, const char *form, int columns, Error *error)
{
    static HelpRow rows[OPTIONS_MAX];
    static char names[OPTIONS_MAX][64], ranges[OPTIONS_MAX][RANGE_BYTES], shown[OPTIONS_MAX][SHOWN_BYTES];
    for (int i = 0; i < option_spec_count; i++) {
        const OptionSpec *spec = &option_specs[i];
        snprintf(names[i], sizeof(names[i]), "--%s", spec->name);
        print_range(ranges[i], spec);
        print_shown(shown[i], spec->standard);
        if (!shown[i][0]) {
            snprintf(shown[i], SHOWN_BYTES, "%s", value_of(spec) == HELP_FOLDER ? "FOLDER" : "PATH");
        }
        rows[i] = (HelpRow){.section = spec->group,
                            .name = names[i],
                            .value = value_of(spec),
                            .shown = shown[i],
                            .choices = spec->choices,
                            .range = ranges[i],
                            .text = spec->help};
    }
    const HelpPage page = {.programs = "train_gpt2 train_gpt2cu",
                           .version = PROGRAM_VERSION,
                           .purpose = "train GPT-2 from raw text to samples",
                           .synopsis = "train_gpt2 [CONFIG_FILE] [--name=value]...\n"
                                       "mpirun -np N train_gpt2 [CONFIG_FILE] [--name=value]...",
                           .before = before,
                           .after = after,
                           .shows_default = 1,
                           .rows = rows,
                           .row_count = option_spec_count};
    return help_print(out, &page, form, columns, error);
}
