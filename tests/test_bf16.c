// Products with bf16 factors: against f32 products of rounded factors, on odd sizes, for every instruction set; the same bits for any number of threads,
// from rows that are bf16 already and from panels; layers that store bf16; a whole model's loss and gradients near f32's; and training that tracks f32.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/rng.h"
#include "model/model.h"
#include "tests/short.h"

static float *random_floats(size_t n, uint64_t stream)
{
    float *x = malloc((n + 1) * sizeof *x);
    assert_non_null(x);
    Rng rng;
    rng_seed(&rng, 7, stream);
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)rng_normal(&rng);
    }
    return x;
}

static uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return isnan(x) ? (uint16_t)((bits | 0x400000u) >> 16) : (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static float from_bf16(uint16_t half)
{
    float x;
    memcpy(&x, &(uint32_t){(uint32_t)half << 16}, sizeof x);
    return x;
}

static double rounded(float x) { return (double)from_bf16(bf16_of(x)); }

// n numbers as bf16, to free.
static Rows rows_bf16(const float *x, size_t n)
{
    uint16_t *halves = malloc((n + 1) * sizeof *halves);
    assert_non_null(halves);
    for (size_t i = 0; i < n; i++) {
        halves[i] = bf16_of(x[i]);
    }
    return (Rows){halves, true};
}

// Relative RMS of got against Σ_p a[i·ar + p·ac] b[p·br + j·bc] (plus what `start` holds), factors rounded.
static double product_error(const float *got, const float *start, const float *a, size_t ar, size_t ac, const float *b, size_t br, size_t bc, size_t rows,
                            size_t cols, size_t depth)
{
    double difference = 0.0, size = 0.0;
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            double sum = start == NULL ? 0.0 : (double)start[i * cols + j];
            for (size_t p = 0; p < depth; p++) {
                sum += rounded(a[i * ar + p * ac]) * rounded(b[p * br + j * bc]);
            }
            double d = (double)got[i * cols + j] - sum;
            difference += d * d;
            size += sum * sum;
        }
    }
    double error = sqrt(difference / size);
    return isnan(error) ? INFINITY : error;
}

static void check_products(const Kernels *k, size_t n, size_t n_in, size_t n_out)
{
    float *x = random_floats(n * n_in, 1), *w = random_floats(n_out * n_in, 2), *out = random_floats(n * n_out, 3), *again = malloc(n * n_out * sizeof *again);
    float *dx = random_floats(n * n_in, 4), *dw = random_floats(n_out * n_in, 5), *dx_start = random_floats(n * n_in, 4), *dw_start = random_floats(n_out * n_in, 5);
    k->linear_forward_bf16(out, rows_f32(x), weights_f32(w), n, n_in, n_out);
    assert_true(product_error(out, NULL, x, n_in, 1, w, 1, n_in, n, n_out, n_in) < 2e-6);
    k->linear_backward_input_bf16(dx, rows_f32(out), weights_f32(w), n, n_in, n_out, true);
    assert_true(product_error(dx, dx_start, out, n_out, 1, w, n_in, 1, n, n_in, n_out) < 2e-6);
    k->linear_backward_weight_bf16(dw, rows_f32(out), rows_f32(x), n, n_in, n_out);
    assert_true(product_error(dw, dw_start, out, 1, n_out, x, n_in, 1, n_out, n_in, n) < 2e-6);
#ifdef _OPENMP
    int most = omp_get_max_threads();
    for (int threads = 1; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        k->linear_forward_bf16(again, rows_f32(x), weights_f32(w), n, n_in, n_out);
        assert_memory_equal(again, out, n * n_out * sizeof *out);
    }
    omp_set_num_threads(most);
#endif
    x[0] = NAN;
    k->linear_forward_bf16(again, rows_f32(x), weights_f32(w), n, n_in, n_out);
    assert_true(isnan(again[0]) && isnan(again[n_out - 1]));
    free(x), free(w), free(out), free(again), free(dx), free(dw), free(dx_start), free(dw_start);
}

