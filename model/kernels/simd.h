// Vectors for the kernels, from GCC's and Clang's vector types: one source for SSE2, AVX2, AVX-512 and NEON.
//
// Every file of model/kernels and model/mixers is compiled once for each instruction set with -DISA=name; ISA_NAME(f) is f_name.
#ifndef MODEL_KERNELS_SIMD_H
#define MODEL_KERNELS_SIMD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define ISA_JOIN2(a, b) a##_##b
#define ISA_JOIN(a, b) ISA_JOIN2(a, b)
#define ISA_NAME(function) ISA_JOIN(function, ISA)

#if defined(__AVX512F__)
#define VECTOR_FLOATS 16
#elif defined(__AVX2__)
#define VECTOR_FLOATS 8
#else
#define VECTOR_FLOATS 4
#endif

// What the lists of shuffles hold behind their eighth entry.
#if VECTOR_FLOATS == 16
#define FILL(...) , __VA_ARGS__
#else
#define FILL(...)
#endif

typedef float vfloat __attribute__((vector_size(VECTOR_FLOATS * 4)));
typedef int32_t vint __attribute__((vector_size(VECTOR_FLOATS * 4)));
// The same without alignment, for loads and stores.
typedef float vfloat_u __attribute__((vector_size(VECTOR_FLOATS * 4), aligned(4), may_alias));

static inline vfloat v_load(const float *p) { return *(const vfloat_u *)p; }
static inline void v_store(float *p, vfloat v) { *(vfloat_u *)p = v; }
// Stores around the caches where the processor can; p is aligned to the vector.
static inline void v_stream(float *p, vfloat v)
{
#if VECTOR_FLOATS == 16
    _mm512_stream_ps(p, (__m512)v);
#elif VECTOR_FLOATS == 8
    _mm256_stream_ps(p, (__m256)v);
#else
    v_store(p, v);
#endif
}
// Behind the last v_stream: other threads may read what was stored as soon as they are told.
static inline void v_stream_end(void)
{
#if VECTOR_FLOATS > 4
    _mm_sfence();
#endif
}
static inline vfloat v_set(float x) { return x - (vfloat){0}; }   // x − 0 keeps the sign of zero and NaN

#if VECTOR_FLOATS == 8
// A mask of the first n < VECTOR_FLOATS elements.
static inline __m256i v_first(size_t n)
{
    static const int32_t ones_then_zeros[2 * VECTOR_FLOATS] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(const void *)(ones_then_zeros + VECTOR_FLOATS - n));
}
#endif

// The first min(n, VECTOR_FLOATS) elements; zeros behind them, which are not read. A loop over a row steps by VECTOR_FLOATS and passes what is left of it.
static inline vfloat v_load_n(const float *p, size_t n)
{
    if (n >= VECTOR_FLOATS) {
        return v_load(p);
    }
#if VECTOR_FLOATS == 16
    return (vfloat)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1u), p);
#elif VECTOR_FLOATS == 8
    return (vfloat)_mm256_maskload_ps(p, v_first(n));
#else
    float x[VECTOR_FLOATS] = {0};
    for (size_t i = 0; i < n; i++) {
        x[i] = p[i];
    }
    return v_load(x);
#endif
}

static inline void v_store_n(float *p, vfloat v, size_t n)
{
    if (n >= VECTOR_FLOATS) {
        v_store(p, v);
        return;
    }
#if VECTOR_FLOATS == 16
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1u), (__m512)v);
#elif VECTOR_FLOATS == 8
    _mm256_maskstore_ps(p, v_first(n), (__m256)v);
#else
    for (size_t i = 0; i < n; i++) {
        p[i] = v[i];
    }
#endif
}

// Sum of all elements, as a fixed tree: the upper half is added to the lower one, and so on.
static inline float v_sum(vfloat v)
{
#if VECTOR_FLOATS >= 16
    v += __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15);
#endif
#if VECTOR_FLOATS >= 8
    v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 4, 5, 6, 7 FILL(4, 5, 6, 7, 4, 5, 6, 7));
    v += __builtin_shufflevector(v, v, 2, 3, 2, 3, 2, 3, 2, 3 FILL(2, 3, 2, 3, 2, 3, 2, 3));
    v += __builtin_shufflevector(v, v, 1, 1, 1, 1, 1, 1, 1, 1 FILL(1, 1, 1, 1, 1, 1, 1, 1));
