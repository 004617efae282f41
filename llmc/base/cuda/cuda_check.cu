#include "llmc/base/cuda/cuda_check.h"

void cuda_fault(const char *file, int line, const char *call, const char *what)
{
    char way_out[ERROR_WAY_OUT_BYTES];
    error_way_out(way_out);
    error_exit(EXIT_FAULT,
               "GPU fault: %s (%s:%d, %.60s, or any call before it: CUDA_LAUNCH_BLOCKING=1 in the "
               "environment and --cuda_graph=false tell which); %s",
               what, file, line, call, way_out);
}