static void test_products(void **state)
{
    (void)state;
    for (const Kernels *const *k = kernels_available(); *k != NULL; k++) {
        check_products(*k, 1, 1, 1);
        check_products(*k, 3, 5, 7);
        check_products(*k, 63, 65, 33);
        check_products(*k, 200, 37, 130);
        check_products(*k, 129, 801, 61);
    }
}

// Large outputs are written around the caches: at odd places and sizes, too, every number is written and none beside them. Small whole numbers are exact.
static void check_large(const Kernels *k, bool bf16, size_t offset, size_t n, size_t n_in, size_t n_out)
{
    float *x = malloc(n * n_in * sizeof *x), *w = malloc(n_out * n_in * sizeof *w), *buffer = aligned_alloc(64, (n * n_out + 32 + 15) / 16 * 16 * sizeof *buffer);
    assert_true(x != NULL && w != NULL && buffer != NULL);
    for (size_t i = 0; i < n * n_in; i++) {
        x[i] = (float)(i * 7 % 11) - 5.0f;
    }
    for (size_t i = 0; i < n_out * n_in; i++) {
        w[i] = (float)(i * 5 % 13) - 6.0f;
    }
    for (size_t i = 0; i < n * n_out + 32; i++) {
        buffer[i] = 0.25f;
    }
    float *out = buffer + offset;
    (bf16 ? k->linear_forward_bf16 : k->linear_forward)(out, rows_f32(x), weights_f32(w), n, n_in, n_out);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n_out; j++) {
            float sum = 0.0f;
            for (size_t p = 0; p < n_in; p++) {
                sum += x[i * n_in + p] * w[j * n_in + p];
            }
            if (out[i * n_out + j] != sum) {
                fail_msg("%s, %zu x %zu from %zu on: row %zu, column %zu is %g, not %g", k->name, n, n_out, offset, i, j, (double)out[i * n_out + j], (double)sum);
            }
        }
    }
    for (size_t i = 0; i < offset; i++) {
        assert_true(buffer[i] == 0.25f);
    }
    for (size_t i = offset + n * n_out; i < n * n_out + 32; i++) {
        assert_true(buffer[i] == 0.25f);
    }
    free(x), free(w), free(buffer);
}

static void test_large_outputs(void **state)
{
    (void)state;
    static const size_t cases[][4] = {{3, 1031, 2, 1021}, {0, 1040, 2, 1024}, {0, 1040, 2, 1016}, {16, 131073, 1, 8}, {15, 17, 1, 65537}};
    for (const Kernels *const *k = kernels_available(); *k != NULL; k++) {
        for (size_t i = 0; i < rounds(sizeof cases / sizeof *cases, 1); i++) {
            check_large(*k, false, cases[i][0], cases[i][1], cases[i][2], cases[i][3]);
            check_large(*k, true, cases[i][0], cases[i][1], cases[i][2], cases[i][3]);
        }
    }
}

// What a panel says of element p of column j is in its place, and zeros are in the places of none.
static void check_panel(const uint32_t *panels, const float *w, size_t lane, size_t step, size_t cols, size_t depth)
{
    for (size_t j = 0; j < (cols + PANEL_COLS - 1) / PANEL_COLS * PANEL_COLS; j++) {
        for (size_t p = 0; p < 2 * panel_units(depth); p++) {
            uint32_t pair = panels[j / PANEL_COLS * panel_words(depth) + p / 2 * PANEL_COLS + j % PANEL_COLS];
            uint16_t expected = j < cols && p < depth ? bf16_of(w[j * lane + p * step]) : 0;
            assert_int_equal(p % 2 == 0 ? pair & 0xffffu : pair >> 16, expected);
        }
    }
}

