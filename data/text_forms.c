// Documents of .txt and .jsonl streams.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/json_record.h"
#include "data/reader.h"

enum { READ_BYTES = 1 << 16 };
#define MAX_LINE ((size_t)256 << 20)   // escapes make a line longer than its text

// A window on a stream: bytes [start, end) of the buffer are read and not used up. One byte behind `end` is always there for a NUL.
typedef struct Window {
    ByteStream stream;
    char *buffer;
    size_t start, end, capacity;
    bool finished;   // the stream has no more
} Window;

// Length of a UTF-8 byte order mark at the start of a text.
static size_t bom_length(const char *text, size_t length) { return length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; }

// Reads some more bytes. Returns 0, or -1 with `error` set.
static int window_fill(Window *window, const char *name, Error *error)
{
    size_t used = window->end - window->start;
    if (window->start > 0 && (used == 0 || window->capacity - window->end <= READ_BYTES)) {
        memmove(window->buffer, window->buffer + window->start, used);
        window->start = 0;
        window->end = used;
    }
    if (window->capacity - window->end <= READ_BYTES) {
        size_t capacity = window->capacity * 2 + 4 * READ_BYTES;
        char *larger = realloc(window->buffer, capacity);
        if (larger == NULL) {
            return error_set(error, "out of memory for %zu bytes of %s", capacity, name);
        }
        window->buffer = larger;
        window->capacity = capacity;
    }
    // No more than is needed soon, so that of a large buffer only what its line takes is ever touched.
    size_t room = window->capacity - window->end - 1, got;
    size_t size = room < 4 * READ_BYTES ? room : 4 * READ_BYTES;
    if (window->stream.read(window->stream.context, window->buffer + window->end, size, &got, error) != 0) {
        return -1;
    }
    window->finished = got == 0;
    window->end += got;
    return 0;
}

int read_text(CorpusReader *reader, ByteStream stream, const char *name, Error *error)
{
    Window window = {.stream = stream};
    uint64_t passed = 0;     // bytes used up
    size_t checked = 0;      // bytes of the window without NUL
    int result = 0;
    bool first = true, binary = false;
    while (result == 0 && !window.finished) {
        result = window_fill(&window, name, error);
        size_t length = window.end - window.start;
        const char *text = window.buffer + window.start, *nul = result == 0 ? memchr(text + checked, 0, length - checked) : NULL;
        if (nul != NULL) {
            binary = true;
            result = reader_bad_record(reader, "NUL byte, so this is no text (UTF-16 must be converted to UTF-8)", error, "%s, offset %" PRIu64,
                                       name, passed + (uint64_t)(nul - text));
            break;
        }
        checked = length;
        while (result == 0 && window.end - window.start > CORPUS_MAX_DOCUMENT + 3) {
            size_t skip = first ? bom_length(window.buffer, 3) : 0, cut = reader_cut(window.buffer + window.start + skip);
            result = reader_document(reader, window.buffer + window.start + skip, cut, error);
            window.start += skip + cut;
            passed += skip + cut;
            checked -= skip + cut;
            first = false;
        }
    }
    if (result == 0 && !binary) {
        const char *text = window.buffer + window.start;
        size_t length = window.end - window.start, skip = first ? bom_length(text, length) : 0;
        result = reader_document(reader, text + skip, length - skip, error);
    }
    free(window.buffer);
    return result;
}

// Finds the next line, with its end; at the end of the stream *length is 0. Of a line longer than MAX_LINE nothing is kept: *too_long.
static int next_line(Window *window, const char *name, char **line, size_t *length, bool *too_long, Error *error)
{
    size_t searched = 0;
    *too_long = false;
    for (;;) {
        size_t there = window->end - window->start;
        char *start = window->buffer + window->start, *end = there > searched ? memchr(start + searched, '\n', there - searched) : NULL;
        if (end != NULL || window->finished) {
            *line = start;
            *length = end != NULL ? (size_t)(end - start) + 1 : there;
            window->start += *length;
            return 0;
        }
        searched = there;
        if (there > MAX_LINE) {
            *too_long = true;
            window->start = window->end;
            searched = 0;
        }
        if (window_fill(window, name, error) != 0) {
            return -1;
        }
    }
}

static int read_record(CorpusReader *reader, char *line, size_t length, const char *name, uint64_t number, Error *error)
{
    JsonRecord record;
    const Where *where = reader->where;
    // The end of the line becomes the NUL that the scanner needs behind the record.
    char kept = line[length];
    line[length] = 0;
    const char *problem = json_record_read(&record, line, length, reader->options->text_key, where != NULL ? where->column : NULL);
    line[length] = kept;
    if (problem == NULL && where != NULL && record.number_state == JSON_NUMBER_OTHER) {
        problem = "no number under the key that --where names";
    }
    if (problem != NULL) {
        return reader_bad_record(reader, problem, error, "%s:%" PRIu64, name, number);
    }
    if (where != NULL && (record.number_state == JSON_NUMBER_MISSING || !where_real(where, record.number))) {
        reader->stats->filtered++;
        return 0;
    }
    return reader_document(reader, record.text, record.length, error);
}

// True when nothing but blanks stands in the line.
static bool is_blank(const char *line, size_t length)
{
    while (length > 0 && memchr(" \t\r\n", line[length - 1], 4) != NULL) {
        length--;
    }
    return length == 0;
}

int read_lines(CorpusReader *reader, ByteStream stream, const char *name, Error *error)
{
    Window window = {.stream = stream};
    int result = window_fill(&window, name, error);
    for (uint64_t number = 1; result == 0; number++) {
        char *line;
        size_t length;
        bool too_long;
        result = next_line(&window, name, &line, &length, &too_long, error);
        if (result != 0 || (length == 0 && !too_long)) {
            break;
        }
        size_t skip = number == 1 ? bom_length(line, length) : 0;
        if (too_long) {
            result = reader_bad_record(reader, "the line is longer than 256 MB", error, "%s:%" PRIu64, name, number);
        } else if (!is_blank(line + skip, length - skip)) {
            result = read_record(reader, line + skip, length - skip, name, number, error);
        }
    }
    free(window.buffer);
    return result;
}
