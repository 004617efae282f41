/* Which program this is, and how it was built: what --version prints of it. */
#ifndef LLMC_BASE_VERSION_H
#define LLMC_BASE_VERSION_H

#include <stdio.h>

#define PROGRAM_VERSION "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/* "NAME 0.1.0" and the compiler, a line each. What else a program is made of follows by its own functions. */
void version_print(FILE *out, const char *name);

#ifdef __cplusplus
}
#endif
#endif