#else
    v += __builtin_shufflevector(v, v, 2, 3, 2, 3);
    v += __builtin_shufflevector(v, v, 1, 1, 1, 1);
#endif
    return v[0];
}

static inline vfloat v_select(vint mask, vfloat yes, vfloat no) { return (vfloat)(((vint)yes & mask) | ((vint)no & ~mask)); }
// Whether any element of a mask is set.
static inline int v_any(vint mask)
{
#if VECTOR_FLOATS == 16
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif VECTOR_FLOATS == 8
    return !_mm256_testz_si256((__m256i)mask, (__m256i)mask);
#else
    int32_t any = 0;
    for (size_t i = 0; i < VECTOR_FLOATS; i++) {
        any |= mask[i];
    }
    return any != 0;
#endif
}

// b where either is NaN.
static inline vfloat v_max(vfloat a, vfloat b)
{
#if VECTOR_FLOATS == 16
    return (vfloat)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return v_select(a > b, a, b);
#endif
}
static inline vfloat v_min(vfloat a, vfloat b)
{
#if VECTOR_FLOATS == 16
    return (vfloat)_mm512_min_ps((__m512)a, (__m512)b);
#else
    return v_select(a < b, a, b);
#endif
}

// e^x for every element, relative error below 2e-7 on [-87, 88]; below that range about 1e-38, above 3e38 (never infinite); NaN stays NaN.
// x = n·ln 2 + r with |r| ≤ ln 2 / 2; e^r by its Taylor polynomial of degree 6 (remainder below 1.2e-7).
static inline vfloat v_exp(vfloat x)
{
    vfloat clamped = v_select(x > v_set(88.3f), v_set(88.3f), v_select(x < v_set(-87.3f), v_set(-87.3f), x));
    const vfloat round = v_set(12582912.0f);   // 1.5·2^23: adding it rounds to an integer held in the low bits
    vfloat shifted = clamped * v_set(1.44269504f) + round;
    vfloat n = shifted - round;
    vfloat r = clamped - n * v_set(0.693359375f);
    r = r - n * v_set(-2.12194440e-4f);
    vfloat p = v_set(1.0f / 720.0f);
    p = p * r + v_set(1.0f / 120.0f);
    p = p * r + v_set(1.0f / 24.0f);
    p = p * r + v_set(1.0f / 6.0f);
    p = p * r + v_set(0.5f);
    p = p * r + v_set(1.0f);
    p = p * r + v_set(1.0f);
    vint exponent = ((vint)shifted - (vint)round) << 23;
    // Payload bits of a NaN could turn into an exponent: put it back.
    return v_select(x == x, (vfloat)((vint)p + exponent), x);
}

// 1 / (1 + e^−x), relative error below 4e-7; NaN stays NaN.
static inline vfloat v_sigmoid(vfloat x) { return v_set(1.0f) / (v_set(1.0f) + v_exp(-x)); }

// tanh by 1 − 2 / (e^{2x} + 1): absolute error below 3e-7, which is what gelu needs.
static inline vfloat v_tanh(vfloat x) { return v_set(1.0f) - v_set(2.0f) / (v_exp(x + x) + v_set(1.0f)); }

// Square root; the loop becomes one instruction.
static inline vfloat v_sqrt(vfloat x)
{
    vfloat root = x;
    for (size_t i = 0; i < VECTOR_FLOATS; i++) {
        root[i] = __builtin_sqrtf(x[i]);
    }
    return root;
}

// 1 / sqrt(mean(x²) + eps) over a row [dim].
static inline float v_inverse_rms(const float *x, float eps, size_t dim)
{
    vfloat squares = {0};
    for (size_t j = 0; j < dim; j += VECTOR_FLOATS) {
        vfloat v = v_load_n(x + j, dim - j);
        squares += v * v;
    }
    return 1.0f / __builtin_sqrtf(v_sum(squares) / (float)dim + eps);
}

#endif
