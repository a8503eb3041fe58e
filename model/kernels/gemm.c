// Matrix products: blocked, packed, one register tile of TILE_ROWS × TILE_COLS at a time; in f32, or with factors rounded to bf16 and f32 sums.
//
// Depth is cut into blocks. A block of b is packed once by all threads; each thread then packs blocks of rows of a and runs the register tiles over all
// panels of b. A tile makes 28 multiply-adds for three lines that it loads, so that panels may stream from L2 and b's from the cache behind it. Threads share
// out tiles of c only, and every tile adds its depth blocks in order: the bits do not depend on the threads.
//
// Weights that stand in panels already (factors.h) are multiplied as they lie. Processors that cannot multiply bf16 round when they pack, make f32 of panels
// and multiply in f32: the same numbers up to the order of sums, at f32's speed.
#include <assert.h>

#include "model/kernels/functions.h"
#include "model/kernels/pack.h"
#include "model/kernels/tiles.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#define UNIT_BLOCK 1024

// Words of b packed at once, 4 MB: the more, the fewer times a is packed. They live on the stack, so that a product needs no memory and cannot fail.
#define PANEL_WORDS ((size_t)1 << 20)

// Floats of an output that is written around the caches: it would only push out what the product reads.
#define STREAM_FLOATS ((size_t)1 << 20)

// A factor as lanes, rows of a or columns of b: element p of lane i is data[i·lane + p·step], of uint16_t where it is bf16; one of the strides is 1.
typedef struct Lanes {
    const void *data;
    bool bf16;
    size_t lane, step;
} Lanes;

static Lanes lanes_of(Rows rows, size_t lane, size_t step) { return (Lanes){rows.data, rows.bf16, lane, step}; }

// How a product multiplies. pack_a makes panels of `rows` lanes, pack_b and pack_weights of TILE_COLS: lanes first …, elements p0 ….
typedef void PackFunction(float *dst, const Lanes *from, size_t first, size_t p0, size_t lanes, size_t depth);
typedef void PackRowsFunction(float *dst, const PackRows *from, size_t lanes, size_t depth);

typedef struct TileKind {
    size_t per_unit;   // elements of depth in a word
    size_t rows;       // of a tile
    size_t a_stride;   // words of a unit of a panel of a
    size_t row_tiles;  // tiles of a block of rows, whose panels stay in L2
    bool streams;      // the tile knows TILE_STREAM
    PackFunction *pack_a, *pack_b;
    PackRowsFunction *pack_weights;
    TileFunction *tile;
    void (*begin)(AmxShapes *before), (*end)(const AmxShapes *before);   // around tiles of one thread, or NULL
} TileKind;

// The second factor: lanes, or packed weights, whose rows are its columns, or panels.
typedef struct SecondFactor {
    Lanes lanes;
    const PackedMatrix *weights;   // NULL: not these
    const uint32_t *panels;        // NULL: not these
} SecondFactor;

#define PACK_FUNCTION(NAME, KIND, WIDTH)                                                                                                    \
    static void NAME(float *dst, const Lanes *from, size_t first, size_t p0, size_t lanes, size_t depth)                                    \
    {                                                                                                                                       \
        size_t at = first * from->lane + p0 * from->step;                                                                                   \
        if (KIND != WORD_F32 && from->bf16) {                                                                                               \
            pack_panels(KIND, SOURCE_BF16, dst, WIDTH, (const uint16_t *)from->data + at, from->lane, from->step, lanes, depth);            \
        } else {                                                                                                                            \
            pack_panels(KIND, SOURCE_F32, dst, WIDTH, (const float *)from->data + at, from->lane, from->step, lanes, depth);                \
        }                                                                                                                                   \
    }
#define PACK_WEIGHTS_FUNCTION(NAME, KIND)                                                       \
    static void NAME(float *dst, const PackRows *from, size_t lanes, size_t depth)              \
    {                                                                                           \
        if (from->packed->type == WEIGHTS_BF16) {                                               \
            pack_rows(KIND, SOURCE_PACKED_BF16, dst, TILE_COLS, from, lanes, depth);            \
        } else {                                                                                \
            pack_rows(KIND, SOURCE_PACKED_INT8, dst, TILE_COLS, from, lanes, depth);            \
        }                                                                                       \
    }