static WeightPanels new_panels(size_t n_out, size_t n_in)
{
    size_t forward = panels_words(n_out, n_in), backward = panels_words(n_in, n_out);
    WeightPanels panels = {malloc(forward * sizeof(uint32_t)), malloc(backward * sizeof(uint32_t))};
    assert_true(panels.forward != NULL && panels.backward != NULL);
    memset(panels.forward, 0xff, forward * sizeof(uint32_t));
    memset(panels.backward, 0xff, backward * sizeof(uint32_t));
    return panels;
}

// Factors that are rounded beforehand give the bits of those that products round themselves.
static void check_prepared(const Kernels *k, size_t n, size_t n_in, size_t n_out)
{
    float *x = random_floats(n * n_in, 1), *w = random_floats(n_out * n_in, 2), *dout = random_floats(n * n_out, 3);
    size_t counts[3] = {n * n_out, n * n_in, n_out * n_in};
    float *got[3], *expected[3];
    for (uint64_t i = 0; i < 3; i++) {
        got[i] = random_floats(counts[i], 4 + i);
        expected[i] = random_floats(counts[i], 4 + i);
    }
    Rows x_rows = rows_bf16(x, n * n_in), dout_rows = rows_bf16(dout, n * n_out);
    WeightPanels panels = new_panels(n_out, n_in);
    k->make_panels(&panels, w, n_out, n_in);
    check_panel(panels.forward, w, n_in, 1, n_out, n_in);
    check_panel(panels.backward, w, 1, n_in, n_in, n_out);
    Weights prepared = {w, &panels};
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        k->linear_forward_bf16(expected[0], rows_f32(x), weights_f32(w), n, n_in, n_out);
        k->linear_backward_input_bf16(expected[1], rows_f32(dout), weights_f32(w), n, n_in, n_out, accumulate == 1);
        k->linear_backward_weight_bf16(expected[2], rows_f32(dout), rows_f32(x), n, n_in, n_out);
        k->linear_forward_bf16(got[0], x_rows, prepared, n, n_in, n_out);
        k->linear_backward_input_bf16(got[1], dout_rows, prepared, n, n_in, n_out, accumulate == 1);
        k->linear_backward_weight_bf16(got[2], dout_rows, x_rows, n, n_in, n_out);
        for (size_t i = 0; i < 3; i++) {
            assert_memory_equal(got[i], expected[i], counts[i] * sizeof(float));
        }
    }
    for (size_t i = 0; i < 3; i++) {
        free(got[i]), free(expected[i]);
    }
    free(x), free(w), free(dout), free(x_rows.data), free(dout_rows.data), free(panels.forward), free(panels.backward);
}

static void test_prepared(void **state)
{
    (void)state;
    for (const Kernels *const *k = kernels_available(); *k != NULL; k++) {
        if ((*k)->make_panels == NULL) {
            print_message("skipped: panels of %s, whose products come from oneDNN\n", (*k)->name);
            continue;
        }
        check_prepared(*k, 1, 1, 1);
        check_prepared(*k, 3, 5, 7);
        check_prepared(*k, 63, 65, 33);
        check_prepared(*k, 200, 37, 130);
        check_prepared(*k, 5, 2500, 40);    // two blocks of depth, in the forward and in the backward
        check_prepared(*k, 5, 40, 2501);
        check_prepared(*k, 3, 2200, 1300);   // two blocks of columns
    }
}

// bf16 numbers as stored are those of the f32 kernel, rounded.
static void check_rounded(const Kernels *k, const char *name, const uint16_t *got, const float *exact, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (got[i] != bf16_of(exact[i])) {
            fail_msg("%s %s: element %zu is %.9g, %.9g rounded is %.9g", k->name, name, i, (double)from_bf16(got[i]), (double)exact[i], rounded(exact[i]));
        }
    }
    assert_int_equal(got[n], 0xabcd);   // what lies behind is as it was
}

