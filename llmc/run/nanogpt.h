/* What nanoGPT's configs and command lines hold beyond the options that it shares with this program: names
 * that mean nothing here, names that become other options, other spellings of values, and its names of
 * GPT-2's weights. docs/nanogpt.md is the user's side of it. For options.c, config_file.c, origin.c and
 * tests.
 *
 * Source: nanoGPT's train.py, sample.py and configurator.py.
 */
#ifndef LLMC_RUN_NANOGPT_H
#define LLMC_RUN_NANOGPT_H

#include "llmc/run/option_table.h"

/* What nanoGPT makes of a name that is not in the table. */
typedef enum NanogptKind {
    NANOGPT_UNKNOWN, /* not nanoGPT's either */
    NANOGPT_BOOL,
    NANOGPT_OTHER /* text, by and large */
} NanogptKind;

NanogptKind nanogpt_kind(const char *name, size_t name_bytes);

/* Whether such a name means nothing here: its value need not even be understood. */
int nanogpt_is_idle(const char *name, size_t name_bytes);

/* Set a name for which nanogpt_kind does not say unknown. One without meaning is noted in
 * options->without_meaning. -1 with *error. */
int nanogpt_set(Options *options, const char *name, size_t name_bytes, const char *value, Error *error);

/* Once all is read: what decay_lr asked for. */
void nanogpt_settle(Options *options);

/* This program's spelling of a choice ("bfloat16" is bf16), or the value itself. NULL with *error for a
 * value of nanoGPT's that this program has nothing for. */
const char *nanogpt_choice(const OptionSpec *spec, const char *value, Error *error);

/* init_from=gpt2-xl and the like: where nothing has that name, models/gpt2-xl takes its place, if `room`
 * bytes are enough. -1 with *error, which has the command that gets the weights, where that is missing too,
 * and for init_from=models/gpt2-xl where that is missing. */
int nanogpt_find_weights(char *path, size_t room, Error *error);

#endif
