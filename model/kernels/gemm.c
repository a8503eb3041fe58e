// Matrix products: blocked, packed, one register tile of TILE_ROWS × TILE_COLS at a time; in f32, or with factors rounded to bf16 and f32 sums.
//
// Depth is cut into blocks, columns into blocks of COL_BLOCK; such a block of b is packed once by all threads into panels of TILE_COLS
// columns. Each thread then packs blocks of a into panels of TILE_ROWS rows and runs the register tiles. Threads share out tiles of c only, and every tile
// adds its depth blocks in order: the bits do not depend on the threads. The packed blocks live on the stack, so a product needs no memory and cannot fail.
//
// A panel is a row of 32-bit words for each unit of depth: one f32, or two bf16 that one instruction multiplies (AVX512-BF16). Processors without that
// instruction round to bf16 when they pack and multiply in f32: the same numbers up to the order of sums, at f32's speed.
#include "model/kernels/functions.h"

#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#if VECTOR_FLOATS == 16
#define TILE_ROWS 14
#else
#define TILE_ROWS 6
#endif
#define TILE_COLS (2 * VECTOR_FLOATS)
#define UNIT_BLOCK 384
#define COL_BLOCK 768
#define ROW_BLOCK (TILE_ROWS * 8)

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

typedef float quad __attribute__((vector_size(16)));
typedef float quad_u __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint32_t quad_bits __attribute__((vector_size(16)));

static inline quad quad_load(const float *p) { return *(const quad_u *)p; }

// Four rows of four: dst[j·dst_stride + i] = rows[i][j].
static inline void transpose_quad(float *dst, size_t dst_stride, const quad rows[4])
{
    quad lo01 = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5), hi01 = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
    quad lo23 = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5), hi23 = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
    *(quad_u *)(dst) = __builtin_shufflevector(lo01, lo23, 0, 1, 4, 5);
    *(quad_u *)(dst + dst_stride) = __builtin_shufflevector(lo01, lo23, 2, 3, 6, 7);
    *(quad_u *)(dst + 2 * dst_stride) = __builtin_shufflevector(hi01, hi23, 0, 1, 4, 5);
    *(quad_u *)(dst + 3 * dst_stride) = __builtin_shufflevector(hi01, hi23, 2, 3, 6, 7);
}

// Packing: `lanes` lanes (rows of a, columns of b) of `depth` elements src[i·lane + p·step], one of the strides being 1, into panels of `width` lanes;
// lanes behind the last are zeros. The panels follow each other, [units][width] words each.
typedef void PackFunction(float *dst, size_t width, const float *src, size_t lane, size_t step, size_t lanes, size_t depth);

static inline __attribute__((always_inline)) void pack_f32_panels(float *dst, size_t width, const float *src, size_t lane, size_t step, size_t lanes, size_t depth)
{
    size_t full = lanes / width * width;
    if (full < lanes) {
        memset(dst + full * depth, 0, width * depth * sizeof(float));
    }
    if (lane == 1) {
        for (size_t p = 0; p < depth; p++) {
            for (size_t i = 0; i < full; i += width) {
                memcpy(dst + i * depth + p * width, src + p * step + i, width * sizeof(float));
            }
            memcpy(dst + full * depth + p * width, src + p * step + full, (lanes - full) * sizeof(float));
        }
        return;
    }
    for (size_t i = 0; i < lanes; i++) {
        float *panel = dst + i / width * width * depth + i % width;
        const float *row = src + i * lane;
        size_t p = 0;
        if (i % width + 4 <= width && i + 4 <= lanes && step == 1) {
            for (; p + 4 <= depth; p += 4) {
                quad rows[4] = {quad_load(row + p), quad_load(row + lane + p), quad_load(row + 2 * lane + p), quad_load(row + 3 * lane + p)};
                transpose_quad(panel + p * width, width, rows);
            }
            for (; p < depth; p++) {
                for (size_t j = 0; j < 4; j++) {
                    panel[p * width + j] = row[j * lane + p];
                }
            }
            i += 3;
            continue;
        }
        for (; p < depth; p++) {
            panel[p * width] = row[p * step];
        }
    }
}

static void pack_f32(float *dst, size_t width, const float *src, size_t lane, size_t step, size_t lanes, size_t depth)
{
    if (width == TILE_ROWS) {   // constants let the copies become vector moves
        pack_f32_panels(dst, TILE_ROWS, src, lane, step, lanes, depth);
    } else {
        pack_f32_panels(dst, TILE_COLS, src, lane, step, lanes, depth);
    }
}

