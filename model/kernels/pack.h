// Packing for matrix products: a block of a matrix as panels of `width` lanes (rows of a, columns of b), the lanes of one unit of depth side by side.
//
// A panel is [units][PANEL_STRIDE(width)] words of 32 bits: one f32 a word, or, where the processor multiplies bf16, two bf16, the earlier one in the low half. Lanes
// behind the last are zeros. Panels follow each other.
#ifndef MODEL_KERNELS_PACK_H
#define MODEL_KERNELS_PACK_H

#include "model/kernels/packed.h"
#include "model/kernels/simd.h"

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#define PACK_INLINE static inline __attribute__((always_inline))

#if VECTOR_FLOATS == 16
#define EXCHANGES(STAGE)                                                                                                             \
    STAGE(8, (0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23), (8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31)) \
    STAGE(4, (0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27), (4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31)) \
    STAGE(2, (0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29), (2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)) \
    STAGE(1, (0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30), (1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31))
#elif VECTOR_FLOATS == 8
#define EXCHANGES(STAGE)                                           \
    STAGE(4, (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)) \
    STAGE(2, (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)) \
    STAGE(1, (0, 8, 2, 10, 4, 12, 6, 14), (1, 9, 3, 11, 5, 13, 7, 15))
#else
#define EXCHANGES(STAGE)                       \
    STAGE(2, (0, 1, 4, 5), (2, 3, 6, 7))       \
    STAGE(1, (0, 4, 2, 6), (1, 5, 3, 7))
#endif
#define LIST(...) __VA_ARGS__

// Transposes a square of VECTOR_FLOATS rows: exchanges the off-diagonal halves, then the quarters, and so on.
PACK_INLINE void transpose_square(vfloat rows[VECTOR_FLOATS])
{
#define STAGE(S, LOW, HIGH)                                                               \
    _Pragma("GCC unroll 16") for (size_t i = 0; i < VECTOR_FLOATS; i++)                   \
    {                                                                                     \
        if ((i & S) == 0) {                                                               \
            vfloat low = __builtin_shufflevector(rows[i], rows[i + S], LIST LOW);         \
            rows[i + S] = __builtin_shufflevector(rows[i], rows[i + S], LIST HIGH);       \
            rows[i] = low;                                                                \
        }                                                                                 \
    }
    EXCHANGES(STAGE)
#undef STAGE
}

// How words are made.
typedef enum WordKind {
    WORD_F32,
    WORD_ROUNDED,   // f32 rounded to bf16
    WORD_PAIR,      // two bf16; AVX512-BF16 only
} WordKind;

PACK_INLINE size_t word_elements(WordKind kind) { return kind == WORD_PAIR ? 2 : 1; }

// x rounded to the nearest bf16 (ties to even), as f32; a NaN stays one.
PACK_INLINE vfloat v_round_bf16(vfloat x)
{
    typedef uint32_t vbits __attribute__((vector_size(VECTOR_FLOATS * 4)));
    vbits bits = (vbits)x, is_nan = (vbits)(x != x);
    vbits rounded = ((bits + 0x7fff + ((bits >> 16) & 1)) & ~is_nan) | ((bits | 0x400000) & is_nan);
    return (vfloat)(rounded & 0xffff0000u);
}

// VECTOR_FLOATS words of consecutive depth from a row with `rest` elements left.
PACK_INLINE vfloat words_along(WordKind kind, const float *row, size_t rest)
{
#ifdef __AVX512BF16__
    if (kind == WORD_PAIR) {
        vfloat second = rest > VECTOR_FLOATS ? v_load_n(row + VECTOR_FLOATS, rest - VECTOR_FLOATS) : (vfloat){0};
        return (vfloat)(__m512)(__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)v_load_n(row, rest));
    }
#endif
    vfloat words = v_load_n(row, rest);
    return kind == WORD_F32 ? words : v_round_bf16(words);
}

// VECTOR_FLOATS words of consecutive lanes, of which `rest` exist; `next` is the same lanes' second element of a pair, or NULL where depth ends.
PACK_INLINE vfloat words_across(WordKind kind, const float *row, const float *next, size_t rest)
{
    vfloat first = v_load_n(row, rest);
#ifdef __AVX512BF16__
    if (kind == WORD_PAIR) {
        typedef uint16_t halves __attribute__((vector_size(64)));
        vfloat second = next == NULL ? (vfloat){0} : v_load_n(next, rest);
        halves both = (halves)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
        return (vfloat)__builtin_shufflevector(both, both, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29,
                                               14, 30, 15, 31);
    }
#endif
    (void)next;
    return kind == WORD_F32 ? first : v_round_bf16(first);
}

// Words from one unit of a panel to the next: whole vectors, so that every store fills whole lines. What lies behind the last lane means nothing.
#define PANEL_STRIDE(width) (((width) + VECTOR_FLOATS - 1) / VECTOR_FLOATS * VECTOR_FLOATS)

// Rows whose lanes are packed: rows of a matrix, or of packed weights.
typedef struct PackRows {
    const float *data;            // element (i, p) is data[i·lane + p]; or, where it is NULL,
    size_t lane;
    const PackedMatrix *packed;   // element p0 + p of row first + i of this; p0 is a multiple of PACKED_UNIT
    size_t first, p0;
} PackRows;

