// Causal softmax attention with rotary embedding and an optional window (docs/memories.md 8). m = d.
//
// Keys and values lie in blocks of BLOCK positions, cut at multiples of BLOCK from the sequence's start: a block is kᵀ [d, BLOCK], turned, then v [BLOCK, d].
// A state is a ring of blocks, wide enough for the window; training keeps all blocks. Queries go through their blocks in order with a running maximum and sum
// (the scores of a block are all that is in memory), and each query's operations depend on absolute positions alone: outputs do not depend on how a sequence
// is cut into calls.
//
// Packed documents share the blocks of their sequence: each begins at some place of a block, and sees nothing before it.
#include <math.h>

#include "model/mixers/documents.h"
#include "model/mixers/mixer.h"
#include "model/mixers/slots.h"

#define BLOCK 64
#define ROTARY_BASE 10000.0
// Below every score, and finite: differences of it are not NaN.
#define NOTHING_SEEN -1e30f

// Queries that share loads of keys and values, as registers allow.
#if VECTOR_FLOATS == 16
#define ROWS 4
#else
#define ROWS 2
#endif

static size_t blocks_of(size_t positions) { return (positions + BLOCK - 1) / BLOCK; }
static size_t block_floats(size_t d) { return 2 * d * BLOCK; }

// Blocks of a ring: what the window reaches over, and the block that is being written.
static size_t ring_blocks(size_t window) { return blocks_of(window) + 1; }

static size_t window_state_floats(const MixerShape *shape, size_t window) { return shape->n_head * ring_blocks(window) * block_floats(shape->d_head); }

// One head keeps its blocks, and for each query its output and the logarithm of its sum.
static size_t saved_head_floats(const MixerShape *shape)
{
    return blocks_of(shape->length) * block_floats(shape->d_head) + shape->length * (shape->d_head + 1);
}

static size_t saved_floats(const MixerShape *shape) { return shape->batch * shape->n_head * saved_head_floats(shape); }

static size_t table_floats(const MixerShape *shape) { return shape->length * shape->d_head; }

// Forward: queries and outputs of a block [BLOCK, d], scores [BLOCK, BLOCK]. Backward: queries and their gradients [T, d], sums [T]; two tiles of scores;
// k, vᵀ and the gradients of k and v of a block.
static size_t scratch_head_floats(const MixerShape *shape, bool backward)
{
    size_t d = shape->d_head;
    return backward ? shape->length * (2 * d + 1) + 2 * BLOCK * BLOCK + 4 * BLOCK * d : BLOCK * (2 * d + BLOCK);
}

static size_t scratch_floats(const MixerShape *shape, bool backward)
{
    return table_floats(shape) + shape->batch * shape->n_head * scratch_head_floats(shape, backward);
}

// A ring says itself what it holds, by the position: places that no token was written to are never seen.
static void state_init(float *state, const float *state0, const MixerShape *shape)
{
    (void)state, (void)state0, (void)shape;
}

// table [T, d]: cosine and sine of each pair at positions position … position + T − 1. In double: angles of a million turns keep their fractions.
static void fill_table(float *table, const MixerShape *shape)
{
    size_t d = shape->d_head;
    double frequency[d];
    for (size_t i = 0; i < d; i++) {
        frequency[i] = pow(ROTARY_BASE, -(double)i / (double)d);
    }
#pragma omp parallel for schedule(static) if (shape->length > 64)
    for (size_t t = 0; t < shape->length; t++) {
        for (size_t i = 0; i + 1 < d; i += 2) {
            double angle = (double)(shape->position + t) * frequency[i];
            table[t * d + i] = (float)cos(angle);
            table[t * d + i + 1] = (float)sin(angle);
        }
    }
}

// a·b + c, in one rounding where processors have that. Left to itself a compiler may fuse another product in a loop's vectors than in what is left of it, and
// which numbers go by vectors depends on where arrays lie: the first sequence would get other bits than the others.
INLINE float multiply_add(float a, float b, float c)
{
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__FP_FAST_FMAF)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

