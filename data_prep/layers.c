#define _GNU_SOURCE
#include "data_prep/layers.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data_prep/gzip.h"
#include "data_prep/magic.h"
#include "llmc/base/memory.h"

enum { LAYER_BUFFER_BYTES = 1 << 18 };

typedef enum LayerKind { LAYER_FILE, LAYER_COMPRESSED, LAYER_ARCHIVE } LayerKind;

/* What is read from the layer below goes through `buffer`; bytes from `begin` to `end` of it are not used
 * yet. */
typedef struct Layer {
    struct Layers *layers; /* for libarchive's callbacks */
    int index;
    LayerKind kind;
    Magic magic;    /* of what it unpacks */
    int descriptor; /* LAYER_FILE */
    int can_seek;   /* LAYER_FILE */
    int is_used;    /* its one file, or the present entry, was handed out or unpacked by the layer above */
    int is_at_end;  /* nothing more to fill the buffer with */
    int64_t left_bytes;      /* LAYER_ARCHIVE: of the present entry, not read yet; -1: unknown */
    struct archive *archive; /* one of these unpacks it */
    Gzip *gzip;
    TailWatch watch; /* of what the layer below gave to this archive */
    char name[LAYER_NAME_BYTES];
    char *buffer;
    size_t begin;
    size_t end;
} Layer;

struct Layers {
    Layer layers[LAYERS_MAX];
    int count;
    Error *error; /* set by a callback of libarchive, which reports only that it failed */
    int callback_failed;
    int outermost;   /* the layer of the first archive; -1: none yet */
    int64_t entries; /* of that archive so far, with the present one */
    int64_t skip;    /* entries of it that are passed over */
    _Atomic int64_t bytes_read;
};

Layers *layers_create(void)
{
    Layers *layers = memory_alloc_zeroed(1, sizeof(*layers), "inputs");
    for (int i = 0; i < LAYERS_MAX; i++) {
        layers->layers[i].layers = layers;
        layers->layers[i].index = i;
    }
    return layers;
}

static void pop(Layers *layers)
{
    Layer *layer = &layers->layers[--layers->count];
    if (layer->kind == LAYER_FILE && layer->descriptor > 0) {
        close(layer->descriptor);
    }
    archive_read_free(layer->archive);
    gzip_free(layer->gzip);
    layer->archive = NULL;
    layer->gzip = NULL;
}

void layers_free(Layers *layers)
{
    if (!layers) {
        return;
    }
    while (layers->count > 0) {
        pop(layers);
    }
    for (int i = 0; i < LAYERS_MAX; i++) {
        memory_free(layers->layers[i].buffer);
    }
    memory_free(layers);
}

void layers_describe(const Layers *layers, char *out, size_t capacity)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < layers->count && used < capacity; i++) {
        const Layer *layer = &layers->layers[i];
        if (layer->kind != LAYER_COMPRESSED && layer->name[0] != '\0') {
            int wrote = snprintf(out + used, capacity - used, "%s%s", used ? ": " : "", layer->name);
            used += wrote > 0 ? (size_t)wrote : 0;
        }
    }
}

static int fail(const Layers *layers, Error *error, const char *what)
{
    char description[768];
    layers_describe(layers, description, sizeof(description));
    return error_set(error, "%s: %s", description, what);
}

/* What unpacks this layer failed, for this reason (or NULL); or what lies below it did, and said so. */
static int fail_layer(Layers *layers, const Layer *layer, const char *why, Error *error)
{
    if (layers->callback_failed) {
        return -1;
    }
    char text[256];
    snprintf(text, sizeof(text), "damaged or cut %s: %s", magic_name(layer->magic),
             why ? why : "its contents end too early");
    return fail(layers, error, text);
}

static int fail_archive(Layers *layers, const Layer *layer, Error *error)
{
    return fail_layer(layers, layer, archive_error_string(layer->archive), error);
}

/* libarchive gives the holes of a sparse file in a tar as zero bytes, but not one at the file's end. */
static ptrdiff_t read_hole(const Layer *layer, char *out, size_t capacity)
{
    if (layer->left_bytes <= 0) {
        return 0;
    }
    size_t count = (uint64_t)layer->left_bytes < capacity ? (size_t)layer->left_bytes : capacity;
    memset(out, 0, count);
    return (ptrdiff_t)count;
}

