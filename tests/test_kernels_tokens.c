// Kernels that know of tokens: the short convolution, whole and in pieces, the embedding and the loss.
#include "model/mixers/start_read.h"
#include "tests/layer.h"

// ---- Convolution ----

static size_t conv_channels(const ConvShape *s) { return s->n_head * (2 * s->n_slot + s->d_head); }

// Part 0, 1, 2 = q, k, v: its first channel and its shape in the reference.
static size_t conv_part(ReferenceConvShape *part, const ConvShape *s, size_t which)
{
    *part = (ReferenceConvShape){.batch = s->batch, .length = s->length, .n_head = s->n_head, .head_size = which < 2 ? s->n_slot : s->d_head,
                                 .width = s->width, .norm = which == 2 ? REFERENCE_RMS : s->softmax_codes ? REFERENCE_SOFTMAX : REFERENCE_L2, .eps = s->eps};
    return which * s->n_head * s->n_slot;
}

// Inputs proj (strided), weight, bias.
static void conv_forward_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l)
{
    kernels->conv_forward(out[0], NULL, 0, in[0], in[1], in[2], &l->conv);
}

static void conv_forward_reference(double *const *out, const double *const *in, const Layer *l)
{
    const ConvShape *s = &l->conv;
    size_t rows = s->batch * s->length, channels = conv_channels(s);
    for (size_t which = 0; which < 3; which++) {
        Pool pool = {0};
        ReferenceConvShape part;
        size_t first = conv_part(&part, s, which), n = part.n_head * part.head_size;
        double *x = take_columns(&pool, in[0] + first, s->proj_stride, rows, n), *y = pool_doubles(&pool, rows * n);
        reference_conv_forward(y, x, in[1] + first * s->width, in[2] + first, &part);
        put_columns(out[0] + first, channels, y, rows, n);
        pool_free(&pool);
    }
}

// Inputs dqkv, proj (strided), weight, bias; outputs dproj (strided), dweight, dbias.
static void conv_backward_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l)
{
    Pool pool = {0};
    size_t n_sums = l->conv.batch * (l->conv.width + 1) * conv_channels(&l->conv);
    float *sums = pool_floats(&pool, n_sums);
    fill_floats(sums, n_sums, NAN);
    kernels->conv_backward(out[0], out[1], out[2], sums, in[0], in[1], in[2], in[3], &l->conv);
    pool_free(&pool);
}

static void conv_backward_reference(double *const *out, const double *const *in, const Layer *l)
{
    const ConvShape *s = &l->conv;
    size_t rows = s->batch * s->length, channels = conv_channels(s);
    for (size_t which = 0; which < 3; which++) {
        Pool pool = {0};
        ReferenceConvShape part;
        size_t first = conv_part(&part, s, which), n = part.n_head * part.head_size;
        double *dy = take_columns(&pool, in[0] + first, channels, rows, n), *x = take_columns(&pool, in[1] + first, s->proj_stride, rows, n);
        double *dx = pool_doubles(&pool, rows * n);
        reference_conv_backward(dx, out[1] + first * s->width, out[2] + first, dy, x, in[2] + first * s->width, in[3] + first, &part);
        put_columns(out[0] + first, s->proj_stride, dx, rows, n);
        pool_free(&pool);
    }
}

// batch, length, heads, m, d, taps; one slot makes unit vectors of single numbers, whose gradients vanish but for eps, so eps is large.
static const size_t conv_sizes[][6] = {{1, 1, 1, 1, 1, 4},  {2, 7, 3, 5, 9, 4},   {3, 65, 2, 16, 33, 4}, {1, 200, 1, 63, 65, 4},
                                       {2, 3, 2, 6, 4, 6},  {1, 67, 5, 48, 17, 2}, {2, 9, 1, 20, 8, 1},  {1, 300, 2, 64, 64, 4}};
enum { N_CONV_SIZES = sizeof conv_sizes / sizeof conv_sizes[0] };

// Below N_CONV_SHAPES: each size, then each with a softmax.
enum { N_CONV_SHAPES = 2 * N_CONV_SIZES };

