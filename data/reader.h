// Inside of the corpus: what the readers of the forms share. A reader turns one file into documents and bad records.
#ifndef DATA_READER_H
#define DATA_READER_H

#include "data/corpus.h"
#include "data/stream.h"
#include "data/text_set.h"
#include "data/where.h"

// Takes what a reader finds, as it finds it. Both return 0, or -1 with `error` set to stop.
typedef struct ReaderSink {
    int (*document)(void *context, const char *text, size_t length, Error *error);
    int (*bad_record)(void *context, const char *message, Error *error);
    void *context;
} ReaderSink;

typedef struct CorpusReader {
    const CorpusOptions *options;
    CorpusStats *stats;
    CorpusVisit visit;
    void *context;
    const Where *where;    // NULL: all records
    TextSet *seen;         // NULL: duplicates stay
    uint64_t bad_records;
    const ReaderSink *sink;   // not NULL: takes documents and bad records instead of `visit` and what counts them
} CorpusReader;

// Hands on a document: empty ones and duplicates are counted, too long ones are cut. Returns 0, or -1 to stop.
int reader_document(CorpusReader *reader, const char *text, size_t length, Error *error);

// Length of the first of several documents into which a text longer than CORPUS_MAX_DOCUMENT is cut: behind a line's end where there is
// one. Only the first CORPUS_MAX_DOCUMENT bytes are looked at.
size_t reader_cut(const char *text);

// Counts a bad record and names the first few; when strict it is an error. `format` gives the place. Returns 0, or -1 with `error` set.
int reader_bad_record(CorpusReader *reader, const char *problem, Error *error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// The same with a message that is complete, for what a sink took.
int reader_count_bad_record(CorpusReader *reader, const char *message, Error *error);

// Says how many bad records there were in all, where not all were named.
void reader_sum_up(const CorpusReader *reader);

// Reads the documents of one file. Returns 0, or -1 with `error` set.
int read_file(CorpusReader *reader, const char *path, Error *error);

// Reads the documents of one stream. `name` stands in messages. Returns 0, or -1 with `error` set.
int read_text(CorpusReader *reader, ByteStream stream, const char *name, Error *error);
int read_lines(CorpusReader *reader, ByteStream stream, const char *name, Error *error);

// Reads the documents of a Parquet file, row by row.
int read_parquet(CorpusReader *reader, const char *path, Error *error);

// The same in parts: the file opened and its columns found, then its row groups, by any number of threads with readers of their own.
// NULL with `error` set.
typedef struct ParquetTable ParquetTable;
ParquetTable *parquet_table_open(const CorpusReader *reader, const char *path, Error *error);
void parquet_table_close(ParquetTable *table);   // NULL is allowed
size_t parquet_table_groups(const ParquetTable *table);
int parquet_table_read(const ParquetTable *table, CorpusReader *reader, size_t group, Error *error);

// Reads all files with options->readers threads and hands on what they find through `reader`, in the order of the files: `reader` sees
// what it would see by itself. How far the threads are ahead is bounded in bytes. Returns 0, or -1 with `error` set.
int read_ahead(CorpusReader *reader, const PathList *files, Error *error);

#endif
