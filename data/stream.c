#include "data/stream.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

#define BLOCK_BYTES ((size_t)256 << 10)

// ---- plain files ----

int file_stream_open(FileStream *file, const char *path, uint64_t *bytes_read, Error *error)
{
    struct stat status;
    *file = (FileStream){file_open(path, O_RDONLY), path, bytes_read};
    if (file->fd < 0) {
        return error_set(error, "cannot read %s: %s", path, strerror(errno));
    }
    if (fstat(file->fd, &status) == 0 && S_ISDIR(status.st_mode)) {
        file_stream_close(file);
        return error_set(error, "%s is a folder, expected a file", path);
    }
    return 0;
}

void file_stream_close(FileStream *file)
{
    if (file->fd >= 0) {
        close(file->fd);
    }
    file->fd = -1;
}

static int read_plain(void *context, char *buffer, size_t size, size_t *got, Error *error)
{
    FileStream *file = context;
    ssize_t n;
    do {
        n = read(file->fd, buffer, size);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return error_set(error, "cannot read %s: %s", file->path, strerror(errno));
    }
    *got = (size_t)n;
    *file->bytes_read += (uint64_t)n;
    return 0;
}

ByteStream file_stream(FileStream *file) { return (ByteStream){read_plain, file}; }

// ---- packed files ----

struct Unpacker {
    struct archive *archive;
    ByteStream source;
    const char *name;
    Packing packing;
    bool tar;
    bool holes;          // in the present file
    bool source_failed;
    Error source_error;
    uint64_t unpacked;   // bytes of the present file, for messages
    char block[];        // [BLOCK_BYTES]
};

static la_ssize_t read_source(struct archive *archive, void *context, const void **block)
{
    Unpacker *unpacker = context;
    size_t got;
    *block = unpacker->block;
    if (unpacker->source.read(unpacker->source.context, unpacker->block, BLOCK_BYTES, &got, &unpacker->source_error) != 0) {
        unpacker->source_failed = true;
        archive_set_error(archive, EIO, "cannot be read");
        return -1;
    }
    return (la_ssize_t)got;
}

// The error of the source, if it had one, says more than what the library makes of it.
static int unpack_error(Unpacker *unpacker, Error *error)
{
    if (unpacker->source_failed) {
        *error = unpacker->source_error;
        return -1;
    }
    const char *text = archive_error_string(unpacker->archive);
    return error_set(error, "%s is damaged or cut off, at byte %" PRIu64 " of what it unpacks to: %s", unpacker->name, unpacker->unpacked,
                     text != NULL ? text : "unknown");
}

static int support(struct archive *archive, Packing packing, bool tar)
{
    int filter = packing == PACKING_GZIP    ? archive_read_support_filter_gzip(archive)
                 : packing == PACKING_ZSTD  ? archive_read_support_filter_zstd(archive)
                 : packing == PACKING_XZ    ? archive_read_support_filter_xz(archive)
                 : packing == PACKING_BZIP2 ? archive_read_support_filter_bzip2(archive)
                                            : ARCHIVE_OK;
    // A warning means that another program is started for it: that works too.
    if (filter < ARCHIVE_WARN) {
        return -1;
    }
    int format = tar ? archive_read_support_format_tar(archive) : archive_read_support_format_raw(archive);
    return format == ARCHIVE_OK && archive_read_support_format_empty(archive) == ARCHIVE_OK ? 0 : -1;
}

Unpacker *unpacker_open(ByteStream source, const char *name, Packing packing, bool tar, Error *error)
{
    Unpacker *unpacker = calloc(1, sizeof *unpacker + BLOCK_BYTES);
    struct archive *archive = archive_read_new();
    if (unpacker == NULL || archive == NULL) {
        free(unpacker);
        archive_read_free(archive);
        error_set(error, "out of memory for unpacking %s", name);
        return NULL;
    }
    unpacker->archive = archive;
    unpacker->source = source;
    unpacker->name = name;
    unpacker->packing = packing;
    unpacker->tar = tar;
    if (support(archive, packing, tar) != 0) {
        error_set(error, "the archive library here cannot read %s files such as %s", packing_name(packing), name);
        unpacker_close(unpacker);
        return NULL;
    }
    if (archive_read_open(archive, unpacker, NULL, read_source, NULL) != ARCHIVE_OK) {
        unpack_error(unpacker, error);
        unpacker_close(unpacker);
        return NULL;
    }
    return unpacker;
}

void unpacker_close(Unpacker *unpacker)
{
    if (unpacker != NULL) {
        archive_read_free(unpacker->archive);
        free(unpacker);
    }
}

// A name that the locale cannot show is still there in UTF-8.
static const char *entry_name(struct archive_entry *entry)
{
    const char *name = archive_entry_pathname(entry);
    return name != NULL ? name : archive_entry_pathname_utf8(entry);
}

int unpacker_next(Unpacker *unpacker, const char **entry, Error *error)
{
    for (;;) {
        struct archive_entry *header;
        int status = archive_read_next_header(unpacker->archive, &header);
        // A filter that does not know the data hands it on as it is. It would be taken for text.
        if (unpacker->packing != PACKING_NONE && !unpacker->source_failed && archive_filter_count(unpacker->archive) < 2) {
            return error_set(error, "%s is no %s data; mend the file or its name", unpacker->name, packing_name(unpacker->packing));
        }
        if (status == ARCHIVE_EOF) {
            return 0;
        }
        if (status < ARCHIVE_WARN) {
            return unpack_error(unpacker, error);
        }
        unpacker->unpacked = 0;
        if (!unpacker->tar) {
            *entry = "";
            return 1;
        }
        // A hole takes no room in an archive and may be of any size: reading its zeros would never end.
        unpacker->holes = archive_entry_sparse_count(header) > 0;
        const char *name = entry_name(header);
        if (archive_entry_filetype(header) == AE_IFREG && archive_entry_hardlink(header) == NULL && name != NULL) {
            *entry = name;
            return 1;
        }
    }
}

static int read_unpacked(void *context, char *buffer, size_t size, size_t *got, Error *error)
{
    Unpacker *unpacker = context;
    if (unpacker->holes) {
        return error_set(error, "%s holds a file with holes, which is no text: leave it out, or make the archive without --sparse", unpacker->name);
    }
    // ARCHIVE_RETRY is no invitation: of a member that ends before its data the library says it for ever.
    la_ssize_t n = archive_read_data(unpacker->archive, buffer, size);
    if (n < 0) {
        return unpack_error(unpacker, error);
    }
    *got = (size_t)n;
    unpacker->unpacked += (uint64_t)n;
    return 0;
}

ByteStream unpacker_stream(Unpacker *unpacker) { return (ByteStream){read_unpacked, unpacker}; }
