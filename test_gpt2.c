/* The whole model against another implementation: logits, loss and every gradient of reference folders.
 *
 *   ./test_gpt2 FOLDER...      exit 0 if all hold, 1 otherwise
 *
 * Each folder is run in fp32 and in bf16. Of each tensor the element nearest to its tolerance is shown;
 * `1% seen` says of how many elements the tolerance is tight enough to notice a change by a hundredth.
 */
#include <stdio.h>

#include "dev/reference/judge.h"
#include "dev/reference/reference.h"
#include "llmc/base/error.h"
#include "llmc/compute/cpu_levels.h"

int main(int argc, char **argv)
{
    Error error;
    cpu_spin_briefly(argv);
    error_set_program("test_gpt2");
    if (argc < 2 || argv[1][0] == '-') {
        error_exit(EXIT_FAILED, "usage: test_gpt2 FOLDER...   (reference folders, such as dev/reference/*/)");
    }
    const Backend *backend = cpu_backend(&error);
    if (!backend) {
        error_exit(EXIT_FAILED, "%s", error.text);
    }
    int failed_count = 0;
    for (int i = 1; i < argc; i++) {
        int failed = judge_folder(argv[i], backend, &error);
        if (failed < 0) {
            fprintf(stderr, "test_gpt2: %s\n", error.text);
        }
        failed_count += failed != 0;
    }
    printf("%d of %d folders hold\n", argc - 1 - failed_count, argc - 1);
    return failed_count ? EXIT_FAILED : EXIT_DONE;
}
