// Documents from files: .txt (one document a file) and .jsonl (one document a line, under a text key).
#ifndef DATA_CORPUS_H
#define DATA_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/file.h"

struct Progress;

typedef struct CorpusOptions {
    const char *text_key;        // key of the text in .jsonl; NULL: "text", then "content", then the only string there is
    bool strict;                 // a bad record is an error instead of being counted and skipped
    bool quiet;                  // no warnings on stderr about bad records (for a second pass)
    struct Progress *progress;   // line to break before a warning is printed; may be NULL
} CorpusOptions;

typedef struct CorpusStats {
    uint64_t documents, bytes, skipped;   // bytes of text; skipped: bad records and empty documents
    uint64_t bytes_read;                  // bytes of the files, for progress against corpus_bytes
} CorpusStats;

// True for names that a corpus can read (.txt, .jsonl; upper or lower case).
bool corpus_accepts(const char *path);

// Called once for each document in a fixed order (files in the order of the list, records in the order of the file). The text is not
// NUL-terminated and lives for the call only. `index` counts documents from 0. A return other than 0 stops the reading.
typedef int (*CorpusVisit)(void *context, uint64_t index, const char *text, size_t length, Error *error);

// Streams all documents of the files; memory is bounded by the longest document. Empty documents are skipped and counted, also when
// strict. Text is passed on byte for byte (also invalid UTF-8 and CRLF), only a byte order mark at a file's start is removed. A .txt with
// NUL bytes is binary: an error. A .jsonl record is bad when it is no JSON object, has no text, or its text has \u0000 in it (or the line
// a NUL byte). The first few bad records are named on stderr, the others counted. Returns 0, or -1 with `error` set (by the reader,
// naming file and line, or by `visit`). `stats` may be read by `visit` while it runs.
int corpus_read(const PathList *files, const CorpusOptions *options, CorpusStats *stats, CorpusVisit visit, void *context, Error *error);

// Sum of the file sizes, for progress.
uint64_t corpus_bytes(const PathList *files);

#endif
