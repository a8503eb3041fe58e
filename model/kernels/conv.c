// The short convolution: causal, depthwise, with bias, then SiLU, then each head's norm (l2 for q and k, rms for v); or for q and k a softmax over the head.
//
// Weights come as [channels, width]; the last tap meets the current token. Forward, rows are independent given the projections: threads share out groups of
// rows, and inside a group one head after the other, so that a head's taps are laid out for the vectors once a group. Backward, they share out the heads of
// each sequence; a head goes through its rows once, and what the weights get is summed by sequence, then over sequences in order.
#include "model/kernels/documents.h"
#include "model/kernels/functions.h"

#define MAX_WIDTH 16        // config_validate bounds conv_width,
#define MAX_HEAD 1024       // d_head and n_slot by these
#define ROWS_AHEAD 8        // that are asked for
#define BLOCK_ROWS 16       // of the backward
_Static_assert(BLOCK_ROWS >= MAX_WIDTH - 1, "a block holds the rows that the next one still needs");

// Inlined where head size and width are constants (HEAD_CASES), so that the usual shape has no borders and no loops over taps.
#define INLINE static inline __attribute__((always_inline))

// The columns of one head. Heads count q first, then k, then v.
typedef struct HeadColumns {
    size_t begin, size;
    float mean;             // factor of the sum of squares in the norm: 1 for l2, 1/d for rms
    bool plain;             // no norm
    bool softmax;           // instead of SiLU and norm
} HeadColumns;

static inline HeadColumns head_columns(size_t head, const ConvShape *s)
{
    if (head < 2 * s->n_head) {
        return (HeadColumns){head * s->n_slot, s->n_slot, 1.0f, s->plain_codes, s->softmax_codes};
    }
    return (HeadColumns){2 * s->n_head * s->n_slot + (head - 2 * s->n_head) * s->d_head, s->d_head, s->unit_values ? 1.0f : 1.0f / (float)s->d_head,
                         s->plain_values, false};
}

static inline size_t channel_count(const ConvShape *s) { return s->n_head * (2 * s->n_slot + s->d_head); }

// A head's weights, [width][size] instead of [size][width].
INLINE void head_taps(float taps[MAX_WIDTH * MAX_HEAD], const float *weight, HeadColumns head, size_t width)
{
    for (size_t c = 0; c < head.size; c++) {
        for (size_t i = 0; i < width; i++) {
            taps[i * head.size + c] = weight[(head.begin + c) * width + i];
        }
    }
}

// Rows of the same document before row t of a sequence, and after it; at most `most`.
INLINE size_t rows_before(const uint8_t *starts, size_t t, size_t most)
{
    size_t n = t < most ? t : most;
    for (size_t i = 0; starts != NULL && i < n; i++) {
        n = starts[t - i] != 0 ? i : n;
    }
    return n;
}

INLINE size_t rows_after(const uint8_t *starts, size_t t, size_t most, size_t length)
{
    size_t n = length - 1 - t < most ? length - 1 - t : most;
    for (size_t i = 0; starts != NULL && i < n; i++) {
        n = starts[t + i + 1] != 0 ? i : n;
    }
    return n;
}

// source[i] is the row that tap i meets for token t of a sequence: a row of its projections, of the carried tail, or NULL for zeros.
INLINE void tap_rows(const float *source[MAX_WIDTH], const float *proj, const float *tail, const uint8_t *starts, size_t t, size_t width, const ConvShape *s)
{
    size_t before = rows_before(starts, t, width - 1);
    for (size_t i = 0; i < width; i++) {
        size_t back = width - 1 - i;
        if (back <= before) {
            source[i] = proj + (t - back) * s->proj_stride;
        } else {
            source[i] = tail == NULL ? NULL : tail + (width - 1 - (back - t)) * channel_count(s);
        }
    }
}

// Convolution before the activation: columns j … of the head, zeros behind its end.
INLINE vfloat convolve(const float *const source[MAX_WIDTH], const float *taps, const float *bias, HeadColumns head, size_t j, size_t width)
{
    size_t rest = head.size - j;
    vfloat sum = v_load_n(bias + head.begin + j, rest);
    for (size_t i = 0; i < width; i++) {
        if (source[i] != NULL) {
            sum += v_load_n(taps + i * head.size + j, rest) * v_load_n(source[i] + head.begin + j, rest);
        }
    }
    return sum;
}