// One register tile: c [TILE_ROWS, TILE_COLS] set to, or added, a·b over `units` of depth.
typedef void TileFunction(float *c, size_t ldc, const float *a, const float *b, size_t units, bool accumulate);

// The end of a tile: its sums go to c.
static inline __attribute__((always_inline)) void store_tile(float *c, size_t ldc, vfloat sum[TILE_ROWS][2], bool accumulate)
{
    for (size_t i = 0; i < TILE_ROWS; i++) {
        float *row = c + i * ldc;
        v_store(row, accumulate ? v_load(row) + sum[i][0] : sum[i][0]);
        v_store(row + VECTOR_FLOATS, accumulate ? v_load(row + VECTOR_FLOATS) + sum[i][1] : sum[i][1]);
    }
}

// The start of a tile: zeros, and c, which is far away in memory and needed last, on its way while the sums are made.
static inline __attribute__((always_inline)) void start_tile(float *c, size_t ldc, vfloat sum[TILE_ROWS][2])
{
    for (size_t i = 0; i < TILE_ROWS; i++) {
        sum[i][0] = sum[i][1] = (vfloat){0};
        __builtin_prefetch(c + i * ldc, 1);
        __builtin_prefetch(c + i * ldc + VECTOR_FLOATS, 1);
    }
}

static void tile_f32(float *c, size_t ldc, const float *a, const float *b, size_t units, bool accumulate)
{
    vfloat sum[TILE_ROWS][2];
    start_tile(c, ldc, sum);
    for (size_t p = 0; p < units; p++) {
        vfloat b0 = v_load(b + p * TILE_COLS), b1 = v_load(b + p * TILE_COLS + VECTOR_FLOATS);
#pragma GCC unroll 14
        for (size_t i = 0; i < TILE_ROWS; i++) {
            vfloat ai = v_set(a[p * TILE_ROWS + i]);
            sum[i][0] += ai * b0;
            sum[i][1] += ai * b1;
        }
    }
    store_tile(c, ldc, sum, accumulate);
}

#ifdef __AVX512BF16__
// f32 → bf16 in the high half of a word, rounded to nearest even; a NaN stays one.
#define ROUND_BF16(bits, is_nan)                                                                 \
    ((((bits) + 0x7fff + (((bits) >> 16) & 1)) & ~(is_nan)) | (((bits) | 0x400000) & (is_nan)))

static inline quad_bits quad_round(quad x)
{
    quad_bits bits = (quad_bits)x, is_nan = (quad_bits)(x != x);
    return ROUND_BF16(bits, is_nan);
}

// Eight floats in a row → four words of two bf16, the earlier one in the low half.
static inline quad quad_pairs(const float *p)
{
    quad_bits lo = quad_round(quad_load(p)), hi = quad_round(quad_load(p + 4));
    quad_bits even = __builtin_shufflevector(lo, hi, 0, 2, 4, 6), odd = __builtin_shufflevector(lo, hi, 1, 3, 5, 7);
    return (quad)((even >> 16) | (odd & 0xffff0000u));
}

static inline float scalar_pair(float first, float second)
{
    quad_bits bits = quad_round((quad){first, second, 0.0f, 0.0f});
    uint32_t pair = (bits[0] >> 16) | (bits[1] & 0xffff0000u);
    float word;
    memcpy(&word, &pair, sizeof word);
    return word;
}