PACK_FUNCTION(pack_a_f32, WORD_F32, TILE_ROWS)
PACK_FUNCTION(pack_b_f32, WORD_F32, TILE_COLS)
PACK_WEIGHTS_FUNCTION(pack_weights_f32, WORD_F32)
static const TileKind kind_f32 = {1, TILE_ROWS, A_STRIDE, ROW_TILES, true, pack_a_f32, pack_b_f32, pack_weights_f32, tile_f32, NULL, NULL};
#ifdef __AVX512BF16__
PACK_FUNCTION(pack_b_bf16, WORD_PAIR, TILE_COLS)
PACK_WEIGHTS_FUNCTION(pack_weights_bf16, WORD_PAIR)
_Static_assert(TILE_COLS == PANEL_COLS, "tiles read panels as they lie");
#ifdef __AMX_BF16__
static void pack_a_amx(float *dst, const Lanes *from, size_t first, size_t p0, size_t lanes, size_t depth)
{
    size_t at = first * from->lane + p0 * from->step;
    if (from->bf16) {
        pack_row_panels(SOURCE_BF16, dst, AMX_ROWS, (const uint16_t *)from->data + at, from->lane, from->step, lanes, depth);
    } else {
        pack_row_panels(SOURCE_F32, dst, AMX_ROWS, (const float *)from->data + at, from->lane, from->step, lanes, depth);
    }
}
static const TileKind kind_bf16 = {2, AMX_ROWS, AMX_ROWS, AMX_ROW_TILES, false, pack_a_amx, pack_b_bf16, pack_weights_bf16, tile_amx, amx_begin, amx_end};
#else
PACK_FUNCTION(pack_a_bf16, WORD_PAIR, TILE_ROWS)
static const TileKind kind_bf16 = {2, TILE_ROWS, A_STRIDE, ROW_TILES, true, pack_a_bf16, pack_b_bf16, pack_weights_bf16, tile_bf16, NULL, NULL};
#endif
#else
PACK_FUNCTION(pack_a_bf16, WORD_ROUNDED, TILE_ROWS)
PACK_FUNCTION(pack_b_bf16, WORD_ROUNDED, TILE_COLS)
static const TileKind kind_bf16 = {1, TILE_ROWS, A_STRIDE, ROW_TILES, true, pack_a_bf16, pack_b_bf16, pack_weights_f32, tile_f32, NULL, NULL};
#endif
// Words of depth that `depth` elements fill in panels.
static size_t units_of(const TileKind *kind, size_t depth) { return kind->per_unit == 1 ? depth : panel_units(depth); }

// A tile at the border of c: computed aside, the part that exists is copied.
static void tile_border(const TileKind *kind, float *c, size_t ldc, const float *a, const float *b, size_t units, TileEnd end, size_t rows, size_t cols)
{
    float whole[MOST_ROWS * TILE_COLS];
    kind->tile(whole, TILE_COLS, a, b, units, TILE_SET);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            c[i * ldc + j] = (end == TILE_ADD ? c[i * ldc + j] : 0.0f) + whole[i * TILE_COLS + j];
        }
    }
}

// Panels of b, so many words apart.
typedef struct Panels {
    const float *data;
    size_t words;
} Panels;

