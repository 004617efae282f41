/* Trains GPT-2 on an NVIDIA GPU.
 *
 *   ./train_gpt2cu [config file] [--name=value ...]      --help lists the options
 *
 * Reading order: as in train_gpt2.c, then llmc/compute/cuda (how the GPU does it), one operation a file, each
 * the twin of one in llmc/compute/cpu.
 */
#include "llmc/comm/comm.h"
#include "llmc/compute/cuda/cuda_backend.h"
#include "llmc/run/program.h"

static const Backend *open_gpu(Error *error)
{
    if (comm_rank_count() > 1) {
        error_set(
            error,
            "%d ranks: expected 1, as train_gpt2cu trains on one GPU so far; ./train_gpt2 trains on any "
            "number of ranks",
            comm_rank_count());
        return NULL;
    }
    return cuda_backend(error);
}

int main(int argc, char **argv)
{
    return program_run("train_gpt2cu", open_gpu, argc, argv);
}
