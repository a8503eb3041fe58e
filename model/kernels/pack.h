// Packing for matrix products: a block of a matrix as panels of `width` lanes (rows of a, columns of b), the lanes of one unit of depth side by side.
//
// A panel is [units][PANEL_STRIDE(width)] words of 32 bits: one f32 a word, or two bf16, the earlier one in the low half. Lanes behind the last are zeros, and
// so are units behind the last of a block of PANEL_UNITS pairs (factors.h). Panels follow each other.
#ifndef MODEL_KERNELS_PACK_H
#define MODEL_KERNELS_PACK_H

#include "model/kernels/bf16.h"
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
    WORD_PAIR,      // two bf16
} WordKind;

// What they are made of.
typedef enum WordSource {
    SOURCE_F32,
    SOURCE_BF16,          // of rows (factors.h)
    SOURCE_PACKED_BF16,   // of packed weights
    SOURCE_PACKED_INT8,
} WordSource;

PACK_INLINE size_t word_elements(WordKind kind) { return kind == WORD_PAIR ? 2 : 1; }

PACK_INLINE size_t word_units(WordKind kind, size_t depth) { return kind == WORD_PAIR ? panel_units(depth) : depth; }

// VECTOR_FLOATS words of consecutive depth from a row with `rest` elements left.
PACK_INLINE vfloat words_along(WordKind kind, WordSource source, const void *row, size_t rest)
{
    if (source == SOURCE_BF16 && kind == WORD_PAIR) {   // they are what the row holds
        uint16_t halves[2 * VECTOR_FLOATS] = {0};
        memcpy(halves, row, (rest < 2 * VECTOR_FLOATS ? rest : 2 * VECTOR_FLOATS) * sizeof *halves);
        return v_load((const float *)(const void *)halves);
    }
    if (source == SOURCE_BF16) {
        return v_load_bf16_n(row, rest);
    }
    const float *x = row;
    vfloat words = v_load_n(x, rest);
    if (kind == WORD_PAIR) {
        vfloat second = rest > VECTOR_FLOATS ? v_load_n(x + VECTOR_FLOATS, rest - VECTOR_FLOATS) : (vfloat){0};
#ifdef __AVX512BF16__
        return (vfloat)(__m512)(__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)words);
#else
        vhalf halves[2] = {v_narrow(words), v_narrow(second)};
        return v_load((const float *)(const void *)halves);
#endif
    }
    return kind == WORD_F32 ? words : v_round_bf16(words);
}

// VECTOR_FLOATS words of consecutive lanes, of which `rest` exist; `next` is the same lanes' second element of a pair, or NULL where depth ends.
PACK_INLINE vfloat words_across(WordKind kind, WordSource source, const void *row, const void *next, size_t rest)
{
    vfloat first = source == SOURCE_BF16 ? v_load_bf16_n(row, rest) : v_load_n(row, rest);
    if (kind == WORD_PAIR) {
        const vfloat zero = {0};
        vfloat second = next == NULL ? zero : source == SOURCE_BF16 ? v_load_bf16_n(next, rest) : v_load_n(next, rest);
#ifdef __AVX512BF16__
        if (source == SOURCE_F32) {
            typedef uint16_t halves __attribute__((vector_size(64)));
            halves both = (halves)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
            return (vfloat)__builtin_shufflevector(both, both, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28,
                                                   13, 29, 14, 30, 15, 31);
        }
#endif
        if (source == SOURCE_F32) {
            first = v_round_bf16(first);
            second = v_round_bf16(second);
        }
        return (vfloat)((vbits)first >> 16 | (vbits)second);
    }
    return kind == WORD_ROUNDED && source == SOURCE_F32 ? v_round_bf16(first) : first;
}

// Words from one unit of a panel to the next: whole vectors, so that every store fills whole lines. What lies behind the last lane means nothing.
#define PANEL_STRIDE(width) (((width) + VECTOR_FLOATS - 1) / VECTOR_FLOATS * VECTOR_FLOATS)