// The words of VECTOR_FLOATS·word_elements numbers of packed weights, which lie in one cache line. int8 numbers become words of f32 times `scale`, pairs as
// they are.
PACK_INLINE vfloat words_packed(WordKind kind, WeightType type, const char *numbers, float scale)
{
#ifdef __AVX512BF16__
    if (kind == WORD_PAIR && type == WEIGHTS_BF16) {
        return v_load((const float *)(const void *)numbers);
    }
    if (kind == WORD_PAIR) {
        __m512 first = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)numbers)));
        __m512 second = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(numbers + VECTOR_FLOATS))));
        return (vfloat)(__m512)(__m512i)_mm512_cvtne2ps_pbh(second, first);
    }
#endif
    typedef uint16_t halves __attribute__((vector_size(VECTOR_FLOATS * 2)));
    typedef uint32_t wholes __attribute__((vector_size(VECTOR_FLOATS * 4)));
    typedef int8_t bytes __attribute__((vector_size(VECTOR_FLOATS)));
    (void)kind;
    if (type == WEIGHTS_BF16) {
        halves high;
        memcpy(&high, numbers, sizeof high);
        return (vfloat)(__builtin_convertvector(high, wholes) << 16);
    }
    bytes small;
    memcpy(&small, numbers, sizeof small);
    return __builtin_convertvector(small, vfloat) * v_set(scale);
}

PACK_INLINE vfloat row_words(WordKind kind, WeightType type, const PackRows *rows, size_t i, size_t p, size_t rest)
{
    if (type == WEIGHTS_F32) {
        const float *row = rows->data + i * rows->lane + p;
        // Rows lie too far apart for the processor to guess the next.
        __builtin_prefetch(row + VECTOR_FLOATS * rows->lane);
        return words_along(kind, row, rest);
    }
    const PackedMatrix *m = rows->packed;
    size_t numbers = packed_line_numbers(type), at = rows->p0 + p, row = rows->first + i;
    const char *line = packed_line(m, row, at / numbers);
    return words_packed(kind, type, line + at % numbers * (PACKED_LINE / numbers), type == WEIGHTS_INT8 && kind == WORD_F32 ? m->scales[row] : 1.0f);
}

// One panel of lanes whose depth is contiguous: rows `begin` … of which `lanes` ≤ width exist.
PACK_INLINE void pack_along(WordKind kind, WeightType type, float *dst, size_t width, const PackRows *from, size_t begin, size_t lanes, size_t depth)
{
    const size_t step = VECTOR_FLOATS * word_elements(kind);
    for (size_t first = 0; first < width; first += VECTOR_FLOATS) {
        size_t group = width - first < VECTOR_FLOATS ? width - first : VECTOR_FLOATS, count = lanes > first ? lanes - first : 0;
        for (size_t p = 0; p < depth; p += step) {
            vfloat rows[VECTOR_FLOATS];
            bool whole = count >= group && p + step <= depth;
#pragma GCC unroll 16
            for (size_t i = 0; i < VECTOR_FLOATS; i++) {
                rows[i] = (vfloat){0};
                if (i < group && whole) {
                    rows[i] = row_words(kind, type, from, begin + first + i, p, step);
                } else if (i < group && i < count) {
                    rows[i] = row_words(kind, type, from, begin + first + i, p, depth - p);
                }
            }
            transpose_square(rows);
            float *to = dst + p / word_elements(kind) * PANEL_STRIDE(width) + first;
#pragma GCC unroll 16
            for (size_t q = 0; q < VECTOR_FLOATS; q++) {
                if (p + q * word_elements(kind) < depth) {
                    v_store(to + q * PANEL_STRIDE(width), rows[q]);
                }
            }
        }
    }
}

// Packs `lanes` rows, `depth` numbers of each.
PACK_INLINE void pack_rows(WordKind kind, WeightType type, float *dst, size_t width, const PackRows *from, size_t lanes, size_t depth)
{
    size_t units = (depth + word_elements(kind) - 1) / word_elements(kind);
    for (size_t i = 0; i < lanes; i += width, dst += units * PANEL_STRIDE(width)) {
        pack_along(kind, type, dst, width, from, i, lanes - i < width ? lanes - i : width, depth);
    }
}

// Units of depth ahead of the one that is packed whose lines are asked for: rows lie too far apart for the processor to guess the next.
#define AHEAD 8

// All panels of lanes that lie side by side: src[i + p·step].
PACK_INLINE void pack_across(WordKind kind, float *dst, size_t width, const float *src, size_t step, size_t lanes, size_t depth)
{
    size_t per_word = word_elements(kind), units = (depth + per_word - 1) / per_word;
    for (size_t u = 0; u < units; u++) {
        const float *row = src + u * per_word * step, *next = u * per_word + 1 < depth ? row + step : NULL;
        size_t ahead = u + AHEAD < units ? AHEAD * per_word * step : 0;
        float *to = dst + u * PANEL_STRIDE(width);
        for (size_t i = 0; i < lanes; i += width, to += units * PANEL_STRIDE(width)) {
            for (size_t l = 0; l < width; l += VECTOR_FLOATS) {
                __builtin_prefetch(row + ahead + i + l);
                v_store(to + l, i + l < lanes ? words_across(kind, row + i + l, next == NULL ? NULL : next + i + l, lanes - i - l) : (vfloat){0});
            }
        }
    }
}

// Packs `lanes` lanes of `depth` elements src[i·lane + p·step], one of the strides being 1.
PACK_INLINE void pack_panels(WordKind kind, float *dst, size_t width, const float *src, size_t lane, size_t step, size_t lanes, size_t depth)
{
    if (lane == 1) {
        pack_across(kind, dst, width, src, step, lanes, depth);
        return;
    }
    pack_rows(kind, WEIGHTS_F32, dst, width, &(PackRows){.data = src, .lane = lane}, lanes, depth);
}

#endif
