// Models of every mixer, every form and ablation of Lattice, and stacks that mix them (tests/choices.h): against the reference, by every way to run them,
// with several threads, with recomputation in the backward, in bf16.
#include "tests/choices.h"
#include "tests/model.h"

static void test_against_reference(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {{2, 19}, {1, 37}, {3, 13}};   // of one token a memory that starts empty tells the query nothing but rounding
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        for (size_t i = 0; i < MODEL_CHOICES; i++) {
            ModelConfig config = small_config(i % 2 == 0, i % 3 == 0 ? 43 : 0, false);
            make_choice(&config, &model_choices[i]);
            check_threads(1 + (int)(i % 2));
            check_model(&config, sizes[i % 3][0], sizes[i % 3][1], *kernels);
        }
    }
}

static void test_four_ways(void **state)
{
    (void)state;
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        for (size_t i = 0; i < MODEL_CHOICES; i++) {
            ModelConfig config = small_config(true, 0, false);
            make_choice(&config, &model_choices[i]);
            check_ways(&config, *kernels);
        }
    }
}

static void test_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODEL_CHOICES; i++) {
        ModelConfig config = small_config(true, 43, false);
        make_choice(&config, &model_choices[i]);
        check_model_threads(&config, 3, 70, kernels_available()[0]);
    }
}

static void test_recompute(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODEL_CHOICES; i++) {
        ModelConfig config = small_config(true, i % 2 == 0 ? 43 : 0, false);
        make_choice(&config, &model_choices[i]);
        config.n_layer = 3;
        check_recompute(&config, 2, 35, i % 3 == 1, kernels_available()[0]);
    }
}

// Products in bf16 change every gradient a little and none much.
static void test_bf16(void **state)
{
    (void)state;
    enum { BATCH = 2, LENGTH = 41 };
    for (size_t i = 0; i < MODEL_CHOICES; i++) {
        ModelConfig config = small_config(true, 96, false);
        config.d_model = 64;
        config.d_head = config.n_slot = 32;
        make_choice(&config, &model_choices[i]);
        Pool pool = {0};
        Rng rng;
        Model model;
        Error error_text;
        rng_seed(&rng, 19, i);
        Workspace *workspace = new_model(&model, &config, kernels_available()[0], BATCH, LENGTH), *rounded;
        int32_t *tokens = random_tokens(&pool, &rng, BATCH * LENGTH, config.vocab_size, false);
        int32_t *targets = random_tokens(&pool, &rng, BATCH * LENGTH, config.vocab_size, true);
        size_t total = model.table.total;
        float *exact = pool_floats(&pool, total), *grads = pool_floats(&pool, total);
        double loss = train_pass(exact, &model, workspace, tokens, targets, 0.01f, BATCH, LENGTH);
        assert_int_equal(model_use_bf16(&model, &error_text), 0);
        rounded = workspace_create(&model, BATCH, LENGTH, WORKSPACE_TRAINING, &error_text);
        assert_non_null(rounded);
        assert_true(fabs(train_pass(grads, &model, rounded, tokens, targets, 0.01f, BATCH, LENGTH) / loss - 1.0) < 1e-3);
        for (size_t k = 0; k < model.table.count; k++) {
            const Tensor *tensor = &model.table.items[k];
            double *expected = to_doubles(&pool, exact + tensor->offset, tensor->count);
            double error = relative_rms(to_doubles(&pool, grads + tensor->offset, tensor->count), expected, tensor->count);
            // At the start keys and queries are small before their norm: weights off by 1e-3 alone change some gradients by a tenth. That the products
            // themselves are right is test_bf16's to show; here each mixer must take them.
            if (!(error > 0.0 && error < 0.5)) {
                fail_msg("%s: gradient of %s in bf16: relative RMS error %.2e", config.mixer, tensor->name, error);
            }
        }
        workspace_free(rounded);
        free_model(&model, workspace);
        pool_free(&pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_reference), cmocka_unit_test(test_four_ways), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_recompute),         cmocka_unit_test(test_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
