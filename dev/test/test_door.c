/* Who waits at the door while a process has no descriptors left. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dev/test/time_scale.h"
#include "llmc/base/clock.h"
#include "llmc/comm/door.h"

enum { MESSAGE_BYTES = 16 };

static int connect_to(int listener)
{
    struct sockaddr_in address = {0};
    socklen_t bytes = sizeof(address);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    int descriptor = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(descriptor, (struct sockaddr *)&address, bytes), 0);
    return descriptor;
}

/* No descriptor for the second visitor, for a moment: the first, who has not said anything yet, stays. */
static void test_a_moment_without_descriptors(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct rlimit before, none;
    uint64_t message[2] = {0x1122334455667788u, 7}, heard[2];
    Door door;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 8), 0);
    door_init(&door, &listener, 1, message[0], MESSAGE_BYTES);
    int first = connect_to(listener);
    double deadline_ms = clock_ms() + 60000 * time_scale();
    while (door.visitor_count == 0 && clock_ms() < deadline_ms) {
        assert_int_equal(door_next(&door, heard, clock_ms() + 10), -1);
    }
    assert_int_equal(door.visitor_count, 1);

    door.visitors[0].end_ms = clock_ms() + 3600000; /* it came just now, however slow this machine is */
    int second = connect_to(listener);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    int lowest_free = dup(0);
    close(lowest_free);
    none = (struct rlimit){(rlim_t)lowest_free, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int descriptor = door_next(&door, heard, clock_ms() + 50);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(descriptor, -1);

    assert_int_equal(write(first, message, sizeof(message)), sizeof(message));
    descriptor = door_next(&door, heard, clock_ms() + 2000 * time_scale());
    assert_true(descriptor >= 0);
    assert_int_equal(heard[1], 7);
    message[1] = 8;
    assert_int_equal(write(second, message, sizeof(message)), sizeof(message));
    close(descriptor);
    descriptor = door_next(&door, heard, clock_ms() + 60000 * time_scale());
    assert_true(descriptor >= 0);
    assert_int_equal(heard[1], 8);
    close(descriptor);
    close(first);
    close(second);
    door_release(&door);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_moment_without_descriptors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
