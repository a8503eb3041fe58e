// Register tiles of matrix products: a panel of a times a panel of b (pack.h) into a tile of c, with all sums in registers.
#ifndef MODEL_KERNELS_TILES_H
#define MODEL_KERNELS_TILES_H

#include "model/kernels/amx.h"
#include "model/kernels/pack.h"

#if VECTOR_FLOATS == 16
#define TILE_ROWS 14
#else
#define TILE_ROWS 6
#endif
#define TILE_COLS (2 * VECTOR_FLOATS)
// Words from one unit of a panel of a to the next.
#define A_STRIDE PANEL_STRIDE(TILE_ROWS)

#define ROW_TILES 4       // of a block of rows
#define AMX_ROW_TILES 8

// Rows of the tallest tile, words of a unit of its panels, and tiles of a block.
#ifdef __AMX_BF16__
#define MOST_ROWS 32
#define MOST_STRIDE 32
#define MOST_TILES AMX_ROW_TILES
#else
#define MOST_ROWS TILE_ROWS
#define MOST_STRIDE A_STRIDE
#define MOST_TILES ROW_TILES
#endif

// What a tile does with its sums.
typedef enum TileEnd {
    TILE_SET,
    TILE_ADD,
    TILE_STREAM,   // set, around the caches
} TileEnd;

// One register tile, whose rows are aligned to vectors for TILE_STREAM: a·b over `units` of depth into c [rows, TILE_COLS].
typedef void TileFunction(float *c, size_t ldc, const float *a, const float *b, size_t units, TileEnd end);

static inline __attribute__((always_inline)) void store_tile(float *c, size_t ldc, vfloat sum[TILE_ROWS][2], TileEnd end)
{
#pragma GCC unroll 14
    for (size_t i = 0; i < TILE_ROWS; i++) {
#pragma GCC unroll 2
        for (size_t half = 0; half < 2; half++) {
            float *to = c + i * ldc + half * VECTOR_FLOATS;
            if (end == TILE_STREAM) {
                v_stream(to, sum[i][half]);
            } else {
                v_store(to, end == TILE_ADD ? v_load(to) + sum[i][half] : sum[i][half]);
            }
        }
    }
}

// The start of a tile: zeros, and c, which is far away in memory and needed last, on its way while the sums are made.
static inline __attribute__((always_inline)) void start_tile(float *c, size_t ldc, vfloat sum[TILE_ROWS][2], TileEnd end)
{
#pragma GCC unroll 14
    for (size_t i = 0; i < TILE_ROWS; i++) {
        sum[i][0] = sum[i][1] = (vfloat){0};
        if (end != TILE_STREAM) {
            __builtin_prefetch(c + i * ldc, 1);
            __builtin_prefetch(c + i * ldc + VECTOR_FLOATS, 1);
        }
    }
}

// Units from what a tile multiplies to what it asks for: panels lie in L2, and processors do not guess both well enough.
#define UNITS_AHEAD 16

static void tile_f32(float *c, size_t ldc, const float *a, const float *b, size_t units, TileEnd end)
{
    vfloat sum[TILE_ROWS][2];
    start_tile(c, ldc, sum, end);
    for (size_t p = 0; p < units; p++) {
        vfloat b0 = v_load(b + p * TILE_COLS), b1 = v_load(b + p * TILE_COLS + VECTOR_FLOATS);
        __builtin_prefetch(b + (p + UNITS_AHEAD) * TILE_COLS);
        __builtin_prefetch(b + (p + UNITS_AHEAD) * TILE_COLS + VECTOR_FLOATS);
        __builtin_prefetch(a + (p + UNITS_AHEAD) * A_STRIDE);
#pragma GCC unroll 14
        for (size_t i = 0; i < TILE_ROWS; i++) {
            vfloat ai = v_set(a[p * A_STRIDE + i]);
            sum[i][0] += ai * b0;
            sum[i][1] += ai * b1;
        }
    }
    store_tile(c, ldc, sum, end);
}

#ifdef __AMX_BF16__
// Four registers of sums, two of rows of a and two of columns of b.
#define AMX_ROWS (2 * AMX_SIDE)
_Static_assert(PANEL_UNITS == AMX_SIDE && TILE_COLS == AMX_ROWS && MOST_ROWS == AMX_ROWS, "panels are what these registers read");

