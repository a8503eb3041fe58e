// Documents out of files. A file's name tells its form; readers of the text forms take a stream, so that what unpacks files stands in
// front of them.
#include "data/corpus.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/progress.h"
#include "data/form.h"
#include "data/reader.h"

enum { MAX_WARNINGS = 5, MAX_NESTING = 3 };

// ---- what the readers share ----

size_t reader_cut(const char *text)
{
    for (size_t i = CORPUS_MAX_DOCUMENT; i > 0; i--) {
        if (text[i - 1] == '\n') {
            return i;
        }
    }
    size_t cut = CORPUS_MAX_DOCUMENT;
    // No character is cut in two (more than three such bytes would be no UTF-8).
    for (int i = 0; i < 3 && ((unsigned char)text[cut] & 0xc0) == 0x80; i++) {
        cut--;
    }
    return cut;
}

int reader_document(CorpusReader *reader, const char *text, size_t length, Error *error)
{
    while (length > CORPUS_MAX_DOCUMENT) {
        size_t cut = reader_cut(text);
        if (reader_document(reader, text, cut, error) != 0) {
            return -1;
        }
        text += cut;
        length -= cut;
    }
    if (reader->sink != NULL) {
        return reader->sink->document(reader->sink->context, text, length, error);
    }
    if (length == 0) {
        reader->stats->skipped++;
        return 0;
    }
    bool is_new = true;
    if (reader->seen != NULL && text_set_add(reader->seen, text, length, &is_new, error) != 0) {
        return -1;
    }
    if (!is_new) {
        reader->stats->duplicates++;
        return 0;
    }
    uint64_t index = reader->stats->documents++;
    reader->stats->bytes += length;
    return reader->visit(reader->context, index, text, length, error) == 0 ? 0 : -1;
}

int reader_bad_record(CorpusReader *reader, const char *problem, Error *error, const char *format, ...)
{
    char place[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(place, sizeof place, format, arguments);
    va_end(arguments);
    Error message;
    error_set(&message, "%s: %s", place, problem);
    return reader->sink != NULL ? reader->sink->bad_record(reader->sink->context, message.text, error)
                                : reader_count_bad_record(reader, message.text, error);
}

int reader_count_bad_record(CorpusReader *reader, const char *message, Error *error)
{
    if (reader->options->strict) {
        return error_set(error, "%s; mend the record, or leave out --strict to skip such records", message);
    }
    reader->stats->skipped++;
    reader->bad_records++;
    if (!reader->options->quiet && reader->bad_records <= MAX_WARNINGS) {
        if (reader->options->progress != NULL) {
            progress_break(reader->options->progress);
        }
        fprintf(stderr, "warning: %s; record skipped\n", message);
    }
    return 0;
}

// ---- packed files and archives ----

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

// ---- the corpus ----

bool corpus_accepts(const char *path) { return form_of(path).kind != FORM_UNKNOWN; }

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

static int read_files(CorpusReader *reader, const PathList *files, Error *error)
{
    if (reader->options->readers > 0 && read_ahead(reader, files, error) != 0) {
        return -1;
    }
    for (size_t i = 0; i < files->count && reader->options->readers == 0; i++) {
        if (read_file(reader, files->items[i], error) != 0) {
            return -1;
        }
    }
    if (!reader->options->quiet && reader->bad_records > MAX_WARNINGS) {
        if (reader->options->progress != NULL) {
            progress_break(reader->options->progress);
        }
        fprintf(stderr, "warning: %" PRIu64 " bad records skipped in all\n", reader->bad_records);
    }
    return 0;
}

int corpus_read(const PathList *files, const CorpusOptions *options, CorpusStats *stats, CorpusVisit visit, void *context, Error *error)
{
    memset(stats, 0, sizeof *stats);
    for (size_t i = 0; i < files->count; i++) {
        if (!corpus_accepts(files->items[i])) {
            return error_set(error, "%s has no form of documents that is known; there are " CORPUS_FORMS, files->items[i]);
        }
    }
    Where where;
    if (options->where != NULL && where_parse(&where, options->where, error) != 0) {
        return -1;
    }
    CorpusReader reader = {.options = options, .stats = stats, .visit = visit, .context = context,
                           .where = options->where != NULL ? &where : NULL};
    if (options->dedup) {
        reader.seen = text_set_create(error);
        if (reader.seen == NULL) {
            return -1;
        }
    }
    int result = read_files(&reader, files, error);
    text_set_free(reader.seen);
    return result;
}

uint64_t corpus_bytes(const PathList *files)
{
    uint64_t total = 0;
    for (size_t i = 0; i < files->count; i++) {
        int64_t size = file_size(files->items[i]);
        total += size > 0 ? (uint64_t)size : 0;
    }
    return total;
}

int corpus_no_documents(const PathList *files, const CorpusStats *stats, Error *error)
{
    const char *first = files->count > 0 ? files->items[0] : "missing";
    if (corpus_bytes(files) > 0 || files->count == 0) {
        return error_set(error, "no documents in the %zu files given, the first %s (%" PRIu64 " records skipped); name files with text, and its key with "
                         "--text-key", files->count, first, stats->skipped);
    }
    return files->count == 1 ? error_set(error, "%s is empty: name files with text", first)
                             : error_set(error, "all %zu files given are empty, the first %s: name files with text", files->count, first);
}