// c [rows, cols] from a block of a (packed here: rows first …, depth from p0 on) and panels of b; rows of row_tiles tiles at most, depth ≤ UNIT_BLOCK words.
static void block_product(const TileKind *kind, float *c, size_t ldc, const Lanes *a, size_t first, size_t p0, Panels panels, size_t rows, size_t cols,
                          size_t depth, TileEnd end)
{
    float packed[MOST_TILES * MOST_STRIDE * UNIT_BLOCK] __attribute__((aligned(64)));
    float left[MOST_TILES * MOST_ROWS * VECTOR_FLOATS];
    size_t units = units_of(kind, depth);
    AmxShapes before;
    bool aligned = (uintptr_t)c % sizeof(vfloat) == 0 && ldc % VECTOR_FLOATS == 0;
    kind->pack_a(packed, a, first, p0, rows, depth);
    if (kind->begin != NULL) {
        kind->begin(&before);
    }
    for (size_t j = 0; j < cols; j += TILE_COLS) {
        const float *panel = panels.data + j / TILE_COLS * panels.words;
        for (size_t i = 0; i < rows; i += kind->rows) {
            const float *of_a = packed + i / kind->rows * kind->a_stride * units;
            float *to = c + i * ldc + j;
            size_t tile_rows = min_size(kind->rows, rows - i), tile_cols = min_size(TILE_COLS, cols - j);
            bool whole = tile_rows == kind->rows && tile_cols == TILE_COLS;
            if (end == TILE_STREAM && !(whole && aligned && kind->streams)) {
                float sums[MOST_ROWS * TILE_COLS] __attribute__((aligned(64)));
                kind->tile(sums, TILE_COLS, of_a, panel, units, TILE_SET);
                stream_tile(to, ldc, sums, left + i * VECTOR_FLOATS, tile_rows, tile_cols, j == 0, j + TILE_COLS >= cols);
            } else if (whole) {
                kind->tile(to, ldc, of_a, panel, units, end);
            } else {
                tile_border(kind, to, ldc, of_a, panel, units, end, tile_rows, tile_cols);
            }
        }
    }
    if (kind->end != NULL) {
        kind->end(&before);
    }
    if (end == TILE_STREAM) {
        v_stream_end();
    }
}

// The size of a block when n is cut into as few as possible of at most `most`, all alike and a multiple of `unit`.
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

static TaskGrid task_grid(const TileKind *kind, size_t rows)
{
    size_t threads = thread_count(), tiles = (rows + kind->rows - 1) / kind->rows, blocks = (tiles + kind->row_tiles - 1) / kind->row_tiles;
    if (blocks >= 2 * threads) {
        // As many blocks for every thread: sizes then differ by one tile at most.
        return (TaskGrid){tiles, (blocks + threads - 1) / threads * threads, 1};
    }
    // Few rows: share out groups of columns too.
    return (TaskGrid){tiles, blocks, (4 * threads + blocks - 1) / blocks};
}

// What the tiles of a depth block do with c: an output that is complete after one block, and large, is streamed.
static TileEnd tile_end(size_t rows, size_t cols, bool first, bool whole)
{
    if (!first) {
        return TILE_ADD;
    }
    return whole && rows * cols >= STREAM_FLOATS ? TILE_STREAM : TILE_SET;
}

// Panels of b that a thread packs in one go: of columns that lie side by side it reads whole lines.
#define PACK_PANELS 4

// Panels of f32 words, TILE_COLS wide, from panels of pairs of a matrix `whole` deep.
static void widen_panels(float *dst, const uint32_t *panels, size_t whole, size_t first, size_t p0, size_t lanes, size_t depth)
{
    for (size_t j = first; j < first + lanes; j += TILE_COLS, dst += depth * TILE_COLS) {
        const uint32_t *from = panels + j / PANEL_COLS * panel_words(whole) + p0 / 2 * PANEL_COLS + j % PANEL_COLS;
        for (size_t p = 0; p < depth; p += 2, from += PANEL_COLS) {
            for (size_t l = 0; l < TILE_COLS; l += VECTOR_FLOATS) {
                vbits pairs;
                memcpy(&pairs, from + l, sizeof pairs);
                v_store(dst + p * TILE_COLS + l, (vfloat)(pairs << 16));
                if (p + 1 < depth) {
                    v_store(dst + (p + 1) * TILE_COLS + l, (vfloat)(pairs & 0xffff0000u));
                }
            }
        }
    }
}

// Columns `first` … first + lanes − 1 of b, elements p0 … p0 + depth − 1 of `whole`.
static void pack_second(const TileKind *kind, float *dst, const SecondFactor *b, size_t whole, size_t first, size_t p0, size_t lanes, size_t depth)
{
    if (b->weights != NULL) {
        kind->pack_weights(dst, &(PackRows){.packed = b->weights, .first = first, .p0 = p0}, lanes, depth);
    } else if (b->panels != NULL) {
        widen_panels(dst, b->panels, whole, first, p0, lanes, depth);
    } else {
        kind->pack_b(dst, &b->lanes, first, p0, lanes, depth);
    }
}

