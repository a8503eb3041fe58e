// The part of ./bench that measures the optimizers.
#ifndef BENCHMARKS_OPTIMIZER_H
#define BENCHMARKS_OPTIMIZER_H

#include <stddef.h>

#include "base/error.h"
#include "benchmarks/report.h"
#include "model/config.h"

// AdamW's and Muon's step on a model of this shape: bytes or products a second, and seconds beside those of a training step with the batch that
// ./train takes for this size. Returns 0, or -1 with `error` set (no memory).
int bench_optimizer(Report *report, const Ceilings *ceilings, const Kernels *kernels, const ModelConfig *config, size_t runs, Error *error);

#endif