static ConvShape conv_shape(size_t i)
{
    const size_t *s = conv_sizes[i % N_CONV_SIZES];
    ConvShape shape = {.batch = s[0], .length = s[1], .n_head = s[2], .n_slot = s[3], .d_head = s[4], .width = s[5], .eps = 0.0009765625f,
                       .softmax_codes = i >= N_CONV_SIZES};
    shape.proj_stride = conv_channels(&shape) + 7;
    return shape;
}

static void test_conv(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CONV_SHAPES; i++) {
        ConvShape shape = conv_shape(i);
        size_t rows = shape.batch * shape.length, channels = conv_channels(&shape), projections = rows * shape.proj_stride;
        Layer layers[] = {
            {.name = "conv_forward", .fast = conv_forward_fast, .reference = conv_forward_reference, .tolerance = OUTPUT_TOLERANCE, .n_in = 3,
             .in_counts = {projections, channels * shape.width, channels}, .n_out = 1, .out_counts = {rows * channels}, .n = rows, .dim = channels,
             .conv = shape},
            {.name = "conv_backward", .fast = conv_backward_fast, .reference = conv_backward_reference, .tolerance = GRADIENT_TOLERANCE, .n_in = 4,
             .in_counts = {rows * channels, projections, channels * shape.width, channels}, .n_out = 3,
             .out_counts = {projections, channels * shape.width, channels}, .n = rows, .dim = channels, .conv = shape},
        };
        check_layers(layers, 2);
    }
}

// The rows of all sequences from `begin`, `count` long, of rows [B, T, stride].
static float *take_piece(Pool *pool, const float *rows, size_t begin, size_t count, size_t stride, const ConvShape *whole)
{
    float *out = pool_floats(pool, whole->batch * count * stride);
    for (size_t b = 0; b < whole->batch; b++) {
        memcpy(out + b * count * stride, rows + (b * whole->length + begin) * stride, count * stride * sizeof *out);
    }
    return out;
}

// In pieces of 1, 2, 3, … tokens with carried tails: the same bits as the whole, and the tails are the last projections.
static void check_conv_pieces(const ConvShape *whole, const Kernels *kernels)
{
    Pool pool = {0};
    Rng rng;
    rng_seed(&rng, 3, 0);
    size_t channels = conv_channels(whole), rows = whole->batch * whole->length, history = whole->width - 1, tail_stride = history * channels + 5;
    float *proj = random_floats(&pool, &rng, rows * whole->proj_stride, 1.0), *weight = random_floats(&pool, &rng, channels * whole->width, 1.0);
    float *bias = random_floats(&pool, &rng, channels, 1.0), *expected = pool_floats(&pool, rows * channels);
    float *tails = pool_floats(&pool, whole->batch * tail_stride);
    kernels->conv_forward(expected, NULL, 0, proj, weight, bias, whole);
    for (size_t begin = 0, size = 1; begin < whole->length; begin += size++) {
        ConvShape piece = *whole;
        piece.length = size < whole->length - begin ? size : whole->length - begin;
        float *out = pool_floats(&pool, whole->batch * piece.length * channels);
        kernels->conv_forward(out, tails, tail_stride, take_piece(&pool, proj, begin, piece.length, whole->proj_stride, whole), weight, bias, &piece);
        check_bits(kernels->name, "convolution in pieces", out, take_piece(&pool, expected, begin, piece.length, channels, whole),
                   whole->batch * piece.length * channels);
    }
    for (size_t b = 0; b < whole->batch; b++) {
        for (size_t i = 0; i < history; i++) {
            float zeros[1024] = {0.0f};
            assert_true(channels <= 1024);
            const float *row = i + whole->length >= history ? proj + (b * whole->length + whole->length + i - history) * whole->proj_stride : zeros;
            check_bits(kernels->name, "convolution tail", tails + b * tail_stride + i * channels, row, channels);
        }
    }
    pool_free(&pool);
}

