// The short convolution: causal, depthwise, with bias, then SiLU, then each head's norm (l2 for q and k, rms for v).
//
// Weights come as [channels, width]; the last tap meets the current token. Rows are independent given the projections: threads share out groups of rows,
// and inside a group one head after the other, so that a head's taps are laid out for the vectors once a group.
#include "model/kernels/documents.h"
#include "model/kernels/functions.h"

#define MAX_WIDTH 16        // config_validate bounds conv_width,
#define MAX_HEAD 1024       // d_head and n_slot by these
#define ROWS_AHEAD 8        // that the sums over rows ask for

// Inlined where head size and width are constants (HEAD_CASES), so that the usual shape has no borders and no loops over taps.
#define INLINE static inline __attribute__((always_inline))

// The columns of one head. Heads count q first, then k, then v.
typedef struct HeadColumns {
    size_t begin, size;
    float mean;             // factor of the sum of squares in the norm: 1 for l2, 1/d for rms
} HeadColumns;

static inline HeadColumns head_columns(size_t head, const ConvShape *s)
{
    if (head < 2 * s->n_head) {
        return (HeadColumns){head * s->n_slot, s->n_slot, 1.0f};
    }
    return (HeadColumns){2 * s->n_head * s->n_slot + (head - 2 * s->n_head) * s->d_head, s->d_head, 1.0f / (float)s->d_head};
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

INLINE void forward_head(float *out, const float *const source[MAX_WIDTH], const float *taps, const float *bias, HeadColumns head, size_t width, const ConvShape *s)
{
    vfloat squares = {0};
    for (size_t j = 0; j < head.size; j += VECTOR_FLOATS) {
        vfloat x = convolve(source, taps, bias, head, j, width);
        vfloat y = x * v_sigmoid(x);
        squares += y * y;
        v_store_n(out + j, y, head.size - j);
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
    float pre[MAX_HEAD];
    vfloat squares = {0}, dots = {0};
    for (size_t j = 0; j < head.size; j += VECTOR_FLOATS) {
        vfloat x = convolve(source, taps, bias, head, j, width);
        vfloat y = x * v_sigmoid(x);
        squares += y * y;
        dots += y * v_load_n(dout + j, head.size - j);
        v_store_n(pre + j, x, head.size - j);
    }
    float r = 1.0f / __builtin_sqrtf(v_sum(squares) * head.mean + s->eps);
    vfloat scale = v_set(r), along = v_set(v_sum(dots) * head.mean * r * r), one = v_set(1.0f);
    for (size_t j = 0; j < head.size; j += VECTOR_FLOATS) {
        vfloat x = v_load_n(pre + j, head.size - j), sigmoid = v_sigmoid(x), y = x * sigmoid;
        vfloat dy = (v_load_n(dout + j, head.size - j) - y * along) * scale;
        v_store_n(dpre + j, dy * (sigmoid + y * (one - sigmoid)), head.size - j);
    }
}

// dproj[t] = Σ_i taps[i] ⊙ dpre[t + width − 1 − i] within the document.
INLINE void input_backward(float *dproj, const float *dpre, const float *taps, HeadColumns head, const uint8_t *starts, size_t t, size_t width,
                           const ConvShape *s)
{
    size_t channels = channel_count(s), after = rows_after(starts, t, width - 1, s->length);
    for (size_t j = 0; j < head.size; j += VECTOR_FLOATS) {
        size_t rest = head.size - j;
        vfloat sum = {0};
        for (size_t i = 0; i < width; i++) {
            size_t later = width - 1 - i;
            if (later <= after) {
                sum += v_load_n(taps + i * head.size + j, rest) * v_load_n(dpre + (t + later) * channels + head.begin + j, rest);
            }
        }
        v_store_n(dproj + t * s->proj_stride + head.begin + j, sum, rest);
    }
}

// dweight and dbias of a vector of channels, over all rows in order. The last rows stand in registers: every row is read once.
INLINE void weight_backward(float *dweight, float *dbias, const float *dpre, const float *proj, size_t c, size_t rest, size_t width, const ConvShape *s)
{
    size_t channels = channel_count(s);
    vfloat taps[MAX_WIDTH], row[MAX_WIDTH], bias = {0};
    for (size_t i = 0; i < width; i++) {
        taps[i] = (vfloat){0};
    }
    size_t rows = s->batch * s->length;
    for (size_t first = 0, end; first < rows; first = end) {
        size_t begin = first / s->length * s->length;
        end = begin + document_end(sequence_starts(s->starts, first / s->length, s->length), first - begin, s->length);
        for (size_t i = 0; i < width; i++) {
            row[i] = (vfloat){0};
        }
        for (size_t t = first; t < end; t++) {
            vfloat d = v_load_n(dpre + t * channels + c, rest);
            // Rows lie too far apart for the processor to guess the next.
            size_t ahead = t + ROWS_AHEAD < rows ? t + ROWS_AHEAD : t;
            __builtin_prefetch(dpre + ahead * channels + c);
            __builtin_prefetch(proj + ahead * s->proj_stride + c);
            bias += d;
            for (size_t i = 0; i + 1 < width; i++) {
                row[i] = row[i + 1];
            }
            row[width - 1] = v_load_n(proj + t * s->proj_stride + c, rest);
            for (size_t i = 0; i < width; i++) {
                taps[i] += d * row[i];
            }
        }
    }
    for (size_t l = 0; l < VECTOR_FLOATS && l < rest; l++) {
        for (size_t i = 0; i < width; i++) {
            dweight[(c + l) * width + i] += taps[i][l];
        }
        dbias[c + l] += bias[l];
    }
}

INLINE void activation_task(float *dpre, const float *dqkv, const float *proj, const float *weight, const float *bias, HeadTask task, size_t width,
                            const ConvShape *s)
{
    float taps[MAX_WIDTH * MAX_HEAD];
    head_taps(taps, weight, task.head, width);
    for (size_t t = task.t0; t < task.end; t++) {
        const float *source[MAX_WIDTH];
        tap_rows(source, proj + task.first_row * s->proj_stride, NULL, task.starts, t, width, s);
        size_t at = (task.first_row + t) * channel_count(s) + task.head.begin;
        activation_backward(dpre + at, dqkv + at, source, taps, bias, task.head, width, s);
    }
}

INLINE void input_task(float *dproj, const float *dpre, const float *weight, HeadTask task, size_t width, const ConvShape *s)
{
    float taps[MAX_WIDTH * MAX_HEAD];
    head_taps(taps, weight, task.head, width);
    for (size_t t = task.t0; t < task.end; t++) {
        input_backward(dproj + task.first_row * s->proj_stride, dpre + task.first_row * channel_count(s), taps, task.head, task.starts, t, width, s);
    }
}

void ISA_NAME(conv_backward)(float *dproj, float *dweight, float *dbias, float *dpre, const float *dqkv, const float *proj, const float *weight,
                             const float *bias, const ConvShape *s)
{
    size_t channels = channel_count(s), tasks = task_count(s);
#pragma omp parallel if (s->batch * s->length * channels > PARALLEL_WORK)
    {
#pragma omp for schedule(static)
        for (size_t i = 0; i < tasks; i++) {
            HeadTask task = head_task(i, NULL, 0, s);
            HEAD_CASES(task, s, activation_task, dpre, dqkv, proj, weight, bias);
        }
#pragma omp for schedule(static) nowait
        for (size_t i = 0; i < tasks; i++) {
            HeadTask task = head_task(i, NULL, 0, s);
            HEAD_CASES(task, s, input_task, dproj, dpre, weight);
        }
#pragma omp for schedule(static)
        for (size_t c = 0; c < channels; c += VECTOR_FLOATS) {
            if (s->width == 4) {
                weight_backward(dweight, dbias, dpre, proj, c, channels - c, 4, s);
            } else {
                weight_backward(dweight, dbias, dpre, proj, c, channels - c, s->width, s);
            }
        }
    }
}
