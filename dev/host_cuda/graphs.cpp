/* Graphs: what streams are given while they are captured, and run later, as often as it is launched. Each
 * captured stream becomes a queue of its own for a launch; only what was captured orders them. */
#include <algorithm>
#include <thread>

#include "streams.h"

struct Node {
    Work work;
    int queue;                  /* which of the captured streams */
    std::vector<int> waits_for; /* nodes, those of other queues too */
    cudaEvent_t records;        /* an external event, or NULL */
};

struct CUgraph_st {
    std::vector<Node> nodes;
    int queues_count;
    bool has_levels; /* its streams had several priorities */
};

struct CUgraphExec_st {
    CUgraph_st graph;
    std::shared_ptr<Record> last; /* the end of the last launch */
};

/* From cudaStreamBeginCapture to cudaStreamEndCapture; events may keep it longer. */
struct Capture {
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    bool is_invalid, is_over;
    std::vector<cudaStream_t> streams; /* the first began it, the others joined */
    std::vector<Node> nodes;
};

static std::vector<std::shared_ptr<Capture>> &captures = *new std::vector<std::shared_ptr<Capture>>();

/* ---- mistakes while a capture goes on ----------------------------------------------------------------- */

static cudaError_t invalidate(Capture *capture, cudaError_t error)
{
    capture->is_invalid = true;
    return error;
}

cudaError_t capture_forbids(CaptureUse use)
{
    cudaError_t error = cudaSuccess;
    for (const std::shared_ptr<Capture> &capture : captures) {
        bool is_blocking = false;
        for (cudaStream_t stream : capture->streams) {
            is_blocking = is_blocking || stream->is_blocking;
        }
        bool is_watched = capture->mode == cudaStreamCaptureModeGlobal ||
                          (capture->mode == cudaStreamCaptureModeThreadLocal &&
                           capture->thread == std::this_thread::get_id());
        if (use == CAPTURE_USE_NULL_STREAM && is_blocking) {
            error = invalidate(capture.get(), cudaErrorStreamCaptureImplicit);
        } else if (use == CAPTURE_USE_DEVICE || (use == CAPTURE_USE_UNSAFE && is_watched)) {
            error = invalidate(capture.get(), cudaErrorStreamCaptureUnsupported);
        }
    }
    return error;
}

cudaError_t capture_forbids_stream(cudaStream_t stream)
{
    if (stream && stream->capture) {
        return invalidate(stream->capture.get(), cudaErrorStreamCaptureUnsupported);
    }
    cudaError_t error = stream ? cudaSuccess : capture_forbids(CAPTURE_USE_NULL_STREAM);
    return error ? error : capture_forbids(CAPTURE_USE_UNSAFE);
}

cudaError_t capture_forbids_event(cudaEvent_t event)
{
    if (event->capture) {
        return invalidate(event->capture.get(), cudaErrorCapturedEvent);
    }
    return capture_forbids(CAPTURE_USE_UNSAFE);
}

/* ---- what is captured --------------------------------------------------------------------------------- */

static int queue_of(const Capture *capture, cudaStream_t stream)
{
    auto found = std::find(capture->streams.begin(), capture->streams.end(), stream);
    return (int)(found - capture->streams.begin());
}

cudaError_t capture_add(cudaStream_t stream, Work work, cudaEvent_t records)
{
    Capture *capture = stream->capture.get();
    if (capture->is_invalid) {
        return cudaErrorStreamCaptureInvalidated;
    }
    capture->nodes.push_back(Node{std::move(work), queue_of(capture, stream), stream->heads, records});
    stream->heads = {(int)capture->nodes.size() - 1};
    return cudaSuccess;
}

cudaError_t capture_record(cudaEvent_t event, cudaStream_t stream)
{
    if (stream->capture->is_invalid) {
        return cudaErrorStreamCaptureInvalidated;
    }
    event->capture = stream->capture;
    event->heads = stream->heads;
    return cudaSuccess;
}

cudaError_t capture_wait(cudaStream_t stream, cudaEvent_t event)
{
    Capture *capture = event->capture.get();
    Capture *own = stream ? stream->capture.get() : NULL;
    if (own && capture != own) { /* only what is in the capture may come before */
        invalidate(own, cudaSuccess);
        return capture && !capture->is_over ? invalidate(capture, cudaErrorStreamCaptureMerge)
                                            : cudaErrorStreamCaptureIsolation;
    }
    if (capture->is_over) {
        return cudaErrorCapturedEvent;
    }
    if (!stream) {
        return invalidate(capture, cudaErrorStreamCaptureImplicit);
    }
    if (capture->is_invalid) {
        return cudaErrorStreamCaptureInvalidated;
    }
    if (!own) { /* it joins */
        stream->capture = event->capture;
        stream->heads.clear();
        if (queue_of(capture, stream) == (int)capture->streams.size()) {
            capture->streams.push_back(stream);
        }
    }
    for (int node : event->heads) {
        if (std::find(stream->heads.begin(), stream->heads.end(), node) == stream->heads.end()) {
            stream->heads.push_back(node);
        }
    }
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    ApiCall call;
    if (call.error) {
        return call.error;
    }
    if (!stream) {
        return call.end(cudaErrorStreamCaptureUnsupported);
    }
    if (stream->capture) {
        return call.end(cudaErrorIllegalState);
    }
    stream->capture = std::make_shared<Capture>(
        Capture{mode, std::this_thread::get_id(), false, false, {stream}, std::vector<Node>()});
    stream->heads.clear();
    captures.push_back(stream->capture);
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    ApiCall call;
    *status = !stream || !stream->capture   ? cudaStreamCaptureStatusNone
              : stream->capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                            : cudaStreamCaptureStatusActive;
    return call.error;
}

