/* What the last lines of an earlier run's log.jsonl say. */

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/base/file.h"
#include "llmc/base/memory.h"
#include "llmc/run/log.h"

enum { TAIL_BYTES = 1 << 16 };

/* The last TAIL_BYTES of out_dir/log.jsonl, with a zero after them; NULL where it cannot be read. Owned by
 * the caller: memory_free. */
static char *read_tail(const char *out_dir)
{
    char path[PATH_BYTES_MAX];
    if (path_join(path, out_dir, "log.jsonl", NULL) != 0) {
        return NULL;
    }
    int descriptor = file_open(path, O_RDONLY, NULL);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "r");
    if (!file) {
        return NULL;
    }
    if (fseek(file, -TAIL_BYTES, SEEK_END) != 0) {
        rewind(file); /* shorter than that */
    }
    char *tail = memory_alloc_zeroed(TAIL_BYTES + 1, 1, "end of log.jsonl");
    size_t bytes = fread(tail, 1, TAIL_BYTES, file);
    fclose(file);
    for (size_t i = 0; i < bytes; i++) { /* holes that a crash of the machine may leave */
        tail[i] = tail[i] ? tail[i] : ' ';
    }
    return tail;
}

/* A number of the line that `line` points into; NAN where it has none of that name. */
static double number_of(const char *line, const char *name)
{
    char key[64];
    snprintf(key, sizeof(key), "\"%s\":", name);
    const char *at = strstr(line, key), *end = strchr(line, '\n');
    double number;
    return at && (!end || at < end) && sscanf(at + strlen(key), "%lf", &number) == 1 ? number : NAN;
}

/* Find the event, and the numbers of these names (count of them) in it. */
static int find_event(double *numbers, const char *const *names, int count, const char *out_dir,
                      const char *event, int64_t iter)
{
    char wanted[64];
    snprintf(wanted, sizeof(wanted), "{\"event\":\"%s\",\"iter\":%" PRId64 ",", event, iter);
    char *tail = read_tail(out_dir);
    const char *line = tail ? strstr(tail, wanted) : NULL;
    for (int i = 0; line && i < count; i++) {
        numbers[i] = number_of(line, names[i]);
    }
    memory_free(tail);
    return line != NULL;
}

int log_has_event(const char *out_dir, const char *event, int64_t iter)
{
    return find_event(NULL, NULL, 0, out_dir, event, iter);
}

int log_find_eval(double *train_loss, double *val_loss, const char *out_dir, int64_t iter)
{
    double found[2];
    if (!find_event(found, (const char *const[]){"train_loss", "val_loss"}, 2, out_dir, "eval", iter)) {
        return 0;
    }
    *train_loss = found[0];
    *val_loss = found[1];
    return 1;
}

int log_find_hellaswag(double *accuracy, const char *out_dir, int64_t iter)
{
    return find_event(accuracy, (const char *const[]){"accuracy"}, 1, out_dir, "hellaswag", iter);
}
