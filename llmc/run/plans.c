#include "llmc/run/run.h"

#include <stdio.h>
#include <string.h>

#include "llmc/base/hash.h"
#include "llmc/base/memory.h"
#include "llmc/comm/comm.h"

/* Rank 0's text (NULL: none) for every rank. The caller frees it with memory_free. */
static char *share_text(const char *own)
{
    char *text = memory_copy_text(own, "plans");
    int64_t bytes = text ? (int64_t)strlen(text) + 1 : 0;
    comm_broadcast(&bytes, sizeof(bytes), 0);
    if (bytes > 0) {
        text = text ? text : memory_alloc((size_t)bytes, 1, "plans");
        comm_broadcast(text, bytes, 0);
    }
    return text;
}

int run_create_model(Run *run, const Backend *backend, const ModelConfig *standard, const char *recorded,
                     Error *error)
{
    ModelConfig config = *standard;
    config.plans = recorded;
    config.autotunes = run->options.autotune && run->is_training;
    int is_shared = config.autotunes && run->rank_count > 1;
    char *shared = NULL;
    if (is_shared && run->rank != 0) { /* rank 0 times first, and the others do as it does */
        shared = share_text(NULL);
        config.plans = shared;
        config.autotunes = 0;
    }
    int status = run_model_init(&run->model, backend, &config, error);
    if (status == 0) {
        ModelFacts facts;
        backend->describe(&facts, run->model.model);
        if (is_shared && run->rank == 0) {
            shared = share_text(facts.plans);
        }
        run->plans = memory_copy_text(facts.plans ? facts.plans : recorded, "plans");
        run->plans_origin = !facts.plans                                     ? PLANS_NONE
                            : recorded && strcmp(facts.plans, recorded) == 0 ? PLANS_REPEATED
                                                                             : PLANS_TIMED;
    }
    memory_free(shared);
    return status;
}

/* A notice that was not told yet, else NULL. From here on it counts as told. */
static const char *new_notice(Run *run)
{
    ModelFacts facts;
    run->model.backend->describe(&facts, run->model.model);
    uint64_t hash = facts.plans_notice ? hash_bytes(facts.plans_notice, strlen(facts.plans_notice), 1) : 0;
    int is_new = facts.plans_notice && hash != run->plans_notice;
    run->plans_notice = hash;
    return is_new ? facts.plans_notice : NULL;
}

void run_log_plans_notice(Run *run, int64_t iter)
{
    const char *notice = new_notice(run);
    if (notice) {
        log_notice(&run->log, iter, run->rank, notice);
    }
}

void run_print_plans(Run *run, FILE *out)
{
    const char *notice = new_notice(run);
    if (notice && run->rank == 0) {
        fprintf(out, "notice: %s\n", notice);
    } else if (notice) {
        fprintf(out, "notice: rank %d: %s\n", run->rank, notice);
    }
    if (run->rank == 0 && run->is_training && run->options.autotune && run->plans_origin == PLANS_NONE) {
        fprintf(out, "notice: autotune: only the CUDA program has anything to tune\n");
    }
}
