// The parts of ./bench that measure the tokenizer, and ./prepare beside it.
#ifndef BENCHMARKS_ENCODE_H
#define BENCHMARKS_ENCODE_H

#include <stddef.h>

#include "base/error.h"
#include "benchmarks/report.h"
#include "tokenizer/bpe.h"

// Bytes a second that one thread encodes. With `text_path` one line, of that file's text; with NULL three: English stories, characters of many scripts
// without any order (nothing is found again), and one letter a million times over one a hundred thousand times (1: time grows with length).
// `tokenizer_path` NULL: a tokenizer trained on the text. Returns 0, or -1 with `error` set.
int bench_encode(Report *report, const char *tokenizer_path, const char *text_path, size_t runs, Error *error);

// Bytes a second of ./prepare on all threads, from files to shards, over what as many threads encode of the same text in memory, in turns with it. A
// file's text, or English stories, is written as documents to a temporary folder (in TMPDIR), which is removed again.
int bench_prepare(Report *report, const char *tokenizer_path, const char *text_path, size_t runs, Error *error);

// What both work on: a file's text or stories, to free; and the tokenizer of a file or one trained on the text. NULL with `error` set.
char *bench_text(const char *path, size_t *length, Error *error);
Tokenizer *bench_text_tokenizer(const char *path, const char *text, size_t length, Error *error);

#endif
