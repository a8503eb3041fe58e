// bf16 in vectors: rounding, and rows that are f32 or bf16 (factors.h).
#ifndef MODEL_KERNELS_BF16_H
#define MODEL_KERNELS_BF16_H

#include "model/kernels/factors.h"
#include "model/kernels/simd.h"

typedef uint16_t vhalf __attribute__((vector_size(VECTOR_FLOATS * 2)));
typedef uint32_t vbits __attribute__((vector_size(VECTOR_FLOATS * 4)));

// x rounded to the nearest bf16 (ties to even), as f32; a NaN stays one.
static inline vfloat v_round_bf16(vfloat x)
{
    vbits bits = (vbits)x, is_nan = (vbits)(x != x);
    vbits rounded = ((bits + 0x7fff + ((bits >> 16) & 1)) & ~is_nan) | ((bits | 0x400000) & is_nan);
    return (vfloat)(rounded & 0xffff0000u);
}

// f32 to the nearest bf16, and back.
static inline vhalf v_narrow(vfloat x)
{
#ifdef __AVX512BF16__
    return (vhalf)_mm512_cvtneps_pbh((__m512)x);
#else
    return __builtin_convertvector((vbits)v_round_bf16(x) >> 16, vhalf);
#endif
}

static inline vfloat v_widen(vhalf x) { return (vfloat)(__builtin_convertvector(x, vbits) << 16); }

// As v_load_n and v_store_n, from and to bf16.
static inline vfloat v_load_bf16_n(const uint16_t *p, size_t n)
{
    vhalf x = {0};
    if (n >= VECTOR_FLOATS) {
        memcpy(&x, p, sizeof x);
        return v_widen(x);
    }
#if VECTOR_FLOATS == 16
    x = (vhalf)_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1u), p);
#else
    memcpy(&x, p, n * sizeof *p);
#endif
    return v_widen(x);
}

static inline void v_store_bf16_n(uint16_t *p, vfloat v, size_t n)
{
    vhalf x = v_narrow(v);
    if (n >= VECTOR_FLOATS) {
        memcpy(p, &x, sizeof x);
        return;
    }
#if VECTOR_FLOATS == 16
    _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1u), (__m256i)x);
#else
    memcpy(p, &x, n * sizeof *p);
#endif
}

// Elements at, at + 1 … of rows, of which n are left.
static inline vfloat v_load_rows(Rows rows, size_t at, size_t n)
{
    return rows.bf16 ? v_load_bf16_n((const uint16_t *)rows.data + at, n) : v_load_n((const float *)rows.data + at, n);
}

static inline void v_store_rows(Rows rows, size_t at, vfloat v, size_t n)
{
    if (rows.bf16) {
        v_store_bf16_n((uint16_t *)rows.data + at, v, n);
    } else {
        v_store_n((float *)rows.data + at, v, n);
    }
}

#endif
