/* Config files of any bytes, as `name = value` lines and as Python: errors that name a line of the file, or
 * options that a run could take; never a crash. The first byte tells the kind. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "dev/fuzz/fuzz.h"
#include "llmc/run/config_file.h"
#include "llmc/run/nanogpt.h"
#include "llmc/run/options.h"

static const char *const seeds[] = {
    "# recipe\nbatch_size = 8 # rows\nstart = \"a\\n\"\nlearning_rate = 6e-4\ngradient_accumulation_steps = "
    "5 * 8\n",
    "P\"\"\"doc\n\"\"\"\nimport time\nout_dir = 'out' + '-x' # a\nwandb_run_name = 'ft-' + str(time.time())\n"
    "gradient_accumulation_steps = (5 *\n 8); max_iters = 6e5\nmin_lr = learning_rate / 10\ndecay_lr = "
    "False\n",
    "Pseed = -2 ** 3 // 2 % 5\nstart = r'\\d' \"\\u00e9\\x41\" \\\n  'c'\nbias = True\nif seed:\n  dropout = "
    "0.1\n",
};

const char *const fuzz_words[] = {"learning_rate",
                                  "batch_size = ",
                                  "out_dir = ",
                                  "start = ",
                                  "eval_only = ",
                                  "decay_lr = ",
                                  "bias = ",
                                  "wandb_x = ",
                                  "True",
                                  "None",
                                  "5 * 8",
                                  "600_000",
                                  "6e5",
                                  "'",
                                  "'''",
                                  "\"\"\"",
                                  "\\",
                                  "\\\n",
                                  "\\u00e9",
                                  "\\x00",
                                  "#",
                                  ";",
                                  "(((((((",
                                  "**",
                                  "//",
                                  "-",
                                  "import ",
                                  "int(",
                                  "1e308",
                                  "\n",
                                  NULL};

size_t fuzz_seed(uint8_t *data, int index)
{
    if ((size_t)index >= sizeof(seeds) / sizeof(seeds[0])) {
        return 0;
    }
    memcpy(data, seeds[index], strlen(seeds[index]));
    return strlen(seeds[index]);
}

/* An error's place must be a line that the text has. */
static void check_places(const OptionErrors *errors, const char *path, const char *text, size_t bytes)
{
    long lines = 1;
    for (size_t i = 0; i < bytes; i++) {
        lines += text[i] == '\n';
    }
    size_t path_bytes = strlen(path);
    for (int i = 0; i < errors->count && i < OPTION_ERRORS_MAX; i++) {
        const char *found = errors->items[i].text;
        int has_path = strncmp(found, path, path_bytes) == 0 && found[path_bytes] == ':';
        long line = has_path ? strtol(found + path_bytes + 1, NULL, 10) : 0;
        CHECK(line >= 1 && line <= lines, "an error without its place: %s", found);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static OptionErrors errors;
    static Options options;
    Error error;
    int is_python = bytes > 0 && data[0] == 'P';
    const char *path = is_python ? "config.py" : "config";
    options_set_defaults(&options);
    errors.count = 0;
    const char *text = (const char *)data + is_python;
    int status = config_file_read(&options, path, text, bytes - (size_t)is_python, &errors);
    CHECK((status == 0) == (errors.count == 0), "status %d with %d errors", status, errors.count);
    check_places(&errors, path, text, bytes - (size_t)is_python);
    nanogpt_settle(&options);
    CHECK(strlen(options.without_meaning) < sizeof(options.without_meaning), "a list without its end");
    if (options_check(&options, &error) == 0) {
        CHECK(options.batch_size >= 1 && options.n_embd % options.n_head == 0 && options.beta2 < 1,
              "a value out of range was accepted");
    }
    return 0;
}
