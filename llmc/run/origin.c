#include "llmc/run/origin.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "llmc/base/file.h"
#include "llmc/base/memory.h"
#include "llmc/comm/comm.h"
#include "llmc/run/agree.h"
#include "llmc/run/nanogpt.h"

/* What init_from asks for, read into its parts. */
typedef struct Wish {
    int is_resume;        /* from a snapshot in out_dir .. */
    const char *snapshot; /* .. or from this one */
    int is_auto;          /* .. or only if there is one */
    const char *path;     /* else from these weights; NULL: from scratch */
} Wish;

#define AUTO "auto"
#define RESUME "resume"

static Wish read_wish(const Options *options)
{
    const char *text = options->init_from;
    if (options->sample_only && !options_is_given(options, "init_from")) {
        return (Wish){.is_resume = 1};
    }
    if (strcmp(text, AUTO) == 0) {
        return (Wish){.is_auto = 1};
    }
    if (strncmp(text, AUTO ":", strlen(AUTO ":")) == 0) {
        return (Wish){.is_auto = 1, .path = text + strlen(AUTO ":")};
    }
    if (strcmp(text, RESUME) == 0) {
        return (Wish){.is_resume = 1};
    }
    if (strncmp(text, RESUME ":", strlen(RESUME ":")) == 0) {
        return (Wish){.is_resume = 1, .snapshot = text + strlen(RESUME ":")};
    }
    return (Wish){.path = strcmp(text, "scratch") == 0 ? NULL : text};
}

/* The shape in options becomes the file's. Options that the user gave must agree with it, but for a lower
 * block_size where positions may be cut off. */
static int adopt_shape(Options *options, const ModelShape *shape, const char *file, int may_lower_block,
                       Error *error)
{
    const struct {
        const char *name;
        int64_t *option;
        int64_t found;
    } rows[] = {{"block_size", &options->block_size, shape->block_size},
                {"vocab_size", &options->vocab_size, shape->vocab_size},
                {"n_layer", &options->n_layer, shape->n_layer},
                {"n_head", &options->n_head, shape->n_head},
                {"n_embd", &options->n_embd, shape->n_embd}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int is_lowered = i == 0 && may_lower_block && options_is_given(options, rows[i].name) &&
                         *rows[i].option < rows[i].found;
        if (is_lowered) {
            continue;
        }
        if (options_is_given(options, rows[i].name) && *rows[i].option != rows[i].found) {
            return error_set(error,
                             "%s=%" PRId64 ": %.500s has %s=%" PRId64
                             "; leave the option out, or start another run in another out_dir",
                             rows[i].name, *rows[i].option, file, rows[i].name, rows[i].found);
        }
        *rows[i].option = rows[i].found;
    }
    return 0;
}

static int open_weights(Origin *origin, Options *options, Error *error)
{
    const char *path = read_wish(options).path; /* the end of init_from */
    size_t before_bytes = (size_t)(path - options->init_from);
    if (nanogpt_find_weights(options->init_from + before_bytes, OPTION_TEXT_BYTES - before_bytes, error) !=
        0) {
        return -1;
    }
    if (!path_exists(path)) {
        return error_set(
            error,
            "init_from=%.500s: expected scratch, resume, auto, a path or auto:PATH, found no such "
            "file; correct the path",
            options->init_from);
    }
    origin->weights = weights_open(path, error);
    if (!origin->weights) {
        return -1;
    }
    ModelShape shape = weights_shape(origin->weights);
    return adopt_shape(options, &shape, path, 1, error);
}

/* How many snapshots out_dir holds; the newest one's step. -1 with *error. */
static int count_snapshots(int64_t *newest, const char *out_dir, Error *error)
{
    int64_t *steps = NULL;
    int count = snapshot_list(&steps, out_dir, error);
    *newest = count > 0 ? steps[0] : 0;
    memory_free(steps);
    return count < 0 ? error_prefix(error, "out_dir") : count;
}

/* Where all snapshots were damaged and set aside, a run was lost: to start anew is for its owner to
 * decide. */
static int refuse_forgetting(const char *out_dir, Error *error)
{
    char name[SNAPSHOT_FILE_BYTES_MAX];
    int status = snapshot_find_damaged(name, out_dir, error);
    if (status == 1) {
        return error_set(
            error,
            "%.500s/%s: damaged, and no good snapshot is beside it; remove it to start from scratch, or "
            "choose another out_dir",
            out_dir, name);
    }
    return status < 0 ? error_prefix(error, "out_dir") : 0;
}

/* A new run writes snapshots of its own; it must not mix them with another's. */
int origin_refuse_overwriting(const Options *options, Error *error)
{
    int64_t newest;
    int count = count_snapshots(&newest, options->out_dir, error);
    if (count < 0) {
        return -1;
    }
    if (count > 0) {
        const char *path = read_wish(options).path;
        return error_set(error,
                         "out_dir=%.500s: holds snapshots (newest step-%08" PRId64
                         ".snap) that a new run would "
                         "overwrite; --init_from=auto%s%.200s goes on with that run, --out_dir=OTHER starts "
                         "another",
                         options->out_dir, newest, path ? ":" : "", path ? path : "");
    }
    return refuse_forgetting(options->out_dir, error);
}

