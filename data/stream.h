// Bytes in order from a file, or out of a packed one.
#ifndef DATA_STREAM_H
#define DATA_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "data/form.h"

typedef struct ByteStream {
    // Reads at most `size` (> 0) bytes and sets *got; 0 only at the end. Returns 0, or -1 with `error` set.
    int (*read)(void *context, char *buffer, size_t size, size_t *got, Error *error);
    void *context;
} ByteStream;

// A plain file.
typedef struct FileStream {
    int fd;
    const char *path;
    uint64_t *bytes_read;   // is added to as bytes are read
} FileStream;

// Opens a file; `path` must outlive the stream. Returns 0, or -1 with `error` set and nothing to close.
int file_stream_open(FileStream *file, const char *path, uint64_t *bytes_read, Error *error);
void file_stream_close(FileStream *file);
ByteStream file_stream(FileStream *file);

// Takes files out of a packed stream: the members of a tar archive, or the one stream that .gz and its like hold. Nothing is written
// anywhere: the names in an archive are only names.
typedef struct Unpacker Unpacker;

// `name` stands in messages, and must outlive the unpacker, as must what `source` needs. NULL with `error` set.
Unpacker *unpacker_open(ByteStream source, const char *name, Packing packing, bool tar, Error *error);
void unpacker_close(Unpacker *unpacker);   // NULL is allowed

// Goes to the next regular file. Of an archive *entry becomes its name there, valid until the next call; of a single stream it is "".
// Returns 1, at the end 0, or -1 with `error` set (damaged, cut off, not packed as said).
int unpacker_next(Unpacker *unpacker, const char **entry, Error *error);

// The bytes of the file that unpacker_next went to.
ByteStream unpacker_stream(Unpacker *unpacker);

#endif
