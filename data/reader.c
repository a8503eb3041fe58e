// What the readers of all forms share: what becomes of a document and of a bad record.
#include "data/reader.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/progress.h"

enum { MAX_WARNINGS = 5 };

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

void reader_sum_up(const CorpusReader *reader)
{
    if (!reader->options->quiet && reader->bad_records > MAX_WARNINGS) {
        if (reader->options->progress != NULL) {
            progress_break(reader->options->progress);
        }
        fprintf(stderr, "warning: %" PRIu64 " bad records skipped in all\n", reader->bad_records);
    }
}
