// Matrix products: blocked, packed, one register tile of TILE_ROWS × TILE_COLS at a time.
//
// Depth is cut into blocks of DEPTH_BLOCK, columns into blocks of COL_BLOCK; such a block of b is packed once by all threads into panels of TILE_COLS
// columns. Each thread then packs blocks of a into panels of TILE_ROWS rows and runs the register tiles. Threads share out tiles of c only, and every tile
// adds its depth blocks in order: the bits do not depend on the threads. The packed blocks live on the stack, so a product needs no memory and cannot fail.
#include "model/kernels/functions.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#if VECTOR_FLOATS == 16
#define TILE_ROWS 14
#else
#define TILE_ROWS 6
#endif
#define TILE_COLS (2 * VECTOR_FLOATS)
#define DEPTH_BLOCK 256
#define COL_BLOCK 1024
#define ROW_BLOCK (TILE_ROWS * 8)

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

typedef float quad __attribute__((vector_size(16)));
typedef float quad_u __attribute__((vector_size(16), aligned(4), may_alias));

// Four rows of four: dst[j·dst_stride + i] = src[i·src_stride + j].
static inline void transpose_quad(float *dst, size_t dst_stride, const float *src, size_t src_stride)
{
    quad r0 = *(const quad_u *)(src), r1 = *(const quad_u *)(src + src_stride);
    quad r2 = *(const quad_u *)(src + 2 * src_stride), r3 = *(const quad_u *)(src + 3 * src_stride);
    quad lo01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5), hi01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
    quad lo23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5), hi23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
    *(quad_u *)(dst) = __builtin_shufflevector(lo01, lo23, 0, 1, 4, 5);
    *(quad_u *)(dst + dst_stride) = __builtin_shufflevector(lo01, lo23, 2, 3, 6, 7);
    *(quad_u *)(dst + 2 * dst_stride) = __builtin_shufflevector(hi01, hi23, 0, 1, 4, 5);
    *(quad_u *)(dst + 3 * dst_stride) = __builtin_shufflevector(hi01, hi23, 2, 3, 6, 7);
}

// Packs `lanes` ≤ width lanes of `depth` elements: dst[p·width + i] = src[i·lane + p·step], zeros for i ≥ lanes.
static inline void pack_panel(float *dst, size_t width, const float *src, size_t lane, size_t step, size_t lanes, size_t depth)
{
    if (lanes < width) {
        memset(dst, 0, width * depth * sizeof(float));
    }
    if (lane == 1) {
        for (size_t p = 0; p < depth; p++) {
            for (size_t i = 0; i < lanes; i++) {
                dst[p * width + i] = src[p * step + i];
            }
        }
        return;
    }
    size_t i = 0;
    for (; i + 4 <= lanes && step == 1; i += 4) {
        size_t p = 0;
        for (; p + 4 <= depth; p += 4) {
            transpose_quad(dst + p * width + i, width, src + i * lane + p, lane);
        }
        for (; p < depth; p++) {
            for (size_t j = i; j < i + 4; j++) {
                dst[p * width + j] = src[j * lane + p];
            }
        }
    }
    for (; i < lanes; i++) {
        for (size_t p = 0; p < depth; p++) {
            dst[p * width + i] = src[i * lane + p * step];
        }
    }
}

// One register tile: c [TILE_ROWS, TILE_COLS] set to, or added, a·b over `depth`.
static inline void tile(float *c, size_t ldc, const float *a, const float *b, size_t depth, bool accumulate)
{
    vfloat sum[TILE_ROWS][2];
    for (size_t i = 0; i < TILE_ROWS; i++) {
        sum[i][0] = sum[i][1] = (vfloat){0};
    }
    for (size_t p = 0; p < depth; p++) {
        vfloat b0 = v_load(b + p * TILE_COLS), b1 = v_load(b + p * TILE_COLS + VECTOR_FLOATS);
#pragma GCC unroll 14
        for (size_t i = 0; i < TILE_ROWS; i++) {
            vfloat ai = v_set(a[p * TILE_ROWS + i]);
            sum[i][0] += ai * b0;
            sum[i][1] += ai * b1;
        }
    }
    for (size_t i = 0; i < TILE_ROWS; i++) {
        float *row = c + i * ldc;
        v_store(row, accumulate ? v_load(row) + sum[i][0] : sum[i][0]);
        v_store(row + VECTOR_FLOATS, accumulate ? v_load(row + VECTOR_FLOATS) + sum[i][1] : sum[i][1]);
    }
}

