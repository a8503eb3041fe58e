// The part of ./bench that measures the tokenizer.
#ifndef BENCHMARKS_ENCODE_H
#define BENCHMARKS_ENCODE_H

#include <stddef.h>

#include "base/error.h"
#include "benchmarks/report.h"

// Bytes a second that one thread encodes: English stories, a tokenizer trained on them. Returns 0, or -1 with `error` set.
int bench_encode(Report *report, size_t runs, Error *error);

#endif
