#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "llmc/base/memory.h"
#include "llmc/snapshot/snapshot.h"
#include "llmc/snapshot/snapshot_verify.h"

enum { STEP_DIGITS_MIN = 8, STEP_DIGITS_MAX = 18 };

/* The step that a file name holds, and what follows it ("" or ".tmp.123"). -1 for other names. */
static int64_t parse_name(const char *name, const char **rest)
{
    if (strncmp(name, "step-", 5) != 0) {
        return -1;
    }
    const char *digits = name + 5;
    size_t count = strspn(digits, "0123456789");
    if (count < STEP_DIGITS_MIN || count > STEP_DIGITS_MAX || (count > STEP_DIGITS_MIN && digits[0] == '0') ||
        strncmp(digits + count, ".snap", 5) != 0) {
        return -1;
    }
    *rest = digits + count + 5;
    return strtoll(digits, NULL, 10);
}

static int compare_newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

int snapshot_list(int64_t **steps, const char *out_dir, Error *error)
{
    int64_t *found = NULL;
    size_t count = 0;
    size_t capacity = 0;
    *steps = NULL;
    DIR *folder = opendir(out_dir);
    if (!folder && errno == ENOENT) {
        return 0;
    }
    if (!folder) {
        return error_set(error, "%s: cannot list the folder: %s", out_dir, strerror(errno));
    }
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        const char *rest;
        int64_t step = parse_name(entry->d_name, &rest);
        if (step < 0 || *rest != '\0') {
            continue;
        }
        if (count == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            found = memory_grow(found, count, capacity, sizeof(*found), "list of snapshots");
        }
        found[count++] = step;
    }
    closedir(folder);
    if (count > 0) {
        qsort(found, count, sizeof(*found), compare_newest_first);
    }
    *steps = found;
    return (int)count;
}

/* Name a damaged file on stderr and take it out of the way. */
static int set_aside(const char *path, const Error *reason, Error *error)
{
    char aside[PATH_BYTES_MAX + 16];
    snprintf(aside, sizeof(aside), "%s.damaged", path);
    if (rename(path, aside) != 0) {
        return error_set(error, "%s: damaged, and cannot be renamed: %s", path, strerror(errno));
    }
    fprintf(stderr, "warning: %s; set aside as %s\n", reason->text, aside);
    return 0;
}

/* Open one snapshot of a folder; a file that holds another step than its name says was not put there by a
 * run. */
static int open_step(Snapshot **snapshot, const char *path, int64_t step, Error *error)
{
    int status = snapshot_open_status(snapshot, path, error);
    if (status == FRAMES_OK && snapshot_info(*snapshot)->step != step) {
        error_set(error, "%s: expected step %" PRId64 " as its name says, found step %" PRId64, path, step,
                  snapshot_info(*snapshot)->step);
        snapshot_close(*snapshot);
        *snapshot = NULL;
        status = FRAMES_DAMAGED;
    }
    return status;
}

Snapshot *snapshot_open_newest(const char *out_dir, Error *error)
{
    int64_t *steps;
    int count = snapshot_list(&steps, out_dir, error);
    Snapshot *snapshot = NULL;
    int status = FRAMES_DAMAGED;
    for (int i = 0; i < count && status == FRAMES_DAMAGED; i++) {
        char path[PATH_BYTES_MAX];
        Error reason;
        status = snapshot_path(path, out_dir, steps[i], &reason);
        if (status == FRAMES_OK) {
            status = open_step(&snapshot, path, steps[i], &reason);
        }
        if (status == FRAMES_DAMAGED && set_aside(path, &reason, &reason) != 0) {
            status = FRAMES_UNREADABLE;
        }
        if (status == FRAMES_UNREADABLE) {
            error_set(error, "%s", reason.text);
        }
    }
    memory_free(steps);
    if (count == 0) {
        error_set(error,
                  "%s: expected a snapshot (step-*.snap) to resume from, found none; use init_from=scratch",
                  out_dir);
    } else if (count > 0 && status == FRAMES_DAMAGED) {
        error_set(error, "%s: expected a whole snapshot, found %d, all damaged; they are kept as *.damaged",
                  out_dir, count);
    }
    return snapshot;
}

int snapshot_prune(const char *out_dir, int keep, int64_t milestone_interval, Error *error)
{
    if (keep <= 0) {
        return 0;
    }
    int64_t *steps;
    int count = snapshot_list(&steps, out_dir, error);
    int status = count < 0 ? -1 : 0;
    int deleted = 0;
    for (int i = keep; i < count && status == 0; i++) {
        char path[PATH_BYTES_MAX];
        if (milestone_interval > 0 && steps[i] % milestone_interval == 0) {
            continue;
        }
        status = snapshot_path(path, out_dir, steps[i], error);
        if (status == 0 && unlink(path) != 0 && errno != ENOENT) {
            status = error_set(error, "%s: cannot delete: %s", path, strerror(errno));
        }
        deleted++;
    }
    memory_free(steps);
    return status == 0 && deleted > 0 ? folder_sync(out_dir, error) : status;
}

int snapshot_remove_leftovers(const char *out_dir, Error *error)
{
    DIR *folder = opendir(out_dir);
    if (!folder && errno == ENOENT) {
        return 0;
    }
    if (!folder) {
        return error_set(error, "%s: cannot list the folder: %s", out_dir, strerror(errno));
    }
    int status = 0;
    for (struct dirent *entry = readdir(folder); entry && status == 0; entry = readdir(folder)) {
        const char *rest;
        if (parse_name(entry->d_name, &rest) >= 0 && strncmp(rest, ".tmp.", 5) == 0 &&
            unlinkat(dirfd(folder), entry->d_name, 0) != 0 && errno != ENOENT) {
            status = error_set(error, "%s/%s: cannot delete: %s", out_dir, entry->d_name, strerror(errno));
        }
    }
    closedir(folder);
    return status;
}
