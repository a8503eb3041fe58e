#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/reference/reference.h"

static void *pool_zeros(Pool *pool, size_t n, size_t size)
{
    if (pool->count == pool->capacity) {
        size_t capacity = 2 * pool->capacity + 16;
        void **items = reallocarray(pool->items, capacity, sizeof *items);
        if (items == NULL) {
            fputs("error: out of memory in a test\n", stderr);
            exit(1);
        }
        pool->items = items;
        pool->capacity = capacity;
    }
    void *data = calloc(n > 0 ? n : 1, size);
    if (data == NULL) {
        fprintf(stderr, "error: no memory for %zu numbers in a test\n", n);
        exit(1);
    }
    pool->items[pool->count++] = data;
    return data;
}

double *pool_doubles(Pool *pool, size_t n) { return pool_zeros(pool, n, sizeof(double)); }

float *pool_floats(Pool *pool, size_t n) { return pool_zeros(pool, n, sizeof(float)); }

int32_t *pool_ints(Pool *pool, size_t n) { return pool_zeros(pool, n, sizeof(int32_t)); }

void pool_free(Pool *pool)
{
    for (size_t i = 0; i < pool->count; i++) {
        free(pool->items[i]);
    }
    free(pool->items);
    *pool = (Pool){0};
}

double relative_rms(const double *actual, const double *expected, size_t n)
{
    double difference = 0.0, size = 0.0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(actual[i]) || !isfinite(expected[i])) {
            return INFINITY;
        }
        difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
        size += expected[i] * expected[i];
    }
    if (n == 0) {
        return 0.0;
    }
    return size > 0.0 ? sqrt(difference / size) : sqrt(difference / (double)n);
}
