#include "llmc/base/version.h"

void version_print(FILE *out, const char *name)
{
    /* The Makefile knows: __VERSION__ does not say whose it is. */
    fprintf(out, "%s %s\ncompiler: %s\n", name, PROGRAM_VERSION, BUILD_COMPILER);
}
