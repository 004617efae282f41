#include "llmc/run/agree.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/base/hash.h"
#include "llmc/base/memory.h"
#include "llmc/comm/comm.h"

void agree_wait_for_the_end(void)
{
    comm_barrier();
}

/* The first differing place, widened to the option around it: `"name":value` up to the next comma or
 * brace. */
static void option_at(char *out, size_t out_bytes, const char *json, size_t place)
{
    size_t begin = place, end = place;
    while (begin > 0 && !(json[begin - 1] == ',' || json[begin - 1] == '{')) {
        begin--;
    }
    while (json[end] && json[end] != ',' && json[end] != '}') {
        end++;
    }
    snprintf(out, out_bytes, "%.*s", (int)(end - begin), json + begin);
}

int agree_find_speaker(uint64_t mine)
{
    int count = comm_rank_count();
    uint64_t *all = memory_alloc((size_t)count, sizeof(*all), "values of ranks");
    comm_gather_uint64(mine, all);
    int rank = 0;
    while (rank < count && all[rank] == 0) {
        rank++;
    }
    memory_free(all);
    return rank;
}

int agree_on_options(const Options *options, Error *error)
{
    if (comm_rank_count() == 1) {
        return 0;
    }
    char *mine = options_to_json(options);
    int64_t bytes = (int64_t)strlen(mine) + 1;
    comm_broadcast(&bytes, sizeof(bytes), 0);
    char *first = memory_alloc((size_t)bytes, 1, "options of rank 0");
    if (comm_rank() == 0) {
        memcpy(first, mine, (size_t)bytes);
    }
    comm_broadcast(first, bytes, 0);
    int is_different = strcmp(first, mine) != 0;
    int speaker = agree_find_speaker((uint64_t)is_different);
    int status = 0;
    if (speaker < comm_rank_count() && speaker != comm_rank()) {
        agree_wait_for_the_end();
    } else if (is_different) {
        size_t place = 0;
        char own_option[300], first_option[300];
        while (mine[place] == first[place]) {
            place++;
        }
        option_at(own_option, sizeof(own_option), mine, place);
        option_at(first_option, sizeof(first_option), first, place);
        status = error_set(error, "rank %d has %s, rank 0 has %s; start all ranks with the same options",
                           comm_rank(), own_option, first_option);
    }
    free(mine);
    memory_free(first);
    return status;
}

int agree_on(uint64_t mine, const char *what, const char *way_out, Error *error)
{
    int count = comm_rank_count();
    if (count == 1) {
        return 0;
    }
    uint64_t *all = memory_alloc((size_t)count, sizeof(*all), "values of ranks");
    comm_gather_uint64(mine, all);
    char ranks[200] = "";
    int different = 0, first_different = 0;
    for (int rank = 1; rank < count; rank++) {
        if (all[rank] != all[0]) {
            size_t used = strlen(ranks);
            snprintf(ranks + used, sizeof(ranks) - used, "%s%d", different == 0 ? "" : ", ", rank);
            first_different = different == 0 ? rank : first_different;
            different++;
        }
    }
    int status = 0;
    if (different > 0 && comm_rank() != 0) {
        agree_wait_for_the_end();
    } else if (different > 0) {
        status = error_set(
            error, "rank%s %s differ%s from rank 0 in %s: %016" PRIx64 ", rank 0 has %016" PRIx64 "; %s",
            different == 1 ? "" : "s", ranks, different == 1 ? "s" : "", what, all[first_different], all[0],
            way_out);
    }
    memory_free(all);
    return status;
}
