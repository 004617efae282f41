/* What kind of archive some bytes are, by content and by name, and whether one was read to its end. */
#ifndef DATA_PREP_MAGIC_H
#define DATA_PREP_MAGIC_H

#include <stddef.h>
#include <stdint.h>

enum { MAGIC_BYTES = 512 }; /* of a file's beginning that tell */

typedef enum Magic { MAGIC_NONE, MAGIC_GZ, MAGIC_XZ, MAGIC_ZST, MAGIC_BZ2, MAGIC_TAR, MAGIC_ZIP } Magic;

const char *magic_name(Magic magic);

Magic magic_of(const char *bytes, size_t count);
/* What the name of a file says that it holds; MAGIC_NONE where it says nothing. */
Magic magic_promised(const char *file_name);
/* The name of what is in a compressed file: `a.txt` of a.txt.gz, `a.tar` of a.tgz. */
void magic_strip_suffix(char *out, size_t capacity, const char *file_name, Magic magic);

/* What a file that is neither text nor an archive is, and the way to text: "a PDF document; convert it ..".
 * NULL for what may be text. `bytes` are the file's first; at most MAGIC_BYTES of them count. */
const char *magic_foreign(const char *bytes, size_t count);

/* tar and zip end with a mark, and libarchive, which reads tapes too, does not ask for it. Zero it to begin;
 * push everything that libarchive reads. */
typedef struct TailWatch {
    uint64_t zeros;     /* zero bytes at the end, so far */
    uint64_t zip_bytes; /* since zip's mark of the end began; 0: not met */
    uint32_t last;      /* the last four bytes */
} TailWatch;

void tail_watch_push(TailWatch *watch, const void *bytes, size_t count);
int tail_watch_is_whole(const TailWatch *watch, Magic magic);

#endif