/* Bytes of this layer's file or present entry, without its buffer. */
static ptrdiff_t read_below(Layers *layers, Layer *layer, char *out, size_t capacity, Error *error)
{
    if (layer->is_at_end) {
        return 0;
    }
    ptrdiff_t got;
    if (layer->kind == LAYER_FILE) {
        do {
            got = read(layer->descriptor, out, capacity);
        } while (got < 0 && errno == EINTR);
        if (got < 0) {
            return error_set(error, "%s: cannot read: %s", layer->name, strerror(errno));
        }
        atomic_fetch_add(&layers->bytes_read, got);
    } else if (layer->gzip) {
        const char *why;
        layers->error = error;
        got = gzip_read(layer->gzip, out, capacity, &why);
        if (got < 0) {
            return fail_layer(layers, layer, why, error);
        }
    } else {
        layers->error = error;
        got = archive_read_data(layer->archive, out, capacity);
        if (got < 0) {
            return fail_archive(layers, layer, error);
        }
        if (got == 0) {
            got = read_hole(layer, out, capacity);
        }
        layer->left_bytes -= layer->left_bytes > 0 ? got : 0;
    }
    layer->is_at_end = got == 0;
    return got;
}

static int fill(Layers *layers, Layer *layer, size_t wanted, Error *error)
{
    memmove(layer->buffer, layer->buffer + layer->begin, layer->end - layer->begin);
    layer->end -= layer->begin;
    layer->begin = 0;
    while (layer->end < wanted && !layer->is_at_end) {
        ptrdiff_t got =
            read_below(layers, layer, layer->buffer + layer->end, LAYER_BUFFER_BYTES - layer->end, error);
        if (got < 0) {
            return -1;
        }
        layer->end += (size_t)got;
    }
    return 0;
}

/* The layer `context` is asked for bytes of the layer below it, by what unpacks it. */
static ptrdiff_t below_bytes(void *context, const void **bytes)
{
    Layer *above = context;
    Layers *layers = above->layers;
    Layer *below = &layers->layers[above->index - 1];
    if (below->begin == below->end) {
        below->begin = 0;
        below->end = 0;
        if (fill(layers, below, 1, layers->error) != 0) {
            layers->callback_failed = 1;
            return -1;
        }
    }
    *bytes = below->buffer + below->begin;
    size_t count = below->end - below->begin;
    below->begin = below->end;
    tail_watch_push(&above->watch, *bytes, count);
    return (ptrdiff_t)count;
}

static la_ssize_t archive_wants_bytes(struct archive *archive, void *context, const void **bytes)
{
    ptrdiff_t count = below_bytes(context, bytes);
    if (count < 0) {
        archive_set_error(archive, EIO, "cannot read");
        return ARCHIVE_FATAL;
    }
    return count;
}

/* A zip file has its table at the end: where it can be sought, it is read from there. */
static la_int64_t archive_seeks(struct archive *archive, void *data, la_int64_t offset, int whence)
{
    Layer *above = data;
    Layer *below = &above->layers->layers[above->index - 1];
    (void)archive;
    if (whence == SEEK_CUR) { /* what is buffered was read, but not used */
        offset -= (la_int64_t)(below->end - below->begin);
    }
    off_t position = lseek(below->descriptor, offset, whence);
    below->begin = 0;
    below->end = 0;
    below->is_at_end = 0;
    return position < 0 ? ARCHIVE_FATAL : position;
}

static void choose_formats(struct archive *archive, Magic magic, int can_seek)
{
    switch (magic) {
    case MAGIC_XZ:
        archive_read_support_filter_xz(archive);
        break;
    case MAGIC_ZST:
        archive_read_support_filter_zstd(archive);
        break;
    case MAGIC_BZ2:
        archive_read_support_filter_bzip2(archive);
        break;
    case MAGIC_TAR:
        archive_read_support_format_tar(archive);
        archive_read_set_format_option(archive, "tar", "read_concatenated_archives", "1");
        return;
    case MAGIC_ZIP:
        if (can_seek) {
            archive_read_support_format_zip_seekable(archive);
        } else {
            archive_read_support_format_zip_streamable(archive);
        }
        return;
    case MAGIC_GZ: /* gzip.c */
    case MAGIC_NONE:
        return;
    }
    archive_read_support_format_raw(archive);
    archive_read_support_format_empty(archive);
}

