/* A backend against a reference folder. */
#ifndef LLMC_REFERENCE_JUDGE_H
#define LLMC_REFERENCE_JUDGE_H

#include "llmc/base/error.h"
#include "llmc/compute/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Run one folder in fp32 and bf16 and print a line for each tensor. Returns 0 if all hold, 1 if not, -1 with
 * *error when the folder is damaged or the backend cannot run it. */
int judge_folder(const char *folder, const Backend *backend, Error *error);

/* A program whose arguments are such folders: from the arguments to the exit code. `name` starts error
 * lines. */
int judge_program(const char *name, const Backend *(*open_device)(Error *error), int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
