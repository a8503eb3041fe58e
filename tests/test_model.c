// The fast model of every instruction set: against the reference, as something that learns, and the same by every way to run it.
#include "model/workspace.h"
#include "tests/model.h"

// ---- Against the reference ----

static void test_against_reference(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {{2, 19}, {1, 1}, {3, 70}, {1, 33}};
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        for (size_t i = 0; i < 8; i++) {
            ModelConfig config = small_config(i % 2 == 0, i / 2 % 2 == 0 ? 43 : 0, i / 4 == 0);
            check_threads(1 + (int)(i % 2));
            check_model(&config, sizes[i % 4][0], sizes[i % 4][1], *kernels);
        }
        ModelConfig one = {.vocab_size = 2, .d_model = 1, .n_layer = 1, .n_head = 1, .d_head = 2, .n_slot = 1, .conv_width = 1, .mlp_hidden = 1, .norm_eps = 1e-2,
                           .tie_embeddings = false, .mixer = "lattice", .objective = "decode", .chunk = 1, .chunk_form = "frozen", .chunk_norm = "token"};
        check_model(&one, 2, 5, *kernels);
        ModelConfig wide = small_config(true, 100, true);
        wide.d_model = 96;
        wide.n_head = 2;
        wide.d_head = 48;
        wide.n_slot = 64;
        wide.conv_width = 3;
        check_model(&wide, 2, 40, *kernels);
    }
}

// ---- Learning ----

static void test_loss_at_start(void **state)
{
    (void)state;
    Error error;
    ModelConfig config;
    assert_int_equal(config_preset(&config, "nano", &error), 0);
    for (int tied = 0; tied < 2; tied++) {
        Pool pool = {0};
        Rng rng;
        Model model;
        rng_seed(&rng, 3, 0);
        config.tie_embeddings = tied == 1;
        Workspace *workspace = new_model(&model, &config, kernels_available()[0], 2, 64);
        int32_t *tokens = random_tokens(&pool, &rng, 2 * 64, config.vocab_size, false), *targets = random_tokens(&pool, &rng, 2 * 64, config.vocab_size, false);
        model_forward(&model, workspace, NULL, 0, tokens, 2, 64);
        double loss = model_loss(NULL, NULL, &model, workspace, targets, 1.0f) / (2 * 64);
        if (!(fabs(loss - log((double)config.vocab_size)) < 0.1)) {
            fail_msg("the loss at the start is %.3f, ln V is %.3f", loss, log((double)config.vocab_size));
        }
        free_model(&model, workspace);
        pool_free(&pool);
    }
}

// Mean of a parameter's numbers, and their RMS around it.
static double start_value(const ModelConfig *config, const char *name, double *spread)
{
    Model model;
    Workspace *workspace = new_model(&model, config, kernels_available()[0], 1, 512);
    const Tensor *tensor = tensor_find(&model.table, name);
    double sum = 0.0, squares = 0.0;
    assert_non_null(tensor);
    for (size_t i = 0; i < tensor->count; i++) {
        double x = (double)model.params[tensor->offset + i];
        sum += x;
        squares += x * x;
    }
    double count = (double)tensor->count, mean = sum / count;
    *spread = sqrt(squares / count - mean * mean);
    free_model(&model, workspace);
    return mean;
}

// Slots and write gates start as the keys of parametrisation say; how strongly a token writes at first does not depend on the gate's range.
static void test_start_values(void **state)
{
    (void)state;
    Error error;
    ModelConfig config;
    double spread, intensity = sqrt(64.0 / (2.0 * 512.0 * 64.0)), direction = 1.0 / 8.0;
    assert_int_equal(config_preset(&config, "nano", &error), 0);
    assert_true(fabs(start_value(&config, "layers.0.mixer.state0", &spread) - direction) < 2e-3 && fabs(spread - 0.02) < 1e-3);
    assert_true(fabs(start_value(&config, "layers.1.mixer.g.bias", &spread) - log(intensity / (1.0 - intensity))) < 1e-5);
    config.random_start = config.wide_gate = true;
    assert_true(fabs(start_value(&config, "layers.0.mixer.state0", &spread)) < 6e-3 && fabs(spread - direction) < 5e-3);
    assert_true(fabs(2.0 / (1.0 + exp(-start_value(&config, "layers.1.mixer.g.bias", &spread))) - intensity) < 1e-6);
    config.gate_shift = -1.5;
    assert_true(fabs(start_value(&config, "layers.1.mixer.g.bias", &spread) - (log(intensity / (2.0 - intensity)) - 1.5)) < 1e-5);
    // A softmax makes keys shorter by √m: writes begin as much stronger.
    config.n_slot = 16;
    config.softmax_codes = config.scaled_keys = config.slot_gate = true;
    intensity = 16.0 / sqrt(2.0 * 512.0 * 64.0);
    assert_true(fabs(start_value(&config, "layers.1.mixer.g.bias", &spread) - (log(intensity / (2.0 - intensity)) - 1.5)) < 1e-5 && spread < 1e-6);
    // Values shorter by √d: and stronger by that.
    config.unit_values = true;
    config.n_slot = 4;
    intensity = 4.0 / sqrt(2.0 * 512.0);
    assert_true(fabs(start_value(&config, "layers.1.mixer.g.bias", &spread) - (log(intensity / (2.0 - intensity)) - 1.5)) < 1e-5 && spread < 1e-6);
    assert_true(start_value(&config, "layers.1.mixer.k_scale", &spread) == 1.0 && spread == 0.0);
}

