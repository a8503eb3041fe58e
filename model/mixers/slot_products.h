// Products whose result is a memory: slots as rows.
#ifndef MODEL_MIXERS_SLOT_PRODUCTS_H
#define MODEL_MIXERS_SLOT_PRODUCTS_H

#include "model/mixers/products.h"

#if VECTOR_FLOATS == 16
// Of four rows, each as TILE_COLUMNS vectors: x_r·y_r.
INLINE __m128 rows_dots(vfloat x[TILE_ROWS][TILE_COLUMNS], vfloat y[TILE_ROWS][TILE_COLUMNS])
{
    vfloat dots[TILE_ROWS];
#pragma GCC unroll 4
    for (size_t r = 0; r < TILE_ROWS; r++) {
        dots[r] = x[r][0] * y[r][0];
#pragma GCC unroll 4
        for (size_t c = 1; c < TILE_COLUMNS; c++) {
            dots[r] = v_fma(x[r][c], y[r][c], dots[r]);
        }
    }
    vfloat sum = sum_quad(dots);
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps(sum, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

// Four rows of a memory as `to` and terms say, before anything is done to them.
INLINE void slots_tile(vfloat rows[TILE_ROWS][TILE_COLUMNS], const Result *to, const Term *terms, size_t n_terms, size_t r0)
{
    vfloat wide[COLUMN_ROWS][TILE_COLUMNS];
    tile_sums(wide, terms, n_terms, r0, 0, TILE_COLUMNS * VECTOR_FLOATS, TILE_ROWS, TILE_COLUMNS, to->ahead);
#pragma GCC unroll 4
    for (size_t r = 0; r < TILE_ROWS; r++) {
#pragma GCC unroll 4
        for (size_t c = 0; c < TILE_COLUMNS; c++) {
            rows[r][c] = v_fma(v_set(to->scale[r0 + r]), v_load(to->from + (r0 + r) * to->from_row + c * VECTOR_FLOATS), wide[r][c]);
        }
    }
}

// One tile of multiply_across: whole rows, so that the sums along a row need no further pass over the memory.
INLINE void across_tile(const Result *to, const Term *terms, size_t n_terms, size_t r0, const float *along, size_t along_row)
{
    vfloat rows[TILE_ROWS][TILE_COLUMNS], b[TILE_ROWS][TILE_COLUMNS];
    slots_tile(rows, to, terms, n_terms, r0);
#pragma GCC unroll 4
    for (size_t r = 0; r < TILE_ROWS; r++) {
#pragma GCC unroll 4
        for (size_t c = 0; c < TILE_COLUMNS; c++) {
            b[r][c] = v_load(along + (r0 + r) * along_row + c * VECTOR_FLOATS);
        }
    }
    __m128 factors = rows_dots(rows, b);
#pragma GCC unroll 4
    for (size_t r = 0; r < TILE_ROWS; r++) {
        __m128 first = r == 0 ? factors : r == 1 ? _mm_permute_ps(factors, 1) : r == 2 ? _mm_permute_ps(factors, 2) : _mm_permute_ps(factors, 3);
        vfloat each = (vfloat)_mm512_broadcastss_ps(first);
#pragma GCC unroll 4
        for (size_t c = 0; c < TILE_COLUMNS; c++) {
            v_store(to->y + (r0 + r) * to->row + c * VECTOR_FLOATS, v_fma(-each, b[r][c], rows[r][c]));
        }
    }
}

// All tiles of normalise_slots for m whole vectors of slots. Scaling is a pass of its own: nothing waits for roots and quotients.
INLINE void normalise_tiles(const Result *to, float *squares, const Term *terms, size_t n_terms, size_t m)
{
    for (size_t i = 0; i < m; i += TILE_ROWS) {
        vfloat rows[TILE_ROWS][TILE_COLUMNS];
        slots_tile(rows, to, terms, n_terms, i);
        _mm_storeu_ps(squares + i, rows_dots(rows, rows));
#pragma GCC unroll 4
        for (size_t r = 0; r < TILE_ROWS; r++) {
#pragma GCC unroll 4
            for (size_t c = 0; c < TILE_COLUMNS; c++) {
                v_store(to->y + (i + r) * to->row + c * VECTOR_FLOATS, rows[r][c]);
            }
        }
    }
    for (size_t i = 0; i < m; i += VECTOR_FLOATS) {
        float inverse[VECTOR_FLOATS];
        vfloat square = v_load(squares + i), one = v_set(1.0f), zero = {0};
        v_store(inverse, v_select(square == zero, zero, one / v_sqrt(square)));
        v_store(squares + i, v_select(square == zero, zero, one));
        for (size_t l = 0; l < VECTOR_FLOATS; l++) {
            float *row = to->y + (i + l) * to->row;
#pragma GCC unroll 4
            for (size_t c = 0; c < TILE_COLUMNS; c++) {
                v_store(row + c * VECTOR_FLOATS, v_set(inverse[l]) * v_load(row + c * VECTOR_FLOATS));
            }
        }
    }
}
#endif

// out_l = x_l·y_l for a vector of slots, of which `rest` exist; zeros behind them.
INLINE void block_products(float *out, const float *x, const float *y, size_t rest, size_t d)
{
    vfloat dots[VECTOR_FLOATS];
#pragma GCC unroll 16
    for (size_t l = 0; l < VECTOR_FLOATS; l++) {
        dots[l] = (vfloat){0};
#pragma GCC unroll 4
        for (size_t j = 0; j < d && l < rest; j += VECTOR_FLOATS) {
            dots[l] = v_fma(v_load_n(x + l * d + j, d - j), v_load_n(y + l * d + j, d - j), dots[l]);
        }
    }
    v_store(out, sum_each(dots));
}

INLINE void slots_block(float *out, const float *x, const float *y, size_t rest, size_t d)
{
    if (rest >= VECTOR_FLOATS && d == 64) {
        block_products(out, x, y, VECTOR_FLOATS, 64);
    } else {
        block_products(out, x, y, rest, d);
    }
}

// out_i = x_i·y_i for every slot, in whole vectors, zeros behind the last.
static void slots_products(float *out, const float *x, const float *y, size_t m, size_t d)
{
    for (size_t i = 0; i < m; i += VECTOR_FLOATS) {
        slots_block(out + i, x + i * d, y + i * d, m - i, d);
    }
}

// ds_i -= (b_i·ds_i) b_i for every slot of [m, d].
static void remove_along(float *ds, const float *b, size_t m, size_t d)
{
    float along[padded(m)];
    slots_products(along, ds, b, m, d);
    for (size_t i = 0; i < m; i++) {
        add_scaled(ds + i * d, ds + i * d, -along[i], b + i * d, d);
    }
}

#if VECTOR_FLOATS == 16
INLINE bool whole_tiles(size_t m, size_t d) { return d == TILE_COLUMNS * VECTOR_FLOATS && m % VECTOR_FLOATS == 0; }
#endif

// multiply with a `from` and a `scale` into a memory [m, d] of slots, which then are normalised. squares [m]: become 1, or 0 of a slot of zeros; false: they are
// not set.
static bool normalise_slots(const Result *to, float *squares, const Term *terms, size_t n_terms, size_t m, size_t d)
{
#if VECTOR_FLOATS == 16
    if (whole_tiles(m, d)) {
        normalise_tiles(to, squares, terms, n_terms, m);
        return true;
    }
#endif
    (void)squares;
    multiply(to, terms, n_terms, m, d);
    slots_normalise(to->y, m, d);
    return false;
}

// The same, but the slots lose their part along the slots of `along`.
static void multiply_across(const Result *to, const Term *terms, size_t n_terms, size_t m, size_t d, const float *along)
{
#if VECTOR_FLOATS == 16
    if (whole_tiles(m, d)) {
        for (size_t i = 0; i < m; i += TILE_ROWS) {
            across_tile(to, terms, n_terms, i, along, d);
        }
        return;
    }
#endif
    multiply(to, terms, n_terms, m, d);
    remove_along(to->y, along, m, d);
}

// A vector of slots, of which `rest` exist, by a vector of tokens: out_t = s z_t, or with `add` out_t += s z_t.
INLINE void read_block(float *out, size_t out_row, const float *s, size_t rest, const float *z, size_t z_row, size_t d, size_t tokens, bool add,
                       Ahead *ahead)
{
    vfloat v[VECTOR_FLOATS];
    const float *quads[QUADS];
    size_t s_row = rest >= VECTOR_FLOATS ? d : 0;
#pragma GCC unroll 4
    for (size_t quad = 0; quad < QUADS; quad++) {
        quads[quad] = s + 4 * quad * s_row;   // a pointer for every four: fifteen offsets would not all have a register
    }
#pragma GCC unroll 16
    for (size_t l = 0; l < VECTOR_FLOATS; l++) {
        v[l] = (vfloat){0};
    }
    if (s_row > 0) {
        AheadLine line = ahead->line;
        for (size_t j = 0; j < d; j++, z += z_row) {
            vfloat row = v_load(z);
            if (j % ASK_STEPS == 0) {
                ask_line(&line, ahead);
            }
#pragma GCC unroll 16
            for (size_t l = 0; l < VECTOR_FLOATS; l++) {
                v[l] = v_fma(v_set(quads[l / 4][l % 4 * s_row]), row, v[l]);
            }
#pragma GCC unroll 4
            for (size_t quad = 0; quad < QUADS; quad++) {
                quads[quad]++;
            }
        }
        ahead->line = line;
    } else {
        for (size_t l = 0; l < rest; l++) {
            for (size_t j = 0; j < d; j++) {
                v[l] = v_fma(v_set(s[l * d + j]), v_load(z + j * z_row), v[l]);
            }
        }
    }
    transpose_block(v);
    if (tokens >= VECTOR_FLOATS) {
#pragma GCC unroll 16
        for (size_t l = 0; l < VECTOR_FLOATS; l++) {
            v_store(out + l * out_row, add ? v_load(out + l * out_row) + v[l] : v[l]);
        }
        return;
    }
    for (size_t l = 0; l < tokens; l++) {
        v_store(out + l * out_row, add ? v_load(out + l * out_row) + v[l] : v[l]);
    }
}

// out [count, padded(m)] = X Sᵀ, or with `add` out + X Sᵀ, of a memory s [m, d] and rows X, given as x_t [d, …] at x_row; zeros behind m. Cheaper than
// multiply and a transpose of s. ahead: what the steps ask for.
INLINE void read_slots(float *out, const float *s, const float *x_t, size_t x_row, size_t m, size_t d, size_t count, bool add, Ahead *ahead)
{
    for (size_t i = 0; i < m; i += VECTOR_FLOATS) {
        for (size_t t = 0; t < count; t += VECTOR_FLOATS) {
            read_block(out + t * padded(m) + i, padded(m), s + i * d, m - i, x_t + t, x_row, d, count - t, add, ahead);
        }
    }
}

// Two memories at once: out = X Sᵀ, z_out = Z Rᵀ, and products of s and r, slot by slot: each is brought near once.
static void read_two(float *out, float *z_out, float *products, const float *s, const float *r, const float *x_t, const float *z_t, size_t x_row, size_t m,
                     size_t d, size_t count, Ahead *ahead)
{
    for (size_t i = 0; i < m; i += VECTOR_FLOATS) {
        for (size_t t = 0; t < count; t += VECTOR_FLOATS) {
            read_block(out + t * padded(m) + i, padded(m), s + i * d, m - i, x_t + t, x_row, d, count - t, false, ahead);
            read_block(z_out + t * padded(m) + i, padded(m), r + i * d, m - i, z_t + t, x_row, d, count - t, false, ahead);
        }
        slots_block(products + i, s + i * d, r + i * d, m - i, d);
    }
}

#endif
