// Muon: its iteration and its step against the reference, what the iteration does to singular values, which tensors it takes.
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "model/params.h"
#include "tests/check.h"
#include "training/muon.h"
#include "training/optimizer.h"

static const size_t shapes[][2] = {{1, 1}, {1, 40}, {40, 1}, {3, 5}, {17, 17}, {48, 20}, {20, 48}, {64, 192}, {192, 64}, {97, 33}};

#define N_SHAPES (sizeof shapes / sizeof shapes[0])

static void check_orthogonalise(size_t rows, size_t cols, bool bf16, double scale, const Kernels *kernels)
{
    Pool pool = {0};
    Rng rng;
    rng_seed(&rng, rows, cols);
    char where[96];
    snprintf(where, sizeof where, "%s%s %zu × %zu, scale %g", kernels->name, bf16 ? " bf16" : "", rows, cols, scale);
    size_t side = rows < cols ? rows : cols, count = rows * cols;
    float *x = random_floats(&pool, &rng, count, scale), *first = copy_floats(&pool, x, count), *scratch = pool_floats(&pool, count + 2 * side * side);
    double *expected = to_doubles(&pool, x, count);
    reference_orthogonalise(expected, rows, cols);
    check_threads(1);
    float *result = muon_orthogonalise(x, scratch, rows, cols, kernels, bf16), *kept = copy_floats(&pool, result, count);
    check_close(where, "orthogonal matrix", kept, expected, count, bf16 ? 1e-1 : 1e-4);   // the polynomial is steep: it widens what bf16 rounds
    // Small products are not shared out.
    for (int threads = 2; threads <= 3 && count > 4096; threads++) {
        check_threads(threads);
        memcpy(x, first, count * sizeof *x);
        check_bits(where, "with more threads", muon_orthogonalise(x, scratch, rows, cols, kernels, bf16), kept, count);
    }
    pool_free(&pool);
}

static void test_orthogonalise(void **state)
{
    (void)state;
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        for (size_t i = 0; i < N_SHAPES; i++) {
            check_orthogonalise(shapes[i][0], shapes[i][1], false, 1.0, *kernels);
            check_orthogonalise(shapes[i][0], shapes[i][1], true, 1.0, *kernels);
        }
        check_orthogonalise(17, 30, false, 1e-12, *kernels);
        check_orthogonalise(17, 30, false, 1e12, *kernels);
    }
}

// n orthonormal rows of `size` numbers (Gram-Schmidt, twice for rounding).
static double *orthonormal_rows(Pool *pool, Rng *rng, size_t n, size_t size)
{
    double *rows = random_doubles(pool, rng, n * size, 1.0);
    for (size_t i = 0; i < n; i++) {
        double *row = rows + i * size;
        for (size_t j = 0; j < 2 * i; j++) {
            const double *other = rows + j % i * size;
            double part = reference_dot(row, other, size);
            for (size_t k = 0; k < size; k++) {
                row[k] -= part * other[k];
            }
        }
        double length = sqrt(reference_dot(row, row, size));
        for (size_t k = 0; k < size; k++) {
            row[k] /= length;
        }
    }
    return rows;
}

// A matrix Uᵀ diag(s) V of known singular values s becomes Uᵀ diag(t) V with every t near 1.
static void test_singular_values(void **state)
{
    (void)state;
    enum { ROWS = 24, COLS = 60 };
    Pool pool = {0};
    Rng rng;
    rng_seed(&rng, 7, 0);
    double *u = orthonormal_rows(&pool, &rng, ROWS, ROWS), *v = orthonormal_rows(&pool, &rng, ROWS, COLS);
    float *x = pool_floats(&pool, ROWS * COLS), *scratch = pool_floats(&pool, ROWS * COLS + 2 * ROWS * ROWS);
    for (size_t s = 0; s < ROWS; s++) {
        double value = pow(10.0, -1.3 * (double)s / (ROWS - 1));   // from 1 to 0.05
        for (size_t i = 0; i < ROWS * COLS; i++) {
            x[i] += (float)(value * u[s * ROWS + i / COLS] * v[s * COLS + i % COLS]);
        }
    }
    const float *result = muon_orthogonalise(x, scratch, ROWS, COLS, kernels_available()[0], false);
    for (size_t s = 0; s < ROWS; s++) {
        for (size_t t = 0; t < ROWS; t++) {
            double sum = 0.0;
            for (size_t i = 0; i < ROWS * COLS; i++) {
                sum += u[s * ROWS + i / COLS] * (double)result[i] * v[t * COLS + i % COLS];
            }
            if (s == t ? !(sum > 0.68 && sum < 1.22) : !(fabs(sum) < 1e-4)) {
                fail_msg("singular value %zu, %zu is %g", s, t, sum);
            }
        }
    }
    pool_free(&pool);
}

// Zeros have no direction, and numbers near the end of f32's range have no inverse in it: both move nothing. A NaN stays visible.
static void test_extremes(void **state)
{
    (void)state;
    enum { ROWS = 5, COLS = 9, COUNT = ROWS * COLS };
    float x[COUNT], scratch[COUNT + 2 * ROWS * ROWS];
    const Kernels *kernels = kernels_available()[0];
    const float fills[2] = {0.0f, 1e-37f};
    for (size_t i = 0; i < 2; i++) {
        fill_floats(x, COUNT, fills[i]);
        const float *result = muon_orthogonalise(x, scratch, ROWS, COLS, kernels, false);
        for (size_t j = 0; j < COUNT; j++) {
            assert_true(result[j] == 0.0f);
        }
    }
    fill_floats(x, COUNT, 1.0f);
    x[7] = NAN;
    float sum = 0.0f;
    const float *result = muon_orthogonalise(x, scratch, ROWS, COLS, kernels, false);
    for (size_t j = 0; j < COUNT; j++) {
        sum += result[j];
    }
    assert_true(isnan(sum));
}

