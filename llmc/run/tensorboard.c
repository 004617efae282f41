#define _GNU_SOURCE
#include "llmc/run/tensorboard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "llmc/base/crc32c.h"
#include "llmc/base/memory.h"

#define FILE_PREFIX "events.out.tfevents."

/* ---- protocol buffers ----------------------------------------------------------------------------------
 * A message is a row of fields: a varint of number * 8 + kind, then the value. Numbers of fields:
 *   Event       1 wall_time, 2 step, 3 file_version, 5 summary, 7 session_log
 *   Summary     1 value, repeated            SessionLog  1 status, where 1 is START
 *   Value       1 tag, 2 simple_value
 */
enum { KIND_VARINT = 0, KIND_8_BYTES = 1, KIND_LENGTH = 2, KIND_4_BYTES = 5 };
enum { TAG_BYTES_MAX = 63, VALUE_BYTES_MAX = TAG_BYTES_MAX + 16, RECORD_FRAME_BYTES = 16 };

typedef struct Message {
    unsigned char bytes[TENSORBOARD_VALUES_MAX * VALUE_BYTES_MAX + 64];
    size_t count;
} Message;

static void put_bytes(Message *message, const void *bytes, size_t count)
{
    CHECK(count <= sizeof(message->bytes) - message->count, "an event of %zu bytes", message->count + count);
    memcpy(message->bytes + message->count, bytes, count);
    message->count += count;
}

/* Least byte first, whatever the machine's order is. */
static void put_integer(Message *message, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        put_bytes(message, &(unsigned char){(unsigned char)(value >> 8 * i)}, 1);
    }
}

static void put_varint(Message *message, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) {
        put_integer(message, value | 0x80, 1);
    }
    put_integer(message, value, 1);
}

static void put_field(Message *message, int field, int kind)
{
    put_varint(message, (uint64_t)(field << 3 | kind));
}

static void put_part(Message *message, int field, const void *bytes, size_t count)
{
    put_field(message, field, KIND_LENGTH);
    put_varint(message, count);
    put_bytes(message, bytes, count);
}

static void put_double(Message *message, int field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    put_field(message, field, KIND_8_BYTES);
    put_integer(message, bits, 8);
}

static void put_float(Message *message, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    put_field(message, field, KIND_4_BYTES);
    put_integer(message, bits, 4);
}

