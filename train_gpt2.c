/* Trains GPT-2 on the CPU.
 *
 *   ./train_gpt2 [config file] [--name=value ...]      --help lists the options
 *
 * Reading order: llmc/run/program.c (from the arguments to the exit code), llmc/run/train.c (the loop),
 * llmc/compute/backend.h (what a device does), llmc/compute/cpu (how the CPU does it).
 */
#include "llmc/base/file.h"
#include "llmc/compute/cpu_levels.h"
#include "llmc/run/program.h"
#include "llmc/run/stop.h"

static const Backend *open_cpu(const Options *options, Error *error)
{
    (void)options;
    return cpu_backend(error);
}

int main(int argc, char **argv)
{
    file_reserve_standard();
    stop_hold();
    cpu_spin_briefly(argv);
    static const Program program = {"train_gpt2", open_cpu, cpu_levels_print};
    return program_run(&program, argc, argv);
}
