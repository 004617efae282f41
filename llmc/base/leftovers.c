#define _GNU_SOURCE
#include "llmc/base/leftovers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* A regular file that nobody has locked is removed while it is locked here. */
static void remove_unheld(int folder, const char *name)
{
    int descriptor = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat status;
    if (descriptor < 0) {
        return;
    }
    if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) &&
        flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
        unlinkat(folder, name, 0);
    }
    close(descriptor);
}

/* The part of a temporary file's name behind `.tmp.`: digits, of hexadecimal numbers at most. */
static int is_suffix(const char *text)
{
    size_t bytes = strspn(text, "0123456789abcdef");
    return bytes > 0 && text[bytes] == '\0';
}

void leftovers_remove(const char *path)
{
    char folder[PATH_BYTES_MAX];
    char prefix[PATH_BYTES_MAX];
    const char *slash = strrchr(path, '/');
    if (snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".") >=
            (int)sizeof(folder) ||
        snprintf(prefix, sizeof(prefix), "%s.tmp.", slash ? slash + 1 : path) >= (int)sizeof(prefix)) {
        return;
    }
    DIR *entries = opendir(folder);
    if (!entries) {
        return;
    }
    size_t prefix_bytes = strlen(prefix);
    for (struct dirent *entry;
         (entry = readdir(entries));) { /* what an error hides stays for the next time */
        if (strncmp(entry->d_name, prefix, prefix_bytes) == 0 && is_suffix(entry->d_name + prefix_bytes)) {
            remove_unheld(dirfd(entries), entry->d_name);
        }
    }
    closedir(entries);
}

int leftovers_replace(AtomicFile *file, const char *path, Error *error)
{
    leftovers_remove(path);
    if (atomic_file_init(file, path, error) != 0) {
        return -1;
    }
    (void)flock(file->descriptor, LOCK_SH | LOCK_NB); /* without it the file may be lost, not its writer */
    return 0;
}
