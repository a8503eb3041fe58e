// Kernels that work on rows: matrix products, norms, gates, MLP, sums and the optimizer. tests/test_kernels_tokens.c has the others.
#include "tests/layer.h"

// Space between rows of columns: it must neither be read nor written.
enum { PAD = 3 };

// ---- Matrix products ----

static void linear_forward_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l)
{
    kernels->linear_forward(out[0], rows_f32(in[0]), weights_f32(in[1]), l->n, l->dim, l->out_dim);
}

static void linear_forward_reference(double *const *out, const double *const *in, const Layer *l)
{
    reference_linear_forward(out[0], in[0], in[1], l->n, l->dim, l->out_dim);
}

// Inputs dout, x, w; outputs dx, dw.
static void linear_backward_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l)
{
    kernels->linear_backward_input(out[0], rows_f32(in[0]), weights_f32(in[2]), l->n, l->dim, l->out_dim, l->accumulate);
    kernels->linear_backward_weight(out[1], rows_f32(in[0]), rows_f32(in[1]), l->n, l->dim, l->out_dim);
}

static void linear_backward_reference(double *const *out, const double *const *in, const Layer *l)
{
    if (!l->accumulate) {
        zero(out[0], l->n * l->dim);
    }
    reference_linear_backward(out[0], out[1], in[0], in[1], in[2], l->n, l->dim, l->out_dim);
}

static void test_linear(void **state)
{
    (void)state;
    static const size_t sizes[][3] = {{1, 1, 1}, {1, 200, 65}, {3, 1000, 63}, {65, 63, 200}, {200, 65, 3}, {1000, 3, 65}};   // n, in, out
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t n = sizes[i][0], n_in = sizes[i][1], n_out = sizes[i][2];
        Layer layers[] = {
            {.name = "linear_forward", .fast = linear_forward_fast, .reference = linear_forward_reference, .tolerance = OUTPUT_TOLERANCE, .n_in = 2,
             .in_counts = {n * n_in, n_out * n_in}, .n_out = 1, .out_counts = {n * n_out}, .n = n, .dim = n_in, .out_dim = n_out},
            {.name = "linear_backward", .fast = linear_backward_fast, .reference = linear_backward_reference, .tolerance = GRADIENT_TOLERANCE, .n_in = 3,
             .in_counts = {n * n_out, n * n_in, n_out * n_in}, .n_out = 2, .out_counts = {n * n_in, n_out * n_in}, .n = n, .dim = n_in, .out_dim = n_out},
            {0},
        };
        layers[2] = layers[1];
        layers[2].accumulate = true;
        check_layers(layers, 3);
    }
}

// ---- Norm, gates, MLP ----

static void rmsnorm_forward_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l)
{
    kernels->rmsnorm_forward(rows_f32(out[0]), in[0], in[1], (float)l->eps, l->n, l->dim);
}

static void rmsnorm_forward_reference(double *const *out, const double *const *in, const Layer *l)
{
    reference_rmsnorm_forward(out[0], in[0], in[1], l->eps, l->n, l->dim);
}

// Inputs dout, x, w; outputs dx, dw.
static void rmsnorm_backward_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l)
{
    kernels->rmsnorm_backward(out[0], out[1], in[0], in[1], in[2], (float)l->eps, l->n, l->dim);
}

static void rmsnorm_backward_reference(double *const *out, const double *const *in, const Layer *l)
{
    reference_rmsnorm_backward(out[0], out[1], in[0], in[1], in[2], l->eps, l->n, l->dim);
}

static void test_rmsnorm(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ROW_SIZES; i++) {
        size_t n = row_sizes[i][0], dim = row_sizes[i][1];
        Layer layers[] = {
            {.name = "rmsnorm_forward", .fast = rmsnorm_forward_fast, .reference = rmsnorm_forward_reference, .tolerance = OUTPUT_TOLERANCE, .n_in = 2,
             .in_counts = {n * dim, dim}, .n_out = 1, .out_counts = {n * dim}, .n = n, .dim = dim, .eps = 0.0009765625},
            {.name = "rmsnorm_backward", .fast = rmsnorm_backward_fast, .reference = rmsnorm_backward_reference, .tolerance = GRADIENT_TOLERANCE, .n_in = 3,
             .in_counts = {n * dim, n * dim, dim}, .n_out = 2, .out_counts = {n * dim, dim}, .n = n, .dim = dim, .eps = 0.0009765625},
        };
        check_layers(layers, 2);
    }
}

