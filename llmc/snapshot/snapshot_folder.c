#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "llmc/base/folder_lock.h"
#include "llmc/base/memory.h"
#include "llmc/snapshot/snapshot.h"
#include "llmc/snapshot/snapshot_verify.h"

enum { STEP_DIGITS_MIN = 8, STEP_DIGITS_MAX = 18 };
#define DAMAGED_SUFFIX ".damaged"

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

/* Called with each entry of a folder. Not 0: end here. */
typedef int VisitEntry(void *context, int folder_descriptor, const char *name);

/* Visit the entries of a folder; a missing one has none. What the last visit returned, or -1 with *error: an
 * error of readdir is not the folder's end. */
static int visit_entries(const char *out_dir, VisitEntry *visit, void *context, Error *error)
{
    DIR *folder = opendir(out_dir);
    if (!folder && errno == ENOENT) {
        return 0;
    }
    if (!folder) {
        return error_set(error, "%s: cannot list the folder: %s", out_dir, strerror(errno));
    }
    int status = 0;
    while (status == 0) {
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (!entry) {
            status =
                errno == 0 ? 0 : error_set(error, "%s: cannot list the folder: %s", out_dir, strerror(errno));
            break;
        }
        status = visit(context, dirfd(folder), entry->d_name);
    }
    closedir(folder);
    return status;
}

typedef struct StepList {
    int64_t *steps;
    size_t count, capacity;
} StepList;

static int add_step(void *context, int folder_descriptor, const char *name)
{
    (void)folder_descriptor;
    StepList *list = context;
    const char *rest;
    int64_t step = parse_name(name, &rest);
    if (step < 0 || *rest != '\0') {
        return 0;
    }
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 16;
        list->steps =
            memory_grow(list->steps, list->count, list->capacity, sizeof(*list->steps), "list of snapshots");
    }
    list->steps[list->count++] = step;
    return 0;
}

int snapshot_list(int64_t **steps, const char *out_dir, Error *error)
{
    StepList list = {0};
    *steps = NULL;
    if (visit_entries(out_dir, add_step, &list, error) != 0) {
        memory_free(list.steps);
        return -1;
    }
    if (list.count > 0) {
        qsort(list.steps, list.count, sizeof(*list.steps), compare_newest_first);
    }
    *steps = list.steps;
    return (int)list.count;
}

static int keep_damaged_name(void *context, int folder_descriptor, const char *name)
{
    (void)folder_descriptor;
    const char *rest;
    if (parse_name(name, &rest) < 0 || strcmp(rest, DAMAGED_SUFFIX) != 0) {
        return 0;
    }
    snprintf(context, SNAPSHOT_FILE_BYTES_MAX, "%s", name);
    return 1;
}

int snapshot_find_damaged(char name[SNAPSHOT_FILE_BYTES_MAX], const char *out_dir, Error *error)
{
    name[0] = '\0';
    return visit_entries(out_dir, keep_damaged_name, name, error);
}