static inline __attribute__((always_inline)) void pack_bf16_panels(float *dst, size_t width, const float *src, size_t lane, size_t step, size_t lanes, size_t depth)
{
    size_t units = (depth + 1) / 2, full = lanes / width * width;
    if (full < lanes) {
        memset(dst + full * units, 0, width * units * sizeof(float));
    }
    if (lane == 1) {
        typedef uint32_t words __attribute__((vector_size(VECTOR_FLOATS * 4)));
        float row[COL_BLOCK];
        for (size_t u = 0; u < units; u++) {
            const float *first = src + 2 * u * step, *second = 2 * u + 1 < depth ? first + step : NULL;
            for (size_t i = 0; i < lanes; i += VECTOR_FLOATS) {
                vfloat x = v_load_n(first + i, lanes - i), y = second == NULL ? (vfloat){0} : v_load_n(second + i, lanes - i);
                words xb = (words)x, yb = (words)y, xn = (words)(x != x), yn = (words)(y != y);
                v_store_n(row + i, (vfloat)((ROUND_BF16(xb, xn) >> 16) | (ROUND_BF16(yb, yn) & 0xffff0000u)), lanes - i);
            }
            for (size_t i = 0; i < full; i += width) {
                memcpy(dst + i * units + u * width, row + i, width * sizeof(float));
            }
            memcpy(dst + full * units + u * width, row + full, (lanes - full) * sizeof(float));
        }
        return;
    }
    for (size_t i = 0; i < lanes; i++) {
        float *panel = dst + i / width * width * units + i % width;
        const float *row = src + i * lane;
        size_t u = 0;
        bool four = i % width + 4 <= width && i + 4 <= lanes && step == 1;
        for (; four && 2 * u + 8 <= depth; u += 4) {
            const float *at = row + 2 * u;
            quad rows[4] = {quad_pairs(at), quad_pairs(at + lane), quad_pairs(at + 2 * lane), quad_pairs(at + 3 * lane)};
            transpose_quad(panel + u * width, width, rows);
        }
        for (; u < units; u++) {
            for (size_t j = 0; j < (four ? 4 : 1); j++) {
                const float *at = row + j * lane + 2 * u * step;
                panel[u * width + j] = scalar_pair(at[0], 2 * u + 1 < depth ? at[step] : 0.0f);
            }
        }
        i += four ? 3 : 0;
    }
}

static void pack_bf16(float *dst, size_t width, const float *src, size_t lane, size_t step, size_t lanes, size_t depth)
{
    if (width == TILE_ROWS) {
        pack_bf16_panels(dst, TILE_ROWS, src, lane, step, lanes, depth);
    } else {
        pack_bf16_panels(dst, TILE_COLS, src, lane, step, lanes, depth);
    }
}

static void tile_bf16(float *c, size_t ldc, const float *a, const float *b, size_t units, bool accumulate)
{
    vfloat sum[TILE_ROWS][2];
    start_tile(c, ldc, sum);
    for (size_t p = 0; p < units; p++) {
        __m512bh b0 = (__m512bh)v_load(b + p * TILE_COLS), b1 = (__m512bh)v_load(b + p * TILE_COLS + VECTOR_FLOATS);
#pragma GCC unroll 14
        for (size_t i = 0; i < TILE_ROWS; i++) {
            int32_t pair;
            memcpy(&pair, a + p * TILE_ROWS + i, sizeof pair);
            __m512bh ai = (__m512bh)_mm512_set1_epi32(pair);
            sum[i][0] = (vfloat)_mm512_dpbf16_ps((__m512)sum[i][0], ai, b0);
            sum[i][1] = (vfloat)_mm512_dpbf16_ps((__m512)sum[i][1], ai, b1);
        }
    }
    store_tile(c, ldc, sum, accumulate);
}
#else
static void pack_bf16(float *dst, size_t width, const float *src, size_t lane, size_t step, size_t lanes, size_t depth)
{
    pack_f32(dst, width, src, lane, step, lanes, depth);
    size_t words = (lanes + width - 1) / width * width * depth;
    for (size_t i = 0; i < words; i++) {
        dst[i] = round_to_bf16(dst[i]);
    }
}
#endif

// How a product multiplies.
typedef struct TileKind {
    size_t per_unit;   // elements of depth in a word
    PackFunction *pack;
    TileFunction *tile;
} TileKind;

static const TileKind kind_f32 = {1, pack_f32, tile_f32};
#ifdef __AVX512BF16__
static const TileKind kind_bf16 = {2, pack_bf16, tile_bf16};
#else
static const TileKind kind_bf16 = {1, pack_bf16, tile_f32};
#endif

// A tile at the border of c: computed aside, the part that exists is copied.
static void tile_border(const TileKind *kind, float *c, size_t ldc, const float *a, const float *b, size_t units, bool accumulate, size_t rows, size_t cols)
{
    float whole[TILE_ROWS * TILE_COLS];
    kind->tile(whole, TILE_COLS, a, b, units, false);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            c[i * ldc + j] = (accumulate ? c[i * ldc + j] : 0.0f) + whole[i * TILE_COLS + j];
        }
    }
}