// Inputs o, z (strided), w; output out.
static void gate_forward_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l)
{
    kernels->gate_forward(rows_f32(out[0]), in[0], in[1], l->stride, in[2], (float)l->eps, l->n, l->n_head, l->dim);
}

static void gate_forward_reference(double *const *out, const double *const *in, const Layer *l)
{
    Pool pool = {0};
    double *z = take_columns(&pool, in[1], l->stride, l->n, l->n_head * l->dim);
    reference_gate_forward(out[0], in[0], z, in[2], l->eps, l->n, l->n_head, l->dim);
    pool_free(&pool);
}

// Inputs dout, o, z (strided), w; outputs do, dz (strided), dw.
static void gate_backward_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l)
{
    kernels->gate_backward(out[0], out[1], out[2], in[0], in[1], in[2], l->stride, in[3], (float)l->eps, l->n, l->n_head, l->dim);
}

static void gate_backward_reference(double *const *out, const double *const *in, const Layer *l)
{
    Pool pool = {0};
    size_t values = l->n_head * l->dim;
    double *z = take_columns(&pool, in[2], l->stride, l->n, values), *dz = pool_doubles(&pool, l->n * values);
    zero(out[0], l->n * values);
    reference_gate_backward(out[0], dz, out[2], in[0], in[1], z, in[3], l->eps, l->n, l->n_head, l->dim);
    put_columns(out[1], l->stride, dz, l->n, values);
    pool_free(&pool);
}

static void test_gate(void **state)
{
    (void)state;
    static const size_t sizes[][3] = {{1, 1, 1}, {3, 2, 63}, {65, 3, 16}, {200, 1, 65}, {67, 5, 48}, {3, 1, 1000}};   // n, heads, d
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t n = sizes[i][0], n_head = sizes[i][1], d = sizes[i][2], values = n_head * d, stride = values + PAD;
        Layer layers[] = {
            {.name = "gate_forward", .fast = gate_forward_fast, .reference = gate_forward_reference, .tolerance = OUTPUT_TOLERANCE, .n_in = 3,
             .in_counts = {n * values, n * stride, values}, .n_out = 1, .out_counts = {n * values}, .n = n, .dim = d, .n_head = n_head, .stride = stride,
             .eps = 0.0009765625},
            {.name = "gate_backward", .fast = gate_backward_fast, .reference = gate_backward_reference, .tolerance = GRADIENT_TOLERANCE, .n_in = 4,
             .in_counts = {n * values, n * values, n * stride, values}, .n_out = 3, .out_counts = {n * values, n * stride, values}, .n = n, .dim = d,
             .n_head = n_head, .stride = stride, .eps = 0.0009765625},
        };
        check_layers(layers, 2);
    }
}

static void swiglu_forward_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l)
{
    kernels->swiglu_forward(rows_f32(out[0]), rows_f32(in[0]), l->n, l->dim);
}

static void swiglu_forward_reference(double *const *out, const double *const *in, const Layer *l)
{
    for (size_t t = 0; t < l->n; t++) {
        const double *h = in[0] + t * 2 * l->dim;
        reference_swiglu_forward(out[0] + t * l->dim, h, h + l->dim, l->dim);
    }
}

// Inputs dout, h; output dh, which with `accumulate` is the same memory as h.
static void swiglu_backward_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l)
{
    if (l->accumulate) {
        memcpy(out[0], in[1], l->in_counts[1] * sizeof *out[0]);
    }
    kernels->swiglu_backward(rows_f32(out[0]), in[0], rows_f32(l->accumulate ? out[0] : in[1]), l->n, l->dim);
}

static void swiglu_backward_reference(double *const *out, const double *const *in, const Layer *l)
{
    zero(out[0], l->out_counts[0]);
    for (size_t t = 0; t < l->n; t++) {
        const double *h = in[1] + t * 2 * l->dim;
        double *dh = out[0] + t * 2 * l->dim;
        reference_swiglu_backward(dh, dh + l->dim, in[0] + t * l->dim, h, h + l->dim, l->dim);
    }
}

