/* The model of a run as run/ sees it: a backend, what it created, and the table that names its parameters.
 * Whatever crosses the seam as a whole (initial weights, files, the hash that names a result) goes through
 * here.
 */
#ifndef LLMC_RUN_RUN_MODEL_H
#define LLMC_RUN_RUN_MODEL_H

#include <stdint.h>

#include "llmc/compute/backend.h"
#include "llmc/model/params.h"
#include "llmc/snapshot/state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Owned by the caller: run_model_init, run_model_release. */
typedef struct RunModel {
    const Backend *backend;
    Model *model;
    ParamTable table;
} RunModel;

/* -1 with *error when the device cannot hold it. All state is zero then. */
int run_model_init(RunModel *model, const Backend *backend, const ModelConfig *config, Error *error);
void run_model_release(RunModel *model);

/* GPT-2's initial weights, drawn by counter on all threads; moments stay zero. */
void run_model_draw_weights(RunModel *model, uint64_t seed);

/* Hash of the fp32 weights: tensor by tensor in the table's order, padding left out. What two runs are
 * compared by; the same for any number of threads. */
uint64_t run_model_hash(const RunModel *model);

/* For files. Valid while the model is. */
StateSource run_model_source(RunModel *model);
StateSink run_model_sink(RunModel *model);

#ifdef __cplusplus
}
#endif
#endif