// Every layer that stores rows, in f32 and in bf16. A row has `heads` · dim numbers.
static void check_stored(const Kernels *k, size_t n, size_t heads, size_t dim)
{
    size_t row = heads * dim, count = n * row;
    float *x = random_floats(2 * count, 1), *z = random_floats(count, 2), *w = random_floats(row, 3), *exact = malloc((2 * count + 1) * sizeof *exact);
    uint16_t *halves = malloc((2 * count + 1) * sizeof *halves);
    assert_true(exact != NULL && halves != NULL);
    Rows out = {halves, true};
    x[count / 2] = NAN;
    halves[count] = 0xabcd;
    k->round_bf16(halves, x, count);
    check_rounded(k, "round_bf16", halves, x, count);
    k->rmsnorm_forward(rows_f32(exact), x, w, 1e-3f, n, row);
    k->rmsnorm_forward(out, x, w, 1e-3f, n, row);
    check_rounded(k, "rmsnorm_forward", halves, exact, count);
    k->gate_forward(rows_f32(exact), x, z, row, w, 1e-3f, n, heads, dim);
    k->gate_forward(out, x, z, row, w, 1e-3f, n, heads, dim);
    check_rounded(k, "gate_forward", halves, exact, count);
    k->swiglu_forward(rows_f32(exact), rows_f32(x), n, row);
    k->swiglu_forward(out, rows_f32(x), n, row);
    check_rounded(k, "swiglu_forward", halves, exact, count);
    // From inputs in bf16: those of f32 inputs that bf16 holds. The gradient in their place.
    Rows h = rows_bf16(x, 2 * count);
    for (size_t i = 0; i < 2 * count; i++) {
        x[i] = from_bf16(((const uint16_t *)h.data)[i]);
    }
    k->swiglu_forward(rows_f32(exact), rows_f32(x), n, row);
    k->swiglu_forward(out, h, n, row);
    check_rounded(k, "swiglu_forward of bf16", halves, exact, count);
    memcpy(halves, h.data, 2 * count * sizeof *halves);
    halves[2 * count] = 0xabcd;
    k->swiglu_backward(rows_f32(exact), z, rows_f32(x), n, row);
    k->swiglu_backward(out, z, out, n, row);
    check_rounded(k, "swiglu_backward in place", halves, exact, 2 * count);
    free(x), free(z), free(w), free(exact), free(halves), free(h.data);
}

static void test_stored(void **state)
{
    (void)state;
    for (const Kernels *const *k = kernels_available(); *k != NULL; k++) {
        check_stored(*k, 1, 1, 1);
        check_stored(*k, 3, 2, 63);
        check_stored(*k, 65, 3, 16);
        check_stored(*k, 67, 1, 1000);
    }
}

static const ModelConfig small = {.vocab_size = 97, .d_model = 64, .n_layer = 2, .n_head = 2, .d_head = 32, .n_slot = 32, .conv_width = 4, .mlp_hidden = 96,
                                  .norm_eps = 1e-6, .tie_embeddings = true, .mixer = "lattice", .objective = "decode", .chunk = 1, .chunk_form = "frozen",
                                  .chunk_norm = "token", .forget_gate = true};

static double relative_rms(const float *a, const float *b, size_t n)
{
    double difference = 0.0, size = 0.0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    double error = sqrt(difference / size);
    return isnan(error) ? INFINITY : error;
}

static double run_model(Model *model, Workspace *w, float *grad, const int32_t *tokens, size_t batch, size_t length)
{
    memset(grad, 0, model->table.total * sizeof *grad);
    model_forward(model, w, NULL, 0, tokens, batch, length);
    double loss = model_loss(NULL, grad, model, w, tokens + 1, 1.0f / (float)(batch * length));
    model_backward(grad, model, w, tokens);
    return loss / (double)(batch * length);
}

