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

// 1 / sqrt(x) of numbers above 0, to about two units of the last place.
INLINE vfloat v_inverse_sqrt(vfloat x)
{
#if VECTOR_FLOATS == 16
    vfloat y = _mm512_rsqrt14_ps(x);   // 14 bits, doubled by one step of Newton's method: several times as fast as the root and the division
    return v_fma(v_set(0.5f) * y, v_set(1.0f) - x * y * y, y);
#else
    return v_set(1.0f) / v_sqrt(x);
#endif
}

// 1 / x of numbers that are far from the ends of their range, to about two units of the last place.
INLINE vfloat v_inverse(vfloat x)
{
#if VECTOR_FLOATS == 16
    vfloat y = _mm512_rcp14_ps(x);
    return v_fma(v_fma(-x, y, v_set(1.0f)), y, y);
#else
    return v_set(1.0f) / x;
#endif
}

// Sums of the elements of rows, a block of VECTOR_FLOATS rows at a time, as a tree: sum_quad takes four rows, sum_quads what it left of all quads;
// element i of the result belongs to row i. Written in the shuffles that stay within 128 bits, then in those of whole 128 bits: both are cheap.
#define QUADS (VECTOR_FLOATS / 4)

INLINE vfloat sum_quad(const vfloat v[4])
{
#if VECTOR_FLOATS == 16
    __m512 ab = _mm512_add_ps(_mm512_shuffle_ps(v[0], v[1], 0x88), _mm512_shuffle_ps(v[0], v[1], 0xdd));
    __m512 cd = _mm512_add_ps(_mm512_shuffle_ps(v[2], v[3], 0x88), _mm512_shuffle_ps(v[2], v[3], 0xdd));
    return _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x88), _mm512_shuffle_ps(ab, cd, 0xdd));
#elif VECTOR_FLOATS == 8
    __m256 ab = _mm256_add_ps(_mm256_shuffle_ps(v[0], v[1], 0x88), _mm256_shuffle_ps(v[0], v[1], 0xdd));
    __m256 cd = _mm256_add_ps(_mm256_shuffle_ps(v[2], v[3], 0x88), _mm256_shuffle_ps(v[2], v[3], 0xdd));
    return _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x88), _mm256_shuffle_ps(ab, cd, 0xdd));
#else
    vfloat ab = __builtin_shufflevector(v[0], v[1], 0, 2, 4, 6) + __builtin_shufflevector(v[0], v[1], 1, 3, 5, 7);
    vfloat cd = __builtin_shufflevector(v[2], v[3], 0, 2, 4, 6) + __builtin_shufflevector(v[2], v[3], 1, 3, 5, 7);
    return __builtin_shufflevector(ab, cd, 0, 2, 4, 6) + __builtin_shufflevector(ab, cd, 1, 3, 5, 7);
#endif
}

INLINE vfloat sum_quads(const vfloat v[QUADS])
{
#if VECTOR_FLOATS == 16
    __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x88), _mm512_shuffle_f32x4(v[0], v[1], 0xdd));
    __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(v[2], v[3], 0x88), _mm512_shuffle_f32x4(v[2], v[3], 0xdd));
    return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
#elif VECTOR_FLOATS == 8
    return _mm256_add_ps(_mm256_permute2f128_ps(v[0], v[1], 0x20), _mm256_permute2f128_ps(v[0], v[1], 0x31));
#else
    return v[0];
#endif
}

// The same of a whole block at once.
INLINE vfloat sum_each(const vfloat v[VECTOR_FLOATS])
{
    vfloat sums[QUADS];
    for (size_t quad = 0; quad < QUADS; quad++) {
        sums[quad] = sum_quad(v + 4 * quad);
    }
    return sum_quads(sums);
}

// The same of n vectors that stand in `sums` (with room for whole blocks), in whole vectors; to may be sums.
INLINE void sum_vectors(float *to, const float *sums, size_t n)
{
    for (size_t i = 0; i < n; i += VECTOR_FLOATS) {
        vfloat v[VECTOR_FLOATS];
        for (size_t l = 0; l < VECTOR_FLOATS; l++) {
            v[l] = v_load(sums + (i + l) * VECTOR_FLOATS);
        }
        v_store(to + i, sum_each(v));
    }
}

// n rounded up to whole vectors.
INLINE size_t padded(size_t n) { return (n + VECTOR_FLOATS - 1) / VECTOR_FLOATS * VECTOR_FLOATS; }

INLINE size_t rest_of(size_t n, size_t begin) { return n > begin ? n - begin : 0; }

#define LINE_FLOATS 16   // of a cache line

// Rows [count, n] that are needed soon, on their way into the second cache: a head's rows lie apart, which processors do not foresee.
INLINE void prefetch_rows(const float *rows, size_t row, size_t n, size_t count)
{
    for (size_t t = 0; t < count; t++) {
        for (size_t i = 0; i < n; i += LINE_FLOATS) {
            __builtin_prefetch(rows + t * row + i, 0, 2);
        }
    }
}

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

// COLUMNS vectors of a row from column j on; zeros behind its end.
INLINE void load_columns(vfloat to[COLUMNS], const float *row, size_t j, size_t d)
{
    for (size_t c = 0; c < COLUMNS; c++) {
        to[c] = v_load_n(row + j + c * VECTOR_FLOATS, rest_of(d, j + c * VECTOR_FLOATS));
    }
}

INLINE void store_columns(float *row, const vfloat from[COLUMNS], size_t j, size_t d)
{
    for (size_t c = 0; c < COLUMNS; c++) {
        v_store_n(row + j + c * VECTOR_FLOATS, from[c], rest_of(d, j + c * VECTOR_FLOATS));
    }
}

// out_i = s_i·x for every slot.
INLINE void slot_dots(float *out, const float *s, const float *x, size_t m, size_t d)
{
    for (size_t i0 = 0; i0 < m; i0 += VECTOR_FLOATS) {
        vfloat sums[QUADS];
        for (size_t quad = 0; quad < QUADS; quad++) {
            vfloat dots[4] = {{0}};
            for (size_t j = 0; j < d; j += COLUMNS * VECTOR_FLOATS) {
                vfloat xs[COLUMNS];
                load_columns(xs, x, j, d);
                for (size_t l = 0; l < 4 && i0 + 4 * quad + l < m; l++) {
                    vfloat slot[COLUMNS];
                    load_columns(slot, s + (i0 + 4 * quad + l) * d, j, d);
                    for (size_t c = 0; c < COLUMNS; c++) {
                        dots[l] = v_fma(slot[c], xs[c], dots[l]);
                    }
                }
            }
            sums[quad] = sum_quad(dots);
        }
        v_store_n(out + i0, sum_quads(sums), m - i0);
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
    for (size_t j = 0; j < d; j += COLUMNS * VECTOR_FLOATS) {
        vfloat sum[COLUMNS] = {{0}};
        for (size_t i = 0; i < m; i++) {
            vfloat slot[COLUMNS], weight = v_set(w[i]);
            load_columns(slot, s + i * d, j, d);
            for (size_t c = 0; c < COLUMNS; c++) {
                sum[c] = v_fma(weight, slot[c], sum[c]);
            }
        }
        store_columns(out, sum, j, d);
    }
}

#endif
