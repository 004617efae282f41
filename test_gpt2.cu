/* The whole model on an NVIDIA GPU against another implementation: test_gpt2.c's twin.
 *
 *   ./test_gpt2cu FOLDER...      exit 0 if all hold, 1 otherwise
 */
#include "dev/reference/judge.h"
#include "llmc/base/file.h"
#include "llmc/compute/cuda/cuda_backend.h"

int main(int argc, char **argv)
{
    file_reserve_standard();
    return judge_program("test_gpt2cu", cuda_backend, argc, argv);
}
