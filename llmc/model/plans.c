#include "llmc/model/plans.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/model/dtype.h"

enum { LINE_BYTES = 224, ALIGNMENT_MAX = 256 };
_Static_assert(PLANS_MAX *LINE_BYTES + PLAN_DEVICE_BYTES < PLANS_BYTES_MAX, "every text fits");

static const char *const type_names[] = {[DTYPE_FP32] = "fp32", [DTYPE_BF16] = "bf16"};
static const char *const epilogue_names[PLAN_EPILOGUES] = {"plain", "bias", "bias_gelu", "gelu_backward",
                                                           "gelu_backward_bias"};
static const char *const sum_names[] = {"set", "add"};
static const char *const order_names[] = {"nn", "nt", "tn", "tt"};

static int place_of(const char *name, const char *const *names, int count)
{
    int place = 0;
    while (place < count && strcmp(name, names[place]) != 0) {
        place++;
    }
    return place < count ? place : -1;
}

static void print_line(char line[LINE_BYTES], const ProductPlan *plan)
{
    const ProductKey *key = &plan->key;
    int used = snprintf(line, LINE_BYTES, "%dx%dx%d %s %s %s %s %s %d %d %d:", key->M, key->N, key->K,
                        order_names[2 * key->is_a_transposed + key->is_b_transposed],
                        type_names[key->in_type], type_names[key->out_type], epilogue_names[key->epilogue],
                        sum_names[key->accumulates], key->out_alignment, key->a_alignment, key->b_alignment);
    for (int i = 0; i < PLAN_SETTINGS; i++) {
        used += snprintf(line + used, (size_t)(LINE_BYTES - used), " %" PRIu32, plan->settings[i]);
    }
}

static int is_alignment(int bytes)
{
    return bytes >= 1 && bytes <= ALIGNMENT_MAX && (bytes & (bytes - 1)) == 0;
}

/* A line is right if it is what would be printed of what was read. */
static int parse_line(ProductPlan *plan, const char *line)
{
    ProductKey *key = &plan->key;
    char order[3], in_type[8], out_type[8], epilogue[20], sum[4], again[LINE_BYTES];
    uint64_t settings[PLAN_SETTINGS];
    memset(plan, 0, sizeof(*plan));
    int count =
        sscanf(line,
               "%9dx%9dx%9d %2s %7s %7s %19s %3s %4d %4d %4d: %10" SCNu64 " %10" SCNu64 " %10" SCNu64
               " %10" SCNu64 " %10" SCNu64 " %10" SCNu64 " %10" SCNu64 " %10" SCNu64 " %10" SCNu64,
               &key->M, &key->N, &key->K, order, in_type, out_type, epilogue, sum, &key->out_alignment,
               &key->a_alignment, &key->b_alignment, &settings[0], &settings[1], &settings[2], &settings[3],
               &settings[4], &settings[5], &settings[6], &settings[7], &settings[8]);
    if (count != 11 + PLAN_SETTINGS || key->M < 1 || key->N < 1 || key->K < 1 ||
        !is_alignment(key->out_alignment) || !is_alignment(key->a_alignment) ||
        !is_alignment(key->b_alignment)) {
        return -1;
    }
    int places[] = {place_of(order, order_names, 4), place_of(in_type, type_names, 2),
                    place_of(out_type, type_names, 2), place_of(epilogue, epilogue_names, PLAN_EPILOGUES),
                    place_of(sum, sum_names, 2)};
    for (int i = 0; i < 5; i++) {
        if (places[i] < 0) {
            return -1;
        }
    }
    key->is_a_transposed = places[0] / 2;
    key->is_b_transposed = places[0] % 2;
    key->in_type = places[1];
    key->out_type = places[2];
    key->epilogue = places[3];
    key->accumulates = places[4];
    for (int i = 0; i < PLAN_SETTINGS; i++) {
        plan->settings[i] = (uint32_t)settings[i];
    }
    print_line(again, plan);
    return strcmp(again, line) == 0 ? 0 : -1;
}

static int parse_device(Plans *plans, const char *line, Error *error)
{
    size_t bytes = strlen(line);
    int is_printable = bytes > 0 && bytes < PLAN_DEVICE_BYTES;
    for (size_t i = 0; i < bytes && is_printable; i++) {
        is_printable = line[i] >= ' ' && line[i] <= '~';
    }
    if (!is_printable) {
        return error_set(error, "line 1: expected the name of a device and its library");
    }
    memcpy(plans->device, line, bytes + 1);
    return 0;
}

static int add_line(Plans *plans, const char *line, int number, Error *error)
{
    ProductPlan plan;
    if (parse_line(&plan, line) != 0) {
        return error_set(error, "line %d: expected a product and its algorithm, found \"%.60s\"", number,
                         line);
    }
    if (plans_find(plans, &plan.key)) {
        return error_set(error, "line %d: the product has an algorithm already", number);
    }
    if (plans->count == PLANS_MAX) {
        return error_set(error, "line %d: expected at most %d products", number, PLANS_MAX);
    }
    plans->plans[plans->count++] = plan;
    return 0;
}

int plans_parse(Plans *plans, const char *text, Error *error)
{
    memset(plans, 0, sizeof(*plans));
    int number = 1;
    do {
        char line[LINE_BYTES];
        size_t bytes = strcspn(text, "\n");
        if (text[bytes] != '\n' || bytes >= sizeof(line)) {
            return error_set(error, "line %d: expected a line of at most %d bytes", number, LINE_BYTES - 1);
        }
        memcpy(line, text, bytes);
        line[bytes] = '\0';
        int status = number == 1 ? parse_device(plans, line, error) : add_line(plans, line, number, error);
        if (status != 0) {
            return -1;
        }
        text += bytes + 1;
        number++;
    } while (*text);
    return 0;
}

char *plans_to_text(const Plans *plans)
{
    char *text = memory_alloc(PLANS_BYTES_MAX, 1, "plans");
    size_t used = (size_t)snprintf(text, PLANS_BYTES_MAX, "%s\n", plans->device);
    for (int i = 0; i < plans->count; i++) {
        char line[LINE_BYTES];
        print_line(line, &plans->plans[i]);
        used += (size_t)snprintf(text + used, PLANS_BYTES_MAX - used, "%s\n", line);
    }
    return text;
}

const ProductPlan *plans_find(const Plans *plans, const ProductKey *key)
{
    for (int i = 0; i < plans->count; i++) {
        if (memcmp(&plans->plans[i].key, key, sizeof(*key)) == 0) {
            return &plans->plans[i];
        }
    }
    return NULL;
}

int plans_look_up(ProductPlan *plan, const char *const *table, const char *device, const ProductKey *key)
{
    size_t bytes = strlen(device);
    int is_found = 0;
    Plans *plans = memory_alloc(1, sizeof(*plans), "plans");
    for (; *table && !is_found; table++) {
        if (strncmp(*table, device, bytes) != 0 || (*table)[bytes] != '\n') {
            continue;
        }
        Error error;
        CHECK(plans_parse(plans, *table, &error) == 0, "a table of plans: %s", error.text);
        const ProductPlan *found = plans_find(plans, key);
        if (found) {
            *plan = *found;
            is_found = 1;
        }
    }
    memory_free(plans);
    return is_found;
}