static void test_swiglu(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ROW_SIZES; i++) {
        size_t n = row_sizes[i][0], dim = row_sizes[i][1];
        Layer layers[] = {
            {.name = "swiglu_forward", .fast = swiglu_forward_fast, .reference = swiglu_forward_reference, .tolerance = OUTPUT_TOLERANCE, .n_in = 1,
             .in_counts = {n * 2 * dim}, .n_out = 1, .out_counts = {n * dim}, .n = n, .dim = dim},
            {.name = "swiglu_backward", .fast = swiglu_backward_fast, .reference = swiglu_backward_reference, .tolerance = GRADIENT_TOLERANCE, .n_in = 2,
             .in_counts = {n * dim, n * 2 * dim}, .n_out = 1, .out_counts = {n * 2 * dim}, .n = n, .dim = dim},
            {0},
        };
        layers[2] = layers[1];
        layers[2].name = "swiglu_backward in place";
        layers[2].accumulate = true;
        check_layers(layers, 3);
    }
}

// Inputs x (strided), bias.
static void sigmoid_forward_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l)
{
    kernels->sigmoid_forward(out[0], in[0], l->stride, in[1], l->n, l->dim);
}

static void sigmoid_forward_reference(double *const *out, const double *const *in, const Layer *l)
{
    Pool pool = {0};
    reference_sigmoid_forward(out[0], take_columns(&pool, in[0], l->stride, l->n, l->dim), in[1], l->n, l->dim);
    pool_free(&pool);
}

// Inputs dout, out; outputs dx (strided), dbias.
static void sigmoid_backward_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l)
{
    kernels->sigmoid_backward(out[0], l->stride, out[1], in[0], in[1], l->n, l->dim);
}

static void sigmoid_backward_reference(double *const *out, const double *const *in, const Layer *l)
{
    Pool pool = {0};
    double *dx = pool_doubles(&pool, l->n * l->dim);
    reference_sigmoid_backward(dx, out[1], in[0], in[1], l->n, l->dim);
    put_columns(out[0], l->stride, dx, l->n, l->dim);
    pool_free(&pool);
}

static void test_sigmoid(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ROW_SIZES; i++) {
        size_t n = row_sizes[i][0], dim = row_sizes[i][1], stride = dim + PAD;
        Layer layers[] = {
            {.name = "sigmoid_forward", .fast = sigmoid_forward_fast, .reference = sigmoid_forward_reference, .tolerance = OUTPUT_TOLERANCE, .n_in = 2,
             .in_counts = {n * stride, dim}, .n_out = 1, .out_counts = {n * dim}, .n = n, .dim = dim, .stride = stride},
            {.name = "sigmoid_backward", .fast = sigmoid_backward_fast, .reference = sigmoid_backward_reference, .tolerance = GRADIENT_TOLERANCE, .n_in = 2,
             .in_counts = {n * dim, n * dim}, .n_out = 2, .out_counts = {n * stride, dim}, .n = n, .dim = dim, .stride = stride},
        };
        check_layers(layers, 2);
    }
}

// Inputs x (strided), bias, rate; outputs g, mu.
static void softplus_forward_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l)
{
    kernels->softplus_forward(out[0], out[1], in[0], l->stride, in[1], in[2], l->n, l->dim);
}

static void softplus_forward_reference(double *const *out, const double *const *in, const Layer *l)
{
    Pool pool = {0};
    reference_softplus_forward(out[0], out[1], take_columns(&pool, in[0], l->stride, l->n, l->dim), in[1], in[2], l->n, l->dim);
    pool_free(&pool);
}

// Inputs dg, dmu, x (strided), bias, rate; outputs dx (strided), dbias, drate.
static void softplus_backward_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l)
{
    Pool pool = {0};
    float *g = pool_floats(&pool, l->n * l->dim), *mu = pool_floats(&pool, l->n * l->dim);
    kernels->softplus_forward(g, mu, in[2], l->stride, in[3], in[4], l->n, l->dim);
    kernels->softplus_backward(out[0], out[1], out[2], in[0], in[1], g, mu, in[2], l->stride, in[3], in[4], l->n, l->dim);
    pool_free(&pool);
}