/* Let libarchive unpack this layer. */
static int open_archive(Layers *layers, Layer *layer, Error *error)
{
    const Layer *below = layer - 1;
    int can_seek = below->kind == LAYER_FILE && below->can_seek;
    layer->archive = archive_read_new();
    CHECK(layer->archive, "out of memory for reading an archive");
    choose_formats(layer->archive, layer->magic, can_seek);
    archive_read_set_read_callback(layer->archive, archive_wants_bytes);
    archive_read_set_callback_data(layer->archive, layer);
    if (can_seek && layer->magic == MAGIC_ZIP) {
        archive_read_set_seek_callback(layer->archive, archive_seeks);
    }
    if (archive_read_open1(layer->archive) != ARCHIVE_OK) {
        return fail_archive(layers, layer, error);
    }
    if (layer->kind == LAYER_ARCHIVE) {
        return 0;
    }
    if (archive_filter_count(layer->archive) < 2) { /* else its bytes would be taken for text */
        return fail_layer(layers, layer, "its header is damaged", error);
    }
    struct archive_entry *entry;
    int result = archive_read_next_header(layer->archive, &entry);
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN && result != ARCHIVE_EOF) {
        return fail_archive(layers, layer, error);
    }
    layer->is_at_end = result == ARCHIVE_EOF;
    return 0;
}

/* Put a layer on top that unpacks what the present top holds. */
static int push_layer(Layers *layers, Magic magic, Error *error)
{
    if (layers->count == LAYERS_MAX) {
        return fail(layers, error, "archives inside archives go too deep; unpack it first");
    }
    Layer *layer = &layers->layers[layers->count];
    int is_container = magic == MAGIC_TAR || magic == MAGIC_ZIP;
    layer->kind = is_container ? LAYER_ARCHIVE : LAYER_COMPRESSED;
    layer->magic = magic;
    layer->is_used = is_container; /* its first entry is still to be sought */
    layer->is_at_end = 0;
    layer->begin = 0;
    layer->end = 0;
    layer->watch = (TailWatch){0};
    if (!layer->buffer) {
        layer->buffer = memory_alloc(LAYER_BUFFER_BYTES, 1, "input buffer");
    }
    if (is_container) {
        layer->name[0] = '\0';
        layers->outermost = layers->outermost < 0 ? layers->count : layers->outermost;
    } else {
        magic_strip_suffix(layer->name, sizeof(layer->name), layer[-1].name, magic);
    }
    layers->count++;
    layers->error = error;
    layers->callback_failed = 0;
    if (magic == MAGIC_GZ) {
        layer->gzip = gzip_create(below_bytes, layer);
        return 0;
    }
    return open_archive(layers, layer, error);
}

/* The archive on top has no more entries: was it read to its mark of the end? What lies between is read too.
 */
static int check_end(Layers *layers, Error *error)
{
    Layer *layer = &layers->layers[layers->count - 1];
    Layer *below = layer - 1;
    if (layer->magic == MAGIC_ZIP && below->kind == LAYER_FILE && below->can_seek) {
        return 0; /* it was read from its end */
    }
    do {
        tail_watch_push(&layer->watch, below->buffer + below->begin, below->end - below->begin);
        below->begin = below->end;
        if (fill(layers, below, 1, error) != 0) {
            return -1;
        }
    } while (below->end > 0);
    if (!tail_watch_is_whole(&layer->watch, layer->magic)) {
        char text[128];
        snprintf(text, sizeof(text), "cut %s: the mark of its end is missing", magic_name(layer->magic));
        return fail(layers, error, text);
    }
    return 0;
}