/* Nodes that no other waits for. */
static std::vector<int> leaves(const std::vector<Node> &nodes)
{
    std::vector<bool> is_awaited(nodes.size());
    std::vector<int> found;
    for (const Node &node : nodes) {
        for (int other : node.waits_for) {
            is_awaited[other] = true;
        }
    }
    for (size_t i = 0; i < nodes.size(); i++) {
        if (!is_awaited[i]) {
            found.push_back((int)i);
        }
    }
    return found;
}

static bool has_levels(const Capture *capture)
{
    bool found = false;
    for (cudaStream_t stream : capture->streams) {
        found = found || stream->level != capture->streams[0]->level;
    }
    return found;
}

static void end_capture(const std::shared_ptr<Capture> &capture)
{
    capture->is_over = true;
    for (cudaStream_t stream : capture->streams) {
        stream->capture = NULL;
    }
    captures.erase(std::find(captures.begin(), captures.end(), capture));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    ApiCall call;
    *graph = NULL;
    if (call.error || !stream || !stream->capture) {
        return call.end(call.error ? call.error : cudaErrorIllegalState);
    }
    std::shared_ptr<Capture> capture = stream->capture;
    if (capture->streams[0] != stream) {
        return call.end(invalidate(capture.get(), cudaErrorStreamCaptureUnmatched));
    }
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
        return call.end(cudaErrorStreamCaptureWrongThread);
    }
    end_capture(capture);
    if (capture->is_invalid) {
        return call.end(cudaErrorStreamCaptureInvalidated);
    }
    for (int leaf : leaves(capture->nodes)) {
        if (std::find(stream->heads.begin(), stream->heads.end(), leaf) == stream->heads.end()) {
            return call.end(cudaErrorStreamCaptureUnjoined);
        }
    }
    /* moved: events may keep the capture, but what its nodes hold goes with the graph */
    *graph =
        new CUgraph_st{std::move(capture->nodes), (int)capture->streams.size(), has_levels(capture.get())};
    return cudaSuccess;
}

/* ---- graphs ------------------------------------------------------------------------------------------- */

/* Which stream goes on is drawn; but a program that gives its streams priorities wants them in graphs too. */
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    ApiCall call;
    *exec = NULL;
    if (call.error || (flags != 0 && flags != cudaGraphInstantiateFlagUseNodePriority)) {
        return call.end(call.error ? call.error : cudaErrorInvalidValue);
    }
    if (graph->has_levels && flags == 0) {
        check_failed(NULL,
                     "cudaGraphInstantiate: streams of several priorities, which the graph would not keep");
    }
    *exec = new CUgraphExec_st{*graph, NULL};
    return cudaSuccess;
}

/* What one node is in this launch, which began with `begin`; ends[i] is when node i has run. */
static Work node_work(const CUgraph_st &graph, int number, const std::shared_ptr<Record> &begin,
                      const std::vector<std::shared_ptr<Record>> &ends)
{
    const Node &node = graph.nodes[number];
    Work work = node.work;
    work.waits_for.push_back(begin);
    for (int other : node.waits_for) {
        if (graph.nodes[other].queue != node.queue) {
            work.waits_for.push_back(ends[other]);
        }
    }
    work.records = ends[number];
    if (node.records) {
        event_record(node.records, ends[number], "cudaGraphLaunch");
    }
    return work;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    ApiCall call;
    const CUgraph_st &graph = exec->graph;
    cudaError_t error = call.error                  ? call.error
                        : !stream_is_here(stream)   ? cudaErrorInvalidResourceHandle
                        : stream && stream->capture ? capture_forbids_stream(stream)
                        : stream                    ? cudaSuccess
                                                    : capture_forbids(CAPTURE_USE_NULL_STREAM);
    if (error) {
        return call.end(error);
    }
    std::vector<cudaStream_t> queues;
    std::vector<std::shared_ptr<Record>> ends;
    Work first, last;
    if (exec->last) {
        first.waits_for.push_back(exec->last);
    }
    first.records = std::make_shared<Record>();
    stream_queue(stream, first);
    for (int i = 0; i < graph.queues_count; i++) {
        queues.push_back(stream_add_hidden());
    }
    for (size_t i = 0; i < graph.nodes.size(); i++) {
        ends.push_back(std::make_shared<Record>());
        stream_queue(queues[graph.nodes[i].queue], node_work(graph, (int)i, first.records, ends));
    }
    for (int leaf : leaves(graph.nodes)) {
        last.waits_for.push_back(ends[leaf]);
    }
    last.records = exec->last = std::make_shared<Record>();
    last.run = [queues] {
        for (cudaStream_t queue : queues) {
            stream_remove(queue);
        }
    };
    stream_queue(stream, last);
    return call.end(stream_limit(&call));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    ApiCall call;
    delete graph;
    return call.error;
}

/* Launches of it that are queued go on. */
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    ApiCall call;
    delete exec;
    return call.error;
}