// Rows whose lanes are packed: rows of a matrix, or of packed weights.
typedef struct PackRows {
    const void *data;             // element (i, p) is data[i·lane + p]; or, where it is NULL,
    size_t lane;
    const PackedMatrix *packed;   // element p0 + p of row first + i of this; p0 is a multiple of PACKED_UNIT
    size_t first, p0;
} PackRows;

// The words of VECTOR_FLOATS·word_elements numbers of packed weights, which lie in one cache line. int8 numbers become words of f32 times `scale`, pairs as
// they are.
PACK_INLINE vfloat words_packed(WordKind kind, WordSource source, const char *numbers, float scale)
{
    if (source == SOURCE_PACKED_BF16) {
        return words_along(kind, SOURCE_BF16, numbers, 2 * VECTOR_FLOATS);
    }
#ifdef __AVX512BF16__
    if (kind == WORD_PAIR) {
        __m512 first = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)numbers)));
        __m512 second = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(numbers + VECTOR_FLOATS))));
        return (vfloat)(__m512)(__m512i)_mm512_cvtne2ps_pbh(second, first);
    }
#endif
    typedef int8_t bytes __attribute__((vector_size(VECTOR_FLOATS)));
    bytes small;
    memcpy(&small, numbers, sizeof small);
    return __builtin_convertvector(small, vfloat) * v_set(scale);
}

PACK_INLINE vfloat row_words(WordKind kind, WordSource source, const PackRows *rows, size_t i, size_t p, size_t rest)
{
    if (source == SOURCE_F32 || source == SOURCE_BF16) {
        size_t bytes = source == SOURCE_F32 ? sizeof(float) : sizeof(uint16_t);
        const char *row = (const char *)rows->data + (i * rows->lane + p) * bytes;
        // Rows lie too far apart for the processor to guess the next.
        __builtin_prefetch(row + VECTOR_FLOATS * rows->lane * bytes);
        return words_along(kind, source, row, rest);
    }
    const PackedMatrix *m = rows->packed;
    bool int8 = source == SOURCE_PACKED_INT8;
    size_t numbers = packed_line_numbers(int8 ? WEIGHTS_INT8 : WEIGHTS_BF16), at = rows->p0 + p, row = rows->first + i;
    const char *line = packed_line(m, row, at / numbers);
    return words_packed(kind, source, line + at % numbers * (PACKED_LINE / numbers), int8 && kind == WORD_F32 ? m->scales[row] : 1.0f);
}

// One panel of lanes whose depth is contiguous: rows `begin` … of which `lanes` ≤ width exist.
PACK_INLINE void pack_along(WordKind kind, WordSource source, float *dst, size_t width, const PackRows *from, size_t begin, size_t lanes, size_t depth)
{
    const size_t step = VECTOR_FLOATS * word_elements(kind), filled = word_units(kind, depth) * word_elements(kind);
    for (size_t first = 0; first < width; first += VECTOR_FLOATS) {
        size_t group = width - first < VECTOR_FLOATS ? width - first : VECTOR_FLOATS, count = lanes > first ? lanes - first : 0;
        for (size_t p = 0; p < filled; p += step) {
            vfloat rows[VECTOR_FLOATS];
            bool whole = count >= group && p + step <= depth;
#pragma GCC unroll 16
            for (size_t i = 0; i < VECTOR_FLOATS; i++) {
                rows[i] = (vfloat){0};
                if (i < group && whole) {
                    rows[i] = row_words(kind, source, from, begin + first + i, p, step);
                } else if (i < group && i < count && p < depth) {
                    rows[i] = row_words(kind, source, from, begin + first + i, p, depth - p);
                }
            }
            transpose_square(rows);
            float *to = dst + p / word_elements(kind) * PANEL_STRIDE(width) + first;
#pragma GCC unroll 16
            for (size_t q = 0; q < VECTOR_FLOATS; q++) {
                if (p + q * word_elements(kind) < filled) {
                    v_store(to + q * PANEL_STRIDE(width), rows[q]);
                }
            }
        }
    }
}