static void test_overfit(void **state)
{
    (void)state;
    check_threads(1);   // so small a model is slower with more
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        for (int i = 0; i < 2; i++) {
            ModelConfig config = small_config(i == 0, i == 0 ? 48 : 0, i == 1);
            config.d_model = 32;
            check_overfit(&config, *kernels);
        }
    }
}

// ---- The same by every way to run it ----

static void test_four_ways(void **state)
{
    (void)state;
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        for (int i = 0; i < 4; i++) {
            ModelConfig config = small_config(i % 2 == 0, i % 2 == 0 ? 43 : 0, i / 2 == 0);
            check_ways(&config, *kernels);
        }
    }
}

static void test_threads(void **state)
{
    (void)state;
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        ModelConfig config = small_config(true, 43, true);
        check_model_threads(&config, 3, 70, *kernels);
        config = small_config(false, 200, false);
        config.vocab_size = 300;
        config.d_model = 96;
        check_model_threads(&config, 2, 150, *kernels);
    }
}

// Eight micro-batches of one sequence give the gradient of one batch of eight, also where different numbers of targets count.
static void test_accumulation(void **state)
{
    (void)state;
    enum { BATCH = 8, LENGTH = 33 };
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        ModelConfig config = small_config(true, 43, true);
        Pool pool = {0};
        Rng rng;
        Model model;
        rng_seed(&rng, 13, 0);
        Workspace *workspace = new_model(&model, &config, *kernels, BATCH, LENGTH);
        for (size_t i = 0; i < model.table.total; i++) {
            model.params[i] += (float)(0.1 * rng_normal(&rng));
        }
        int32_t *tokens = random_tokens(&pool, &rng, BATCH * LENGTH, config.vocab_size, false);
        int32_t *targets = random_tokens(&pool, &rng, BATCH * LENGTH, config.vocab_size, true);
        for (size_t i = 0; i < LENGTH - 3; i++) {
            targets[2 * LENGTH + i] = -1;
        }
        float *whole = pool_floats(&pool, model.table.total), *parts = pool_floats(&pool, model.table.total);
        double loss = train_pass(whole, &model, workspace, tokens, targets, 0.01f, BATCH, LENGTH), sum = 0.0;
        for (size_t b = 0; b < BATCH; b++) {
            sum += train_pass(parts, &model, workspace, tokens + b * LENGTH, targets + b * LENGTH, 0.01f, 1, LENGTH);
        }
        assert_true(fabs(sum - loss) <= 1e-6 * loss);
        check_close((*kernels)->name, "8 × 1 against 1 × 8", parts, to_doubles(&pool, whole, model.table.total), model.table.total, 1e-6);
        free_model(&model, workspace);
        pool_free(&pool);
    }
}

