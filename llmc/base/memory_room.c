#include "llmc/base/memory_room.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "llmc/base/file.h"

/* The number in a line of `key number`, or the first number of the file where key is "". 0 where there is
 * none: "max", or no such file. */
static uint64_t read_number(const char *path, const char *key)
{
    char line[256];
    uint64_t number = 0;
    size_t key_bytes = strlen(key);
    FILE *file = fopen(path, "re");
    if (!file) {
        return 0;
    }
    while (fgets(line, sizeof(line), file)) {
        int is_line =
            strncmp(line, key, key_bytes) == 0 && (key_bytes == 0 || strchr(" :\t", line[key_bytes]));
        if (is_line && sscanf(line + key_bytes, "%*[ :\t]%" SCNu64, &number) != 1) {
            is_line = sscanf(line + key_bytes, "%" SCNu64, &number) == 1;
        }
        if (is_line) {
            break;
        }
    }
    fclose(file);
    return number;
}

static void take_smaller(MemoryRoom *room, uint64_t limit, uint64_t free_bytes, const char *owner)
{
    int is_known = limit > 0 && limit < (uint64_t)1 << 60; /* version 1 says "none" by a huge number */
    if (is_known && (room->limit_bytes == 0 || limit < room->limit_bytes)) {
        room->limit_bytes = (size_t)limit;
        room->owner = owner;
    }
    if (is_known && (room->free_bytes == 0 || free_bytes < room->free_bytes)) {
        room->free_bytes = (size_t)free_bytes;
    }
}

/* Names of the files of cgroups, versions 2 and 1. */
typedef struct CgroupFiles {
    const char *folder, *limit, *used, *caches[2];
} CgroupFiles;

static const CgroupFiles version2 = {"", "memory.max", "memory.current", {"inactive_file", "active_file"}};
static const CgroupFiles version1 = {"/memory",
                                     "memory.limit_in_bytes",
                                     "memory.usage_in_bytes",
                                     {"total_inactive_file", "total_active_file"}};

/* One cgroup: `place` is its path below the root, "" or "/a/b". */
static void look_at(MemoryRoom *room, const CgroupFiles *files, const char *cgroups, const char *place)
{
    char path[PATH_BYTES_MAX];
    snprintf(path, sizeof(path), "%s%s%s/%s", cgroups, files->folder, place, files->limit);
    uint64_t limit = read_number(path, "");
    snprintf(path, sizeof(path), "%s%s%s/%s", cgroups, files->folder, place, files->used);
    uint64_t used = read_number(path, ""), cached = 0;
    snprintf(path, sizeof(path), "%s%s%s/memory.stat", cgroups, files->folder, place);
    for (int i = 0; i < 2; i++) {
        cached += read_number(path, files->caches[i]);
    }
    used = used > cached ? used - cached : 0;
    take_smaller(room, limit, limit > used ? limit - used : 1, "this container (cgroup)");
}

/* The cgroup of a line of /proc/self/cgroup, "0::/a/b" or "7:memory:/a/b", and all above it. In a container
 * the path may be that of the host: then only the last, the root, is there. */
static void look_at_line(MemoryRoom *room, const char *cgroups, char *line)
{
    char *names = strchr(line, ':');
    char *place = names ? strchr(names + 1, ':') : NULL;
    if (!place) {
        return;
    }
    *place++ = '\0';
    place[strcspn(place, "\n")] = '\0';
    int is_version2 = strcmp(line, "0:") == 0;
    if (!is_version2 && !strstr(names, "memory")) {
        return;
    }
    for (char *end = place + strlen(place); end; end = strrchr(place, '/')) {
        *end = '\0';
        look_at(room, is_version2 ? &version2 : &version1, cgroups, place);
    }
}

void memory_room_from(MemoryRoom *room, const char *meminfo, const char *process_cgroups, const char *cgroups)
{
    char line[PATH_BYTES_MAX];
    *room = (MemoryRoom){.owner = "this machine"};
    uint64_t total = read_number(meminfo, "MemTotal") * 1024;
    uint64_t available = read_number(meminfo, "MemAvailable") * 1024;
    take_smaller(room, total, available > 0 ? available : total, "this machine");
    FILE *file = fopen(process_cgroups, "re");
    if (file) {
        while (fgets(line, sizeof(line), file)) {
            look_at_line(room, cgroups, line);
        }
        fclose(file);
    }
}

void memory_room(MemoryRoom *room)
{
    memory_room_from(room, "/proc/meminfo", "/proc/self/cgroup", "/sys/fs/cgroup");
}
