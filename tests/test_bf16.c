// Products with bf16 factors: against f32 products of rounded factors, on odd sizes, for every instruction set; the bits for any number of threads;
// a whole model's loss and gradients near f32's; and training that tracks f32.
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

static double rounded(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
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
    k->linear_forward_bf16(out, x, w, n, n_in, n_out);
    assert_true(product_error(out, NULL, x, n_in, 1, w, 1, n_in, n, n_out, n_in) < 2e-6);
    k->linear_backward_input_bf16(dx, out, w, n, n_in, n_out, true);
    assert_true(product_error(dx, dx_start, out, n_out, 1, w, n_in, 1, n, n_in, n_out) < 2e-6);
    k->linear_backward_weight_bf16(dw, out, x, n, n_in, n_out);
    assert_true(product_error(dw, dw_start, out, 1, n_out, x, n_in, 1, n_out, n_in, n) < 2e-6);
#ifdef _OPENMP
    int most = omp_get_max_threads();
    for (int threads = 1; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        k->linear_forward_bf16(again, x, w, n, n_in, n_out);
        assert_memory_equal(again, out, n * n_out * sizeof *out);
    }
    omp_set_num_threads(most);
#endif
    x[0] = NAN;
    k->linear_forward_bf16(again, x, w, n, n_in, n_out);
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
        model.bf16 = true;
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
static double train(bool bf16)
{
    enum { BATCH = 4, LENGTH = 32 };
    const int steps = (int)rounds(1000, 300);
    Error error;
    Model model;
    assert_int_equal(model_create(&model, &small, kernels_available()[0], &error), 0);
    model_init(&model, 1, LENGTH);
    model.bf16 = bf16;
    Workspace *w = workspace_create(&model, BATCH, LENGTH, WORKSPACE_TRAINING, &error);
    assert_non_null(w);
    size_t n = model.table.total;
    float *grad = malloc(n * sizeof *grad), *m = calloc(n, sizeof *m), *v = calloc(n, sizeof *v);
    double tail = 0.0;
    Rng rng;
    rng_seed(&rng, 5, 1);
    for (int step = 1; step <= steps; step++) {
        int32_t tokens[BATCH * LENGTH + 1];
        for (int i = 0; i <= BATCH * LENGTH; i++) {
            tokens[i] = rng_below(&rng, 8) == 0 ? (int32_t)rng_below(&rng, 97) : (int32_t)((i * 5 + step % 7) % 97);
        }
        double loss = run_model(&model, w, grad, tokens, BATCH, LENGTH);
        tail += step > steps - 100 ? loss / 100.0 : 0.0;
        float rate = 2e-3f * (1.0f - (float)step / (float)steps);
        model.kernels->adamw(model.params, m, v, grad, n, 1.0f, rate, 0.9f, 0.95f, 1e-8f, 0.0f, 1.0f - powf(0.9f, (float)step), 1.0f - powf(0.95f, (float)step));
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
    double exact = train(false), bf16 = train(true);
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
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_training_tracks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