// out_i (at stride `step`) = scale x [d], its pairs turned by the table's row; backwards with sign −1. A last odd number is not turned.
INLINE void rotate(float *out, size_t step, const float *x, const float *table, float scale, float sign, size_t d)
{
    for (size_t i = 0; i + 1 < d; i += 2) {
        float c = table[i] * scale, s = table[i + 1] * scale * sign, a = x[i], b = x[i + 1];
        out[i * step] = multiply_add(c, a, -(s * b));
        out[(i + 1) * step] = multiply_add(s, a, c * b);
    }
    if (d % 2 == 1) {
        out[(d - 1) * step] = scale * x[d - 1];
    }
}

// out_r [width] += Σ_l a(r, l) b_l for `rows` rows; a(r, l) = a[r·a_row + l·a_step]. In the order of l for every row, whatever `rows` is.
INLINE void product_rows(float *out, size_t out_row, const float *a, size_t a_row, size_t a_step, const float *b, size_t b_row, size_t rows, size_t n,
                         size_t width)
{
    for (size_t j0 = 0; j0 < width; j0 += COLUMNS * VECTOR_FLOATS) {
        vfloat sum[ROWS][COLUMNS];
        for (size_t r = 0; r < rows; r++) {
            for (size_t c = 0; c < COLUMNS; c++) {
                size_t j = j0 + c * VECTOR_FLOATS;
                sum[r][c] = v_load_n(out + r * out_row + j, rest_of(width, j));
            }
        }
        for (size_t l = 0; l < n; l++) {
            vfloat bs[COLUMNS];
            for (size_t c = 0; c < COLUMNS; c++) {
                size_t j = j0 + c * VECTOR_FLOATS;
                bs[c] = v_load_n(b + l * b_row + j, rest_of(width, j));
            }
            for (size_t r = 0; r < rows; r++) {
                for (size_t c = 0; c < COLUMNS; c++) {
                    sum[r][c] = v_fma(v_set(a[r * a_row + l * a_step]), bs[c], sum[r][c]);
                }
            }
        }
        for (size_t r = 0; r < rows; r++) {
            for (size_t c = 0; c < COLUMNS; c++) {
                size_t j = j0 + c * VECTOR_FLOATS;
                v_store_n(out + r * out_row + j, sum[r][c], rest_of(width, j));
            }
        }
    }
}

INLINE void product(float *out, size_t out_row, const float *a, size_t a_row, size_t a_step, const float *b, size_t b_row, size_t rows, size_t n, size_t width)
{
    size_t r = 0;
    for (; r + ROWS <= rows; r += ROWS) {
        product_rows(out + r * out_row, out_row, a + r * a_row, a_row, a_step, b, b_row, ROWS, n, width);
    }
    for (; r < rows; r++) {
        product_rows(out + r * out_row, out_row, a + r * a_row, a_row, a_step, b, b_row, 1, n, width);
    }
}

// One head of one sequence, or of one document.
typedef struct Head {
    const float *q, *k, *v;   // first token's row
    size_t row;
    const float *table;       // rotary, first token's row
    size_t position, length;  // of the first token, and how many tokens
    size_t window, lowest;    // a token sees `window` tokens (0: all), none of a position below `lowest`
    const float *blocks;      // the ring
    size_t n_blocks;
} Head;

// The keys of a block that the query at position t sees: [begin, end) within the block.
typedef struct Seen {
    size_t begin, end;
} Seen;

static size_t first_seen(const Head *head, size_t t)
{
    size_t first = head->window > 0 && t + 1 > head->window ? t + 1 - head->window : 0;
    return first > head->lowest ? first : head->lowest;
}

static Seen seen_keys(const Head *head, size_t t, size_t block)
{
    size_t origin = block * BLOCK, first = first_seen(head, t);
    Seen seen = {first > origin ? first - origin : 0, t + 1 - origin};
    seen.end = seen.end < BLOCK ? seen.end : BLOCK;
    seen.begin = seen.begin < seen.end ? seen.begin : seen.end;
    return seen;
}

// Which lanes of the vector that starts at key i are seen.
INLINE vint seen_lanes(Seen seen, size_t i)
{
    vint lane = {0};
    for (int32_t l = 0; l < VECTOR_FLOATS; l++) {
        lane[l] = l;
    }
    vint zero = {0};
    int32_t begin = (int32_t)seen.begin - (int32_t)i, end = (int32_t)seen.end - (int32_t)i;
    return (lane >= begin + zero) & (lane < end + zero);
}

