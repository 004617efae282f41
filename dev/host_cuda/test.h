/* Tests of host_cuda, each in a process of its own: one that must fail ends with exit code 1 and says why. */
#ifndef HOST_CUDA_TEST_H
#define HOST_CUDA_TEST_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev/test/time_scale.h"
#include "llmc/base/cuda/launch.cuh"

#include "instructions.cuh"

struct Test {
    const char *name;
    void (*run)(void);
    const char *complaint; /* a part of the line that it must end with; NULL if it must pass */
};

#define EXPECT(condition, ...)                                                                               \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                                  \
            fprintf(stderr, __VA_ARGS__);                                                                    \
            fprintf(stderr, "\n");                                                                           \
            _exit(2);                                                                                        \
        }                                                                                                    \
    } while (0)

void cuda_fault(const char *file, int line, const char *call, const char *what)
{
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, what);
    _exit(76);
}

/* Run in a child process; its exit code, with what it wrote to stderr in text. */
static inline int run_apart(void (*run)(void), char *text, size_t text_bytes)
{
    int ends[2], status = 0;
    size_t count = 0;
    ssize_t read_now;
    pid_t child;
    fflush(stdout); /* or a child that exits prints it again */
    if (pipe(ends) || (child = fork()) < 0) {
        return -1;
    }
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        alarm(120 * time_scale());
        run();
        _exit(0);
    }
    close(ends[1]);
    while ((read_now = read(ends[0], text + count, text_bytes - 1 - count)) > 0) {
        count += (size_t)read_now;
    }
    text[count] = 0;
    close(ends[0]);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Print TAP; the program's exit code. */
static inline int run_tests(const Test *tests, int count)
{
    int failures = 0;
    for (int i = 0; i < count; i++) {
        char text[4096];
        int code = run_apart(tests[i].run, text, sizeof text);
        const char *complaint = tests[i].complaint;
        const char *end = strchr(text, '\n');
        bool is_ok = complaint ? code == 1 && strstr(text, complaint) && end && !end[1] : code == 0 && !*text;
        printf("%sok %d - %s\n", is_ok ? "" : "not ", i + 1, tests[i].name);
        if (!is_ok) {
            printf("# exit code %d, expected %s; stderr: %s\n", code, complaint ? complaint : "none", text);
        }
        failures += !is_ok;
    }
    printf("1..%d\n", count);
    return failures > 0;
}

static inline unsigned int random_test(unsigned int *state)
{
    return (*state = *state * 1664525u + 1013904223u) >> 8;
}

static inline float random_float(unsigned int *state)
{
    return (float)(random_test(state) % 2001) / 1000.0f - 1.0f;
}

/* Device memory with a copy of `bytes` bytes of `from`, or of zeros. */
template <typename T>
static inline T *on_device(const T *from, size_t count)
{
    T *memory;
    CUDA_CHECK(cudaMalloc(&memory, count * sizeof(T)));
    if (from) {
        CUDA_CHECK(cudaMemcpy(memory, from, count * sizeof(T), cudaMemcpyHostToDevice));
    } else {
        CUDA_CHECK(cudaMemsetAsync(memory, 0, count * sizeof(T), 0));
    }
    return memory;
}

template <typename T>
static inline void from_device(T *to, const T *memory, size_t count)
{
    CUDA_CHECK(cudaMemcpy(to, memory, count * sizeof(T), cudaMemcpyDeviceToHost));
}

/* ---- streams ------------------------------------------------------------------------------------------ */

static inline cudaStream_t new_stream(void)
{
    cudaStream_t stream;
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static inline cudaEvent_t new_event(void)
{
    cudaEvent_t event;
    CUDA_CHECK(cudaEventCreate(&event));
    return event;
}

static inline int *pinned_ints(size_t count)
{
    int *memory;
    CUDA_CHECK(cudaHostAlloc(&memory, count * sizeof(int), cudaHostAllocDefault));
    return memory;
}

static inline void begin_capture(cudaStream_t stream)
{
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

static inline cudaGraphExec_t end_capture(cudaStream_t stream, unsigned long long flags = 0)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&exec, graph, flags));
    CUDA_CHECK(cudaGraphDestroy(graph));
    return exec;
}

/* The later stream goes on when the earlier one has come here. */
static inline void wait_for(cudaStream_t later, cudaStream_t earlier)
{
    cudaEvent_t event = new_event();
    CUDA_CHECK(cudaEventRecord(event, earlier));
    CUDA_CHECK(cudaStreamWaitEvent(later, event, 0));
    CUDA_CHECK(cudaEventDestroy(event));
}

#endif
