#define _GNU_SOURCE
#include "data_prep/magic.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { TAR_BLOCK_BYTES = 512, ZIP_END_BYTES = 22 };

typedef struct MagicRow {
    const char *name;
    const char *suffixes[5]; /* of file names */
    int prefix_bytes;
    const char *prefix;
} MagicRow;

static const MagicRow magic_rows[] = {
    [MAGIC_NONE] = {"plain", {NULL}, 0, NULL},
    [MAGIC_GZ] = {"gz", {".gz", ".tgz", NULL}, 3, "\x1f\x8b\x08"},
    [MAGIC_XZ] = {"xz",
                  {".xz", ".txz", NULL},
                  6,
                  "\xfd"
                  "7zXZ\0"},
    [MAGIC_ZST] = {"zst", {".zst", ".zstd", ".tzst", NULL}, 4, "\x28\xb5\x2f\xfd"},
    [MAGIC_BZ2] = {"bz2", {".bz2", ".tbz2", ".tbz", NULL}, 3, "BZh"},
    [MAGIC_TAR] = {"tar", {".tar", NULL}, 0, NULL},
    [MAGIC_ZIP] = {"zip", {".zip", NULL}, 4, "PK\x03\x04"},
};

enum { MAGIC_ROWS = sizeof(magic_rows) / sizeof(magic_rows[0]) };

const char *magic_name(Magic magic)
{
    return magic_rows[magic].name;
}

/* A tar header holds the sum of its bytes, the sum itself counted as spaces. */
static int is_tar(const uint8_t *bytes, size_t count)
{
    enum { SUM_BEGIN = 148, SUM_BYTES = 8 };
    if (count < TAR_BLOCK_BYTES || bytes[0] == '\0') {
        return 0;
    }
    uint32_t sum = 0;
    for (int i = 0; i < TAR_BLOCK_BYTES; i++) {
        sum += i >= SUM_BEGIN && i < SUM_BEGIN + SUM_BYTES ? ' ' : bytes[i];
    }
    uint32_t written = 0;
    int digits = 0;
    for (int i = SUM_BEGIN; i < SUM_BEGIN + SUM_BYTES; i++) {
        if (bytes[i] >= '0' && bytes[i] <= '7') {
            written = written * 8 + (uint32_t)(bytes[i] - '0');
            digits++;
        } else if (digits > 0 || bytes[i] != ' ') {
            break;
        }
    }
    return digits > 0 && sum == written;
}

Magic magic_of(const char *bytes, size_t count)
{
    for (int magic = MAGIC_NONE + 1; magic < MAGIC_ROWS; magic++) {
        size_t prefix_bytes = (size_t)magic_rows[magic].prefix_bytes;
        if (prefix_bytes == 0 || count < prefix_bytes ||
            memcmp(bytes, magic_rows[magic].prefix, prefix_bytes) != 0) {
            continue;
        }
        /* "BZh" could begin a text: a block of bzip2 begins with pi, its end with the root of pi. */
        if (magic != MAGIC_BZ2 || (count >= 10 && (memcmp(bytes + 4, "1AY&SY", 6) == 0 ||
                                                   memcmp(bytes + 4, "\x17\x72\x45\x38\x50\x90", 6) == 0))) {
            return (Magic)magic;
        }
    }
    if (count == ZIP_END_BYTES && memcmp(bytes, "PK\x05\x06", 4) == 0) {
        return MAGIC_ZIP; /* of no files */
    }
    return is_tar((const uint8_t *)bytes, count) ? MAGIC_TAR : MAGIC_NONE;
}

typedef struct ForeignRow {
    int prefix_bytes;
    const char *prefix;
    const char *what;
} ForeignRow;

#define CONVERT(from) "text in " from "; convert it first: iconv -f " from " -t UTF-8 FILE"
#define EXPORT_TEXT "; write its texts as JSON lines first"
#define UNPACK "; unpack it first"
#define PARQUET                                                                                              \
    "a Parquet table; read its texts with duckdb: duckdb -c \"COPY (SELECT text FROM 'FILE') TO "            \
    "'/dev/stdout' (FORMAT json)\" | tokenize --format=jsonl -o PREFIX - (or data_prep/fineweb.sh FILE)"
#define OFFICE "; convert it first: pandoc -t plain FILE"

/* Of each, what no text begins with, or what a text would begin with only to be mistaken. UTF-32 comes before
 * UTF-16, whose mark it begins with. */