static const float *block_at(const Head *head, size_t block, size_t d) { return head->blocks + block % head->n_blocks * block_floats(d); }

// Writes keys and values of positions [begin, end), all of one block, into the ring (which is the head's blocks).
static void append(float *blocks, const Head *head, size_t begin, size_t end, size_t d)
{
    float *keys = blocks + begin / BLOCK % head->n_blocks * block_floats(d), *values = keys + d * BLOCK;
    for (size_t p = begin; p < end; p++) {
        size_t t = p - head->position, place = p % BLOCK;
        rotate(keys + place, BLOCK, head->k + t * head->row, head->table + t * d, 1.0f, 1.0f, d);
        memcpy(values + place * d, head->v + t * head->row, d * sizeof(float));
    }
}

// A row of scores [BLOCK] becomes exp(score − maximum), 0 where not seen; returns what the sums so far are to be scaled by.
INLINE float soften(float *scores, float *highest, float *sum, Seen seen)
{
    vfloat top = v_set(*highest), total = {0}, nothing = v_set(NOTHING_SEEN), zero = {0};
    for (size_t i = 0; i < BLOCK; i += VECTOR_FLOATS) {
        top = v_max(v_select(seen_lanes(seen, i), v_load(scores + i), nothing), top);
    }
    float maximum = top[0];
    for (size_t l = 1; l < VECTOR_FLOATS; l++) {
        maximum = top[l] > maximum ? top[l] : maximum;
    }
    float scale = v_exp(v_set(*highest - maximum))[0];
    for (size_t i = 0; i < BLOCK; i += VECTOR_FLOATS) {
        vfloat p = v_select(seen_lanes(seen, i), v_exp(v_load(scores + i) - v_set(maximum)), zero);
        v_store(scores + i, p);
        total += p;
    }
    *highest = maximum;
    *sum = __builtin_fmaf(*sum, scale, v_sum(total));
    return scale;
}

// out [rows, d] = Σ p v over what each row sees. Rows that share loads see the same keys but for a few at both ends, which are theirs alone.
INLINE void weigh_values(float *out, const float *p, const float *values, const Seen *seen, size_t rows, size_t d)
{
    memset(out, 0, rows * d * sizeof(float));
    for (size_t r0 = 0; r0 < rows; r0 += ROWS) {
        size_t count = rows - r0 < ROWS ? rows - r0 : ROWS, begin = 0, end = BLOCK;
        for (size_t r = r0; r < r0 + count; r++) {
            begin = seen[r].begin > begin ? seen[r].begin : begin;
            end = seen[r].end < end ? seen[r].end : end;
        }
        bool shared = begin < end;
        for (size_t r = r0; r < r0 + count; r++) {
            size_t stop = shared ? begin : seen[r].end;
            product(out + r * d, d, p + r * BLOCK + seen[r].begin, BLOCK, 1, values + seen[r].begin * d, d, 1, stop - seen[r].begin, d);
        }
        if (shared) {
            product(out + r0 * d, d, p + r0 * BLOCK + begin, BLOCK, 1, values + begin * d, d, count, end - begin, d);
            for (size_t r = r0; r < r0 + count; r++) {
                product(out + r * d, d, p + r * BLOCK + end, BLOCK, 1, values + end * d, d, 1, seen[r].end - end, d);
            }
        }
    }
}

// Where a head's outputs go: rows of o; and, in training, a copy [T, d] and the logarithms of the sums [T].
typedef struct HeadOutput {
    float *o, *copy, *logs;
    size_t row;
} HeadOutput;

