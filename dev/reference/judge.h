/* A backend against a reference folder. */
#ifndef LLMC_REFERENCE_JUDGE_H
#define LLMC_REFERENCE_JUDGE_H

#include "llmc/base/error.h"
#include "llmc/compute/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A program whose arguments are reference folders: from the arguments to the exit code. It runs each in fp32
 * and bf16, and prints a line for each tensor. `name` starts error lines. */
int judge_program(const char *name, const Backend *(*open_device)(Error *error), int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