static void test_conv_pieces(void **state)
{
    (void)state;
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        for (size_t i = 0; i < N_CONV_SHAPES; i++) {
            ConvShape shape = conv_shape(i);
            check_threads(1 + (int)(i % 3));
            check_conv_pieces(&shape, *kernels);
        }
    }
}

// ---- Embedding and loss ----

static const int32_t *random_ids(Pool *pool, size_t n, size_t vocab, bool holes)
{
    Rng rng;
    rng_seed(&rng, n, vocab);
    int32_t *ids = pool_ints(pool, n);
    for (size_t i = 0; i < n; i++) {
        ids[i] = (int32_t)rng_below(&rng, vocab);
        if (holes && rng_below(&rng, 4) == 0) {
            ids[i] = -1;
        }
    }
    return ids;
}

static void embedding_forward_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l)
{
    kernels->embedding_forward(out[0], in[0], l->ids, l->n, l->dim);
}

static void embedding_forward_reference(double *const *out, const double *const *in, const Layer *l)
{
    reference_embedding_forward(out[0], in[0], l->ids, l->n, l->dim);
}

static void embedding_backward_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l)
{
    kernels->embedding_backward(out[0], in[0], l->ids, l->n, l->dim);
}

static void embedding_backward_reference(double *const *out, const double *const *in, const Layer *l)
{
    reference_embedding_backward(out[0], in[0], l->ids, l->n, l->dim);
}

static void test_embedding(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ROW_SIZES; i++) {
        Pool pool = {0};
        size_t n = row_sizes[i][0], dim = row_sizes[i][1], vocab = 13;
        const int32_t *ids = random_ids(&pool, n, vocab, false);
        Layer layers[] = {
            {.name = "embedding_forward", .fast = embedding_forward_fast, .reference = embedding_forward_reference, .tolerance = 0.0, .n_in = 1,
             .in_counts = {vocab * dim}, .n_out = 1, .out_counts = {n * dim}, .n = n, .dim = dim, .ids = ids},
            {.name = "embedding_backward", .fast = embedding_backward_fast, .reference = embedding_backward_reference, .tolerance = GRADIENT_TOLERANCE,
             .n_in = 1, .in_counts = {n * dim}, .n_out = 1, .out_counts = {vocab * dim}, .n = n, .dim = dim, .ids = ids},
        };
        check_layers(layers, 2);
        pool_free(&pool);
    }
}

// Input logits; outputs losses and the gradient that replaces the logits.
static void cross_entropy_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l)
{
    memcpy(out[1], in[0], l->in_counts[0] * sizeof *out[1]);
    kernels->cross_entropy(out[0], out[1], l->ids, 0.3f, l->n, l->dim);
}

static void cross_entropy_reference(double *const *out, const double *const *in, const Layer *l)
{
    zero(out[1], l->out_counts[1]);
    reference_cross_entropy(out[0], out[1], in[0], l->ids, 0.3f, l->n, l->dim);
}

static void test_cross_entropy(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ROW_SIZES; i++) {
        Pool pool = {0};
        size_t n = row_sizes[i][0], vocab = row_sizes[i][1] + 1;
        Layer layer = {.name = "cross_entropy", .fast = cross_entropy_fast, .reference = cross_entropy_reference, .tolerance = OUTPUT_TOLERANCE, .n_in = 1,
                       .in_counts = {n * vocab}, .n_out = 2, .out_counts = {n, n * vocab}, .n = n, .dim = vocab, .ids = random_ids(&pool, n, vocab, n > 1)};
        check_layers(&layer, 1);
        pool_free(&pool);
    }
}

