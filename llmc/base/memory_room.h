/* How much memory this process may use: the machine's, or less where a container (a cgroup) is limited. The
 * kernel kills whoever touches more. */
#ifndef LLMC_BASE_MEMORY_ROOM_H
#define LLMC_BASE_MEMORY_ROOM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of the machine and of each cgroup above this process: that which leaves the least. */
typedef struct MemoryRoom {
    size_t limit_bytes; /* 0: unknown */
    size_t free_bytes;  /* of them, without what the kernel can take back (caches of files) */
    const char *owner;  /* "this machine" or "this container (cgroup)" */
} MemoryRoom;

void memory_room(MemoryRoom *room);

/* The same from other files, for tests: /proc/meminfo, /proc/self/cgroup and /sys/fs/cgroup. */
void memory_room_from(MemoryRoom *room, const char *meminfo, const char *process_cgroups,
                      const char *cgroups);

#ifdef __cplusplus
}
#endif
#endif
