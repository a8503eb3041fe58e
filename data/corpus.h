// Documents from files: .txt (one document a file) and .jsonl (one document a line, under a text key).
#ifndef DATA_CORPUS_H
#define DATA_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/file.h"

typedef struct CorpusOptions {
    const char *text_key;   // key of the text in .jsonl; NULL: "text", then "content", then the only string there is
    bool strict;            // a bad record is an error instead of being counted and skipped
} CorpusOptions;

typedef struct CorpusStats {
    uint64_t documents, bytes, skipped;
} CorpusStats;

// True for names that a corpus can read (.txt, .jsonl).
bool corpus_accepts(const char *path);

// Called once for each document in a fixed order (files in the order of the list, records in the order of the file). The text is not NUL-terminated and lives for
// the call only. `index` counts documents from 0. A return other than 0 stops the reading.
typedef int (*CorpusVisit)(void *context, uint64_t index, const char *text, size_t length, Error *error);

// Streams all documents of the files; memory is bounded by the longest document. Empty documents are skipped and counted. `stats` may be read while it runs.
// Returns 0, or -1 with `error` set (by the reader, naming file and line, or by `visit`).
int corpus_read(const PathList *files, const CorpusOptions *options, CorpusStats *stats, CorpusVisit visit, void *context, Error *error);

// Sum of the file sizes, for progress.
uint64_t corpus_bytes(const PathList *files);

#endif