static void test_model(void **state)
{
    (void)state;
    Error error;
    int32_t tokens[2 * 70 + 1];
    Rng rng;
    rng_seed(&rng, 3, 1);
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        tokens[i] = (int32_t)rng_below(&rng, 97);
    }
    for (const Kernels *const *k = kernels_available(); *k != NULL; k++) {
        Model model;
        assert_int_equal(model_create(&model, &small, *k, &error), 0);
        model_init(&model, 1, 70);
        Workspace *w = workspace_create(&model, 2, 70, WORKSPACE_TRAINING, &error);
        assert_non_null(w);
        float *exact = malloc(model.table.total * sizeof *exact), *grad = malloc(model.table.total * sizeof *grad);
        double loss = run_model(&model, w, exact, tokens, 2, 70);
        workspace_free(w);
        assert_int_equal(model_use_bf16(&model, &error), 0);
        w = workspace_create(&model, 2, 70, WORKSPACE_TRAINING, &error);
        assert_non_null(w);
        assert_true(fabs(run_model(&model, w, grad, tokens, 2, 70) / loss - 1.0) < 1e-3);
        for (size_t i = 0; i < model.table.count; i++) {
            const Tensor *tensor = &model.table.items[i];
            double rms = relative_rms(grad + tensor->offset, exact + tensor->offset, tensor->count);
            assert_true(rms < 3e-2 && rms > 0.0);   // not 0: bf16 must really have been used
        }
        free(exact), free(grad);
        workspace_free(w);
        model_free(&model);
    }
}

// Loss over the last hundred AdamW steps on a periodic text with noise; the rate falls to zero as in real runs, or chance would move the end.
static double train(bool bf16, uint64_t seed)
{
    enum { BATCH = 4, LENGTH = 32 };
    const int steps = (int)rounds(1000, 300);
    Error error;
    Model model;
    assert_int_equal(model_create(&model, &small, kernels_available()[0], &error), 0);
    model_init(&model, seed, LENGTH);
    assert_true(!bf16 || model_use_bf16(&model, &error) == 0);
    Workspace *w = workspace_create(&model, BATCH, LENGTH, WORKSPACE_TRAINING, &error);
    assert_non_null(w);
    size_t n = model.table.total;
    float *grad = malloc(n * sizeof *grad), *m = calloc(n, sizeof *m), *v = calloc(n, sizeof *v);
    double tail = 0.0;
    Rng rng;
    rng_seed(&rng, 4 + seed, 1);
    for (int step = 1; step <= steps; step++) {
        int32_t tokens[BATCH * LENGTH + 1];
        for (int i = 0; i <= BATCH * LENGTH; i++) {
            tokens[i] = rng_below(&rng, 8) == 0 ? (int32_t)rng_below(&rng, 97) : (int32_t)((i * 5 + step % 7) % 97);
        }
        double loss = run_model(&model, w, grad, tokens, BATCH, LENGTH);
        tail += step > steps - 100 ? loss / 100.0 : 0.0;
        float rate = 2e-3f * (1.0f - (float)step / (float)steps);
        model.kernels->adamw(model.params, m, v, grad, n, 1.0f, rate, 0.9f, 0.95f, 1e-8f, 0.0f, 1.0f - powf(0.9f, (float)step), 1.0f - powf(0.95f, (float)step));
        model_update_bf16(&model);
    }
    free(grad), free(m), free(v);
    workspace_free(w);
    model_free(&model);
    return tail;
}

static void test_training_tracks(void **state)
{
    (void)state;
#ifdef _OPENMP
    int most = omp_get_max_threads();
    omp_set_num_threads(1);   // the model is so small that threads would only wait for each other
#endif
    // Any rounding sets a run on a path of its own: the losses of two differ by chance, by half a per cent in the mean square, less over two pairs of runs.
    double exact = 0.0, bf16 = 0.0;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        exact += train(false, seed) / 2.0;
        bf16 += train(true, seed) / 2.0;
    }
#ifdef _OPENMP
    omp_set_num_threads(most);
#endif
    print_message("loss at the end: f32 %.4f, bf16 %.4f\n", exact, bf16);
    assert_true(exact < 2.0);   // it learned something
    assert_true(fabs(bf16 / exact - 1.0) < (rounds(1000, 300) == 1000 ? 0.01 : 0.02));   // a short run ends more by chance
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_large_outputs),
        cmocka_unit_test(test_prepared),
        cmocka_unit_test(test_stored),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_training_tracks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
