/* A log in a folder of its own, whose console is text in memory, for the tests that include it. */
#ifndef DEV_TEST_LOG_FIXTURE_H
#define DEV_TEST_LOG_FIXTURE_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "llmc/base/file.h"
#include "llmc/run/log.h"

static char folder[] = "test_log_XXXXXX";

static inline int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static inline void remove_log(void)
{
    char path[PATH_BYTES_MAX];
    snprintf(path, sizeof(path), "%s/log.jsonl", folder);
    unlink(path);
}

static inline int remove_folder(void **state)
{
    (void)state;
    remove_log();
    return rmdir(folder);
}

/* A log whose console is text in memory. */
typedef struct Captured {
    Log log;
    char *console;
    size_t console_bytes;
} Captured;

static inline void open_captured(Captured *captured)
{
    Error error;
    memset(captured, 0, sizeof(*captured));
    if (log_init(&captured->log, folder, &error) != 0) {
        fail_msg("%s", error.text);
    }
    captured->log.console = open_memstream(&captured->console, &captured->console_bytes);
}

static inline void close_captured(Captured *captured)
{
    FILE *console = captured->log.console;
    log_release(&captured->log);
    fclose(console);
}

/* Line `number` of log.jsonl as JSON; the caller releases it. */
static inline json_t *read_line(int number)
{
    char path[PATH_BYTES_MAX];
    snprintf(path, sizeof(path), "%s/log.jsonl", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *line = NULL;
    size_t capacity = 0;
    for (int i = 0; i <= number; i++) {
        assert_true(getline(&line, &capacity, file) > 0);
    }
    fclose(file);
    json_t *json = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    if (!json) {
        fail_msg("line %d is no JSON: %s", number, line);
    }
    free(line);
    return json;
}

static inline double number_of(const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    if (!json_is_number(value)) {
        fail_msg("%s is missing or no number", key);
    }
    return json_number_value(value);
}

#endif
