// One file to its documents. Its name tells the form; readers of the text forms take a stream, so that what unpacks files and archives stands in front of them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/form.h"
#include "data/reader.h"

enum { MAX_NESTING = 3 };

static int read_stream(CorpusReader *reader, ByteStream stream, Form form, const char *name, int depth, Error *error);

// As in folders, what has a name beginning with a dot is not looked at (archives from macOS are full of such files).
static bool is_hidden(const char *entry)
{
    for (const char *part = entry; part != NULL; part = strchr(part, '/')) {
        part += *part == '/';
        if (part[0] == '.' && part[strspn(part, ".")] != '/') {
            return true;
        }
    }
    return false;
}

// All members of an archive that hold documents.
static int read_members(CorpusReader *reader, Unpacker *unpacker, const char *name, int depth, Error *error)
{
    const char *entry;
    uint64_t used = 0;
    int more;
    while ((more = unpacker_next(unpacker, &entry, error)) > 0) {
        Form form = form_of(entry);
        if (is_hidden(entry) || form.kind == FORM_UNKNOWN) {
            continue;
        }
        if (form.kind == FORM_PARQUET) {
            return error_set(error, "%s holds the Parquet file %s, which cannot be read inside of an archive: unpack it", name, entry);
        }
        char *full = path_join(name, entry);
        if (full == NULL) {
            return error_set(error, "out of memory while reading %s", name);
        }
        int result = read_stream(reader, unpacker_stream(unpacker), form, full, depth + 1, error);
        free(full);
        if (result != 0) {
            return -1;
        }
        used++;
    }
    if (more == 0 && used == 0) {
        return error_set(error, "%s holds no documents: expected .txt or .jsonl in it", name);
    }
    return more;
}

static int read_empty(void *context, char *buffer, size_t size, size_t *got, Error *error)
{
    (void)context;
    (void)buffer;
    (void)size;
    (void)error;
    *got = 0;
    return 0;
}

static int read_packed(CorpusReader *reader, ByteStream stream, Form form, const char *name, int depth, Error *error)
{
    bool tar = form.kind == FORM_TAR;
    if (depth >= MAX_NESTING) {
        return error_set(error, "%s: archives are nested more than %d deep", name, MAX_NESTING);
    }
    Unpacker *unpacker = unpacker_open(stream, name, form.packing, tar, error);
    if (unpacker == NULL) {
        return -1;
    }
    int result;
    if (tar) {
        result = read_members(reader, unpacker, name, depth, error);
    } else {
        const char *entry;
        result = unpacker_next(unpacker, &entry, error);
        if (result >= 0) {
            // Packed nothing has no file in it, and is an empty file.
            ByteStream inner = result > 0 ? unpacker_stream(unpacker) : (ByteStream){read_empty, NULL};
            result = read_stream(reader, inner, (Form){form.kind, PACKING_NONE}, name, depth + 1, error);
        }
    }
    unpacker_close(unpacker);
    return result;
}

static int read_stream(CorpusReader *reader, ByteStream stream, Form form, const char *name, int depth, Error *error)
{
    if (form.kind == FORM_TAR || form.packing != PACKING_NONE) {
        return read_packed(reader, stream, form, name, depth, error);
    }
    if (form.kind == FORM_LINES) {
        return read_lines(reader, stream, name, error);
    }
    if (reader->where != NULL) {
        return error_set(error, "%s has no number \"%s\": --where needs .jsonl or .parquet documents", name, reader->where->column);
    }
    return read_text(reader, stream, name, error);
}

int read_file(CorpusReader *reader, const char *path, Error *error)
{
    Form form = form_of(path);
    if (form.kind == FORM_PARQUET) {
        return read_parquet(reader, path, error);
    }
    FileStream file;
    if (file_stream_open(&file, path, &reader->stats->bytes_read, error) != 0) {
        return -1;
    }
    int result = read_stream(reader, file_stream(&file), form, path, 0, error);
    file_stream_close(&file);
    return result;
}