// ---- the whole optimizer ----

static ModelConfig small_config(void)
{
    ModelConfig config;
    assert_int_equal(config_preset(&config, "nano", NULL), 0);
    config.vocab_size = 50;
    config.d_model = 30;
    config.n_layer = 2;
    config.n_head = 3;
    config.d_head = 12;
    config.n_slot = 7;
    config.mlp_hidden = 44;
    config.forget_gate = true;
    config.tie_embeddings = false;
    return config;
}

static void test_takes(void **state)
{
    (void)state;
    Error error;
    TensorTable table;
    ModelConfig config = small_config();
    assert_int_equal(params_table(&table, &config, &error), 0);
    size_t taken = 0;
    for (size_t i = 0; i < table.count; i++) {
        bool takes = muon_takes(&table.items[i]);
        taken += takes;
        // Gates have one row a head: no matrix to turn.
        assert_true(!takes || (table.items[i].is_matrix && table.items[i].shape[0] > 3 && table.items[i].shape[1] > 3));
    }
    assert_int_equal(taken, 8 * config.n_layer);
    assert_true(muon_takes(tensor_find(&table, "layers.1.mixer.q.weight")));
    assert_false(muon_takes(tensor_find(&table, "embed.weight")));
    assert_false(muon_takes(tensor_find(&table, "head.weight")));
    assert_false(muon_takes(tensor_find(&table, "layers.0.mixer.g.weight")));
    assert_false(muon_takes(tensor_find(&table, "layers.0.mixer.q_conv.weight")));
    // Less state than AdamW's by one number for every weight taken; w1 and w3 need the most scratch.
    size_t matrices = 2 * (2 * 21 * 30 + 3 * 36 * 30 + 3 * 44 * 30);
    assert_true(optimizer_bytes(OPTIMIZER_ADAMW, &table) == (double)(8 * table.total));
    for (int threads = 1; threads <= 3; threads += 2) {
        size_t scratch = (size_t)check_threads(threads) * (2 * 44 * 30 + 2 * 30 * 30);
        assert_true(optimizer_bytes(OPTIMIZER_MUON, &table) == (double)(4 * (2 * table.total - matrices + scratch)));
    }
    tensor_table_free(&table);
}

// One parameter tensor through three steps of the reference.
static void check_tensor(const Tensor *tensor, const Model *model, const Optimizer *optimizer, const float *start, float *const grads[3])
{
    Pool pool = {0};
    size_t n = tensor->count;
    double *p = to_doubles(&pool, start + tensor->offset, n), *m = pool_doubles(&pool, n), *v = pool_doubles(&pool, n);
    double decay = tensor->is_matrix ? 0.1 : 0.0;
    for (int step = 1; step <= 3; step++) {
        double *grad = to_doubles(&pool, grads[step - 1] + tensor->offset, n);
        if (muon_takes(tensor)) {
            reference_muon(p, m, grad, tensor->shape[0], tensor->shape[1], 0.5, 0.01 * step, 0.95, decay);
        } else {
            reference_adamw(p, m, v, grad, n, 0.5, 0.01 * step, 0.9, 0.95, 1e-8, decay, step);
        }
    }
    check_close(tensor->name, "parameters", model->params + tensor->offset, p, n, 1e-5);
    check_close(tensor->name, "momentum", optimizer->m + tensor->offset, m, n, 1e-5);
    for (size_t i = 0; i < optimizer->v_table.count; i++) {
        if (strcmp(optimizer->v_table.items[i].name, tensor->name) == 0) {
            check_close(tensor->name, "second moment", optimizer->v + optimizer->v_table.items[i].offset, v, n, 1e-5);
        }
    }
    pool_free(&pool);
}

static void test_step(void **state)
{
    (void)state;
    Pool pool = {0};
    Error error;
    Rng rng;
    Model model;
    Optimizer optimizer;
    ModelConfig config = small_config();
    assert_int_equal(model_create(&model, &config, kernels_available()[0], &error), 0);
    model_init(&model, 1, 64);
    rng_seed(&rng, 11, 0);
    size_t total = model.table.total;
    float *start = copy_floats(&pool, model.params, total), *grads[3];
    check_threads(2);   // the third step has a thread more than there was scratch for
    assert_int_equal(optimizer_create(&optimizer, OPTIMIZER_MUON, &model.table, 0.1, &error), 0);
    for (int step = 1; step <= 3; step++) {
        grads[step - 1] = random_floats(&pool, &rng, total, 1.0);
        check_threads(step);
        optimizer_step(&optimizer, &model, grads[step - 1], 0.5, 0.01 * step);
    }
    assert_int_equal(optimizer.updates, 3);
    assert_int_equal(optimizer.v_table.count, model.table.count - 16);
    for (size_t i = 0; i < model.table.count; i++) {
        check_tensor(&model.table.items[i], &model, &optimizer, start, grads);
    }
    optimizer_free(&optimizer);
    model_free(&model);
    pool_free(&pool);
}

static void test_names(void **state)
{
    (void)state;
    Error error;
    OptimizerKind kind;
    assert_int_equal(optimizer_kind(&kind, "adamw", &error), 0);
    assert_int_equal(kind, OPTIMIZER_ADAMW);
    assert_int_equal(optimizer_kind(&kind, "muon", &error), 0);
    assert_int_equal(kind, OPTIMIZER_MUON);
    assert_int_equal(optimizer_kind(&kind, "sgd", &error), -1);
    assert_non_null(strstr(error.text, "adamw and muon"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orthogonalise), cmocka_unit_test(test_singular_values), cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_takes),         cmocka_unit_test(test_step),            cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