// Queries at positions [begin, end), all of one block whose keys are written already.
INLINE void attend_block(const HeadOutput *out, float *scratch, const Head *head, size_t begin, size_t end, size_t d)
{
    size_t rows = end - begin, first = begin - head->position, last_block = begin / BLOCK;
    float *queries = scratch, *weighed = queries + BLOCK * d, *scores = weighed + BLOCK * d, highest[BLOCK], sum[BLOCK], scale[BLOCK];
    Seen seen[BLOCK];
    for (size_t r = 0; r < rows; r++) {
        size_t t = first + r;
        rotate(queries + r * d, 1, head->q + t * head->row, head->table + t * d, 1.0f / sqrtf((float)d), 1.0f, d);
        highest[r] = NOTHING_SEEN;
        sum[r] = 0.0f;
        memset(out->o + t * out->row, 0, d * sizeof(float));
    }
    for (size_t block = first_seen(head, begin) / BLOCK; block <= last_block; block++) {
        const float *keys = block_at(head, block, d), *values = keys + d * BLOCK;
        memset(scores, 0, rows * BLOCK * sizeof(float));
        product(scores, BLOCK, queries, d, 1, keys, BLOCK, rows, d, BLOCK);
        for (size_t r = 0; r < rows; r++) {
            seen[r] = seen_keys(head, begin + r, block);
            scale[r] = soften(scores + r * BLOCK, &highest[r], &sum[r], seen[r]);
        }
        weigh_values(weighed, scores, values, seen, rows, d);
        for (size_t r = 0; r < rows; r++) {
            float *o = out->o + (first + r) * out->row;
            add_scaled(o, weighed + r * d, scale[r], o, d);
        }
    }
    for (size_t r = 0; r < rows; r++) {
        float *o = out->o + (first + r) * out->row;
        scale_to(o, o, 1.0f / sum[r], d);
        if (out->copy != NULL) {
            memcpy(out->copy + (first + r) * d, o, d * sizeof(float));
            out->logs[first + r] = highest[r] + logf(sum[r]);
        }
    }
}

INLINE void attend(const HeadOutput *out, float *blocks, float *scratch, const Head *head, size_t d)
{
    size_t stop = head->position + head->length;
    for (size_t begin = head->position, end; begin < stop; begin = end) {
        end = (begin / BLOCK + 1) * BLOCK;
        end = end < stop ? end : stop;
        append(blocks, head, begin, end, d);
        attend_block(out, scratch, head, begin, end, d);
    }
}

static Head head_of(const MixerTensors *in, const MixerShape *shape, const float *table, size_t b, size_t h)
{
    size_t first = b * shape->length * in->qkv_stride + h * shape->d_head;
    return (Head){
        .q = in->q + first,
        .k = in->k + first,
        .v = in->v + first,
        .row = in->qkv_stride,
        .table = table,
        .position = shape->position,
        .length = shape->length,
        .window = in->window,
    };
}

// The document that begins at row `first` of a whole sequence at position 0, with the blocks that it shares.
static Head head_document(const Head *whole, size_t first, size_t length, size_t d)
{
    Head head = *whole;
    head.q += first * head.row;
    head.k += first * head.row;
    head.v += first * head.row;
    head.position = head.lowest = first % BLOCK;
    head.length = length;
    head.blocks += first / BLOCK * block_floats(d);
    head.n_blocks = blocks_of(head.position + length);
    return head;
}

static void attend_any(const HeadOutput *out, float *blocks, float *scratch, const Head *head, size_t d)
{
    if (d == 64) {
        attend(out, blocks, scratch, head, 64);
    } else {
        attend(out, blocks, scratch, head, d);
    }
}

static void forward(float *o, float *saved, float *scratch, float *states, size_t state_stride, const MixerTensors *in, const MixerShape *shape)
{
    size_t d = shape->d_head, width = shape->n_head * d, own_floats = scratch_head_floats(shape, false), length = shape->length;
    fill_table(scratch, shape);
#pragma omp parallel for schedule(dynamic) if (shape->batch * shape->length * width > 4096)
    for (size_t index = 0; index < shape->batch * shape->n_head; index++) {
        size_t b = index / shape->n_head, h = index % shape->n_head;
        Head head = head_of(in, shape, scratch, b, h);
        float *out = o + b * length * width + h * d, *own = scratch + table_floats(shape) + index * own_floats;
        if (states != NULL) {
            head.n_blocks = ring_blocks(in->window);
            float *blocks = states + b * state_stride + h * head.n_blocks * block_floats(d);
            head.blocks = blocks;
            attend_any(&(HeadOutput){.o = out, .row = width}, blocks, own, &head, d);
            continue;
        }
        float *blocks = saved + index * saved_head_floats(shape), *copy = blocks + blocks_of(length) * block_floats(d), *logs = copy + length * d;
        head.blocks = blocks;
        const uint8_t *starts = sequence_starts(shape->starts, b, length);
        for (size_t first = 0, end; first < length; first = end) {
            end = document_end(starts, first, length);
            Head document = head_document(&head, first, end - first, d);
            HeadOutput to = {.o = out + first * width, .row = width, .copy = copy + first * d, .logs = logs + first};
            attend_any(&to, blocks + first / BLOCK * block_floats(d), own, &document, d);
        }
    }
}

