// Documents out of files: one reader a form, behind one table. A reader takes an open stream, so that what unpacks files can stand in
// front of it.
#include "data/corpus.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/progress.h"

enum { MAX_WARNINGS = 5, FIRST_BUFFER = 1 << 16 };

typedef struct CorpusReader {
    const CorpusOptions *options;
    CorpusStats *stats;
    CorpusVisit visit;
    void *context;
    uint64_t bad_records;
} CorpusReader;

// Reads the documents of one stream. `name` stands in messages. Returns 0, or -1 with `error` set.
typedef int (*FormRead)(CorpusReader *reader, FILE *stream, const char *name, Error *error);

typedef struct CorpusForm {
    const char *suffix;
    FormRead read;
} CorpusForm;

static int pass_on(CorpusReader *reader, const char *text, size_t length, Error *error)
{
    if (length == 0) {
        reader->stats->skipped++;
        return 0;
    }
    uint64_t index = reader->stats->documents++;
    reader->stats->bytes += length;
    return reader->visit(reader->context, index, text, length, error) == 0 ? 0 : -1;
}

// Length of a UTF-8 byte order mark at the start of a text.
static size_t bom_length(const char *text, size_t length) { return length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; }

// The whole rest of a stream in a buffer to free. NULL with `error` set.
static char *read_all(FILE *stream, const char *name, size_t *length, Error *error)
{
    size_t capacity = FIRST_BUFFER;
    char *text = malloc(capacity);
    *length = 0;
    while (text != NULL) {
        *length += fread(text + *length, 1, capacity - *length, stream);
        if (*length < capacity) {
            break;
        }
        char *larger = capacity > SIZE_MAX / 2 ? NULL : realloc(text, capacity * 2);
        if (larger == NULL) {
            free(text);
        }
        text = larger;
        capacity *= 2;
    }
    if (text == NULL) {
        error_set(error, "%s does not fit into memory as one document; cut it into smaller files or use .jsonl", name);
        return NULL;
    }
    if (ferror(stream)) {
        error_set(error, "cannot read %s: %s", name, strerror(errno));
        free(text);
        return NULL;
    }
    return text;
}

static int read_txt(CorpusReader *reader, FILE *stream, const char *name, Error *error)
{
    size_t length;
    char *text = read_all(stream, name, &length, error);
    if (text == NULL) {
        return -1;
    }
    reader->stats->bytes_read += length;
    const char *nul = memchr(text, 0, length);
    int result;
    if (nul != NULL) {
        result = error_set(error, "%s is not text: it has a NUL byte at offset %zu; remove it, or convert it to UTF-8 if it is UTF-16",
                           name,
                           (size_t)(nul - text));
    } else {
        size_t skip = bom_length(text, length);
        result = pass_on(reader, text + skip, length - skip, error);
    }
    free(text);
    return result;
}

static int bad_record(CorpusReader *reader, const char *name, uint64_t line, const char *problem, Error *error)
{
    Error message;
    error_set(&message, "%s:%" PRIu64 ": %s", name, line, problem);
    if (reader->options->strict) {
        return error_set(error, "%s; mend the record, or leave out --strict to skip such records", message.text);
    }
    reader->stats->skipped++;
    reader->bad_records++;
    if (!reader->options->quiet && reader->bad_records <= MAX_WARNINGS) {
        if (reader->options->progress != NULL) {
            progress_break(reader->options->progress);
        }
        fprintf(stderr, "warning: %s; record skipped\n", message.text);
    }
    return 0;
}

// True when the JSON text has the escape \u0000, which a C string cannot carry. A backslash takes the next character with it, so \\u0000
// is not one.
static bool has_nul_escape(const char *line, size_t length)
{
    const char *end = line + length;
    for (const char *p = memchr(line, '\\', length); p != NULL; p = memchr(p, '\\', (size_t)(end - p))) {
        if (end - p >= 6 && memcmp(p, "\\u0000", 6) == 0) {
            return true;
        }
        if (end - p < 2) {
            return false;
        }
        p += 2;
    }
    return false;
}