// c [rows, cols] from a block of a (packed here) and panels of b; rows ≤ ROW_BLOCK.
static void block_product(const TileKind *kind, float *c, size_t ldc, const float *a, size_t a_row, size_t a_col, const float *panels, size_t rows,
                          size_t cols, size_t depth, bool accumulate)
{
    float packed[ROW_BLOCK * UNIT_BLOCK] __attribute__((aligned(64)));
    size_t units = (depth + kind->per_unit - 1) / kind->per_unit;
    kind->pack(packed, TILE_ROWS, a, a_row, a_col, rows, depth);
    for (size_t j = 0; j < cols; j += TILE_COLS) {
        const float *panel = panels + j * units;
        for (size_t i = 0; i < rows; i += TILE_ROWS) {
            if (rows - i >= TILE_ROWS && cols - j >= TILE_COLS) {
                kind->tile(c + i * ldc + j, ldc, packed + i * units, panel, units, accumulate);
            } else {
                tile_border(kind, c + i * ldc + j, ldc, packed + i * units, panel, units, accumulate, min_size(TILE_ROWS, rows - i),
                            min_size(TILE_COLS, cols - j));
            }
        }
    }
}

// The size of a block when n is cut into as few as possible of at most `most`, all alike and a multiple of `unit`: a narrow last block of columns would
// pack a again for a few columns.
static size_t even_block(size_t n, size_t most, size_t unit)
{
    size_t count = n == 0 ? 1 : (n + most - 1) / most;
    return ((n + count - 1) / count + unit - 1) / unit * unit;
}

static size_t thread_count(void)
{
#ifdef _OPENMP
    return (size_t)omp_get_max_threads();
#else
    return 1;
#endif
}

// How c is cut into tasks: blocks of rows, and groups of panels of the column block at hand.
typedef struct TaskGrid {
    size_t row_tiles, row_blocks, groups;
} TaskGrid;

static TaskGrid task_grid(size_t rows)
{
    size_t threads = thread_count(), tiles = (rows + TILE_ROWS - 1) / TILE_ROWS, blocks = (rows + ROW_BLOCK - 1) / ROW_BLOCK;
    if (blocks >= 2 * threads) {
        // As many blocks for every thread: sizes then differ by one tile at most.
        return (TaskGrid){tiles, (blocks + threads - 1) / threads * threads, 1};
    }
    // Few rows: share out groups of columns too.
    return (TaskGrid){tiles, blocks, (4 * threads + blocks - 1) / blocks};
}

static void blocked_product(const TileKind *kind, float *c, size_t ldc, MatrixView a, MatrixView b, size_t rows, size_t cols, size_t depth, bool accumulate)
{
    float panels[UNIT_BLOCK * COL_BLOCK] __attribute__((aligned(64)));
    if (rows == 0 || cols == 0) {
        return;
    }
    if (depth == 0 && !accumulate) {
        for (size_t i = 0; i < rows; i++) {
            memset(c + i * ldc, 0, cols * sizeof(float));
        }
    }
    TaskGrid grid = task_grid(rows);
    size_t col_block = even_block(cols, COL_BLOCK, TILE_COLS), depth_block = even_block(depth, UNIT_BLOCK * kind->per_unit, 8);
#pragma omp parallel if (rows * cols * depth > PARALLEL_WORK)
    for (size_t j0 = 0; j0 < cols; j0 += col_block) {
        size_t block_cols = min_size(col_block, cols - j0);
        size_t n_panels = (block_cols + TILE_COLS - 1) / TILE_COLS;
        size_t group_panels = (n_panels + grid.groups - 1) / grid.groups, n_groups = (n_panels + group_panels - 1) / group_panels;
        for (size_t p0 = 0; p0 < depth; p0 += depth_block) {
            size_t block_depth = min_size(depth_block, depth - p0), units = (block_depth + kind->per_unit - 1) / kind->per_unit;
#pragma omp for schedule(static)
            for (size_t panel = 0; panel < n_panels; panel++) {
                size_t j = panel * TILE_COLS;
                kind->pack(panels + j * units, TILE_COLS, b.data + p0 * b.row + (j0 + j) * b.col, b.col, b.row, min_size(TILE_COLS, block_cols - j), block_depth);
            }
#pragma omp for schedule(dynamic)
            for (size_t task = 0; task < grid.row_blocks * n_groups; task++) {
                size_t block = task / n_groups, j = task % n_groups * group_panels * TILE_COLS;
                size_t i = block * grid.row_tiles / grid.row_blocks * TILE_ROWS, end = (block + 1) * grid.row_tiles / grid.row_blocks * TILE_ROWS;
                block_product(kind, c + i * ldc + j0 + j, ldc, a.data + i * a.row + p0 * a.col, a.row, a.col, panels + j * units, min_size(end, rows) - i,
                              min_size(group_panels * TILE_COLS, block_cols - j), block_depth, accumulate || p0 > 0);
            }
        }
    }
}