static const ForeignRow foreign_rows[] = {
    {4, "\xff\xfe\0\0", CONVERT("UTF-32")},
    {4, "\0\0\xfe\xff", CONVERT("UTF-32")},
    {2, "\xff\xfe", CONVERT("UTF-16")},
    {2, "\xfe\xff", CONVERT("UTF-16")},
    {4, "PAR1", PARQUET},
    {4, "PARE", "an encrypted Parquet table; decrypt it first"},
    {6, "ARROW1", "an Arrow table" EXPORT_TEXT},
    {6, "\x93NUMPY", "a NumPy array" EXPORT_TEXT},
    {8, "\x89HDF\r\n\x1a\n", "an HDF5 file" EXPORT_TEXT},
    {16, "SQLite format 3", "an SQLite database" EXPORT_TEXT},
    {4, "Obj\1", "an Avro table" EXPORT_TEXT},
    {5, "%PDF-", "a PDF document; convert it first: pdftotext FILE"},
    {5, "{\\rtf", "an RTF document" OFFICE},
    {8, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a document of Microsoft Office" OFFICE},
    {2, "\x80\x02", "a pickle of Python" EXPORT_TEXT},
    {2, "\x80\x03", "a pickle of Python" EXPORT_TEXT},
    {2, "\x80\x04", "a pickle of Python" EXPORT_TEXT},
    {2, "\x80\x05", "a pickle of Python" EXPORT_TEXT},
    {4, "\x88\xd8\x34\x01", "a shard of tokens, which needs no tokenize; --decode prints its text"},
    {4, "\x81\xd9\x34\x01", "a shard of Llama 3 tokens, which are not GPT-2's"},
    {4, "\xc6\xd7\x34\x01", "a model of llm.c"},
    {6, "7z\xbc\xaf\x27\x1c", "a 7z archive" UNPACK},
    {6, "Rar!\x1a\x07", "a rar archive" UNPACK},
    {4, "\x04\x22\x4d\x18", "lz4 data" UNPACK},
    {3, "\x1f\x9d\x90", "data of compress" UNPACK},
    {8, "\x89PNG\r\n\x1a\n", "a PNG picture"},
    {3, "\xff\xd8\xff", "a JPEG picture"},
    {4,
     "\x7f"
     "ELF",
     "a program"},
};

enum { FOREIGN_ROWS = sizeof(foreign_rows) / sizeof(foreign_rows[0]), NUL_PART = 4, SAFE_LENGTH_BYTES = 8 };

const char *magic_foreign(const char *bytes, size_t count)
{
    count = count < MAGIC_BYTES ? count : MAGIC_BYTES;
    for (int i = 0; i < FOREIGN_ROWS; i++) {
        const ForeignRow *row = &foreign_rows[i];
        if (count >= (size_t)row->prefix_bytes &&
            memcmp(bytes, row->prefix, (size_t)row->prefix_bytes) == 0) {
            return row->what;
        }
    }
    if (count > SAFE_LENGTH_BYTES && bytes[SAFE_LENGTH_BYTES] == '{' &&
        memcmp(bytes + SAFE_LENGTH_BYTES / 2, "\0\0\0", SAFE_LENGTH_BYTES / 2) == 0) {
        return "a safetensors file: a model, no text";
    }
    size_t zeros = 0;
    for (size_t i = 0; i < count; i++) {
        zeros += bytes[i] == '\0';
    }
    /* Half of the bytes of UTF-16 are zero where the text is English; text in UTF-8 has next to none. */
    return zeros * NUL_PART >= count && count > 0
               ? "binary data or UTF-16, a quarter or more of it zero bytes; convert it to UTF-8 first"
               : NULL;
}

static const char *find_suffix(const char *file_name, Magic magic)
{
    size_t bytes = strlen(file_name);
    for (const char *const *suffix = magic_rows[magic].suffixes; *suffix; suffix++) {
        size_t suffix_bytes = strlen(*suffix);
        if (bytes > suffix_bytes && strcasecmp(file_name + bytes - suffix_bytes, *suffix) == 0) {
            return *suffix;
        }
    }
    return NULL;
}

Magic magic_promised(const char *file_name)
{
    for (int magic = MAGIC_NONE + 1; magic < MAGIC_ROWS; magic++) {
        if (find_suffix(file_name, (Magic)magic)) {
            return (Magic)magic;
        }
    }
    return MAGIC_NONE;
}

void magic_strip_suffix(char *out, size_t capacity, const char *file_name, Magic magic)
{
    const char *suffix = find_suffix(file_name, magic);
    size_t kept = strlen(file_name) - (suffix ? strlen(suffix) : 0);
    int is_tar_too = suffix && suffix[1] == 't';
    snprintf(out, capacity, "%.*s%s", (int)kept, file_name, is_tar_too ? ".tar" : "");
}

void tail_watch_push(TailWatch *watch, const void *bytes, size_t count)
{
    const uint8_t *text = bytes;
    size_t zeros = 0;
    while (zeros < count && text[count - 1 - zeros] == 0) {
        zeros++;
    }
    watch->zeros = zeros == count ? watch->zeros + count : zeros;

    watch->zip_bytes += watch->zip_bytes > 0 ? count : 0;
    for (size_t i = 0; i < count && i < 3; i++) { /* a mark that began in what came before */
        watch->last = watch->last << 8 | text[i];
        if (watch->last == 0x504b0506) {
            watch->zip_bytes = count - i + 3;
        }
    }
    const uint8_t *next = text;
    for (const uint8_t *mark; (mark = memmem(next, count - (size_t)(next - text), "PK\x05\x06", 4));) {
        watch->zip_bytes = count - (size_t)(mark - text);
        next = mark + 4;
    }
    for (size_t i = count > 7 ? count - 4 : 3; i < count; i++) {
        watch->last = watch->last << 8 | text[i];
    }
}

int tail_watch_is_whole(const TailWatch *watch, Magic magic)
{
    return magic == MAGIC_TAR ? watch->zeros >= TAR_BLOCK_BYTES : watch->zip_bytes >= ZIP_END_BYTES;
}