// The item with the document's text. NULL with *problem set when the record has none.
static const cJSON *text_item(const cJSON *record, const char *text_key, const char **problem)
{
    if (!cJSON_IsObject(record)) {
        *problem = "not a JSON object";
        return NULL;
    }
    const char *keys[] = {text_key != NULL ? text_key : "text", "content"};
    for (size_t i = 0; i < (text_key != NULL ? 1 : 2); i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(record, keys[i]);
        if (cJSON_IsString(item)) {
            return item;
        }
    }
    *problem = text_key != NULL ? "no string under the key that --text-key names"
                                : "no string under \"text\" or \"content\"; name the key with --text-key";
    if (text_key != NULL) {
        return NULL;
    }
    const cJSON *only = NULL, *item;
    cJSON_ArrayForEach(item, record) {
        if (cJSON_IsString(item)) {
            if (only != NULL) {
                return NULL;
            }
            only = item;
        }
    }
    return only;
}

static int read_record(CorpusReader *reader, const char *line, size_t length, const char *name, uint64_t number, Error *error)
{
    if (memchr(line, 0, length) != NULL) {
        return bad_record(reader, name, number, "NUL byte in the line", error);
    }
    const char *end = NULL, *problem = NULL;
    cJSON *record = cJSON_ParseWithLengthOpts(line, length, &end, false);
    if (record == NULL) {
        return bad_record(reader, name, number, "not valid JSON", error);
    }
    while (end < line + length && strchr(" \t\r\n", *end) != NULL) {
        end++;
    }
    const cJSON *item = text_item(record, reader->options->text_key, &problem);
    int result;
    if (end != line + length) {
        result = bad_record(reader, name, number, "more than one JSON value in the line", error);
    } else if (item == NULL) {
        result = bad_record(reader, name, number, problem, error);
    } else if (has_nul_escape(line, length)) {
        result = bad_record(reader, name, number, "\\u0000 in a string", error);
    } else {
        result = pass_on(reader, item->valuestring, strlen(item->valuestring), error);
    }
    cJSON_Delete(record);
    return result;
}

static int read_jsonl(CorpusReader *reader, FILE *stream, const char *name, Error *error)
{
    char *line = NULL;
    size_t capacity = 0;
    uint64_t number = 0;
    int result = 0;
    while (result == 0) {
        errno = 0;
        ssize_t got = getline(&line, &capacity, stream);
        if (got < 0) {
            if (!feof(stream) || ferror(stream)) {
                result = error_set(error, "cannot read %s behind line %" PRIu64 ": %s", name, number, strerror(errno));
            }
            break;
        }
        size_t length = (size_t)got;
        size_t skip = number == 0 ? bom_length(line, length) : 0;
        number++;
        reader->stats->bytes_read += length;
        if (skip + strspn(line + skip, " \t\r\n") < length) {
            result = read_record(reader, line + skip, length - skip, name, number, error);
        }
    }
    free(line);
    return result;
}

static const CorpusForm forms[] = {
    {".txt", read_txt},
    {".jsonl", read_jsonl},
};

static const CorpusForm *form_of(const char *path)
{
    size_t length = strlen(path);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        size_t suffix = strlen(forms[i].suffix);
        if (length > suffix && strcasecmp(path + length - suffix, forms[i].suffix) == 0) {
            return &forms[i];
        }
    }
    return NULL;
}

bool corpus_accepts(const char *path) { return form_of(path) != NULL; }

static int read_file(CorpusReader *reader, const char *path, Error *error)
{
    if (file_is_folder(path)) {
        return error_set(error, "%s is a folder, expected a file", path);
    }
    FILE *stream = fopen(path, "rb");
    if (stream == NULL) {
        return error_set(error, "cannot read %s: %s", path, strerror(errno));
    }
    int result = form_of(path)->read(reader, stream, path, error);
    fclose(stream);
    return result;
}

int corpus_read(const PathList *files, const CorpusOptions *options, CorpusStats *stats, CorpusVisit visit, void *context, Error *error)
{
    memset(stats, 0, sizeof *stats);
    for (size_t i = 0; i < files->count; i++) {
        if (form_of(files->items[i]) == NULL) {
            return error_set(error, "%s has no form of documents that is known; expected .txt or .jsonl", files->items[i]);
        }
    }
    CorpusReader reader = {.options = options, .stats = stats, .visit = visit, .context = context};
    for (size_t i = 0; i < files->count; i++) {
        if (read_file(&reader, files->items[i], error) != 0) {
            return -1;
        }
    }
    if (!options->quiet && reader.bad_records > MAX_WARNINGS) {
        if (options->progress != NULL) {
            progress_break(options->progress);
        }
        fprintf(stderr, "warning: %" PRIu64 " bad records skipped in all\n", reader.bad_records);
    }
    return 0;
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