static void check_extreme_logits(const Kernels *kernels)
{
    enum { N = 7, V = 67 };
    float logits[N * V], before[N * V], losses[N];
    double doubles[N * V], expected[N], gradient[N * V] = {0.0};
    int32_t targets[N] = {0, 66, 3, -1, 5, 64, 1};
    for (size_t i = 0; i < N * V; i++) {
        static const float values[] = {1e4f, -1e4f, 0.0f};
        size_t row = i / V;
        // Rows 0 to 3 mix the extremes; 4 is all high, 5 all low; in row 6 only the target is high.
        logits[i] = row < 4 ? values[(i * 7 + row) % 3] : row == 4 ? 1e4f : row == 5 ? -1e4f : i % V == 1 ? 1e4f : -1e4f;
        doubles[i] = before[i] = logits[i];
    }
    reference_cross_entropy(expected, gradient, doubles, targets, 1.0, N, V);
    fill_floats(losses, N, NAN);
    kernels->cross_entropy(losses, logits, targets, 0.0f, N, V);
    check_bits(kernels->name, "logits with scale 0", logits, before, N * V);
    check_close(kernels->name, "losses of extreme logits", losses, expected, N, 1e-6);
    assert_true(losses[3] == 0.0f && losses[6] == 0.0f && fabs(losses[4] - log(V)) < 1e-5 && fabs(losses[5] - log(V)) < 1e-5);
    kernels->cross_entropy(losses, logits, targets, 1.0f, N, V);
    check_close(kernels->name, "losses of extreme logits", losses, expected, N, 1e-6);
    check_close(kernels->name, "gradient of extreme logits", logits, gradient, N * V, 1e-6);
    for (size_t i = 0; i < V; i++) {
        assert_true(logits[3 * V + i] == 0.0f);
    }
}

static void test_extreme_logits(void **state)
{
    (void)state;
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        check_extreme_logits(*kernels);
    }
}

// ---- Reading relative to the start: dim slots of out_dim numbers; rows of queries at `stride` ----

static StartRead start_read_of(float *scratch, const float *state0, const float *q, const Layer *l)
{
    return (StartRead){.state0 = state0, .unit = l->accumulate, .scratch = scratch, .q = q, .q_stride = l->stride, .rows = l->n, .n_head = l->n_head,
                       .n_slot = l->dim, .d_head = l->out_dim};
}

// Inputs state0, q; output o.
static void start_read_forward_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l)
{
    Pool pool = {0};
    StartRead read = start_read_of(pool_floats(&pool, start_read_scratch_floats(l->n_head, l->dim, l->out_dim, false)), in[0], in[1], l);
    kernels->start_read_forward(out[0], &read);
    pool_free(&pool);
}

// S_0 [H, m, d], and the lengths of state0's slots.
static void reference_start(double *start, double *lengths, const double *state0, const Layer *l)
{
    for (size_t i = 0; i < l->n_head * l->dim; i++) {
        double square = 0.0;
        for (size_t j = 0; j < l->out_dim; j++) {
            square += state0[i * l->out_dim + j] * state0[i * l->out_dim + j];
        }
        lengths[i] = l->accumulate ? sqrt(square) : 1.0;
        for (size_t j = 0; j < l->out_dim; j++) {
            start[i * l->out_dim + j] = state0[i * l->out_dim + j] / lengths[i];
        }
    }
}

static void start_read_forward_reference(double *const *out, const double *const *in, const Layer *l)
{
    size_t m = l->dim, d = l->out_dim, heads = l->n_head;
    Pool pool = {0};
    double *start = pool_doubles(&pool, heads * m * d), *lengths = pool_doubles(&pool, heads * m);
    reference_start(start, lengths, in[0], l);
    for (size_t t = 0; t < l->n; t++) {
        for (size_t i = 0; i < heads * m; i++) {
            for (size_t j = 0; j < d; j++) {
                out[0][(t * heads + i / m) * d + j] -= in[1][t * l->stride + i] * start[i * d + j];
            }
        }
    }
    pool_free(&pool);
}

// Inputs state0, q, do; outputs dq, dstate0.
static void start_read_backward_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l)
{
    Pool pool = {0};
    StartRead read = start_read_of(pool_floats(&pool, start_read_scratch_floats(l->n_head, l->dim, l->out_dim, true)), in[0], in[1], l);
    kernels->start_read_backward(out[0], out[1], in[2], &read);
    pool_free(&pool);
}

