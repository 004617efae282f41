/* Stands in for comm_mpi.c where MPI=0 leaves that out: launch_detect then refuses jobs that need it. */
#include "llmc/comm/transport.h"

const Transport transport_mpi = {.is_built = 0};
