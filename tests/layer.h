// A kernel of every instruction set against its reference, for the tests of kernels: values, what lies between rows, threads, NaN.
#ifndef TESTS_LAYER_H
#define TESTS_LAYER_H

#include <math.h>

#include "model/kernels/kernels.h"
#include "tests/check.h"

#define MAX_ARRAYS 6
#define OUTPUT_TOLERANCE 5e-6
#define GRADIENT_TOLERANCE 2e-5

// A kernel as a function of arrays. Outputs start with random numbers, the same for both sides, so that setting, adding and leaving alone all show.
typedef struct Layer {
    const char *name;
    void (*fast)(float *const *out, const float *const *in, const Kernels *kernels, const struct Layer *l);
    void (*reference)(double *const *out, const double *const *in, const struct Layer *l);
    double tolerance;
    size_t n_in, in_counts[MAX_ARRAYS], n_out, out_counts[MAX_ARRAYS];
    size_t n, dim, out_dim, n_head, stride;   // sizes as the kernel reads them
    bool accumulate;
    double eps;
    ConvShape conv;
    const int32_t *ids;
} Layer;

typedef struct LayerRun {
    float *in[MAX_ARRAYS], *start[MAX_ARRAYS], *out[MAX_ARRAYS];
    double *in_doubles[MAX_ARRAYS], *expected[MAX_ARRAYS];
} LayerRun;

static inline void run_fast(float *const *out, const LayerRun *run, const Kernels *kernels, const Layer *l)
{
    for (size_t i = 0; i < l->n_out; i++) {
        memcpy(out[i], run->start[i], l->out_counts[i] * sizeof **out);
    }
    l->fast(out, (const float *const *)run->in, kernels, l);
}

static inline void run_reference(LayerRun *run, const Layer *l)
{
    for (size_t i = 0; i < l->n_in; i++) {
        for (size_t j = 0; j < l->in_counts[i]; j++) {
            run->in_doubles[i][j] = run->in[i][j];
        }
    }
    for (size_t i = 0; i < l->n_out; i++) {
        for (size_t j = 0; j < l->out_counts[i]; j++) {
            run->expected[i][j] = run->start[i][j];
        }
    }
    l->reference(run->expected, (const double *const *)run->in_doubles, l);
}

// Puts a NaN into one input at a time: wherever the reference has NaN, the kernel must too.
static inline void check_nan(LayerRun *run, const char *where, Rng *rng, const Kernels *kernels, const Layer *l)
{
    for (size_t k = 0; k < l->n_in; k++) {
        size_t place = rng_below(rng, l->in_counts[k]);
        float before = run->in[k][place];
        run->in[k][place] = NAN;
        run_reference(run, l);
        run_fast(run->out, run, kernels, l);
        for (size_t i = 0; i < l->n_out; i++) {
            for (size_t j = 0; j < l->out_counts[i]; j++) {
                if (isnan(run->expected[i][j]) && !isnan(run->out[i][j])) {
                    fail_msg("%s: NaN at %zu of input %zu is lost at %zu of output %zu", where, place, k, j, i);
                }
            }
        }
        run->in[k][place] = before;
    }
}

static inline void check_layer(const Layer *l, const Kernels *kernels, uint64_t seed)
{
    Pool pool = {0};
    Rng rng;
    LayerRun run;
    float *again[MAX_ARRAYS];
    char where[128];
    snprintf(where, sizeof where, "%s %s (n %zu, dim %zu, out %zu, heads %zu)", kernels->name, l->name, l->n, l->dim, l->out_dim, l->n_head);
    rng_seed(&rng, seed, 0);
    for (size_t i = 0; i < l->n_in; i++) {
        run.in[i] = random_floats(&pool, &rng, l->in_counts[i], 1.0);
        run.in_doubles[i] = pool_doubles(&pool, l->in_counts[i]);
    }
    for (size_t i = 0; i < l->n_out; i++) {
        run.start[i] = random_floats(&pool, &rng, l->out_counts[i], 1.0);
        run.out[i] = pool_floats(&pool, l->out_counts[i]);
        again[i] = pool_floats(&pool, l->out_counts[i]);
        run.expected[i] = pool_doubles(&pool, l->out_counts[i]);
    }
    check_threads(1);
    run_fast(run.out, &run, kernels, l);
    run_reference(&run, l);
    for (size_t i = 0; i < l->n_out; i++) {
        check_close(where, "an output", run.out[i], run.expected[i], l->out_counts[i], l->tolerance);
    }
    for (int threads = 2; threads <= 3; threads++) {
        check_threads(threads);
        run_fast(again, &run, kernels, l);
        for (size_t i = 0; i < l->n_out; i++) {
            check_bits(where, "1 thread and more", again[i], run.out[i], l->out_counts[i]);
        }
    }
    if (l->n * l->dim * (l->out_dim + 1) < 1000000) {   // the reference is slow on more, and blocks of all kinds occur below
        check_nan(&run, where, &rng, kernels, l);
    }
    pool_free(&pool);
}

static inline void check_layers(const Layer *layers, size_t n)
{
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        for (size_t i = 0; i < n; i++) {
            check_layer(&layers[i], *kernels, i);
        }
    }
}

static inline void zero(double *x, size_t n) { memset(x, 0, n * sizeof *x); }

// Copies columns [0, cols) of rows at `stride` to rows of their own, and back.
static inline double *take_columns(Pool *pool, const double *x, size_t stride, size_t n, size_t cols)
{
    double *out = pool_doubles(pool, n * cols);
    for (size_t t = 0; t < n; t++) {
        memcpy(out + t * cols, x + t * stride, cols * sizeof *out);
    }
    return out;
}

static inline void put_columns(double *out, size_t stride, const double *x, size_t n, size_t cols)
{
    for (size_t t = 0; t < n; t++) {
        memcpy(out + t * stride, x + t * cols, cols * sizeof *out);
    }
}

// Numbers of rows and sizes of a row that layers are tried on.
static const size_t row_sizes[][2] = {{1, 1}, {3, 63}, {65, 65}, {200, 3}, {130, 200}, {3, 1000}, {1000, 17}};   // n, dim
enum { N_ROW_SIZES = sizeof row_sizes / sizeof row_sizes[0] };

#endif