// A function of its own: inlined, it would stand in the way of the usual codes.
static void softmax_head(float *out, const float *const source[MAX_WIDTH], const float *taps, const float *bias, HeadColumns head, size_t width)
{
    for (size_t j = 0; j < head.size; j += VECTOR_FLOATS) {
        v_store_n(out + j, convolve(source, taps, bias, head, j, width), head.size - j);
    }
    float most = out[0];
    for (size_t j = 1; j < head.size; j++) {
        most = out[j] > most ? out[j] : most;
    }
    vfloat sums = {0};
    for (size_t j = 0; j < head.size; j += VECTOR_FLOATS) {
        v_store_n(out + j, v_exp(v_load_n(out + j, head.size - j) - v_set(most)), head.size - j);
        sums += v_load_n(out + j, head.size - j);
    }
    vfloat scale = v_set(1.0f / v_sum(sums));
    for (size_t j = 0; j < head.size; j += VECTOR_FLOATS) {
        v_store_n(out + j, v_load_n(out + j, head.size - j) * scale, head.size - j);
    }
}

// With p the softmax: dpre = p (dout − Σ p dout).
static void softmax_backward(float *dpre, const float *dout, const float *const source[MAX_WIDTH], const float *taps, const float *bias, HeadColumns head,
                             size_t width)
{
    softmax_head(dpre, source, taps, bias, head, width);
    vfloat dots = {0};
    for (size_t j = 0; j < head.size; j += VECTOR_FLOATS) {
        dots += v_load_n(dpre + j, head.size - j) * v_load_n(dout + j, head.size - j);
    }
    vfloat along = v_set(v_sum(dots));
    for (size_t j = 0; j < head.size; j += VECTOR_FLOATS) {
        v_store_n(dpre + j, v_load_n(dpre + j, head.size - j) * (v_load_n(dout + j, head.size - j) - along), head.size - j);
    }
}

INLINE void forward_head(float *out, const float *const source[MAX_WIDTH], const float *taps, const float *bias, HeadColumns head, size_t width, const ConvShape *s)
{
    if (head.softmax) {
        softmax_head(out, source, taps, bias, head, width);
        return;
    }
    vfloat squares = {0};
    for (size_t j = 0; j < head.size; j += VECTOR_FLOATS) {
        vfloat x = convolve(source, taps, bias, head, j, width);
        vfloat y = x * v_sigmoid(x);
        squares += y * y;
        v_store_n(out + j, y, head.size - j);
    }
    if (head.plain) {
        return;
    }
    vfloat scale = v_set(1.0f / __builtin_sqrtf(v_sum(squares) * head.mean + s->eps));
    for (size_t j = 0; j < head.size; j += VECTOR_FLOATS) {
        v_store_n(out + j, v_load_n(out + j, head.size - j) * scale, head.size - j);
    }
}

// The last width − 1 rows of (old tail, projections) become the tail.
static void advance_tail(float *tail, const float *proj, const ConvShape *s)
{
    size_t channels = channel_count(s), rows = s->width - 1;
    size_t fresh = s->length < rows ? s->length : rows;
    memmove(tail, tail + fresh * channels, (rows - fresh) * channels * sizeof(float));
    for (size_t i = 0; i < fresh; i++) {
        memcpy(tail + (rows - fresh + i) * channels, proj + (s->length - fresh + i) * s->proj_stride, channels * sizeof(float));
    }
}

// Rows t0 … end − 1 of one head of one sequence.
typedef struct HeadTask {
    size_t first_row, t0, end;   // the sequence's first row among all; the rows of this task within the sequence
    const float *tail;           // the sequence's carried tail, or NULL
    const uint8_t *starts;       // of the sequence's documents, or NULL
    HeadColumns head;
} HeadTask;

static HeadTask head_task(size_t task, const float *tails, size_t tail_stride, const ConvShape *s)
{
    size_t groups = (s->length + REDUCE_ROWS - 1) / REDUCE_ROWS, heads = 3 * s->n_head, b = task / (groups * heads), t0 = task / heads % groups * REDUCE_ROWS;
    size_t end = t0 + REDUCE_ROWS < s->length ? t0 + REDUCE_ROWS : s->length;
    return (HeadTask){b * s->length, t0, end, tails == NULL ? NULL : tails + b * tail_stride, sequence_starts(s->starts, b, s->length),
                      head_columns(task % heads, s)};
}

// Rows lie too far apart for the processor to guess the next.
INLINE void prefetch_head(const float *row, HeadColumns head)
{
    for (size_t j = 0; j < head.size; j += 16) {
        __builtin_prefetch(row + head.begin + j);
    }
}

// All rows of one head of one sequence.
static HeadTask sequence_task(size_t task, const ConvShape *s)
{
    size_t heads = 3 * s->n_head, b = task / heads;
    return (HeadTask){b * s->length, 0, s->length, NULL, sequence_starts(s->starts, b, s->length), head_columns(task % heads, s)};
}

static size_t task_count(const ConvShape *s) { return s->batch * ((s->length + REDUCE_ROWS - 1) / REDUCE_ROWS) * 3 * s->n_head; }