// Packs `lanes` rows, `depth` numbers of each.
PACK_INLINE void pack_rows(WordKind kind, WordSource source, float *dst, size_t width, const PackRows *from, size_t lanes, size_t depth)
{
    size_t units = word_units(kind, depth);
    for (size_t i = 0; i < lanes; i += width, dst += units * PANEL_STRIDE(width)) {
        pack_along(kind, source, dst, width, from, i, lanes - i < width ? lanes - i : width, depth);
    }
}

// Units of depth ahead of the one that is packed whose lines are asked for: rows lie too far apart for the processor to guess the next.
#define AHEAD 8

// All panels of lanes that lie side by side: src[i + p·step].
PACK_INLINE void pack_across(WordKind kind, WordSource source, float *dst, size_t width, const void *src, size_t step, size_t lanes, size_t depth)
{
    size_t per_word = word_elements(kind), units = word_units(kind, depth), used = (depth + per_word - 1) / per_word;
    size_t bytes = source == SOURCE_F32 ? sizeof(float) : sizeof(uint16_t);
    for (size_t u = 0; u < units; u++) {
        const char *row = (const char *)src + u * per_word * step * bytes, *next = u * per_word + 1 < depth ? row + step * bytes : NULL;
        size_t ahead = u + AHEAD < used ? AHEAD * per_word * step * bytes : 0;
        float *to = dst + u * PANEL_STRIDE(width);
        for (size_t i = 0; i < lanes; i += width, to += units * PANEL_STRIDE(width)) {
            for (size_t l = 0; l < width; l += VECTOR_FLOATS) {
                size_t at = (i + l) * bytes;
                __builtin_prefetch(row + ahead + at);
                v_store(to + l, u < used && i + l < lanes ? words_across(kind, source, row + at, next == NULL ? NULL : next + at, lanes - i - l) : (vfloat){0});
            }
        }
    }
}

// Packs `lanes` lanes of `depth` elements src[i·lane + p·step], one of the strides being 1. source: SOURCE_F32 or SOURCE_BF16.
PACK_INLINE void pack_panels(WordKind kind, WordSource source, float *dst, size_t width, const void *src, size_t lane, size_t step, size_t lanes, size_t depth)
{
    if (lane == 1) {
        pack_across(kind, source, dst, width, src, step, lanes, depth);
        return;
    }
    pack_rows(kind, source, dst, width, &(PackRows){.data = src, .lane = lane}, lanes, depth);
}

#ifdef __AMX_BF16__
// Panels of pairs as rows: [blocks of PANEL_UNITS][width][PANEL_UNITS] words each. Arguments as pack_panels; width is a multiple of VECTOR_FLOATS.
PACK_INLINE void pack_row_panels(WordSource source, float *dst, size_t width, const void *src, size_t lane, size_t step, size_t lanes, size_t depth)
{
    size_t bytes = source == SOURCE_F32 ? sizeof(float) : sizeof(uint16_t), block = 2 * PANEL_UNITS;
    const PackRows rows = {.data = src, .lane = lane};
    for (size_t begin = 0; begin < lanes; begin += width) {
        for (size_t p = 0; p < depth; p += block) {
            for (size_t i = begin; i < begin + width; i += VECTOR_FLOATS, dst += VECTOR_FLOATS * PANEL_UNITS) {
                vfloat words[VECTOR_FLOATS];
#pragma GCC unroll 16
                for (size_t l = 0; l < VECTOR_FLOATS; l++) {
                    size_t at = p + 2 * l;   // of the pair l, where lanes lie side by side
                    words[l] = (vfloat){0};
                    if (lane != 1 && i + l < lanes) {
                        words[l] = row_words(WORD_PAIR, source, &rows, i + l, p, p + block <= depth ? block : depth - p);
                    } else if (lane == 1 && i < lanes && at < depth) {
                        const char *row = (const char *)src + (at * step + i) * bytes;
                        words[l] = words_across(WORD_PAIR, source, row, at + 1 < depth ? row + step * bytes : NULL, lanes - i);
                    }
                }
                if (lane == 1) {
                    transpose_square(words);
                }
#pragma GCC unroll 16
                for (size_t l = 0; l < VECTOR_FLOATS; l++) {
                    v_store(dst + l * PANEL_UNITS, words[l]);
                }
            }
        }
    }
}
#endif

#endif
