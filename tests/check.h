// What the tests of the numerics share: random arrays, comparison by relative RMS, threads, golden files. Functions end the test through cmocka.
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/file.h"
#include "base/rng.h"
#include "tests/reference/reference.h"

// Threads that the next parallel loops use; without OpenMP nothing happens, and 1 is returned.
static inline int check_threads(int n)
{
#ifdef _OPENMP
    omp_set_num_threads(n);
    return n;
#else
    (void)n;
    return 1;
#endif
}

// n numbers N(0, scale²) from the pool.
static inline float *random_floats(Pool *pool, Rng *rng, size_t n, double scale)
{
    float *x = pool_floats(pool, n);
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(scale * rng_normal(rng));
    }
    return x;
}

static inline double *random_doubles(Pool *pool, Rng *rng, size_t n, double scale)
{
    double *x = pool_doubles(pool, n);
    for (size_t i = 0; i < n; i++) {
        x[i] = scale * rng_normal(rng);
    }
    return x;
}

static inline double *to_doubles(Pool *pool, const float *x, size_t n)
{
    double *out = pool_doubles(pool, n);
    for (size_t i = 0; i < n; i++) {
        out[i] = x[i];
    }
    return out;
}

static inline float *copy_floats(Pool *pool, const float *x, size_t n)
{
    float *out = pool_floats(pool, n);
    memcpy(out, x, n * sizeof *out);
    return out;
}

static inline void fill_floats(float *x, size_t n, float value)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = value;
    }
}

// Relative RMS of actual against expected is at most `tolerance`; anything not finite fails. `where` and `what` name it in the message.
static inline void check_close(const char *where, const char *what, const float *actual, const double *expected, size_t n, double tolerance)
{
    Pool pool = {0};
    double error = relative_rms(to_doubles(&pool, actual, n), expected, n);
    pool_free(&pool);
    if (!(error <= tolerance)) {
        fail_msg("%s: %s of %zu numbers: relative RMS error %.2e is above %.0e", where, what, n, error, tolerance);
    }
}

static inline void check_bits(const char *where, const char *what, const float *actual, const float *expected, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&actual[i], &expected[i], sizeof *actual) != 0) {
            fail_msg("%s: %s: element %zu of %zu differs in its bits: %.9g and %.9g", where, what, i, n, (double)actual[i], (double)expected[i]);
        }
    }
}

// The folder with the golden files, or NULL (the caller says what it skips). Tests run from the top of the project.
static inline const char *golden_folder(void)
{
    static const char *const folders[] = {"tests/golden", "../shared/golden"};
    for (size_t i = 0; i < 2; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/lattice-decode-exact.json", folders[i]);
        if (file_exists(path)) {
            return folders[i];
        }
    }
    return NULL;
}

#endif
