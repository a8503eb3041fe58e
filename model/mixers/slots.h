// Passes over a head's memory, vectorised: m slots as rows of d numbers. Any sizes work; constants that are multiples of a vector are fast.
#ifndef MODEL_MIXERS_SLOTS_H
#define MODEL_MIXERS_SLOTS_H

#include "model/kernels/simd.h"

#if defined(__FMA__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define INLINE static inline __attribute__((always_inline))

// Columns held in registers at once, in vectors.
#define COLUMNS 4

#if VECTOR_FLOATS == 16
#define EVENS 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODDS 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#elif VECTOR_FLOATS == 8
#define EVENS 0, 2, 4, 6, 8, 10, 12, 14
#define ODDS 1, 3, 5, 7, 9, 11, 13, 15
#else
#define EVENS 0, 2, 4, 6
#define ODDS 1, 3, 5, 7
#endif

// a b + c, rounded once where the processor can. A compiler fuses `a * b + c` in one place and not in another, as its blocks happen to lie; outputs must not
// depend on that, since one token alone takes another path than a token among many.
INLINE vfloat v_fma(vfloat a, vfloat b, vfloat c)
{
#if defined(__FMA__) && VECTOR_FLOATS == 16
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__) && VECTOR_FLOATS == 8
    return _mm256_fmadd_ps(a, b, c);
#elif defined(__ARM_NEON)
    return vfmaq_f32(c, a, b);
#else
    return a * b + c;
#endif
}

// Element i of the result is the sum of all elements of v[i].
INLINE vfloat sum_each(vfloat v[VECTOR_FLOATS])
{
    for (size_t count = VECTOR_FLOATS; count > 1; count /= 2) {
#pragma GCC unroll 8
        for (size_t i = 0; i < count / 2; i++) {
            v[i] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], EVENS) + __builtin_shufflevector(v[2 * i], v[2 * i + 1], ODDS);
        }
    }
    return v[0];
}

INLINE size_t rest_of(size_t n, size_t begin) { return n > begin ? n - begin : 0; }

// Σ x y over n numbers.
INLINE float dot(const float *x, const float *y, size_t n)
{
    vfloat sum = {0};
    for (size_t j = 0; j < n; j += VECTOR_FLOATS) {
        sum = v_fma(v_load_n(x + j, n - j), v_load_n(y + j, n - j), sum);
    }
    return v_sum(sum);
}

// out [n] = x + scale y; out may be x or y.
INLINE void add_scaled(float *out, const float *x, float scale, const float *y, size_t n)
{
    for (size_t j = 0; j < n; j += VECTOR_FLOATS) {
        v_store_n(out + j, v_fma(v_set(scale), v_load_n(y + j, n - j), v_load_n(x + j, n - j)), n - j);
    }
}

// out [n] = scale x; out may be x.
INLINE void scale_to(float *out, const float *x, float scale, size_t n)
{
    for (size_t j = 0; j < n; j += VECTOR_FLOATS) {
        v_store_n(out + j, v_set(scale) * v_load_n(x + j, n - j), n - j);
    }
}

// out_i = s_i·x for every slot.
INLINE void slot_dots(float *out, const float *s, const float *x, size_t m, size_t d)
{
    for (size_t i0 = 0; i0 < m; i0 += VECTOR_FLOATS) {
        vfloat dots[VECTOR_FLOATS];
        for (size_t l = 0; l < VECTOR_FLOATS; l++) {
            dots[l] = (vfloat){0};
            for (size_t j = 0; j < d && i0 + l < m; j += VECTOR_FLOATS) {
                dots[l] = v_fma(v_load_n(s + (i0 + l) * d + j, d - j), v_load_n(x + j, d - j), dots[l]);
            }
        }
        v_store_n(out + i0, sum_each(dots), m - i0);
    }
}

// Divides every slot by its length. A slot of zeros stays.
INLINE void slots_normalise(float *s, size_t m, size_t d)
{
    for (size_t i = 0; i < m; i++) {
        float square = dot(s + i * d, s + i * d, d);
        scale_to(s + i * d, s + i * d, square == 0.0f ? 0.0f : 1.0f / __builtin_sqrtf(square), d);
    }
}

// ds [m, d], the gradient into the normalised slots, becomes that into raw [m, d]. A slot of zeros passes none.
INLINE void slots_normalise_backward(float *ds, const float *raw, size_t m, size_t d)
{
    for (size_t i = 0; i < m; i++) {
        const float *x = raw + i * d;
        float square = dot(x, x, d), scale = square == 0.0f ? 0.0f : 1.0f / __builtin_sqrtf(square);
        float along = square == 0.0f ? 0.0f : dot(x, ds + i * d, d) / square;
        add_scaled(ds + i * d, ds + i * d, -along, x, d);
        scale_to(ds + i * d, ds + i * d, scale, d);
    }
}

// out [d] = Σ_i w_i s_i.
INLINE void slot_sum(float *out, const float *s, const float *w, size_t m, size_t d)
{
    for (size_t j0 = 0; j0 < d; j0 += COLUMNS * VECTOR_FLOATS) {
        vfloat sum[COLUMNS] = {{0}};
        for (size_t i = 0; i < m; i++) {
            for (size_t c = 0; c < COLUMNS; c++) {
                size_t j = j0 + c * VECTOR_FLOATS;
                sum[c] = v_fma(v_set(w[i]), v_load_n(s + i * d + j, rest_of(d, j)), sum[c]);
            }
        }
        for (size_t c = 0; c < COLUMNS; c++) {
            size_t j = j0 + c * VECTOR_FLOATS;
            v_store_n(out + j, sum[c], rest_of(d, j));
        }
    }
}

#endif