// Calls function(…, size, width) with constants for the shape that the presets have.
#define HEAD_CASES(task, s, function, ...)                       \
    do {                                                         \
        if ((task).head.size == 64 && (s)->width == 4) {         \
            (task).head.size = 64;                               \
            function(__VA_ARGS__, task, 4, s);                   \
        } else {                                                 \
            function(__VA_ARGS__, task, (s)->width, s);          \
        }                                                        \
    } while (0)

INLINE void forward_task(float *qkv, const float *proj, const float *weight, const float *bias, HeadTask task, size_t width, const ConvShape *s)
{
    float taps[MAX_WIDTH * MAX_HEAD];
    head_taps(taps, weight, task.head, width);
    for (size_t t = task.t0; t < task.end; t++) {
        const float *source[MAX_WIDTH];
        size_t ahead = task.first_row + (t + ROWS_AHEAD < task.end ? t + ROWS_AHEAD : t);
        prefetch_head(proj + ahead * s->proj_stride, task.head);
        prefetch_head(qkv + ahead * channel_count(s), task.head);
        tap_rows(source, proj + task.first_row * s->proj_stride, task.tail, task.starts, t, width, s);
        forward_head(qkv + (task.first_row + t) * channel_count(s) + task.head.begin, source, taps, bias, task.head, width, s);
    }
}

void ISA_NAME(conv_forward)(float *qkv, float *tails, size_t tail_stride, const float *proj, const float *weight, const float *bias, const ConvShape *s)
{
    size_t tasks = task_count(s);
#pragma omp parallel for schedule(static) if (s->batch * s->length * channel_count(s) > PARALLEL_WORK)
    for (size_t i = 0; i < tasks; i++) {
        HeadTask task = head_task(i, tails, tail_stride, s);
        HEAD_CASES(task, s, forward_task, qkv, proj, weight, bias);
    }
    for (size_t b = 0; tails != NULL && b < s->batch; b++) {
        advance_tail(tails + b * tail_stride, proj + b * s->length * s->proj_stride, s);
    }
}

// Gradient before the activation, from that of the normalised output: dpre [size of head].
INLINE void activation_backward(float *dpre, const float *dout, const float *const source[MAX_WIDTH], const float *taps, const float *bias,
                                HeadColumns head, size_t width, const ConvShape *s)
{
    if (head.softmax) {
        softmax_backward(dpre, dout, source, taps, bias, head, width);
        return;
    }
    float act[MAX_HEAD], slope[MAX_HEAD];
    vfloat squares = {0}, dots = {0}, one = v_set(1.0f);
    for (size_t j = 0; j < head.size; j += VECTOR_FLOATS) {
        vfloat x = convolve(source, taps, bias, head, j, width);
        vfloat sigmoid = v_sigmoid(x), y = x * sigmoid;
        squares += y * y;
        dots += y * v_load_n(dout + j, head.size - j);
        v_store_n(act + j, y, head.size - j);
        v_store_n(slope + j, sigmoid + y * (one - sigmoid), head.size - j);
    }
    float r = head.plain ? 1.0f : 1.0f / __builtin_sqrtf(v_sum(squares) * head.mean + s->eps);
    vfloat scale = v_set(r), along = v_set(head.plain ? 0.0f : v_sum(dots) * head.mean * r * r);
    for (size_t j = 0; j < head.size; j += VECTOR_FLOATS) {
        vfloat dy = (v_load_n(dout + j, head.size - j) - v_load_n(act + j, head.size - j) * along) * scale;
        v_store_n(dpre + j, dy * v_load_n(slope + j, head.size - j), head.size - j);
    }
}

// The rows of one sequence that the backward has in hand, for one head. It goes forward by blocks of rows; what a row's projections get is known as soon as
// the gradients of the next width − 1 rows are.
typedef struct BackwardBlock {
    size_t first, end;                                                // rows of the sequence
    const float *source[BLOCK_ROWS][MAX_WIDTH];                       // tap_rows of each
    float dpre[(BLOCK_ROWS + MAX_WIDTH - 1) * MAX_HEAD];              // gradients before the activation, of rows first − (width − 1) … end − 1
} BackwardBlock;

INLINE float *dpre_row(BackwardBlock *block, size_t t, HeadColumns head, size_t width) { return block->dpre + (t + width - 1 - block->first) * head.size; }

