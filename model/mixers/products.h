// Small matrix products inside one head, and the memory for them: a few dozen rows, sums in registers, no packing and no threads. Any sizes work; whole
// vectors are fast.
#ifndef MODEL_MIXERS_PRODUCTS_H
#define MODEL_MIXERS_PRODUCTS_H

#include "model/mixers/ahead.h"
#include "model/mixers/slots.h"

// Columns of a register tile, in vectors: as many as the instruction set has registers for.
#if VECTOR_FLOATS == 16
#define TILE_COLUMNS 4
#else
#define TILE_COLUMNS 2
#endif
#define TILE_ROWS 4
#define NARROW_ROWS 8   // of tiles two vectors wide
#define COLUMN_ROWS (4 * TILE_COLUMNS)   // of tiles one vector wide

#if VECTOR_FLOATS == 16
#define LOWS 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGHS 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif VECTOR_FLOATS == 8
#define LOWS 0, 8, 1, 9, 2, 10, 3, 11
#define HIGHS 4, 12, 5, 13, 6, 14, 7, 15
#else
#define LOWS 0, 4, 1, 5
#define HIGHS 2, 6, 3, 7
#endif

// Memory that is laid out begins on a whole cache line: for LINE_FLOATS more, from aligned(memory) on.
INLINE float *aligned(float *memory) { return (float *)(((uintptr_t)memory + 63) / 64 * 64); }