// A tile at the border of c: computed aside, the part that exists is copied.
static void tile_border(float *c, size_t ldc, const float *a, const float *b, size_t depth, bool accumulate, size_t rows, size_t cols)
{
    float whole[TILE_ROWS * TILE_COLS];
    tile(whole, TILE_COLS, a, b, depth, false);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            c[i * ldc + j] = (accumulate ? c[i * ldc + j] : 0.0f) + whole[i * TILE_COLS + j];
        }
    }
}

// c [rows, cols] from a block of a (packed here) and panels of b; rows ≤ ROW_BLOCK.
static void block_product(float *c, size_t ldc, const float *a, size_t a_row, size_t a_col, const float *panels, size_t rows, size_t cols, size_t depth,
                          bool accumulate)
{
    float packed[ROW_BLOCK * DEPTH_BLOCK] __attribute__((aligned(64)));
    for (size_t i = 0; i < rows; i += TILE_ROWS) {
        pack_panel(packed + i * depth, TILE_ROWS, a + i * a_row, a_row, a_col, min_size(TILE_ROWS, rows - i), depth);
    }
    for (size_t j = 0; j < cols; j += TILE_COLS) {
        const float *panel = panels + j * depth;
        for (size_t i = 0; i < rows; i += TILE_ROWS) {
            if (rows - i >= TILE_ROWS && cols - j >= TILE_COLS) {
                tile(c + i * ldc + j, ldc, packed + i * depth, panel, depth, accumulate);
            } else {
                tile_border(c + i * ldc + j, ldc, packed + i * depth, panel, depth, accumulate, min_size(TILE_ROWS, rows - i), min_size(TILE_COLS, cols - j));
            }
        }
    }
}

static size_t thread_count(void)
{
#ifdef _OPENMP
    return (size_t)omp_get_max_threads();
#else
    return 1;
#endif
}

void ISA_NAME(gemm)(float *c, size_t ldc, MatrixView a, MatrixView b, size_t rows, size_t cols, size_t depth, bool accumulate)
{
    float panels[DEPTH_BLOCK * COL_BLOCK] __attribute__((aligned(64)));
    if (rows == 0 || cols == 0) {
        return;
    }
    size_t row_blocks = (rows + ROW_BLOCK - 1) / ROW_BLOCK;
    // Few rows: share out groups of columns too, so that every thread has several tasks.
    size_t groups = row_blocks >= 8 * thread_count() ? 1 : (8 * thread_count() + row_blocks - 1) / row_blocks;
    if (depth == 0 && !accumulate) {
        for (size_t i = 0; i < rows; i++) {
            memset(c + i * ldc, 0, cols * sizeof(float));
        }
    }
#pragma omp parallel if (rows * cols * depth > PARALLEL_WORK)
    for (size_t j0 = 0; j0 < cols; j0 += COL_BLOCK) {
        size_t block_cols = min_size(COL_BLOCK, cols - j0);
        size_t n_panels = (block_cols + TILE_COLS - 1) / TILE_COLS;
        size_t group_panels = (n_panels + groups - 1) / groups;
        size_t n_groups = (n_panels + group_panels - 1) / group_panels;
        for (size_t p0 = 0; p0 < depth; p0 += DEPTH_BLOCK) {
            size_t block_depth = min_size(DEPTH_BLOCK, depth - p0);
#pragma omp for schedule(static)
            for (size_t panel = 0; panel < n_panels; panel++) {
                size_t j = panel * TILE_COLS;
                pack_panel(panels + j * block_depth, TILE_COLS, b.data + p0 * b.row + (j0 + j) * b.col, b.col, b.row, min_size(TILE_COLS, block_cols - j), block_depth);
            }
#pragma omp for schedule(dynamic)
            for (size_t task = 0; task < row_blocks * n_groups; task++) {
                size_t i = task / n_groups * ROW_BLOCK, j = task % n_groups * group_panels * TILE_COLS;
                block_product(c + i * ldc + j0 + j, ldc, a.data + i * a.row + p0 * a.col, a.row, a.col, panels + j * block_depth, min_size(ROW_BLOCK, rows - i),
                              min_size(group_panels * TILE_COLS, block_cols - j), block_depth, accumulate || p0 > 0);
            }
        }
    }
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
    ISA_NAME(gemm)(dx, n_in, (MatrixView){dout, n_out, 1}, (MatrixView){w, n_in, 1}, n, n_in, n_out, accumulate);
}

void ISA_NAME(linear_backward_weight)(float *dw, const float *dout, const float *x, size_t n, size_t n_in, size_t n_out)
{
    ISA_NAME(gemm)(dw, n_in, (MatrixView){dout, 1, n_out}, (MatrixView){x, n_in, 1}, n_out, n_in, n, true);
}