static void start_read_backward_reference(double *const *out, const double *const *in, const Layer *l)
{
    size_t m = l->dim, d = l->out_dim, heads = l->n_head;
    Pool pool = {0};
    double *start = pool_doubles(&pool, heads * m * d), *lengths = pool_doubles(&pool, heads * m), *dslot = pool_doubles(&pool, d);
    reference_start(start, lengths, in[0], l);
    for (size_t i = 0; i < heads * m; i++) {
        double along = 0.0;
        memset(dslot, 0, d * sizeof *dslot);
        for (size_t t = 0; t < l->n; t++) {
            const double *row = in[2] + (t * heads + i / m) * d;
            for (size_t j = 0; j < d; j++) {
                dslot[j] -= in[1][t * l->stride + i] * row[j];
                out[0][t * l->stride + i] -= row[j] * start[i * d + j];
            }
        }
        for (size_t j = 0; j < d; j++) {
            along += l->accumulate ? dslot[j] * start[i * d + j] : 0.0;
        }
        for (size_t j = 0; j < d; j++) {
            out[1][i * d + j] += l->accumulate ? (dslot[j] - along * start[i * d + j]) / lengths[i] : dslot[j];
        }
    }
    pool_free(&pool);
}

// A slot of zeros stays: it is not read, and learns nothing.
static void check_empty_slot(const Kernels *kernels)
{
    float state0[4] = {0.0f, 0.0f, 3.0f, 4.0f}, scratch[64], q[2] = {5.0f, 2.0f}, o[2] = {1.0f, 1.0f}, do_[2] = {1.0f, -1.0f}, dq[2] = {0}, dstate0[4] = {0};
    StartRead read = {.state0 = state0, .unit = true, .scratch = scratch, .q = q, .q_stride = 2, .rows = 1, .n_head = 1, .n_slot = 2, .d_head = 2};
    assert_true(start_read_scratch_floats(1, 2, 2, true) <= 64);
    kernels->start_read_forward(o, &read);
    assert_true(fabsf(o[0] + 0.2f) < 1e-6f && fabsf(o[1] + 0.6f) < 1e-6f);   // less 2 (0.6, 0.8)
    kernels->start_read_backward(dq, dstate0, do_, &read);
    assert_true(dq[0] == 0.0f && fabsf(dq[1] - 0.2f) < 1e-6f);
    assert_true(dstate0[0] == 0.0f && dstate0[1] == 0.0f && dstate0[2] != 0.0f);
}

static void test_start_read(void **state)
{
    (void)state;
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        check_empty_slot(*kernels);
    }
    static const size_t sizes[][4] = {{1, 1, 1, 1}, {1, 2, 64, 64}, {63, 3, 17, 33}, {129, 1, 40, 16}, {300, 2, 24, 65}};   // rows, heads, slots, numbers
    for (size_t i = 0; i < 2 * (sizeof sizes / sizeof sizes[0]); i++) {
        const size_t *size = sizes[i / 2], starts = size[1] * size[2] * size[3], stride = size[1] * size[2] + 3, outs = size[0] * size[1] * size[3];
        Layer layers[] = {
            {.name = "start_read_forward", .fast = start_read_forward_fast, .reference = start_read_forward_reference, .tolerance = OUTPUT_TOLERANCE, .n_in = 2,
             .in_counts = {starts, size[0] * stride}, .n_out = 1, .out_counts = {outs}},
            {.name = "start_read_backward", .fast = start_read_backward_fast, .reference = start_read_backward_reference, .tolerance = GRADIENT_TOLERANCE,
             .n_in = 3, .in_counts = {starts, size[0] * stride, outs}, .n_out = 2, .out_counts = {size[0] * stride, starts}},
        };
        for (size_t k = 0; k < 2; k++) {
            layers[k].n = size[0];
            layers[k].n_head = size[1];
            layers[k].dim = size[2];
            layers[k].out_dim = size[3];
            layers[k].stride = stride;
            layers[k].accumulate = i % 2 == 1;   // slots of length 1
        }
        check_layers(layers, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start_read), cmocka_unit_test(test_conv),          cmocka_unit_test(test_conv_pieces),   cmocka_unit_test(test_embedding),
        cmocka_unit_test(test_cross_entropy), cmocka_unit_test(test_extreme_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