// One head's memory during the backward; sizes as in scratch_head_floats.
typedef struct BackwardMemory {
    float *queries, *dqueries, *sums;     // [T, d] turned and divided by √d, their gradients, and do·o [T]
    float *weights, *dscores;             // [BLOCK, BLOCK]
    float *keys, *values, *dkeys, *dvalues;   // k [BLOCK, d], vᵀ [d, BLOCK], gradients [BLOCK, d]
} BackwardMemory;

static BackwardMemory memory_of(float *own, size_t length, size_t d)
{
    BackwardMemory memory = {.queries = own, .dqueries = own + length * d, .sums = own + 2 * length * d};
    memory.weights = memory.sums + length;
    memory.dscores = memory.weights + BLOCK * BLOCK;
    memory.keys = memory.dscores + BLOCK * BLOCK;
    memory.values = memory.keys + BLOCK * d;
    memory.dkeys = memory.values + BLOCK * d;
    memory.dvalues = memory.dkeys + BLOCK * d;
    return memory;
}

static void transpose(float *out, const float *x, size_t rows, size_t cols)
{
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            out[j * rows + i] = x[i * cols + j];
        }
    }
}

// A row of scores [BLOCK] becomes the weights exp(score − log), and dscores, which holds do·v, becomes weight (do·v − sum).
INLINE void weight_row(float *scores, float *dscores, float log, float sum, Seen seen)
{
    vfloat zero = {0};
    for (size_t i = 0; i < BLOCK; i += VECTOR_FLOATS) {
        vint lanes = seen_lanes(seen, i);
        vfloat p = v_select(lanes, v_exp(v_load(scores + i) - v_set(log)), zero);
        v_store(scores + i, p);
        v_store(dscores + i, v_select(lanes, p * (v_load(dscores + i) - v_set(sum)), zero));
    }
}

// Places of a block that hold keys and values of the head: [begin, end).
static Seen own_places(const Head *head, size_t block)
{
    size_t origin = block * BLOCK, stop = head->position + head->length;
    return (Seen){head->position > origin ? head->position - origin : 0, stop - origin < BLOCK ? stop - origin : BLOCK};
}

// Queries of positions [begin, end), within one block, against a block of keys.
INLINE void backward_tile(BackwardMemory *memory, const Head *head, const float *do_, size_t do_row, const float *logs, size_t begin, size_t end, size_t block,
                          size_t d)
{
    size_t rows = end - begin, first = begin - head->position;
    const float *queries = memory->queries + first * d, *d_out = do_ + first * do_row;
    memset(memory->weights, 0, rows * BLOCK * sizeof(float));
    memset(memory->dscores, 0, rows * BLOCK * sizeof(float));
    product(memory->weights, BLOCK, queries, d, 1, block_at(head, block, d), BLOCK, rows, d, BLOCK);
    product(memory->dscores, BLOCK, d_out, do_row, 1, memory->values, BLOCK, rows, d, BLOCK);
    for (size_t r = 0; r < rows; r++) {
        weight_row(memory->weights + r * BLOCK, memory->dscores + r * BLOCK, logs[first + r], memory->sums[first + r], seen_keys(head, begin + r, block));
    }
    Seen own = own_places(head, block);
    size_t count = own.end - own.begin;
    product(memory->dvalues + own.begin * d, d, memory->weights + own.begin, 1, BLOCK, d_out, do_row, count, rows, d);
    product(memory->dkeys + own.begin * d, d, memory->dscores + own.begin, 1, BLOCK, queries, d, count, rows, d);
    product(memory->dqueries + first * d, d, memory->dscores + own.begin, BLOCK, 1, memory->keys + own.begin * d, d, rows, count, d);
}

// First token's rows of one head's gradients.
typedef struct HeadGradients {
    float *q, *k, *v;
} HeadGradients;

