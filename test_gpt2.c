/* The whole model on the CPU against another implementation: logits, loss and every gradient of reference
 * folders.
 *
 *   ./test_gpt2 FOLDER...      exit 0 if all hold, 1 otherwise
 *
 * Each folder is run in fp32 and in bf16. Of each tensor the element nearest to its tolerance is shown;
 * `1% seen` says of how many elements the tolerance is tight enough to notice a change by a hundredth.
 */
#include "dev/reference/judge.h"
#include "llmc/base/file.h"
#include "llmc/compute/cpu_levels.h"

int main(int argc, char **argv)
{
    file_reserve_standard();
    cpu_spin_briefly(argv);
    return judge_program("test_gpt2", cpu_backend, argc, argv);
}
