#define _GNU_SOURCE
#include "llmc/comm/unanswered.h"

#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { ATTEMPTS_MIN = 2 }; /* one is lost now and then on any network */

/* How often what this connection sends has been sent again without an answer; 0 for what is no connection. */
static int attempts(int descriptor)
{
    struct tcp_info info;
    socklen_t bytes = sizeof(info);
    memset(&info, 0, sizeof(info));
    if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
        info.tcpi_state != TCP_ESTABLISHED || info.tcpi_unacked == 0) {
        return 0;
    }
    return info.tcpi_retransmits;
}

int unanswered_find(Unanswered *found)
{
    DIR *folder = opendir("/proc/self/fd");
    int most = ATTEMPTS_MIN - 1, own = folder ? dirfd(folder) : -1;
    found->descriptor = -1;
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        int descriptor = entry->d_name[0] == '.' ? own : atoi(entry->d_name);
        int count = descriptor == own ? 0 : attempts(descriptor);
        if (count > most) {
            most = count;
            found->descriptor = descriptor;
        }
    }
    if (folder) {
        closedir(folder);
    }
    if (found->descriptor < 0) {
        return 0;
    }
    net_peer_address(found->address, found->descriptor);
    return 1;
}
