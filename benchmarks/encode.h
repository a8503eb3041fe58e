// The part of ./bench that measures the tokenizer.
#ifndef BENCHMARKS_ENCODE_H
#define BENCHMARKS_ENCODE_H

#include <stddef.h>

#include "base/error.h"
#include "benchmarks/report.h"

// Bytes a second that one thread encodes. With `text_path` one line, of that file's text; with NULL three: English stories, characters of many scripts
// without any order (nothing is found again), and one letter a million times over one a hundred thousand times (1: time grows with length).
// `tokenizer_path` NULL: a tokenizer trained on the text. Returns 0, or -1 with `error` set.
int bench_encode(Report *report, const char *tokenizer_path, const char *text_path, size_t runs, Error *error);

#endif
