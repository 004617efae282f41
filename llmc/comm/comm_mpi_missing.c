/* Stands in for comm_mpi.c where MPI=0 leaves that out: launch_detect then refuses jobs that need it. */
#include <stdio.h>

#include "llmc/comm/transport.h"

const char *comm_name_mpi(char text[COMM_LIBRARY_BYTES])
{
    snprintf(text, COMM_LIBRARY_BYTES, "left out (MPI=0); torchrun and the like can start ranks");
    return text;
}

const Transport transport_mpi = {.is_built = 0};