// a: [units / PANEL_UNITS][AMX_ROWS][PANEL_UNITS] words. Registers do not store around the caches: end is never TILE_STREAM.
static void tile_amx(float *c, size_t ldc, const float *a, const float *b, size_t units, TileEnd end)
{
    const size_t along = AMX_SIDE * sizeof(float), across = TILE_COLS * sizeof(float);
    const size_t row = ldc * sizeof(float);
    AMX_MEMORY();
    if (end == TILE_ADD) {
        _tile_loadd(0, c, row);
        _tile_loadd(1, c + AMX_SIDE, row);
        _tile_loadd(2, c + AMX_SIDE * ldc, row);
        _tile_loadd(3, c + AMX_SIDE * ldc + AMX_SIDE, row);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (size_t p = 0; p < units; p += PANEL_UNITS, a += AMX_ROWS * PANEL_UNITS, b += TILE_COLS * PANEL_UNITS) {
        _tile_loadd(4, a, along);
        _tile_loadd(6, b, across);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + AMX_SIDE, across);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + AMX_SIDE * PANEL_UNITS, along);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, row);
    _tile_stored(1, c + AMX_SIDE, row);
    _tile_stored(2, c + AMX_SIDE * ldc, row);
    _tile_stored(3, c + AMX_SIDE * ldc + AMX_SIDE, row);
    AMX_MEMORY();
}
#elif defined(__AVX512BF16__)
static void tile_bf16(float *c, size_t ldc, const float *a, const float *b, size_t units, TileEnd end)
{
    vfloat sum[TILE_ROWS][2];
    start_tile(c, ldc, sum, end);
    for (size_t p = 0; p < units; p++) {
        __m512bh b0 = (__m512bh)v_load(b + p * TILE_COLS), b1 = (__m512bh)v_load(b + p * TILE_COLS + VECTOR_FLOATS);
#pragma GCC unroll 14
        for (size_t i = 0; i < TILE_ROWS; i++) {
            int32_t pair;
            memcpy(&pair, a + p * A_STRIDE + i, sizeof pair);
            __m512bh ai = (__m512bh)_mm512_set1_epi32(pair);
            sum[i][0] = (vfloat)_mm512_dpbf16_ps((__m512)sum[i][0], ai, b0);
            sum[i][1] = (vfloat)_mm512_dpbf16_ps((__m512)sum[i][1], ai, b1);
        }
    }
    store_tile(c, ldc, sum, end);
}
#endif

// Room for a row of a tile behind what is left of the line before it.
#define STAGE_FLOATS (TILE_COLS + VECTOR_FLOATS)

// Writes a tile's sums [rows, TILE_COLS], of which cols columns count, to c around the caches. Rows of c need not be aligned: what does not fill a vector is kept
// in left [rows][VECTOR_FLOATS] until the next tile of these rows comes. first, last: the tile's place in the rows.
static inline void stream_tile(float *c, size_t ldc, const float *sums, float *left, size_t rows, size_t cols, bool first, bool last)
{
    float stage[MOST_ROWS][STAGE_FLOATS] __attribute__((aligned(64)));
    for (size_t i = 0; i < rows; i++) {
        float *to = stage[i] + (uintptr_t)(c + i * ldc) / sizeof(float) % VECTOR_FLOATS;
        v_store(stage[i], v_load(left + i * VECTOR_FLOATS));
        v_store(to, v_load(sums + i * TILE_COLS));
        v_store(to + VECTOR_FLOATS, v_load(sums + i * TILE_COLS + VECTOR_FLOATS));
    }
    for (size_t i = 0; i < rows; i++) {
        size_t before = (uintptr_t)(c + i * ldc) / sizeof(float) % VECTOR_FLOATS, end = before + cols, at = 0;
        float *line = c + i * ldc - before;
        if (first && before > 0) {
            size_t rest = VECTOR_FLOATS - before;
            v_store_n(c + i * ldc, v_load(sums + i * TILE_COLS), rest < cols ? rest : cols);
            at = VECTOR_FLOATS;
        }
        for (; at + VECTOR_FLOATS <= end; at += VECTOR_FLOATS) {
            v_stream(line + at, v_load(stage[i] + at));
        }
        if (last && at < end) {
            v_store_n(line + at, v_load(stage[i] + at), end - at);
        } else if (!last) {
            v_store(left + i * VECTOR_FLOATS, v_load(stage[i] + at));
        }
    }
}

#endif
