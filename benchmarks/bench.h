// What the parts of ./bench share.
#ifndef BENCHMARKS_BENCH_H
#define BENCHMARKS_BENCH_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "benchmarks/report.h"
#include "model/config.h"

// Everything a part needs.
typedef struct Bench {
    const Kernels *kernels;
    Ceilings ceilings;
    Report report;
    ModelConfig config;
    const char *preset, *tokenizer, *text;   // the last two NULL: those that the tokenizer's part makes
    int64_t runs, micro_batch, seq_len;
} Bench;

// Random numbers in ±0.5 and tokens below `vocab`, to free; NULL when out of memory.
float *make_floats(size_t n, uint64_t stream);
int32_t *make_tokens(size_t n, int64_t vocab);

// The error of a part that found no memory. Returns -1.
int no_memory(Error *error);

// Parts (gemm.c, mixers.c, infer.c). Each prints its lines and returns 0, or -1 with `error` set.
int bench_gemm(Bench *bench, Error *error);      // the three products of each linear layer over the peak, and over oneDNN's and OpenBLAS's
int bench_mixers(Bench *bench, Error *error);    // one layer's memory: Lattice's chunk forms and the rivals over Lattice's exact form
int bench_prefill(Bench *bench, Error *error);   // a prompt of 4,096 tokens: 2·(parameters without the head) a token over the peak of products
int bench_decode(Bench *bench, Error *error);    // tokens/s over read bandwidth / bytes of weights
int bench_long(Bench *bench, Error *error);      // decoding at position 1,000,000 over decoding at position 100

#endif