/* One snapshot by its path. */
static int find_given(Origin *origin, const char *path, Error *error)
{
    origin->found = SNAPSHOT_NONE;
    if (!path_exists(path)) {
        error_set(&origin->reason, "init_from=resume:%.500s: expected a snapshot, found no such file", path);
        return 0;
    }
    origin->snapshot = snapshot_open(path, error);
    if (!origin->snapshot) {
        return error_prefix(error, "init_from");
    }
    origin->found = SNAPSHOT_FOUND;
    return 0;
}

int origin_find(Origin *origin, const Options *options, int is_owner, Error *error)
{
    Wish wish = read_wish(options);
    memset(origin, 0, sizeof(*origin));
    origin->best_loss = INFINITY;
    origin->found = SNAPSHOT_NONE;
    if (!wish.is_resume && !wish.is_auto) {
        return 0;
    }
    if (wish.snapshot) {
        return find_given(origin, wish.snapshot, error);
    }
    origin->snapshot = snapshot_open_newest(&origin->found, options->out_dir, is_owner, &origin->reason);
    if (!origin->snapshot) {
        error_prefix(&origin->reason, "out_dir");
    }
    if (origin->found == SNAPSHOT_UNREADABLE) {
        *error = origin->reason;
        return -1;
    }
    origin->step = origin->snapshot ? snapshot_info(origin->snapshot)->step : 0;
    return 0;
}

/* No rank has a snapshot. A rank whose snapshots are all damaged says so; else, where one must be, rank 0. */
static int settle_without(const Origin *origin, const Wish *wish, Error *error)
{
    int speaker = agree_find_speaker(origin->found == SNAPSHOT_ALL_DAMAGED);
    speaker = speaker == comm_rank_count() && wish->is_resume ? 0 : speaker;
    if (speaker == comm_rank_count()) {
        return 0;
    }
    if (speaker != comm_rank()) {
        agree_wait_for_the_end();
    }
    *error = origin->reason;
    return -1;
}

int origin_settle(Origin *origin, const Options *options, Error *error)
{
    Wish wish = read_wish(options);
    if (!wish.is_resume && !wish.is_auto) {
        return 0;
    }
    share_compare(&origin->share, origin->snapshot ? snapshot_info(origin->snapshot)->step : -1);
    if (origin->share.newest_step < 0) {
        return settle_without(origin, &wish, error);
    }
    if (origin->share.is_needed) {
        int is_old = origin->snapshot && snapshot_info(origin->snapshot)->step < origin->share.newest_step;
        if (is_old) {
            snapshot_close(origin->snapshot);
            origin->snapshot = NULL;
        }
        share_info(&origin->sent, &origin->share, origin->snapshot);
        origin->info = &origin->sent;
    } else {
        origin->info = snapshot_info(origin->snapshot);
        snprintf(origin->share.name, sizeof(origin->share.name), "%.500s", snapshot_file(origin->snapshot));
    }
    origin->step = origin->info->step;
    origin->best_loss = origin->info->best_loss;
    origin->bad_steps = origin->info->bad_steps;
    return 0;
}

int origin_adopt(Origin *origin, Options *options, Error *error)
{
    int is_training = !options->eval_only && !options->sample_only && options->max_iters > 0;
    int status = 0;
    if (origin->info) {
        status = adopt_shape(options, &origin->info->shape, origin->share.name, 0, error);
    } else if (is_training) {
        status = origin_refuse_overwriting(options, error);
    }
    if (status == 0 && !origin->info && read_wish(options).path) {
        status = open_weights(origin, options, error);
    }
    ModelShape shape = options_shape(options);
    return status == 0 ? model_shape_check(&shape, error) : status;
}

const char *origin_name(const Origin *origin, const Options *options)
{
    const char *path = read_wish(options).path;
    return origin->info ? origin->share.name : path ? path : options->init_from;
}

int origin_goes_back(const Options *options)
{
    return read_wish(options).snapshot != NULL;
}

int origin_clear_way(const Origin *origin, const Options *options, Error *error)
{
    const char *path = read_wish(options).snapshot;
    return path ? snapshot_set_aside_later(options->out_dir, origin->step, path, error) : 0;
}

void origin_close(Origin *origin)
{
    if (origin->snapshot) {
        snapshot_close(origin->snapshot);
    }
    if (origin->weights) {
        weights_close(origin->weights);
    }
    memory_free(origin->sent.options);
    memory_free(origin->sent.plans);
    memory_free(origin->sent.characters);
    memset(origin, 0, sizeof(*origin));
}

int origin_load(Origin *origin, RunModel *model, uint64_t seed, int is_inference, Error *error)
{
    StateSink sink = run_model_sink(model);
    SavedState last = is_inference ? SAVED_WEIGHTS : SAVED_MOMENT2;
    if (origin->info && origin->share.is_needed) {
        return share_state(model, &origin->share, origin->snapshot, last, error);
    }
    if (origin->info) {
        return snapshot_load_finite(origin->snapshot, &model->table, SAVED_WEIGHTS, last, &sink, error);
    }
    if (origin->weights) {
        return weights_load(origin->weights, &model->table, &sink, error);
    }
    run_model_draw_weights(model, seed);
    return 0;
}

void origin_print(const Origin *origin, const Options *options, FILE *out)
{
    if (origin->info) {
        const SnapshotInfo *info = origin->info;
        fprintf(out, "resuming %s: %" PRId64 " updates made\n", origin->share.name, info->step);
        if (!options->sample_only && !options->eval_only) {
            options_print_differences(options, info->options, out);
        }
    } else if (origin->weights) {
        fprintf(out, "starting from %s (%s)\n", read_wish(options).path, weights_kind_name(origin->weights));
    }
}
