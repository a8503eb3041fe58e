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

// What a tile does with its sums.
typedef enum TileEnd {
    TILE_SET,
    TILE_ADD,
    TILE_STREAM,   // set, around the caches; rows of c are aligned to vectors
} TileEnd;

// One register tile: a·b over `units` of depth into c [rows, TILE_COLS].
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

static void tile_f32(float *c, size_t ldc, const float *a, const float *b, size_t units, TileEnd end)
{
    vfloat sum[TILE_ROWS][2];
    start_tile(c, ldc, sum, end);
    for (size_t p = 0; p < units; p++) {
        vfloat b0 = v_load(b + p * TILE_COLS), b1 = v_load(b + p * TILE_COLS + VECTOR_FLOATS);
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
_Static_assert(PANEL_UNITS == AMX_SIDE && TILE_COLS == AMX_ROWS, "panels are what these registers read");

// a: [units / PANEL_UNITS][AMX_ROWS][PANEL_UNITS] words.
static void tile_amx(float *c, size_t ldc, const float *a, const float *b, size_t units, TileEnd end)
{
    const size_t along = AMX_SIDE * sizeof(float), across = TILE_COLS * sizeof(float);
    float aside[AMX_ROWS * TILE_COLS] __attribute__((aligned(64)));
    float *to = end == TILE_STREAM ? aside : c;
    size_t to_row = end == TILE_STREAM ? TILE_COLS : ldc, row = to_row * sizeof(float);
    AMX_MEMORY();
    if (end == TILE_ADD) {
        _tile_loadd(0, to, row);
        _tile_loadd(1, to + AMX_SIDE, row);
        _tile_loadd(2, to + AMX_SIDE * to_row, row);
        _tile_loadd(3, to + AMX_SIDE * to_row + AMX_SIDE, row);
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
    _tile_stored(0, to, row);
    _tile_stored(1, to + AMX_SIDE, row);
    _tile_stored(2, to + AMX_SIDE * to_row, row);
    _tile_stored(3, to + AMX_SIDE * to_row + AMX_SIDE, row);
    AMX_MEMORY();
    for (size_t i = 0; i < AMX_ROWS && end == TILE_STREAM; i++) {
        v_stream(c + i * ldc, v_load(aside + i * TILE_COLS));
        v_stream(c + i * ldc + VECTOR_FLOATS, v_load(aside + i * TILE_COLS + VECTOR_FLOATS));
    }
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

#endif