// The next n floats of a block of memory, on a whole cache line where the block began on one. base NULL only counts.
INLINE float *take(float *base, size_t *used, size_t n)
{
    float *at = base == NULL ? NULL : base + *used;
    *used += (n + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
    return at;
}

// to [count, row] = rows [count, n] of another stride, zeros behind n.
INLINE void copy_rows(float *to, size_t row, const float *from, size_t from_row, size_t n, size_t count)
{
    for (size_t t = 0; t < count; t++) {
        for (size_t i = 0; i < row; i += VECTOR_FLOATS) {
            v_store_n(to + t * row + i, v_load_n(from + t * from_row + i, rest_of(n, i)), row - i);
        }
    }
}

// to [count, to_row] = sign rows [count, n]
INLINE void put_rows(float *to, size_t to_row, float sign, const float *from, size_t row, size_t n, size_t count)
{
    for (size_t t = 0; t < count; t++) {
        scale_to(to + t * to_row, from + t * row, sign, n);
    }
}

// The same for rows that nobody reads soon: around the caches, where they are whole lines. v_stream_end has to follow.
INLINE void stream_rows(float *to, size_t to_row, float sign, const float *from, size_t row, size_t n, size_t count)
{
    if ((uintptr_t)to % (LINE_FLOATS * sizeof(float)) != 0 || to_row % LINE_FLOATS != 0 || n % LINE_FLOATS != 0) {
        put_rows(to, to_row, sign, from, row, n, count);
        return;
    }
    for (size_t t = 0; t < count; t++) {
        for (size_t j = 0; j < n; j += VECTOR_FLOATS) {
            v_stream(to + t * to_row + j, v_set(sign) * v_load(from + t * row + j));
        }
    }
}

// Which part of a square X is not zero; the rest of it is not read, but inside a tile, where it must hold zeros.
typedef enum Part {
    PART_WHOLE,
    PART_LOWER,
    PART_UPPER,
} Part;

// X Z, with X [rows, inner] at x[r x_row + k x_col] (so that it may be read transposed) and Z [inner, columns].
typedef struct Term {
    const float *x;
    size_t x_row, x_col;
    const float *z;
    size_t z_row, inner;
    Part part;
} Term;

// y [rows, columns] = scale_r from + sign Σ terms. from NULL: 0; scale NULL: 1. y may be from. ahead: what the steps ask for, or NULL.
typedef struct Result {
    float *y;
    size_t row;
    const float *from;
    size_t from_row;
    const float *scale;
    float sign;
    Ahead *ahead;
} Result;

// The rows of a tile from r0 on, and its vectors from j0 on, of which n columns are left; only a tile that is one vector wide may have fewer.
INLINE void finish_tile(const Result *to, vfloat sum[COLUMN_ROWS][TILE_COLUMNS], size_t r0, size_t j0, size_t n, size_t height, size_t width)
{
    size_t row = to->row, from_row = to->from_row;
    float *y = to->y + r0 * row + j0;
    const float *from = to->from == NULL ? NULL : to->from + r0 * from_row + j0;
    vfloat sign = v_set(to->sign);
#pragma GCC unroll 16
    for (size_t r = 0; r < height; r++) {
        vfloat scale = v_set(from == NULL || to->scale == NULL ? 1.0f : to->scale[r0 + r]);
#pragma GCC unroll 4
        for (size_t c = 0; c < width; c++) {
            vfloat x = sign * sum[r][c];
            if (from != NULL) {
                x = v_fma(scale, width == 1 ? v_load_n(from + r * from_row, n) : v_load(from + r * from_row + c * VECTOR_FLOATS), x);
            }
            if (width == 1) {
                v_store_n(y + r * row, x, n);
            } else {
                v_store(y + r * row + c * VECTOR_FLOATS, x);
            }
        }
    }
}

// Adds to the tile what one row of Z brings. x: every fourth row of it.
INLINE void tile_step(vfloat sum[COLUMN_ROWS][TILE_COLUMNS], const float *x[TILE_COLUMNS], size_t x_row, const float *z, size_t n, size_t height, size_t width)
{
    vfloat row[TILE_COLUMNS];
#pragma GCC unroll 4
    for (size_t c = 0; c < width; c++) {
        row[c] = width == 1 ? v_load_n(z, n) : v_load(z + c * VECTOR_FLOATS);
    }
#pragma GCC unroll 16
    for (size_t r = 0; r < height; r++) {
        vfloat factor = v_set(x[r / TILE_ROWS][r % TILE_ROWS * x_row]);
#pragma GCC unroll 4
        for (size_t c = 0; c < width; c++) {
            sum[r][c] = v_fma(factor, row[c], sum[r][c]);
        }
    }
}

// Rows [r0, r0 + height) and `width` vectors of columns from j0 on, of which n are left in the row. height and width are constants.
INLINE void tile_sums(vfloat sum[COLUMN_ROWS][TILE_COLUMNS], const Term *terms, size_t n_terms, size_t r0, size_t j0, size_t n, size_t height, size_t width,
                      Ahead *ahead)
{
    AheadLine line = ahead->line;
#pragma GCC unroll 16
    for (size_t r = 0; r < height; r++) {
#pragma GCC unroll 4
        for (size_t c = 0; c < width; c++) {
            sum[r][c] = (vfloat){0};
        }
    }
    for (const Term *term = terms; term < terms + n_terms; term++) {
        size_t k = term->part == PART_UPPER ? r0 : 0, end = term->part == PART_LOWER && r0 + height < term->inner ? r0 + height : term->inner;
        size_t x_row = term->x_row, x_col = term->x_col, z_row = term->z_row;
        const float *x[TILE_COLUMNS], *z = term->z + k * z_row + j0;   // a pointer for every four rows: more offsets would not all have a register
#pragma GCC unroll 4
        for (size_t quad = 0; quad < TILE_COLUMNS; quad++) {
            x[quad] = term->x + (r0 + (quad * TILE_ROWS < height ? quad * TILE_ROWS : 0)) * x_row + k * x_col;
        }
        for (; k < end; k++, z += z_row) {
            if (k % ASK_STEPS == 0) {
                ask_line(&line, ahead);
            }
            tile_step(sum, x, x_row, z, n, height, width);
#pragma GCC unroll 4
            for (size_t quad = 0; quad < TILE_COLUMNS; quad++) {
                x[quad] += x_col;
            }
        }
    }
    ahead->line = line;
}

INLINE void multiply_tile(const Result *to, const Term *terms, size_t n_terms, size_t r0, size_t j0, size_t n, size_t height, size_t width, Ahead *ahead)
{
    vfloat sum[COLUMN_ROWS][TILE_COLUMNS];
    tile_sums(sum, terms, n_terms, r0, j0, n, height, width, ahead);
    finish_tile(to, sum, r0, j0, n, height, width);
}

// All rows of `width` vectors of columns from j on. height and width are constants.
INLINE void multiply_columns(const Result *to, const Term *terms, size_t n_terms, size_t rows, size_t j, size_t n, size_t height, size_t width,
                             Ahead *ahead)
{
    size_t r = 0;
    for (; r + height <= rows; r += height) {
        multiply_tile(to, terms, n_terms, r, j, n, height, width, ahead);
    }
    for (; r < rows; r++) {
        multiply_tile(to, terms, n_terms, r, j, n, 1, width, ahead);
    }
}

// One function for every product: its loops are long enough that constant sizes would not make them faster.
static void multiply(const Result *to, const Term *terms, size_t n_terms, size_t rows, size_t columns)
{
    Ahead none = {.n = 0}, *ahead = to->ahead == NULL ? &none : to->ahead;
    begin_ahead(&none, terms->x);
    size_t j = 0;
    for (; j + TILE_COLUMNS * VECTOR_FLOATS <= columns; j += TILE_COLUMNS * VECTOR_FLOATS) {
        multiply_columns(to, terms, n_terms, rows, j, columns - j, TILE_ROWS, TILE_COLUMNS, ahead);
    }
    for (; TILE_COLUMNS > 2 && j + 2 * VECTOR_FLOATS <= columns; j += 2 * VECTOR_FLOATS) {
        multiply_columns(to, terms, n_terms, rows, j, columns - j, NARROW_ROWS, 2, ahead);
    }
    for (; j < columns; j += VECTOR_FLOATS) {
        multiply_columns(to, terms, n_terms, rows, j, columns - j, COLUMN_ROWS, 1, ahead);
    }
}

// v becomes its transpose: rows i and i + half are interleaved, as often as it takes.
INLINE void transpose_block(vfloat v[VECTOR_FLOATS])
{
#pragma GCC unroll 4
    for (size_t step = 1; step < VECTOR_FLOATS; step *= 2) {
        vfloat to[VECTOR_FLOATS];
#pragma GCC unroll 8
        for (size_t l = 0; l < VECTOR_FLOATS / 2; l++) {
            to[2 * l] = __builtin_shufflevector(v[l], v[l + VECTOR_FLOATS / 2], LOWS);
            to[2 * l + 1] = __builtin_shufflevector(v[l], v[l + VECTOR_FLOATS / 2], HIGHS);
        }
#pragma GCC unroll 16
        for (size_t l = 0; l < VECTOR_FLOATS; l++) {
            v[l] = to[l];
        }
    }
}

// v_i = column i of a block of x. Of whole 128 bits in memory, as they are loaded, the processor shuffles with more than one unit.
INLINE void load_transposed(vfloat v[VECTOR_FLOATS], const float *x, size_t x_row)
{
#if VECTOR_FLOATS == 16
#pragma GCC unroll 4
    for (size_t quad = 0; quad < 4; quad++) {
        __m512 row[4], ab[2], cd[2];
#pragma GCC unroll 4
        for (size_t r = 0; r < 4; r++) {
            const float *from = x + r * x_row + 4 * quad;
            row[r] = _mm512_castps128_ps512(_mm_loadu_ps(from));
            row[r] = _mm512_insertf32x4(row[r], _mm_loadu_ps(from + 4 * x_row), 1);
            row[r] = _mm512_insertf32x4(row[r], _mm_loadu_ps(from + 8 * x_row), 2);
            row[r] = _mm512_insertf32x4(row[r], _mm_loadu_ps(from + 12 * x_row), 3);
        }
        ab[0] = _mm512_unpacklo_ps(row[0], row[1]);
        ab[1] = _mm512_unpackhi_ps(row[0], row[1]);
        cd[0] = _mm512_unpacklo_ps(row[2], row[3]);
        cd[1] = _mm512_unpackhi_ps(row[2], row[3]);
#pragma GCC unroll 2
        for (size_t half = 0; half < 2; half++) {
            v[4 * quad + 2 * half] = (vfloat)_mm512_shuffle_ps(ab[half], cd[half], 0x44);
            v[4 * quad + 2 * half + 1] = (vfloat)_mm512_shuffle_ps(ab[half], cd[half], 0xee);
        }
    }
#else
    for (size_t l = 0; l < VECTOR_FLOATS; l++) {
        v[l] = v_load(x + l * x_row);
    }
    transpose_block(v);
#endif
}

// out [columns, rows] = the transpose of x [rows, columns]. Rows of out are written in whole vectors, zeros behind the last.
static void transpose(float *out, size_t out_row, const float *x, size_t x_row, size_t rows, size_t columns)
{
    for (size_t i = 0; i < rows; i += VECTOR_FLOATS) {
        for (size_t j = 0; j < columns; j += VECTOR_FLOATS) {
            vfloat v[VECTOR_FLOATS];
            const float *from = x + i * x_row + j;
            float *to = out + j * out_row + i;
            if (i + VECTOR_FLOATS <= rows && j + VECTOR_FLOATS <= columns) {
                load_transposed(v, from, x_row);
#pragma GCC unroll 16
                for (size_t l = 0; l < VECTOR_FLOATS; l++) {
                    v_store(to + l * out_row, v[l]);
                }
                continue;
            }
            for (size_t l = 0; l < VECTOR_FLOATS; l++) {
                v[l] = i + l < rows ? v_load_n(from + l * x_row, columns - j) : (vfloat){0};
            }
            transpose_block(v);
            for (size_t l = 0; l < VECTOR_FLOATS && j + l < columns; l++) {
                v_store(to + l * out_row, v[l]);
            }
        }
    }
}

// out_i = Σ_r x_ri y_ri for each of `columns` (whole vectors) columns of x and y.
INLINE void column_dots(float *out, const float *x, const float *y, size_t rows, size_t columns)
{
    for (size_t i = 0; i < columns; i += VECTOR_FLOATS) {
        vfloat even = {0}, odd = {0};
        size_t r = 0;
        for (; r + 1 < rows; r += 2) {
            even = v_fma(v_load(x + r * columns + i), v_load(y + r * columns + i), even);
            odd = v_fma(v_load(x + (r + 1) * columns + i), v_load(y + (r + 1) * columns + i), odd);
        }
        if (r < rows) {
            even = v_fma(v_load(x + r * columns + i), v_load(y + r * columns + i), even);
        }
        v_store(out + i, even + odd);
    }
}

#endif