// dproj[t] = Σ_i taps[i] ⊙ dpre[t + width − 1 − i] within the document.
INLINE void input_backward(float *dproj, BackwardBlock *block, const float *taps, HeadTask task, size_t t, size_t width, const ConvShape *s)
{
    HeadColumns head = task.head;
    size_t after = rows_after(task.starts, t, width - 1, s->length);
    const float *dpre = dpre_row(block, t, head, width);
    for (size_t j = 0; j < head.size; j += VECTOR_FLOATS) {
        size_t rest = head.size - j;
        vfloat sum = {0};
        for (size_t i = 0; i < width; i++) {
            size_t later = width - 1 - i;
            if (later <= after) {
                sum += v_load_n(taps + i * head.size + j, rest) * v_load_n(dpre + later * head.size + j, rest);
            }
        }
        v_store_n(dproj + (task.first_row + t) * s->proj_stride + head.begin + j, sum, rest);
    }
}

// sums [width + 1, channels] += the gradients of each tap's weights and of the bias, from the block's rows in order.
INLINE void weight_backward(float *sums, BackwardBlock *block, HeadColumns head, size_t width, size_t channels)
{
    for (size_t j = 0; j < head.size; j += VECTOR_FLOATS) {
        size_t rest = head.size - j;
        vfloat taps[MAX_WIDTH], bias = v_load_n(sums + width * channels + j, rest);
        for (size_t i = 0; i < width; i++) {
            taps[i] = v_load_n(sums + i * channels + j, rest);
        }
        for (size_t t = block->first; t < block->end; t++) {
            vfloat d = v_load_n(dpre_row(block, t, head, width) + j, rest);
            bias += d;
            for (size_t i = 0; i < width; i++) {
                const float *source = block->source[t - block->first][i];
                if (source != NULL) {
                    taps[i] += d * v_load_n(source + head.begin + j, rest);
                }
            }
        }
        for (size_t i = 0; i < width; i++) {
            v_store_n(sums + i * channels + j, taps[i], rest);
        }
        v_store_n(sums + width * channels + j, bias, rest);
    }
}

// One head of one sequence: its columns of dproj, and of sums [width + 1, channels].
INLINE void backward_task(float *dproj, float *sums, const float *dqkv, const float *proj, const float *weight, const float *bias, HeadTask task, size_t width,
                          const ConvShape *s)
{
    size_t channels = channel_count(s), size = task.head.size;
    float taps[MAX_WIDTH * MAX_HEAD];
    BackwardBlock block;
    head_taps(taps, weight, task.head, width);
    for (size_t i = 0; i <= width; i++) {
        memset(sums + i * channels + task.head.begin, 0, size * sizeof(float));
    }
    for (block.first = 0; block.first < s->length; block.first = block.end) {
        block.end = block.first + BLOCK_ROWS < s->length ? block.first + BLOCK_ROWS : s->length;
        for (size_t t = block.first; t < block.end; t++) {
            size_t ahead = task.first_row + (t + ROWS_AHEAD < s->length ? t + ROWS_AHEAD : t);
            prefetch_head(proj + ahead * s->proj_stride, task.head);
            prefetch_head(dqkv + ahead * channels, task.head);
            const float **source = block.source[t - block.first];
            tap_rows(source, proj + task.first_row * s->proj_stride, NULL, task.starts, t, width, s);
            activation_backward(dpre_row(&block, t, task.head, width), dqkv + (task.first_row + t) * channels + task.head.begin, source, taps, bias, task.head,
                                width, s);
        }
        weight_backward(sums + task.head.begin, &block, task.head, width, channels);
        size_t known = block.end < s->length ? block.end - (width - 1) : block.end;
        for (size_t t = block.first < width - 1 ? 0 : block.first - (width - 1); t < known; t++) {
            input_backward(dproj, &block, taps, task, t, width, s);
        }
        memmove(block.dpre, dpre_row(&block, block.end, task.head, width) - (width - 1) * size, (width - 1) * size * sizeof(float));
    }
}

void ISA_NAME(conv_backward)(float *dproj, float *dweight, float *dbias, float *sums, const float *dqkv, const float *proj, const float *weight,
                             const float *bias, const ConvShape *s)
{
    size_t channels = channel_count(s), heads = 3 * s->n_head;
#pragma omp parallel if (s->batch * s->length * channels > PARALLEL_WORK)
    {
#pragma omp for schedule(static)
        for (size_t i = 0; i < s->batch * heads; i++) {
            HeadTask task = sequence_task(i, s);
            HEAD_CASES(task, s, backward_task, dproj, sums + i / heads * (s->width + 1) * channels, dqkv, proj, weight, bias);
        }
#pragma omp for schedule(static)
        for (size_t c = 0; c < channels; c++) {
            for (size_t b = 0; b < s->batch; b++) {
                const float *sum = sums + b * (s->width + 1) * channels + c;
                for (size_t i = 0; i < s->width; i++) {
                    dweight[c * s->width + i] += sum[i * channels];
                }
                dbias[c] += sum[s->width * channels];
            }
        }
    }
}