/* Name a damaged file on stderr and take it out of the way; not in a folder that another run owns. */
static int set_aside(const char *out_dir, const char *path, int is_owner, const Error *reason, Error *error)
{
    char aside[PATH_BYTES_MAX + 16];
    FolderLock lock = FOLDER_LOCK_NONE;
    Error refusal;
    if (!is_owner && folder_lock_take(&lock, out_dir, 0, &refusal) != 0) {
        fprintf(stderr, "warning: %s; passed over\n", reason->text);
        return 0;
    }
    snprintf(aside, sizeof(aside), "%s" DAMAGED_SUFFIX, path);
    int status = rename(path, aside);
    int reason_number = errno;
    folder_lock_release(&lock);
    if (status != 0) {
        return error_set(error, "%s: damaged, and cannot be renamed: %s", path, strerror(reason_number));
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

/* Whether a file went away since it was listed: whoever trains in this folder deletes old ones. */
static int has_gone(const char *path)
{
    struct stat status;
    return lstat(path, &status) != 0 && errno == ENOENT;
}

/* Open the first of the listed steps that verifies. FRAMES_OK, FRAMES_DAMAGED when none did,
 * FRAMES_UNREADABLE with *error; *is_stale when the list no longer holds. */
static int open_listed(Snapshot **snapshot, int *is_stale, const char *out_dir, const int64_t *steps,
                       int count, int is_owner, Error *error)
{
    int status = FRAMES_DAMAGED;
    for (int i = 0; i < count && status == FRAMES_DAMAGED; i++) {
        char path[PATH_BYTES_MAX];
        Error reason;
        status = snapshot_path(path, out_dir, steps[i], &reason);
        if (status == FRAMES_OK) {
            status = open_step(snapshot, path, steps[i], &reason);
        }
        if (status == FRAMES_DAMAGED && set_aside(out_dir, path, is_owner, &reason, &reason) != 0) {
            status = FRAMES_UNREADABLE;
        }
        if (status == FRAMES_UNREADABLE) {
            *is_stale = !is_owner && has_gone(path);
            error_set(error, "%s", reason.text);
        }
    }
    return status;
}

Snapshot *snapshot_open_newest(SnapshotSearch *found, const char *out_dir, int is_owner, Error *error)
{
    enum { LISTINGS_MAX = 100 };
    Snapshot *snapshot = NULL;
    SnapshotSearch search = SNAPSHOT_UNREADABLE;
    int is_stale = 1;
    for (int i = 0; i < LISTINGS_MAX && is_stale; i++) {
        int64_t *steps;
        int count = snapshot_list(&steps, out_dir, error);
        is_stale = 0;
        int status = open_listed(&snapshot, &is_stale, out_dir, steps, count, is_owner, error);
        memory_free(steps);
        search = count < 0                  ? SNAPSHOT_UNREADABLE
                 : count == 0               ? SNAPSHOT_NONE
                 : status == FRAMES_OK      ? SNAPSHOT_FOUND
                 : status == FRAMES_DAMAGED ? SNAPSHOT_ALL_DAMAGED
                                            : SNAPSHOT_UNREADABLE;
        if (count == 0) {
            error_set(
                error,
                "%s: expected a snapshot (step-*.snap) to resume from, found none; use init_from=scratch",
                out_dir);
        } else if (count > 0 && status == FRAMES_DAMAGED) {
            error_set(
                error,
                "%s: expected a whole snapshot, found %d, all damaged; they are kept as *" DAMAGED_SUFFIX,
                out_dir, count);
        }
    }
    if (found) {
        *found = search;
    }
    return snapshot;
}

static int is_same_file(const char *path, const char *other)
{
    struct stat one, two;
    return other && stat(path, &one) == 0 && stat(other, &two) == 0 && one.st_dev == two.st_dev &&
           one.st_ino == two.st_ino;
}

/* 0, or -1 with *error. */
static int keep_aside(const char *path, Error *error)
{
    enum { NAMES_MAX = 1000 };
    char aside[PATH_BYTES_MAX + 32];
    for (int i = 1; i <= NAMES_MAX; i++) {
        snprintf(aside, sizeof(aside), i == 1 ? "%s.aside" : "%s.aside.%d", path, i);
        if (link(path, aside) == 0) { /* which takes no other file's place, as rename would */
            return unlink(path) == 0
                       ? 0
                       : error_set_system(error, errno, "%s: cannot set aside as %s", path, aside);
        }
        int reason = errno;
        if (reason != EEXIST && !path_exists(aside) && rename(path, aside) == 0) {
            return 0; /* a file system without links */
        }
        if (reason != EEXIST) {
            return error_set_system(error, reason, "%s: cannot set aside as %s", path, aside);
        }
    }
    return error_set(error, "%s: cannot set aside: %d files have been before; remove some of %s.aside*", path,
                     NAMES_MAX, path);
}

int snapshot_set_aside_later(const char *out_dir, int64_t step, const char *kept_path, Error *error)
{
    int64_t *steps;
    int count = snapshot_list(&steps, out_dir, error), moved = 0;
    int status = count < 0 ? -1 : 0;
    for (int i = 0; i < count && status == 0 && steps[i] >= step; i++) {
        char path[PATH_BYTES_MAX];
        status = snapshot_path(path, out_dir, steps[i], error);
        if (status == 0 && (steps[i] > step || !is_same_file(path, kept_path))) {
            status = keep_aside(path, error);
            moved++;
        }
    }
    memory_free(steps);
    if (status == 0 && moved > 0) {
        status = folder_sync(out_dir, error);
    }
    return status == 0 ? moved : -1;
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

typedef struct Removal {
    const char *out_dir;
    Error *error;
} Removal;

static int remove_leftover(void *context, int folder_descriptor, const char *name)
{
    const Removal *removal = context;
    const char *rest;
    if (parse_name(name, &rest) < 0 || strncmp(rest, ".tmp.", 5) != 0 ||
        unlinkat(folder_descriptor, name, 0) == 0 || errno == ENOENT) {
        return 0;
    }
    return error_set(removal->error, "%s/%s: cannot delete: %s", removal->out_dir, name, strerror(errno));
}

int snapshot_remove_leftovers(const char *out_dir, Error *error)
{
    Removal removal = {out_dir, error};
    return visit_entries(out_dir, remove_leftover, &removal, error);
}
