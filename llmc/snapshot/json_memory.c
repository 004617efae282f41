#include "llmc/snapshot/json_memory.h"

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>

static _Thread_local int has_failed;

static void *watched_malloc(size_t bytes)
{
    void *block = malloc(bytes);
    has_failed |= !block;
    return block;
}

static pthread_once_t installed = PTHREAD_ONCE_INIT;

/* What jansson allocated before may be freed afterwards: it is the same memory. */
static void install(void)
{
    json_set_alloc_funcs(watched_malloc, free);
}

void json_memory_watch(void)
{
    pthread_once(&installed, install);
    has_failed = 0;
}

int json_memory_failed(void)
{
    return has_failed;
}