static void blocked_product(const TileKind *kind, float *c, size_t ldc, Lanes a, const SecondFactor *b, size_t rows, size_t cols, size_t depth,
                            bool accumulate)
{
    float panels[PANEL_WORDS] __attribute__((aligned(64)));
    if (rows == 0 || cols == 0) {
        return;
    }
    if (depth == 0 && !accumulate) {
        for (size_t i = 0; i < rows; i++) {
            memset(c + i * ldc, 0, cols * sizeof(float));
        }
    }
    if (depth == 0) {
        return;
    }
    TaskGrid grid = task_grid(kind, rows);
    bool in_place = b->panels != NULL && kind->per_unit == 2;
    size_t depth_block = even_block(depth, UNIT_BLOCK * kind->per_unit, PACKED_UNIT);
    size_t most = PANEL_WORDS * kind->per_unit / depth_block / TILE_COLS * TILE_COLS, col_block = even_block(cols, most, TILE_COLS);
#pragma omp parallel if (rows * cols * depth > PARALLEL_WORK)
    for (size_t j0 = 0; j0 < cols; j0 += col_block) {
        size_t block_cols = min_size(col_block, cols - j0);
        size_t n_panels = (block_cols + TILE_COLS - 1) / TILE_COLS;
        size_t group_panels = (n_panels + grid.groups - 1) / grid.groups, n_groups = (n_panels + group_panels - 1) / group_panels;
        for (size_t p0 = 0; p0 < depth; p0 += depth_block) {
            size_t block_depth = min_size(depth_block, depth - p0), units = units_of(kind, block_depth);
            TileEnd end = tile_end(rows, cols, !accumulate && p0 == 0, block_depth == depth);
            Panels whole = {panels, units * TILE_COLS};
            if (in_place) {
                whole = (Panels){(const float *)(const void *)(b->panels + j0 / PANEL_COLS * panel_words(depth) + p0 / 2 * PANEL_COLS), panel_words(depth)};
            } else {
#pragma omp for schedule(static)
                for (size_t panel = 0; panel < n_panels; panel += PACK_PANELS) {
                    size_t j = panel * TILE_COLS;
                    pack_second(kind, panels + j * units, b, depth, j0 + j, p0, min_size(PACK_PANELS * TILE_COLS, block_cols - j), block_depth);
                }
            }
#pragma omp for schedule(dynamic)
            for (size_t task = 0; task < grid.row_blocks * n_groups; task++) {
                size_t block = task / n_groups, j = task % n_groups * group_panels * TILE_COLS;
                size_t i = block * grid.row_tiles / grid.row_blocks * kind->rows, next = (block + 1) * grid.row_tiles / grid.row_blocks * kind->rows;
                Panels group = {whole.data + j / TILE_COLS * whole.words, whole.words};
                block_product(kind, c + i * ldc + j0 + j, ldc, &a, i, p0, group, min_size(next, rows) - i, min_size(group_panels * TILE_COLS, block_cols - j),
                              block_depth, end);
            }
        }
    }
}

static void scale_columns(float *out, const float *scales, size_t n, size_t count)
{
#pragma omp parallel for schedule(static) if (n * count > PARALLEL_WORK)
    for (size_t t = 0; t < n; t++) {
        for (size_t j = 0; j < count; j += VECTOR_FLOATS) {
            float *to = out + t * count + j;
            v_store_n(to, v_load_n(to, count - j) * v_load_n(scales + j, count - j), count - j);
        }
    }
}

// With bf16 products int8 numbers go through them as they are, which is exact; else a row's scale is in its packed numbers.
static void many_rows_packed(float *out, const float *x, const PackedMatrix *w, size_t n)
{
#ifdef __AVX512BF16__
    const TileKind *kind = &kind_bf16;
#else
    const TileKind *kind = &kind_f32;
#endif
    blocked_product(kind, out, w->n_out, lanes_of(rows_f32(x), w->n_in, 1), &(SecondFactor){.weights = w}, n, w->n_out, w->n_in, false);
    if (w->type == WEIGHTS_INT8 && kind == &kind_bf16) {
        scale_columns(out, w->scales, n, w->n_out);
    }
}

// The three products of a linear layer. Only those in bf16 take panels, and rows in bf16.
static void multiply_forward(const TileKind *kind, float *out, Rows x, Weights w, size_t n, size_t n_in, size_t n_out)
{
    SecondFactor second = {.lanes = {w.data, false, n_in, 1}, .panels = kind == &kind_bf16 && w.panels != NULL ? w.panels->forward : NULL};
    assert(kind == &kind_bf16 || !x.bf16);
    blocked_product(kind, out, n_out, lanes_of(x, n_in, 1), &second, n, n_out, n_in, false);
}

