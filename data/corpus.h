// Documents from files: .txt (one document a file), .jsonl (one document a line, under a text key) and .parquet (one document a row, in a
// text column). The text forms may be packed (.gz, .zst, .xz, .bz2), stand in tar archives, or both.
#ifndef DATA_CORPUS_H
#define DATA_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/file.h"

struct Progress;

// A longer text becomes several documents of at most this many bytes, cut at line ends where there are any: the memory for what is read ahead, encoded
// and written at the same time follows from it.
#define CORPUS_MAX_DOCUMENT ((size_t)32 << 20)

// What corpus_accepts accepts, for --help and messages.
#define CORPUS_FORMS ".txt, .jsonl, .parquet (.parq); .txt and .jsonl also as .gz, .zst, .xz, .bz2 and in .tar, .tgz, .tzst, .txz, .tbz2"

typedef struct CorpusOptions {
    const char *text_key;        // JSON key or column of the text; NULL: "text", then "content", then the only string there is
    const char *where;           // condition on a number of the record, as data/where.h says; NULL: none
    bool dedup;                  // of equal texts only the first is a document; takes up to 46 bytes of memory a document
    bool strict;                 // a bad record is an error instead of being counted and skipped
    bool quiet;                  // no warnings on stderr about bad records (for a second pass)
    size_t readers;              // threads that unpack and parse files, or row groups, ahead; 0: the caller's alone. What `visit` sees is the same
    struct Progress *progress;   // line to break before a warning is printed; may be NULL
} CorpusOptions;

typedef struct CorpusStats {
    uint64_t documents, bytes, skipped;   // bytes of text; skipped: bad records and empty documents
    uint64_t filtered, duplicates;        // records that `where` and `dedup` left out
    uint64_t bytes_read;                  // bytes of the files, for progress against corpus_bytes
} CorpusStats;

// True for names that a corpus can read: .txt and .jsonl, each also with .gz, .zst, .xz or .bz2 behind it; .parquet and .parq; .tar, also
// packed like the others, .tgz, .tbz2, .txz and .tzst. Upper or lower case.
bool corpus_accepts(const char *path);

// Called once for each document in a fixed order (files in the order of the list, records in the order of the file). The text is not
// NUL-terminated and lives for the call only. `index` counts documents from 0. A return other than 0 stops the reading.
typedef int (*CorpusVisit)(void *context, uint64_t index, const char *text, size_t length, Error *error);

// Streams all documents of the files in bounded memory. Of an archive those members are read whose names a folder's files would be read
// by, and no name from it is ever opened or written. Empty documents are skipped and counted, also when strict. Text is passed on byte for
// byte (also invalid UTF-8 and CRLF), only a byte order mark at a file's start is removed.
// Bad records: a .txt with a NUL byte; a line that is no JSON object, has no text, has a NUL byte, is longer than 256 MB, or whose number
// for `where` is none (missing numbers and null do not fulfil the condition). The first few are named on stderr, the others counted.
// Errors, also when not strict: a file that cannot be read, is damaged or cut off; an archive without documents; a Parquet file without
// the columns named or with something that is not supported; `where` with a .txt, which has no numbers. Returns 0, or -1 with `error` set
// (by the reader, naming file and place, or by `visit`). `stats` may be read by `visit` while it runs.
int corpus_read(const PathList *files, const CorpusOptions *options, CorpusStats *stats, CorpusVisit visit, void *context, Error *error);

// What to say of files in which corpus_read found no document: that they are empty, or how many records there were. Returns -1 with `error` set.
int corpus_no_documents(const PathList *files, const CorpusStats *stats, Error *error);

// "3 files skipped: .pdf 2, .doc 1": how many files of each kind are not read, the commonest kind first, those without an extension as
// "no extension", rare kinds summed as "others". Writes at most `size` bytes to `text` and returns it; empty for no files.
char *corpus_describe_rest(char *text, size_t size, const PathList *rest);

// Nothing, unless `strict` and there are such files: then -1 with `error` naming the first.
int corpus_check_rest(const PathList *rest, bool strict, Error *error);

// Sum of the file sizes, for progress.
uint64_t corpus_bytes(const PathList *files);

#endif
