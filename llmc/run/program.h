/* The program that trains, evaluates and samples, whatever the device. train_gpt2.c and train_gpt2.cu call it
 * with theirs.
 */
#ifndef LLMC_RUN_PROGRAM_H
#define LLMC_RUN_PROGRAM_H

#include "llmc/base/error.h"
#include "llmc/compute/backend.h"
#include "llmc/run/options.h"

#ifdef __cplusplus
extern "C" {
#endif

/* From the arguments to the exit code. `name` starts error lines; open_device returns NULL with *error where
 * there is no device that it can use. */
typedef const Backend *OpenDevice(const Options *options, Error *error);
int program_run(const char *name, OpenDevice *open_device, int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