// Rows whose targets do not count stand anywhere between the others: two halves that complete each other bring the losses and gradients of the whole,
// however many rows go through the head at once.
static void check_halves(bool bf16, size_t rows_at_once, const Kernels *kernels)
{
    enum { BATCH = 2, LENGTH = 33, N = BATCH * LENGTH };
    ModelConfig config = small_config(rows_at_once % 2 == 0, 43, true);
    Pool pool = {0};
    Rng rng;
    Model model;
    rng_seed(&rng, 19, rows_at_once);
    Workspace *workspace = new_model_in(&model, &config, bf16, kernels, BATCH, LENGTH);
    workspace->logit_rows = rows_at_once;
    int32_t *tokens = random_tokens(&pool, &rng, N, config.vocab_size, false), *targets = random_tokens(&pool, &rng, N, config.vocab_size, false);
    float *whole = pool_floats(&pool, model.table.total), *parts = pool_floats(&pool, model.table.total), *losses = pool_floats(&pool, N);
    float *half_losses = pool_floats(&pool, N);
    bool first_half[N];
    model_forward(&model, workspace, NULL, 0, tokens, BATCH, LENGTH);
    model_loss(losses, NULL, &model, workspace, targets, 0.0f);
    double loss = train_pass(whole, &model, workspace, tokens, targets, 0.01f, BATCH, LENGTH), sum = 0.0;
    for (size_t i = 0; i < N; i++) {
        first_half[i] = i < 9 || (i > 20 && rng_below(&rng, 2) == 0);
    }
    for (int half = 0; half < 2; half++) {
        int32_t *own = pool_ints(&pool, N);
        for (size_t i = 0; i < N; i++) {
            own[i] = first_half[i] == (half == 0) ? targets[i] : -1;
            half_losses[i] = 7.0f;
        }
        model_forward(&model, workspace, NULL, 0, tokens, BATCH, LENGTH);
        model_loss(half_losses, NULL, &model, workspace, own, 0.0f);
        sum += train_pass(parts, &model, workspace, tokens, own, 0.01f, BATCH, LENGTH);
        for (size_t i = 0; i < N; i++) {
            assert_true(fabsf(half_losses[i] - (own[i] < 0 ? 0.0f : losses[i])) <= (bf16 ? 1e-3f : 1e-5f) * losses[i]);
        }
    }
    assert_true(fabs(sum - loss) <= 1e-6 * loss);
    check_close(kernels->name, "two halves", parts, to_doubles(&pool, whole, model.table.total), model.table.total, bf16 ? 4e-3 : 1e-6);
    free_model(&model, workspace);
    pool_free(&pool);
}

static void test_targets_that_do_not_count(void **state)
{
    (void)state;
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        for (size_t rows = 1; rows <= 66; rows += 13) {
            check_halves(false, rows, *kernels);
            check_halves(true, rows, *kernels);
        }
    }
}

// ---- Recomputation in the backward ----

static void test_recompute(void **state)
{
    (void)state;
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        for (int i = 0; i < 8; i++) {
            ModelConfig config = small_config(i % 2 == 0, i / 2 % 2 == 0 ? 43 : 0, i / 4 == 0);
            config.n_layer = 1 + i % 3;
            check_threads(1 + i % 2);
            check_recompute(&config, 2, 35, i % 3 == 1, *kernels);
        }
        // Each of the scratch buffers that share memory is the largest once.
        ModelConfig config = small_config(true, 300, false);
        check_recompute(&config, 1, 70, false, *kernels);
        config.d_model = 150;
        config.mlp_hidden = 5;
        check_recompute(&config, 3, 33, true, *kernels);
        config.n_slot = 40;
        config.n_head = 1;
        config.n_layer = 2;
        check_recompute(&config, 2, 3, false, *kernels);
    }
}

// A NaN in any parameter reaches the loss; nothing counts: loss and gradients are zero.
static void test_nan_and_nothing(void **state)
{
    (void)state;
    enum { BATCH = 2, LENGTH = 20 };
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        ModelConfig config = small_config(false, 43, true);
        Pool pool = {0};
        Rng rng;
        Model model;
        rng_seed(&rng, 17, 0);
        Workspace *workspace = new_model(&model, &config, *kernels, BATCH, LENGTH);
        int32_t *tokens = random_tokens(&pool, &rng, BATCH * LENGTH, config.vocab_size, false), *none = pool_ints(&pool, BATCH * LENGTH);
        float *grads = pool_floats(&pool, model.table.total);
        for (size_t i = 0; i < model.table.count; i++) {
            const Tensor *tensor = &model.table.items[i];
            // In the embedding, a row that is in use.
            float *x = &model.params[tensor->offset + (strcmp(tensor->name, "embed.weight") == 0 ? (size_t)tokens[3] * 21 : tensor->count - 1)], before = *x;
            *x = NAN;
            model_forward(&model, workspace, NULL, 0, tokens, BATCH, LENGTH);
            if (!isnan(model_loss(NULL, NULL, &model, workspace, tokens, 1.0f))) {
                fail_msg("%s: NaN in %s does not reach the loss", (*kernels)->name, tensor->name);
            }
            *x = before;
        }
        for (size_t i = 0; i < BATCH * LENGTH; i++) {
            none[i] = -1;
        }
        assert_true(train_pass(grads, &model, workspace, tokens, none, 1.0f, BATCH, LENGTH) == 0.0);
        for (size_t i = 0; i < model.table.total; i++) {
            assert_true(grads[i] == 0.0f);
        }
        free_model(&model, workspace);
        pool_free(&pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_reference), cmocka_unit_test(test_loss_at_start), cmocka_unit_test(test_overfit),
        cmocka_unit_test(test_four_ways),         cmocka_unit_test(test_threads),       cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_recompute),         cmocka_unit_test(test_nan_and_nothing),
        cmocka_unit_test(test_start_values),      cmocka_unit_test(test_targets_that_do_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
