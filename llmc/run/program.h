/* The program that trains, evaluates and samples, whatever the device. train_gpt2.c and train_gpt2.cu call it
 * with theirs.
 */
#ifndef LLMC_RUN_PROGRAM_H
#define LLMC_RUN_PROGRAM_H

#include <stdio.h>

#include "llmc/base/error.h"
#include "llmc/compute/backend.h"
#include "llmc/run/options.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a program brings to its run. */
typedef struct Program {
    const char *name; /* starts error lines */
    /* NULL with *error where there is no device that it can use. */
    const Backend *(*open_device)(const Options *options, Error *error);
    void (*print_build)(FILE *out); /* for --version: lines about the device's libraries and kernels */
} Program;

/* From the arguments to the exit code. */
int program_run(const Program *program, int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
