/* A backend against a reference folder. */
#ifndef LLMC_REFERENCE_JUDGE_H
#define LLMC_REFERENCE_JUDGE_H

#include "llmc/base/error.h"
#include "llmc/compute/backend.h"

/* Run one folder in fp32 and bf16 and print a line for each tensor. Returns 0 if all hold, 1 if not, -1 with
 * *error when the folder is damaged or the backend cannot run it. */
int judge_folder(const char *folder, const Backend *backend, Error *error);

#endif
