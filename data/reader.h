// Inside of the corpus: what the readers of the forms share. A reader turns one file into documents and bad records.
#ifndef DATA_READER_H
#define DATA_READER_H

#include "data/corpus.h"
#include "data/stream.h"
#include "data/text_set.h"
#include "data/where.h"

typedef struct CorpusReader {
    const CorpusOptions *options;
    CorpusStats *stats;
    CorpusVisit visit;
    void *context;
    const Where *where;    // NULL: all records
    TextSet *seen;         // NULL: duplicates stay
    uint64_t bad_records;
} CorpusReader;

// Hands on a document: empty ones and duplicates are counted, too long ones are cut. Returns 0, or -1 to stop.
int reader_document(CorpusReader *reader, const char *text, size_t length, Error *error);

// Length of the first of several documents into which a text longer than CORPUS_MAX_DOCUMENT is cut: behind a line's end where there is
// one. Only the first CORPUS_MAX_DOCUMENT bytes are looked at.
size_t reader_cut(const char *text);

// Counts a bad record and names the first few; when strict it is an error. `format` gives the place. Returns 0, or -1 with `error` set.
int reader_bad_record(CorpusReader *reader, const char *problem, Error *error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// Reads the documents of one stream. `name` stands in messages. Returns 0, or -1 with `error` set.
int read_text(CorpusReader *reader, ByteStream stream, const char *name, Error *error);
int read_lines(CorpusReader *reader, ByteStream stream, const char *name, Error *error);

// Reads the documents of a Parquet file, row by row.
int read_parquet(CorpusReader *reader, const char *path, Error *error);

#endif