/* An event that begins with the time now and the step; its third field, of that number, follows. */
static void put_event(Message *event, int64_t step, int field, const void *bytes, size_t count)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    event->count = 0;
    put_double(event, 1, (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
    put_field(event, 2, KIND_VARINT);
    put_varint(event, (uint64_t)step);
    put_part(event, field, bytes, count);
}

/* ---- records ----------------------------------------------------------------------------------------- */

static uint32_t masked_crc(const void *bytes, size_t count)
{
    uint32_t crc = crc32c(bytes, count);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* Puts a record behind those that wait. */
static void add_record(TensorBoard *board, const Message *event)
{
    Message record = {.count = 0};
    if (event->count + RECORD_FRAME_BYTES > TENSORBOARD_WAITING_BYTES - board->waiting_bytes) {
        board->left_out++;
        return;
    }
    put_integer(&record, event->count, 8);
    put_integer(&record, masked_crc(record.bytes, 8), 4);
    put_bytes(&record, event->bytes, event->count);
    put_integer(&record, masked_crc(event->bytes, event->count), 4);
    memcpy(board->waiting + board->waiting_bytes, record.bytes, record.count);
    board->waiting_bytes += record.count;
}

/* ---- files ------------------------------------------------------------------------------------------- */

/* TensorBoard reads files in the order of their names, so a new one is named after the seconds of now, or
 * after the newest file's and one more, if the system's date was set back meanwhile. */
static int64_t choose_number(const char *folder)
{
    int64_t number = (int64_t)time(NULL), other;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        if (sscanf(entry->d_name, FILE_PREFIX "%" SCNd64, &other) == 1 && other >= number) {
            number = other + 1;
        }
    }
    if (entries) {
        closedir(entries);
    }
    return number;
}

/* 0, or -1 with errno. */
static int open_file(TensorBoard *board)
{
    char host[64] = "", name[128];
    gethostname(host, sizeof(host) - 1);
    snprintf(name, sizeof(name), FILE_PREFIX "%010" PRId64 ".%s", choose_number(board->folder), host);
    if (path_join(board->path, board->folder, name, NULL) != 0) {
        errno = ENAMETOOLONG;
        return -1;
    }
    board->descriptor = open(board->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    board->whole_bytes = 0;
    return board->descriptor < 0 ? -1 : 0;
}

/* A file that was removed is closed, and the next one opened. It begins with the version of its format. */
static int follow_file(TensorBoard *board)
{
    struct stat status;
    if (board->descriptor >= 0 && fstat(board->descriptor, &status) == 0 && status.st_nlink == 0) {
        close(board->descriptor);
        board->descriptor = -1;
        error_print("%s: was removed while in use; what follows goes into a new file", board->path);
    }
    if (board->descriptor >= 0) {
        return 0;
    }
    if (open_file(board) != 0) {
        return -1;
    }
    TensorBoard first = {.descriptor = -1};
    Message version;
    unsigned char record[128];
    first.waiting = record;
    put_event(&version, 0, 3, "brain.Event:2", 13);
    add_record(&first, &version);
    ssize_t written = write(board->descriptor, record, first.waiting_bytes);
    if (written != (ssize_t)first.waiting_bytes) {
        int cause = written < 0 ? errno : ENOSPC;
        close(board->descriptor);
        unlink(board->path);
        board->descriptor = -1;
        errno = cause;
        return -1;
    }
    board->whole_bytes = written;
    return 0;
}

/* Everything that waits, or nothing of it: half a record would hide all that follows. 0, or -1 with errno. */
static int write_waiting(TensorBoard *board)
{
    if (follow_file(board) != 0) {
        return -1;
    }
    size_t done = 0;
    while (done < board->waiting_bytes) {
        ssize_t written = pwrite(board->descriptor, board->waiting + done, board->waiting_bytes - done,
                                 board->whole_bytes + (off_t)done);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            int cause = written == 0 ? ENOSPC : errno;
            if (ftruncate(board->descriptor, board->whole_bytes) != 0) {
                cause = cause == 0 ? errno : cause; /* the next attempt writes over it */
            }
            errno = cause;
            return -1;
        }
        done += (size_t)written;
    }
    board->whole_bytes += (off_t)done;
    board->waiting_bytes = 0;
    return 0;
}

static void write_events(TensorBoard *board)
{
    int has_failed = write_waiting(board) != 0;
    if (has_failed && !board->is_failed) {
        error_print("%s: cannot write for TensorBoard: %s; the run goes on, and keeps events until there is "
                    "room",
                    board->path, strerror(errno));
    } else if (!has_failed && board->left_out > 0) {
        error_print("%s: written again; %" PRId64 " events are left out", board->path, board->left_out);
        board->left_out = 0;
    }
    board->is_failed = has_failed;
}

/* ---- what others call -------------------------------------------------------------------------------- */

void tensorboard_init(TensorBoard *board, const char *out_dir, int64_t first_step)
{
    Message event;
    const unsigned char start[] = {1 << 3 | KIND_VARINT, 1};
    memset(board, 0, sizeof(*board));
    board->descriptor = -1;
    board->waiting = memory_alloc(TENSORBOARD_WAITING_BYTES, 1, "events for TensorBoard");
    snprintf(board->folder, sizeof(board->folder), "%s", out_dir);
    snprintf(board->path, sizeof(board->path), "%s", out_dir);
    put_event(&event, first_step, 7, start, sizeof(start));
    add_record(board, &event);
    write_events(board);
}

void tensorboard_add(TensorBoard *board, int64_t step, const TensorBoardValue *values, int count)
{
    Message summary = {.count = 0}, event;
    if (!board->waiting) {
        return;
    }
    for (int i = 0; i < count; i++) {
        Message value = {.count = 0};
        put_part(&value, 1, values[i].tag, strnlen(values[i].tag, TAG_BYTES_MAX));
        put_float(&value, 2, (float)values[i].value);
        put_part(&summary, 1, value.bytes, value.count);
    }
    put_event(&event, step, 5, summary.bytes, summary.count);
    add_record(board, &event);
    write_events(board);
}

void tensorboard_release(TensorBoard *board)
{
    if (board->waiting) {
        if (board->waiting_bytes > 0 && write_waiting(board) != 0) {
            error_print("%s: cannot write for TensorBoard: %s; the last events are lost", board->path,
                        strerror(errno));
        }
        if (board->descriptor >= 0) {
            close(board->descriptor);
        }
        memory_free(board->waiting);
    }
    memset(board, 0, sizeof(*board));
}
