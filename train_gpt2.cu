/* Trains GPT-2 on an NVIDIA GPU.
 *
 *   ./train_gpt2cu [config file] [--name=value ...]      --help lists the options
 *
 * Reading order: as in train_gpt2.c, then llmc/compute/cuda (how the GPU does it), one operation a file, each
 * the twin of one in llmc/compute/cpu.
 */
#include "llmc/base/file.h"
#include "llmc/compute/cuda/cuda_backend.h"
#include "llmc/run/program.h"

static const Backend *open_gpu(const Options *options, Error *error)
{
    return options->share_gpus ? cuda_backend_shared(error) : cuda_backend(error);
}

int main(int argc, char **argv)
{
    file_reserve_standard();
    static const Program program = {"train_gpt2cu", open_gpu, cuda_print_build};
    return program_run(&program, argc, argv);
}