static void softplus_backward_reference(double *const *out, const double *const *in, const Layer *l)
{
    Pool pool = {0};
    double *x = take_columns(&pool, in[2], l->stride, l->n, l->dim), *dx = pool_doubles(&pool, l->n * l->dim);
    reference_softplus_backward(dx, out[1], out[2], in[0], in[1], x, in[3], in[4], l->n, l->dim);
    put_columns(out[0], l->stride, dx, l->n, l->dim);
    pool_free(&pool);
}

static void test_softplus(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ROW_SIZES; i++) {
        size_t n = row_sizes[i][0], dim = row_sizes[i][1], stride = dim + PAD;
        Layer layers[] = {
            {.name = "softplus_forward", .fast = softplus_forward_fast, .reference = softplus_forward_reference, .tolerance = OUTPUT_TOLERANCE, .n_in = 3,
             .in_counts = {n * stride, dim, dim}, .n_out = 2, .out_counts = {n * dim, n * dim}, .n = n, .dim = dim, .stride = stride},
            {.name = "softplus_backward", .fast = softplus_backward_fast, .reference = softplus_backward_reference, .tolerance = GRADIENT_TOLERANCE, .n_in = 5,
             .in_counts = {n * dim, n * dim, n * stride, dim, dim}, .n_out = 3, .out_counts = {n * stride, dim, dim}, .n = n, .dim = dim, .stride = stride},
        };
        check_layers(layers, 2);
    }
    // Far out, softplus is the number itself or nothing, and nothing overflows; NaN stays.
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        float x[5] = {-200.0f, -30.0f, 30.0f, 200.0f, NAN}, bias = 0.0f, rate = 0.0f, g[5], mu[5], dg[5] = {1, 1, 1, 1, 1}, dmu[5] = {1, 1, 1, 1, 1}, dx[5];
        float dbias = 0.0f, drate = 0.0f;
        (*kernels)->softplus_forward(g, mu, x, 1, &bias, &rate, 5, 1);
        assert_true(g[0] == 0.0f && mu[0] == 1.0f && g[2] == 30.0f && g[3] == 200.0f && mu[3] == 0.0f && isnan(g[4]) && isnan(mu[4]));
        assert_true(fabs((double)g[1] / exp(-30.0) - 1.0) < 1e-6);
        (*kernels)->softplus_backward(dx, &dbias, &drate, dg, dmu, g, mu, x, 1, &bias, &rate, 4, 1);
        assert_true(dx[0] == 0.0f && dx[3] == 1.0f && fabs((double)dx[2] - 1.0) < 1e-6 && isfinite(dbias) && isfinite(drate));
    }
}

// Inputs x, bias.
static void slot_decay_forward_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l)
{
    kernels->slot_decay_forward(out[0], in[0], in[1], l->n, l->dim);
}

static void slot_decay_forward_reference(double *const *out, const double *const *in, const Layer *l)
{
    reference_slot_decay_forward(out[0], in[0], in[1], l->n, l->dim);
}

// Inputs dout, x, bias; outputs dx, dbias.
static void slot_decay_backward_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l)
{
    Pool pool = {0};
    float *y = pool_floats(&pool, l->n * l->dim);
    kernels->slot_decay_forward(y, in[1], in[2], l->n, l->dim);
    kernels->slot_decay_backward(out[0], out[1], in[0], y, l->n, l->dim);
    pool_free(&pool);
}

static void slot_decay_backward_reference(double *const *out, const double *const *in, const Layer *l)
{
    Pool pool = {0};
    double *y = pool_doubles(&pool, l->n * l->dim), *dx = pool_doubles(&pool, l->n * l->dim);
    reference_slot_decay_forward(y, in[1], in[2], l->n, l->dim);
    reference_slot_decay_backward(dx, out[1], in[0], y, l->n, l->dim);
    memcpy(out[0], dx, l->n * l->dim * sizeof *dx);
    pool_free(&pool);
}

static void test_slot_decay(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ROW_SIZES; i++) {
        size_t n = row_sizes[i][0], dim = row_sizes[i][1];
        Layer layers[] = {
            {.name = "slot_decay_forward", .fast = slot_decay_forward_fast, .reference = slot_decay_forward_reference, .tolerance = OUTPUT_TOLERANCE, .n_in = 2,
             .in_counts = {n * dim, dim}, .n_out = 1, .out_counts = {n * dim}, .n = n, .dim = dim},
            {.name = "slot_decay_backward", .fast = slot_decay_backward_fast, .reference = slot_decay_backward_reference, .tolerance = GRADIENT_TOLERANCE,
             .n_in = 3, .in_counts = {n * dim, n * dim, dim}, .n_out = 2, .out_counts = {n * dim, dim}, .n = n, .dim = dim},
        };
        check_layers(layers, 2);
    }
}

