/* A folder for the files of one test program, removed with all that is in it. */
#ifndef DEV_TEST_SCRATCH_H
#define DEV_TEST_SCRATCH_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char scratch_folder[256];

/* cmocka's group set-up. */
static inline int scratch_create(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(scratch_folder, sizeof(scratch_folder), "%s/llmc-test-XXXXXX", base ? base : "/tmp");
    return mkdtemp(scratch_folder) ? 0 : -1;
}

static inline int scratch_remove_one(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status;
    (void)type;
    (void)place;
    return remove(path);
}

/* cmocka's group tear-down. */
static inline int scratch_remove(void **state)
{
    (void)state;
    return nftw(scratch_folder, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The path of a file in the folder: one of a few buffers, used in turn. */
static inline char *scratch_path(const char *name)
{
    static char paths[8][512];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof(paths[0]), "%s/%s", scratch_folder, name);
    return path;
}

static inline char *scratch_write(const char *name, const void *data, size_t bytes)
{
    char *path = scratch_path(name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) {
        perror(path);
        abort();
    }
    return path;
}

/* The whole of a file, which the caller frees with free(). */
static inline unsigned char *scratch_read(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        abort();
    }
    *bytes = (size_t)ftell(file);
    rewind(file);
    unsigned char *data = malloc(*bytes + 1);
    if (!data || fread(data, 1, *bytes, file) != *bytes) {
        perror(path);
        abort();
    }
    fclose(file);
    return data;
}

#endif