// The keys and values of one block, against all queries that see them.
INLINE void backward_block(const HeadGradients *grad, BackwardMemory *memory, const Head *head, const float *do_, size_t do_row, const float *logs,
                           size_t block, size_t d)
{
    size_t origin = block * BLOCK, stop = head->position + head->length;
    const float *keys = block_at(head, block, d);
    transpose(memory->keys, keys, d, BLOCK);
    transpose(memory->values, keys + d * BLOCK, BLOCK, d);
    memset(memory->dkeys, 0, 2 * BLOCK * d * sizeof(float));
    if (head->window > 0 && origin + BLOCK + head->window - 1 < stop) {
        stop = origin + BLOCK + head->window - 1;
    }
    for (size_t begin = origin > head->position ? origin : head->position, end; begin < stop; begin = end) {
        end = (begin / BLOCK + 1) * BLOCK;
        end = end < stop ? end : stop;
        backward_tile(memory, head, do_, do_row, logs, begin, end, block, d);
    }
    Seen own = own_places(head, block);
    for (size_t place = own.begin; place < own.end; place++) {
        size_t t = origin + place - head->position;
        rotate(grad->k + t * head->row, 1, memory->dkeys + place * d, head->table + t * d, 1.0f, -1.0f, d);
        memcpy(grad->v + t * head->row, memory->dvalues + place * d, d * sizeof(float));
    }
}

INLINE void backward_head(const HeadGradients *grad, BackwardMemory *memory, const Head *head, const float *do_, size_t do_row, const float *outputs,
                          const float *logs, size_t d)
{
    float scale = 1.0f / sqrtf((float)d);
    for (size_t t = 0; t < head->length; t++) {
        rotate(memory->queries + t * d, 1, head->q + t * head->row, head->table + t * d, scale, 1.0f, d);
        memory->sums[t] = dot(do_ + t * do_row, outputs + t * d, d);
    }
    memset(memory->dqueries, 0, head->length * d * sizeof(float));
    for (size_t block = 0; block < head->n_blocks; block++) {
        backward_block(grad, memory, head, do_, do_row, logs, block, d);
    }
    for (size_t t = 0; t < head->length; t++) {
        rotate(grad->q + t * head->row, 1, memory->dqueries + t * d, head->table + t * d, scale, -1.0f, d);
    }
}

// A backward starts at position 0, as does the forward that it belongs to. There is no end state: dstates is not looked at.
static void backward(const MixerGradients *grad, const float *do_, const float *dstates, size_t state_stride, const float *saved, float *scratch,
                     const MixerTensors *in, const MixerShape *shape)
{
    (void)dstates, (void)state_stride;
    size_t d = shape->d_head, length = shape->length, width = shape->n_head * d, own_floats = scratch_head_floats(shape, true);
    fill_table(scratch, shape);
#pragma omp parallel for schedule(dynamic)
    for (size_t index = 0; index < shape->batch * shape->n_head; index++) {
        size_t b = index / shape->n_head, h = index % shape->n_head, row = b * length * in->qkv_stride + h * d;
        Head head = head_of(in, shape, scratch, b, h);
        head.blocks = saved + index * saved_head_floats(shape);
        const float *outputs = head.blocks + blocks_of(length) * block_floats(d), *logs = outputs + length * d, *d_out = do_ + b * length * width + h * d;
        const uint8_t *starts = sequence_starts(shape->starts, b, length);
        BackwardMemory memory = memory_of(scratch + table_floats(shape) + index * own_floats, length, d);
        for (size_t first = 0, end; first < length; first = end) {
            end = document_end(starts, first, length);
            Head document = head_document(&head, first, end - first, d);
            size_t at = row + first * head.row;
            HeadGradients to = {grad->q + at, grad->k + at, grad->v + at};
            if (d == 64) {
                backward_head(&to, &memory, &document, d_out + first * width, width, outputs + first * d, logs + first, 64);
            } else {
                backward_head(&to, &memory, &document, d_out + first * width, width, outputs + first * d, logs + first, d);
            }
        }
    }
}

extern const Mixer ISA_NAME(attention_mixer);

const Mixer ISA_NAME(attention_mixer) = {
    .name = "attention",
    .saved_floats = saved_floats,
    .scratch_floats = scratch_floats,
    .state_init = state_init,
    .forward = forward,
    .backward = backward,
    .needs = {.square = true, .bare = true},
    .window_state_floats = window_state_floats,
};