// ---- Sums and the optimizer ----

static void add_fast(float *const *out, const float *const *in, const Kernels *kernels, const Layer *l) { kernels->add(out[0], in[0], l->n); }

static void add_reference(double *const *out, const double *const *in, const Layer *l)
{
    for (size_t i = 0; i < l->n; i++) {
        out[0][i] += in[0][i];
    }
}

static void test_add(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 3, 63, 1000, 100003};
    for (size_t i = 0; i < 5; i++) {
        Layer layer = {.name = "add", .fast = add_fast, .reference = add_reference, .tolerance = 1e-7, .n_in = 1, .in_counts = {sizes[i]}, .n_out = 1,
                       .out_counts = {sizes[i]}, .n = sizes[i]};
        check_layers(&layer, 1);
    }
}

static void check_sum_squares(size_t n, const Kernels *kernels)
{
    Pool pool = {0};
    Rng rng;
    rng_seed(&rng, n, 0);
    float *x = random_floats(&pool, &rng, n, 1.0);
    double expected = 0.0;
    for (size_t i = 0; i < n; i++) {
        expected += (double)x[i] * x[i];
    }
    check_threads(1);
    double sum = kernels->sum_squares(x, n);
    assert_true(fabs(sum - expected) <= 1e-6 * expected);
    for (int threads = 2; threads <= 3; threads++) {
        check_threads(threads);
        assert_true(kernels->sum_squares(x, n) == sum);
    }
    // The squares of numbers that f32 holds can pass its range, and must not become infinite.
    x[n / 2] = 1e30f;
    assert_true(fabs(kernels->sum_squares(x, n) / 1e60 - 1.0) < 1e-6);
    x[n / 2] = INFINITY;
    assert_true(kernels->sum_squares(x, n) == INFINITY);
    x[n / 2] = NAN;
    assert_true(isnan(kernels->sum_squares(x, n)));
    pool_free(&pool);
}

static void test_sum_squares(void **state)
{
    (void)state;
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        check_sum_squares(1, *kernels);
        check_sum_squares(63, *kernels);
        check_sum_squares(300007, *kernels);
        assert_true((*kernels)->sum_squares(NULL, 0) == 0.0);
    }
}

// Ceilings are positive and finite, and threads beyond the processors add nothing.
static void test_ceilings(void **state)
{
    (void)state;
    const Kernels *kernels = kernels_available()[0];
    int processors = 1;
#ifdef _OPENMP
    processors = omp_get_num_procs();
#endif
    check_threads(processors);
    double peak = kernels_measure_peak(kernels, false), read = kernels_measure_read(kernels);
    check_threads(4 * processors);
    double more = kernels_measure_peak(kernels, false);
    check_threads(processors);
    assert_true(peak > 1e8 && peak < 1e15 && read > 1e7 && read < 1e14);
    assert_true(more > 0.0 && more < 1.5 * peak);
}

static void run_adamw(float *const arrays[3], const float *grad, size_t n, int steps, const Kernels *kernels)
{
    for (int step = 1; step <= steps; step++) {
        kernels->adamw(arrays[0], arrays[1], arrays[2], grad, n, 0.5f, 0.01f, 0.9f, 0.95f, 1e-8f, 0.1f, (float)(1.0 - pow(0.9f, step)),
                       (float)(1.0 - pow(0.95f, step)));
    }
}