static void multiply_backward_input(const TileKind *kind, float *dx, Rows dout, Weights w, size_t n, size_t n_in, size_t n_out, bool accumulate)
{
    SecondFactor second = {.lanes = {w.data, false, 1, n_in}, .panels = kind == &kind_bf16 && w.panels != NULL ? w.panels->backward : NULL};
    assert(kind == &kind_bf16 || !dout.bf16);
    blocked_product(kind, dx, n_in, lanes_of(dout, n_out, 1), &second, n, n_in, n_out, accumulate);
}

static void multiply_backward_weight(const TileKind *kind, float *dw, Rows dout, Rows x, size_t n, size_t n_in, size_t n_out)
{
    assert(kind == &kind_bf16 || (!dout.bf16 && !x.bf16));
    blocked_product(kind, dw, n_in, lanes_of(dout, 1, n_out), &(SecondFactor){.lanes = lanes_of(x, 1, n_in)}, n_out, n_in, n, true);
}

void ISA_NAME(linear_forward)(float *out, Rows x, Weights w, size_t n, size_t n_in, size_t n_out)
{
    if (n <= FEW_ROWS && !x.bf16) {
        ISA_NAME(few_rows_f32)(out, x.data, w.data, n, n_in, n_out);
    } else {
        multiply_forward(&kind_f32, out, x, w, n, n_in, n_out);
    }
}

void ISA_NAME(linear_backward_input)(float *dx, Rows dout, Weights w, size_t n, size_t n_in, size_t n_out, bool accumulate)
{
    multiply_backward_input(&kind_f32, dx, dout, w, n, n_in, n_out, accumulate);
}

void ISA_NAME(linear_backward_weight)(float *dw, Rows dout, Rows x, size_t n, size_t n_in, size_t n_out)
{
    multiply_backward_weight(&kind_f32, dw, dout, x, n, n_in, n_out);
}

void ISA_NAME(linear_forward_bf16)(float *out, Rows x, Weights w, size_t n, size_t n_in, size_t n_out)
{
    multiply_forward(&kind_bf16, out, x, w, n, n_in, n_out);
}

void ISA_NAME(linear_backward_input_bf16)(float *dx, Rows dout, Weights w, size_t n, size_t n_in, size_t n_out, bool accumulate)
{
    multiply_backward_input(&kind_bf16, dx, dout, w, n, n_in, n_out, accumulate);
}

void ISA_NAME(linear_backward_weight_bf16)(float *dw, Rows dout, Rows x, size_t n, size_t n_in, size_t n_out)
{
    multiply_backward_weight(&kind_bf16, dw, dout, x, n, n_in, n_out);
}

// Rows of weights that become panels of both kinds in one go: the second time they come from a cache. A multiple of PANEL_COLS.
#define WEIGHT_ROWS (2 * PANEL_COLS)

void ISA_NAME(make_panels)(const WeightPanels *panels, const float *w, size_t n_out, size_t n_in)
{
#pragma omp parallel for schedule(static) if (n_out * n_in > PARALLEL_WORK)
    for (size_t row = 0; row < n_out; row += WEIGHT_ROWS) {
        size_t rows = min_size(WEIGHT_ROWS, n_out - row);
        float *forward = (float *)(void *)(panels->forward + row / PANEL_COLS * panel_words(n_in));
        pack_panels(WORD_PAIR, SOURCE_F32, forward, PANEL_COLS, w + row * n_in, n_in, 1, rows, n_in);
        for (size_t j = 0; j < n_in; j += PANEL_COLS) {
            float *backward = (float *)(void *)(panels->backward + j / PANEL_COLS * panel_words(n_out) + row / 2 * PANEL_COLS);
            pack_panels(WORD_PAIR, SOURCE_F32, backward, PANEL_COLS, w + row * n_in + j, 1, n_in, min_size(PANEL_COLS, n_in - j), rows);
        }
    }
}

void ISA_NAME(packed_forward)(float *out, const float *x, const PackedMatrix *w, size_t n)
{
    if (n <= FEW_ROWS) {
        ISA_NAME(few_rows_packed)(out, x, w, n);
    } else {
        many_rows_packed(out, x, w, n);
    }
}