void ISA_NAME(gemm)(float *c, size_t ldc, MatrixView a, MatrixView b, size_t rows, size_t cols, size_t depth, bool accumulate)
{
    blocked_product(&kind_f32, c, ldc, a, b, rows, cols, depth, accumulate);
}

// Rows of x that one pass over the weights serves in the small product.
#define FEW_ROWS 4

// out [n ≤ FEW_ROWS, n_out] for few tokens (decoding): reads every weight once, which is what bounds it.
static inline void few_rows(float *out, const float *x, const float *w, size_t n, size_t n_in, size_t n_out)
{
#pragma omp parallel for schedule(static) if (n_in * n_out > PARALLEL_WORK)
    for (size_t j = 0; j < n_out; j++) {
        const float *row = w + j * n_in;
        vfloat sum[FEW_ROWS][2] = {{{0}}};
        size_t k = 0;
        for (; k + 2 * VECTOR_FLOATS <= n_in; k += 2 * VECTOR_FLOATS) {
            vfloat w0 = v_load(row + k), w1 = v_load(row + k + VECTOR_FLOATS);
            for (size_t i = 0; i < n; i++) {
                sum[i][0] += w0 * v_load(x + i * n_in + k);
                sum[i][1] += w1 * v_load(x + i * n_in + k + VECTOR_FLOATS);
            }
        }
        for (size_t i = 0; i < n; i++) {
            float total = v_sum(sum[i][0] + sum[i][1]);
            for (size_t l = k; l < n_in; l++) {
                total += row[l] * x[i * n_in + l];
            }
            out[i * n_out + j] = total;
        }
    }
}

void ISA_NAME(linear_forward)(float *out, const float *x, const float *w, size_t n, size_t n_in, size_t n_out)
{
    switch (n) {   // constants let the compiler keep the sums in registers
    case 1: few_rows(out, x, w, 1, n_in, n_out); break;
    case 2: few_rows(out, x, w, 2, n_in, n_out); break;
    case 3: few_rows(out, x, w, 3, n_in, n_out); break;
    case 4: few_rows(out, x, w, 4, n_in, n_out); break;
    default: ISA_NAME(gemm)(out, n_out, (MatrixView){x, n_in, 1}, (MatrixView){w, 1, n_in}, n, n_out, n_in, false);
    }
}

void ISA_NAME(linear_backward_input)(float *dx, const float *dout, const float *w, size_t n, size_t n_in, size_t n_out, bool accumulate)
{
    blocked_product(&kind_f32, dx, n_in, (MatrixView){dout, n_out, 1}, (MatrixView){w, n_in, 1}, n, n_in, n_out, accumulate);
}

void ISA_NAME(linear_backward_weight)(float *dw, const float *dout, const float *x, size_t n, size_t n_in, size_t n_out)
{
    blocked_product(&kind_f32, dw, n_in, (MatrixView){dout, 1, n_out}, (MatrixView){x, n_in, 1}, n_out, n_in, n, true);
}

void ISA_NAME(linear_forward_bf16)(float *out, const float *x, const float *w, size_t n, size_t n_in, size_t n_out)
{
    blocked_product(&kind_bf16, out, n_out, (MatrixView){x, n_in, 1}, (MatrixView){w, 1, n_in}, n, n_out, n_in, false);
}

void ISA_NAME(linear_backward_input_bf16)(float *dx, const float *dout, const float *w, size_t n, size_t n_in, size_t n_out, bool accumulate)
{
    blocked_product(&kind_bf16, dx, n_in, (MatrixView){dout, n_out, 1}, (MatrixView){w, n_in, 1}, n, n_in, n_out, accumulate);
}

void ISA_NAME(linear_backward_weight_bf16)(float *dw, const float *dout, const float *x, size_t n, size_t n_in, size_t n_out)
{
    blocked_product(&kind_bf16, dw, n_in, (MatrixView){dout, 1, n_out}, (MatrixView){x, n_in, 1}, n_out, n_in, n, true);
}
