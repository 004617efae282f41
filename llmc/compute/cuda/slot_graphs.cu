#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/compute/cuda/cuda_model.cuh"

/* What a slot's work depends on besides memory. */
typedef struct GraphKey {
    SlotPart *part;
    void (*range_done)(void *context, int64_t offset, int64_t count);
    void *range_context;
    int is_first, is_last;
    int turn; /* of a last slot's step: its buckets have events of their own in every other step */
} GraphKey;

typedef struct Recording {
    GraphKey key;
    int use_count;
    cudaGraphExec_t graph; /* from the second use on */
} Recording;

/* Two parts of a first, a middle, a last and an only slot, the last two in turns; and some to spare. */
enum { RECORDINGS_MAX = 16 };

struct SlotGraphs {
    Recording recordings[RECORDINGS_MAX];
    int count;
};

static void drop(void *context)
{
    SlotGraphs *graphs = (SlotGraphs *)context;
    for (int i = 0; i < graphs->count; i++) {
        if (graphs->recordings[i].graph) {
            CUDA_CHECK(cudaGraphExecDestroy(graphs->recordings[i].graph));
        }
    }
    graphs->count = 0;
}

SlotGraphs *slot_graphs_create(CudaQueue *queue)
{
    SlotGraphs *graphs = (SlotGraphs *)memory_alloc_zeroed(1, sizeof(SlotGraphs), "slot graphs");
    queue->drop_graphs = drop;
    queue->context = graphs;
    return graphs;
}

void slot_graphs_free(SlotGraphs *graphs)
{
    if (graphs) {
        drop(graphs);
        memory_free(graphs);
    }
}

/* NULL when there is no room for another. */
static Recording *recording_of(SlotGraphs *graphs, SlotPart *part, const SlotContext *context)
{
    GraphKey key;
    memset(&key, 0, sizeof(key));
    key.part = part;
    key.is_first = context->is_first;
    key.is_last = context->is_last;
    if (context->is_last) {
        key.turn = (int)(context->step % 2);
        key.range_done = context->range_done;
        key.range_context = context->range_context;
    }
    for (int i = 0; i < graphs->count; i++) {
        if (memcmp(&graphs->recordings[i].key, &key, sizeof(key)) == 0) {
            return &graphs->recordings[i];
        }
    }
    if (graphs->count == RECORDINGS_MAX) {
        return NULL;
    }
    Recording *recording = &graphs->recordings[graphs->count++];
    memset(recording, 0, sizeof(*recording));
    recording->key = key;
    return recording;
}

/* Other threads may use the device meanwhile: the snapshot's does. Kernels keep the priority of the stream
 * that they were captured from only if asked to: else a bucket would wait behind blocks of backward. */
static cudaGraphExec_t record(Model *model, SlotPart *part, const SlotContext *context)
{
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CUDA_CHECK(cudaStreamBeginCapture(model->stream, cudaStreamCaptureModeThreadLocal));
    part(model, context);
    CUDA_CHECK(cudaStreamEndCapture(model->stream, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&executable, graph, cudaGraphInstantiateFlagUseNodePriority));
    CUDA_CHECK(cudaGraphDestroy(graph));
    return executable;
}

/* The first use is not recorded: in it the libraries choose algorithms, allocate and connect. All ranks use
 * each part with buckets once a step, so that all record and replay it at the same time, as NCCL demands. */
void slot_graphs_run(Model *model, SlotPart *part, const SlotContext *context)
{
    Recording *recording = NULL;
    if (model->graphs && !context->is_traced) {
        recording = recording_of(model->graphs, part, context);
    }
    if (!recording || recording->use_count++ == 0) {
        part(model, context);
        return;
    }
    if (!recording->graph) {
        recording->graph = record(model, part, context);
    }
    CUDA_CHECK(cudaGraphLaunch(recording->graph, model->stream));
}
