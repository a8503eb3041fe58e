// Files: whole reads and durable writes with every call checked; folders.
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/path.h"

// Reads a whole file of at most `max` bytes; a NUL is added behind it. Returns a buffer to free, or NULL with `error` set.
char *file_read(const char *path, size_t max, size_t *size, Error *error);

// open(2) with O_CLOEXEC, and mode 0666 for a new file, that goes on after EINTR. Returns the descriptor, or -1 with errno set.
int file_open(const char *path, int flags);

// Writes all bytes to a file descriptor, resuming after EINTR and short writes. Returns 0, or -1 with `error` set (names `path`).
int file_write_all(int fd, const void *data, size_t size, const char *path, Error *error);

// fsync with EINTR and devices that cannot sync minded. Returns 0, or -1 with `error` set: the data may not be on the disk.
int file_sync(int fd, const char *path, Error *error);

// Lets the system begin to put on the disk what was written, so that a file_sync to come has less to wait for. Only a hint: nothing is waited
// for, and it cannot fail.
void file_write_soon(int fd);

// Reads exactly `size` bytes at `offset`, resuming after EINTR and short reads. End of file counts as an error.
int file_read_at(int fd, void *data, size_t size, uint64_t offset, const char *path, Error *error);

// Writes a file under the temporary name `path`.tmp, fsyncs it, renames it to `path` and fsyncs the folder: whoever reads `path`
// sees the old or the new file, never a part. On failure the temporary file is removed.
int file_write_atomic(const char *path, const void *data, size_t size, Error *error);

// XXH3-64 of a whole file, streamed. Returns 0, or -1 with `error` set.
int file_hash(const char *path, uint64_t *hash, Error *error);

// Whether the function that just failed, of this header or of base/json.h, did so for want of memory or descriptors (it looks at errno). That
// says nothing about the file: it must not be taken for a damaged one.
bool file_shortage(void);

bool file_exists(const char *path);
bool folder_holds(const char *folder, const char *name);   // whether folder/name exists; needs no memory
bool file_is_missing(const char *path);   // certainly: not just out of reach
// Whether a file or folder can be found. Returns 0, or -1 with `error` set, which tells a missing one from one out of reach.
int file_check(const char *path, Error *error);
// Whether two names mean one file: which is there (links are followed), or which would be made.
bool file_is_same(const char *a, const char *b);
// Whether a file could be written there: its folder is there and can be written, and it is no folder. Nothing is made or changed.
// Returns 0, or -1 with `error` set.
int file_check_output(const char *path, Error *error);
bool file_is_folder(const char *path);
int64_t file_size(const char *path);   // -1 when it cannot be told

// mkdir -p; the names of new folders are brought to the disk. Returns 0, or -1 with `error` set.
int folder_make(const char *path, Error *error);

// fsync of a folder, so that a rename in it survives a power failure. Returns 0, or -1 with `error` set.
int folder_sync(const char *path, Error *error);

// Makes a folder of its own in TMPDIR, or in /tmp where that is not set, for what is removed again (folder_remove); `path` [size] is set to its name.
// Returns 0, or -1 with `error` set.
int folder_temporary(char *path, size_t size, Error *error);

// Removes a folder and everything in it (does not follow links). A missing folder is no error.
int folder_remove(const char *path, Error *error);

// The names (not paths) in a folder, sorted bytewise, without "." and "..".
int folder_list(PathList *list, const char *path, Error *error);

#endif
