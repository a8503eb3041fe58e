#include <stdlib.h>

#include "base/rng.h"
#include "benchmarks/bench.h"

float *make_floats(size_t n, uint64_t stream)
{
    float *x = malloc(n * sizeof *x);
    Rng rng;
    rng_seed(&rng, 1, stream);
    for (size_t i = 0; x != NULL && i < n; i++) {
        x[i] = (float)(rng_uniform(&rng) - 0.5);
    }
    return x;
}

int32_t *make_tokens(size_t n, int64_t vocab)
{
    int32_t *tokens = malloc(n * sizeof *tokens);
    Rng rng;
    rng_seed(&rng, 1, 99);
    for (size_t i = 0; tokens != NULL && i < n; i++) {
        tokens[i] = (int32_t)rng_below(&rng, (uint64_t)vocab);
    }
    return tokens;
}

int no_memory(Error *error) { return error_set(error, "no memory for the benchmark: choose a smaller --preset, --micro-batch or --seq-len"); }