static void check_adamw(size_t n, const Kernels *kernels)
{
    enum { STEPS = 5 };
    static const char *const names[3] = {"parameters", "first moments", "second moments"};
    Pool pool = {0};
    Rng rng;
    rng_seed(&rng, n, 0);
    float *start = random_floats(&pool, &rng, n, 1.0), *grad = random_floats(&pool, &rng, n, 1.0), *arrays[3], *again[3];
    double *doubles[3] = {to_doubles(&pool, start, n), pool_doubles(&pool, n), pool_doubles(&pool, n)}, *grad_doubles = to_doubles(&pool, grad, n);
    for (size_t i = 0; i < 3; i++) {
        arrays[i] = pool_floats(&pool, n);
        again[i] = pool_floats(&pool, n);
    }
    memcpy(arrays[0], start, n * sizeof *start);
    check_threads(1);
    run_adamw(arrays, grad, n, STEPS, kernels);
    for (int step = 1; step <= STEPS; step++) {
        reference_adamw(doubles[0], doubles[1], doubles[2], grad_doubles, n, 0.5f, 0.01f, 0.9f, 0.95f, 1e-8f, 0.1f, step);
    }
    for (size_t i = 0; i < 3; i++) {
        check_close(kernels->name, names[i], arrays[i], doubles[i], n, 2e-6);
    }
    // The step itself, not only the parameters it is small against.
    for (size_t i = 0; i < n; i++) {
        doubles[0][i] -= start[i];
        arrays[0][i] -= start[i];
    }
    check_close(kernels->name, "change of parameters", arrays[0], doubles[0], n, 2e-5);
    for (int threads = 2; threads <= 3; threads++) {
        check_threads(threads);
        memcpy(again[0], start, n * sizeof *start);
        memset(again[1], 0, n * sizeof *start);
        memset(again[2], 0, n * sizeof *start);
        run_adamw(again, grad, n, STEPS, kernels);
        check_bits(kernels->name, names[1], again[1], arrays[1], n);
        check_bits(kernels->name, names[2], again[2], arrays[2], n);
        for (size_t i = 0; i < n; i++) {
            again[0][i] -= start[i];
        }
        check_bits(kernels->name, names[0], again[0], arrays[0], n);
    }
    grad[n / 2] = NAN;
    run_adamw(again, grad, n, 1, kernels);
    assert_true(isnan(again[0][n / 2]) && isnan(again[1][n / 2]) && isnan(again[2][n / 2]));
    assert_true(n == 1 || !isnan(again[0][0]));
    pool_free(&pool);
}

static void test_adamw(void **state)
{
    (void)state;
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        check_adamw(1, *kernels);
        check_adamw(63, *kernels);
        check_adamw(100003, *kernels);
    }
}

// Nothing to do is not an error, and nothing is touched; a product that is 0 deep is zero.
static void test_empty(void **state)
{
    (void)state;
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        float x = 3.0f, c[2] = {5.0f, 7.0f};
        (*kernels)->linear_backward_input(c, rows_f32(&x), weights_f32(&x), 1, 2, 0, true);
        assert_true(c[0] == 5.0f && c[1] == 7.0f);
        (*kernels)->linear_backward_input(c, rows_f32(&x), weights_f32(&x), 1, 2, 0, false);
        assert_true(c[0] == 0.0f && c[1] == 0.0f);
        (*kernels)->linear_forward(&x, rows_f32(NULL), weights_f32(NULL), 0, 5, 7);
        (*kernels)->rmsnorm_forward(rows_f32(&x), NULL, &x, 1e-6f, 0, 5);
        (*kernels)->swiglu_forward(rows_f32(&x), rows_f32(NULL), 0, 5);
        (*kernels)->add(&x, NULL, 0);
        assert_true(x == 3.0f);
    }
}

static void test_tables(void **state)
{
    (void)state;
    const Kernels *const *kernels = kernels_available();
    size_t n = 0;
    bool generic = false;
    for (; kernels[n] != NULL; n++) {
        print_message("instruction set %s\n", kernels[n]->name);
        generic = generic || strcmp(kernels[n]->name, "generic") == 0;
        for (size_t i = 0; i < n; i++) {
            assert_string_not_equal(kernels[i]->name, kernels[n]->name);
        }
    }
    assert_true(generic);   // every processor runs it
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables), cmocka_unit_test(test_linear), cmocka_unit_test(test_rmsnorm),
        cmocka_unit_test(test_gate),   cmocka_unit_test(test_swiglu), cmocka_unit_test(test_sigmoid), cmocka_unit_test(test_add),
        cmocka_unit_test(test_sum_squares), cmocka_unit_test(test_adamw), cmocka_unit_test(test_ceilings), cmocka_unit_test(test_empty),
        cmocka_unit_test(test_softplus), cmocka_unit_test(test_slot_decay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