/* Go to the next entry of the archive on top. Returns 1, 0 when there is none, -1 with *error set. */
static int next_entry(Layers *layers, Error *error)
{
    Layer *layer = &layers->layers[layers->count - 1];
    layers->error = error;
    for (;;) {
        struct archive_entry *entry;
        int result = archive_read_next_header(layer->archive, &entry);
        if (result == ARCHIVE_EOF) {
            layer->name[0] = '\0';
            return check_end(layers, error);
        }
        if (result != ARCHIVE_OK && result != ARCHIVE_WARN) {
            return fail_archive(layers, layer, error);
        }
        const char *name = archive_entry_pathname_utf8(entry);
        name = name ? name : archive_entry_pathname(entry);
        snprintf(layer->name, sizeof(layer->name), "%s", name ? name : "(unnamed)");
        int is_hard_link = archive_entry_hardlink(entry) != NULL;
        if (archive_entry_filetype(entry) == AE_IFREG && !is_hard_link) {
            if (layer->index == layers->outermost && ++layers->entries <= layers->skip) {
                continue;
            }
            layer->begin = 0;
            layer->end = 0;
            layer->is_at_end = 0;
            layer->is_used = 0;
            int is_known = layer->magic == MAGIC_TAR && archive_entry_size_is_set(entry);
            layer->left_bytes = is_known ? archive_entry_size(entry) : -1;
            return 1;
        }
    }
}

int layers_open(Layers *layers, const char *path, Error *error)
{
    Layer *layer = &layers->layers[0];
    int is_stdin = strcmp(path, "-") == 0;
    int descriptor = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        return error_set(error, "%s: cannot open: %s", path, strerror(errno));
    }
    struct stat status;
    layer->kind = LAYER_FILE;
    layer->descriptor = descriptor;
    layer->can_seek = !is_stdin && fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
    layer->is_used = 0;
    layer->is_at_end = 0;
    layer->begin = 0;
    layer->end = 0;
    if (!layer->buffer) {
        layer->buffer = memory_alloc(LAYER_BUFFER_BYTES, 1, "input buffer");
    }
    snprintf(layer->name, sizeof(layer->name), "%s", is_stdin ? "stdin" : path);
    layers->count = 1;
    layers->outermost = -1;
    layers->entries = 0;
    layers->skip = 0;
    return 0;
}

void layers_skip(Layers *layers, int64_t count)
{
    layers->skip = count;
}

int64_t layers_entry(const Layers *layers)
{
    return layers->entries > 0 ? layers->entries - 1 : 0;
}

/* Refuse a file that is no text, by its beginning. Returns 1, or -1 with *error set. */
static int check_text(const Layers *layers, const Layer *top, Error *error)
{
    const char *what = magic_foreign(top->buffer, top->end);
    if (!what) {
        return 1;
    }
    char text[512];
    snprintf(text, sizeof(text), "expected text, found %s", what);
    return fail(layers, error, text);
}

int layers_next_file(Layers *layers, Error *error)
{
    while (layers->count > 0) {
        Layer *top = &layers->layers[layers->count - 1];
        if (top->is_used) {
            int more = top->kind == LAYER_ARCHIVE ? next_entry(layers, error) : 0;
            if (more < 0) {
                return -1;
            }
            if (!more) {
                pop(layers);
                continue;
            }
        }
        top->is_used = 1;
        if (fill(layers, top, MAGIC_BYTES, error) != 0) {
            return -1;
        }
        Magic magic = magic_of(top->buffer, top->end);
        Magic promised = magic_promised(top->name);
        if (magic == MAGIC_NONE && promised != MAGIC_NONE) {
            char text[128];
            snprintf(text, sizeof(text), "expected %s data, as its name says, found something else",
                     magic_name(promised));
            return fail(layers, error, text);
        }
        if (magic == MAGIC_NONE) {
            return check_text(layers, top, error);
        }
        if (push_layer(layers, magic, error) != 0) {
            return -1;
        }
    }
    return 0;
}

ptrdiff_t layers_read(Layers *layers, char *out, size_t capacity, Error *error)
{
    Layer *top = &layers->layers[layers->count - 1];
    size_t held = top->end - top->begin;
    if (held > 0) {
        size_t count = held < capacity ? held : capacity;
        memcpy(out, top->buffer + top->begin, count);
        top->begin += count;
        return (ptrdiff_t)count;
    }
    return read_below(layers, top, out, capacity, error);
}

const char *layers_plain_name(const Layers *layers)
{
    return layers->layers[layers->count - 1].name;
}

int64_t layers_bytes_read(const Layers *layers)
{
    return atomic_load(&((Layers *)layers)->bytes_read);
}
