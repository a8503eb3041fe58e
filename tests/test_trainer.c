// The guarded training step: it learns, adds up, skips what is not finite and tells of spikes, with the same bits for any number of threads.
#include <math.h>
#include <signal.h>

#include "training/optimizer.h"

#include "tests/short.h"
#include "tests/trainer.h"

static void optimized_trainer(Trainer *trainer, const Fixture *fixture, OptimizerKind optimizer, size_t micro_batch, size_t n_micro)
{
    Error error;
    Model model;
    ModelConfig config = tiny_config();
    TrainerOptions options = tiny_options(optimizer, micro_batch, n_micro);
    assert_ok(model_create(&model, &config, kernels(), &error), &error);
    model_init(&model, 1, SEQ_LEN);
    assert_ok(trainer_create(trainer, &model, &options, &error), &error);
    trainer->train = trainer->val = fixture->loader;
    trainer->eval_windows = 7;
}

static void tiny_trainer(Trainer *trainer, const Fixture *fixture, size_t micro_batch, size_t n_micro)
{
    optimized_trainer(trainer, fixture, OPTIMIZER_ADAMW, micro_batch, n_micro);
}

// ---- the step ----

static void check_learns(const Fixture *fixture, OptimizerKind optimizer)
{
    Trainer trainer;
    optimized_trainer(&trainer, fixture, optimizer, 4, 1);
    StepResult first = steps(&trainer, 1);
    assert_true(fabs(first.loss - log(VOCAB)) < 0.1);
    assert_int_equal(first.targets, 4 * SEQ_LEN);
    StepResult last = steps(&trainer, 29);
    assert_true(last.loss < first.loss - 0.3);
    assert_int_equal(trainer.step, 30);
    assert_int_equal(trainer.window, 120);
    assert_int_equal(trainer.tokens_seen, 120 * SEQ_LEN);
    trainer_free(&trainer);
}

static void test_learns(void **state)
{
    check_learns(*state, OPTIMIZER_ADAMW);
    check_learns(*state, OPTIMIZER_MUON);
}

// The mean over the batch does not depend on how it is cut into micro-batches.
static void test_accumulation(void **state)
{
    Trainer whole, parts;
    tiny_trainer(&whole, *state, 8, 1);
    tiny_trainer(&parts, *state, 1, 8);
    StepResult a = steps(&whole, 1), b = steps(&parts, 1);
    assert_true(fabs(a.loss / b.loss - 1.0) < 1e-6);
    assert_true(fabs(a.grad_norm / b.grad_norm - 1.0) < 1e-5);
    assert_true(relative_rms(whole.gradients, parts.gradients, whole.model.table.total) < 1e-5);
    double loss_a, loss_b;
    Error error;
    assert_ok(trainer_evaluate(&whole, &loss_a, &error), &error);
    assert_ok(trainer_evaluate(&parts, &loss_b, &error), &error);
    assert_true(fabs(loss_a / loss_b - 1.0) < 1e-3);
    trainer_free(&whole);
    trainer_free(&parts);
}

// Mean loss over the first n_windows windows, where the model starts anew at each END_OF_TEXT. in_order: as a validation takes them.
static double loss_of_documents(const Trainer *trainer, uint64_t n_windows, bool in_order)
{
    Error error;
    double sum = 0.0;
    int32_t tokens[SEQ_LEN], targets[SEQ_LEN];
    size_t borders = 0;
    for (uint64_t i = 0; i < n_windows; i++) {
        assert_ok(in_order ? loader_window_in_order(trainer->train, tokens, targets, i, &error)
                           : loader_window(trainer->train, tokens, targets, i, &error), &error);
        for (size_t begin = 0, end; begin < SEQ_LEN; begin = end) {
            end = begin + 1;
            while (end < SEQ_LEN && tokens[end] != END_OF_TEXT) {
                end++;
            }
            borders += begin > 0;
            model_forward(&trainer->model, trainer->workspace, NULL, 0, tokens + begin, 1, end - begin);
            sum += model_loss(NULL, NULL, &trainer->model, trainer->workspace, targets + begin, 0.0f);
        }
    }
    assert_true(borders >= n_windows / 8);
    return sum / (double)n_windows / SEQ_LEN;
}

static void test_reset_at_document(void **state)
{
    const Fixture *fixture = *state;
    Trainer trainer, plain;
    Model model;
    Error error;
    ModelConfig config = tiny_config();
    TrainerOptions options = tiny_options(OPTIMIZER_ADAMW, 2, 2);
    tiny_trainer(&plain, fixture, 2, 2);
    double bytes = trainer_bytes(&config, &plain.model.table, &options);
    options.reset_at_document = true;
    options.end_of_text = END_OF_TEXT;
    assert_true(trainer_bytes(&config, &plain.model.table, &options) == bytes + 4 * SEQ_LEN);
    assert_ok(model_create(&model, &config, kernels(), &error), &error);
    model_init(&model, 1, SEQ_LEN);
    assert_ok(trainer_create(&trainer, &model, &options, &error), &error);
    trainer.train = trainer.val = fixture->loader;
    trainer.eval_windows = 37;
    double expected = loss_of_documents(&trainer, 4, false), loss, other;
    StepResult result = steps(&trainer, 1), without = steps(&plain, 1);
    assert_int_equal(result.targets, 4 * SEQ_LEN);
    assert_true(fabs(result.loss / expected - 1.0) < 1e-6);
    assert_true(result.loss != without.loss);
    steps(&trainer, 29);
    expected = loss_of_documents(&trainer, 37, true);
    assert_ok(trainer_evaluate(&trainer, &loss, &error), &error);
    assert_true(fabs(loss / expected - 1.0) < 1e-6);
    // The same weights with states that run on are another model.
    free(trainer.starts);
    trainer.starts = NULL;
    assert_ok(trainer_evaluate(&trainer, &other, &error), &error);
    assert_true(fabs(other / loss - 1.0) > 1e-4);
    trainer_free(&trainer);
    trainer_free(&plain);
}

// The gradient of micro-batches [first, end) of the first step, summed in one go.
static void sum_micro(float *gradients, Trainer *trainer, size_t first, size_t end, float scale)
{
    int32_t tokens[SEQ_LEN], targets[SEQ_LEN];
    Error error;
    memset(gradients, 0, trainer->model.table.total * sizeof *gradients);
    for (size_t i = first; i < end; i++) {
        assert_ok(loader_window(trainer->train, tokens, targets, i, &error), &error);
        model_forward(&trainer->model, trainer->workspace, NULL, 0, tokens, 1, SEQ_LEN);
        model_loss(NULL, gradients, &trainer->model, trainer->workspace, targets, scale);
        model_backward(gradients, &trainer->model, trainer->workspace, tokens);
    }
}

// The shares of a step are summed each by itself, then in order: three of five micro-batches are 1, 2 and 2 of them.
static void test_shares(void **state)
{
    static const size_t starts[] = {0, 1, 3, 5};
    Trainer trainer, fresh;
    Model model;
    Error error;
    ModelConfig config = tiny_config();
    TrainerOptions options = tiny_options(OPTIMIZER_ADAMW, 1, 5);
    options.shares = 3;
    assert_ok(model_create(&model, &config, kernels(), &error), &error);
    model_init(&model, 1, SEQ_LEN);
    double more = trainer_bytes(&config, &model.table, &options);
    assert_ok(trainer_create(&trainer, &model, &options, &error), &error);
    trainer.train = ((const Fixture *)*state)->loader;
    tiny_trainer(&fresh, *state, 1, 5);
    options.shares = 0;
    assert_true(more - trainer_bytes(&config, &fresh.model.table, &options) == (double)fresh.model.table.total * sizeof(float));
    StepResult result = steps(&trainer, 1);
    assert_int_equal(result.targets, 5 * SEQ_LEN);
    size_t total = fresh.model.table.total;
    float *sum = calloc(total, sizeof *sum), *share = calloc(total, sizeof *share);
    assert_true(sum != NULL && share != NULL);
    for (size_t s = 0; s < 3; s++) {
        sum_micro(share, &fresh, starts[s], starts[s + 1], (float)(1.0 / (5.0 * SEQ_LEN)));
        for (size_t i = 0; i < total; i++) {
            sum[i] += share[i];
        }
    }
    assert_memory_equal(sum, trainer.gradients, total * sizeof *sum);
    StepResult whole = steps(&fresh, 1);
    assert_true(fabs(whole.loss / result.loss - 1.0) < 1e-12);
    assert_true(relative_rms(sum, fresh.gradients, total) < 1e-6 && memcmp(sum, fresh.gradients, total * sizeof *sum) != 0);
    free(sum);
    free(share);
    trainer_free(&trainer);
    trainer_free(&fresh);
}

// Gates that are shut, or open as far as they go, at peak learning rate for 500 steps: no step is skipped, and the slots stay unit vectors.
static void test_gates_at_their_ends(void **state)
{
    Trainer trainer;
    Fixture *fixture = *state;
    int count = (int)rounds(500, 150);
    int32_t tokens[SEQ_LEN], targets[SEQ_LEN];
    Error error;
    tiny_trainer(&trainer, fixture, 2, 1);
    trainer.schedule = (Schedule){.kind = SCHEDULE_CONSTANT, .lr = 1e-2, .steps = count};
    const Tensor *gates[] = {tensor_find(&trainer.model.table, "layers.0.mixer.g.bias"), tensor_find(&trainer.model.table, "layers.1.mixer.g.bias")};
    for (size_t i = 0; i < 2; i++) {
        trainer.model.params[gates[i]->offset] = 30.0f;
        trainer.model.params[gates[i]->offset + 1] = -30.0f;
    }
    StepResult last = steps(&trainer, count);
    assert_true(isfinite(last.loss) && last.loss < log(VOCAB) - 0.3);
    float *floats = malloc(trainer.model.state.table.total * sizeof *floats);
    Workspace *workspace = workspace_create(&trainer.model, 1, SEQ_LEN, WORKSPACE_INFERENCE, &error);
    assert_non_null(workspace);
    model_state_init(&trainer.model, &trainer.model.state, floats);
    for (uint64_t i = 0; i < 40; i++) {
        assert_ok(loader_window(trainer.train, tokens, targets, i, &error), &error);
        model_forward(&trainer.model, workspace, floats, i * SEQ_LEN, tokens, 1, SEQ_LEN);
    }
    size_t d = (size_t)trainer.model.config.d_head;
    for (size_t layer = 0; layer < 2; layer++) {
        const Tensor *memory = tensor_find(&trainer.model.state.table, layer == 0 ? "layers.0.mixer.state" : "layers.1.mixer.state");
        for (size_t i = 0; i < memory->count; i += d) {
            double sum = 0.0;
            for (size_t j = 0; j < d; j++) {
                sum += pow(floats[memory->offset + i + j], 2.0);
            }
            assert_true(fabs(sqrt(sum) - 1.0) <= 1e-5);
        }
    }
    free(floats);
    workspace_free(workspace);
    trainer_free(&trainer);
}

#ifdef _OPENMP
static void check_threads(const Fixture *fixture, OptimizerKind optimizer)
{
    enum { RUNS = 6 };
    static const int counts[RUNS] = {1, 2, 8, 8, 2, 1};
    Trainer trainer[RUNS];
    int before = omp_get_max_threads();
    for (int i = 0; i < RUNS; i++) {
        omp_set_num_threads(counts[i]);
        optimized_trainer(&trainer[i], fixture, optimizer, 3, 2);
        steps(&trainer[i], optimizer == OPTIMIZER_ADAMW ? (int)rounds(50, 10) : 5);
    }
    omp_set_num_threads(before);
    size_t bytes = trainer[0].model.table.total * sizeof(float);
    for (int i = 1; i < RUNS; i++) {
        assert_memory_equal(trainer[0].model.params, trainer[i].model.params, bytes);
        assert_memory_equal(trainer[0].optimizer.m, trainer[i].optimizer.m, bytes);
        assert_memory_equal(trainer[0].optimizer.v, trainer[i].optimizer.v, trainer[i].optimizer.v_table.total * sizeof(float));
    }
    for (int i = 0; i < RUNS; i++) {
        trainer_free(&trainer[i]);
    }
}
#endif

static void test_threads(void **state)
{
#ifdef _OPENMP
    check_threads(*state, OPTIMIZER_ADAMW);
    check_threads(*state, OPTIMIZER_MUON);
#else
    (void)state;
    print_message("skipped: numbers of threads, because this is built without OpenMP\n");
#endif
}

static void test_clip_and_spike(void **state)
{
    Trainer trainer;
    tiny_trainer(&trainer, *state, 2, 1);
    trainer.clip = 1e-3;
    StepResult result = steps(&trainer, 25);
    assert_true(result.clipped);
    assert_false(result.spike);
    trainer.norm_average = result.grad_norm / 20.0;
    result = steps(&trainer, 1);
    assert_true(result.spike && result.clipped);
    trainer.clip = 0.0;
    assert_false(steps(&trainer, 1).clipped);
    trainer_free(&trainer);
}

// Weights that are finite but overflow in the forward: nothing reaches them, and the tenth step in a row is the last.
static void test_skips(void **state)
{
    Trainer trainer;
    Error error;
    StepResult result;
    tiny_trainer(&trainer, *state, 2, 2);
    steps(&trainer, 2);
    float *norm = trainer.model.params + tensor_find(&trainer.model.table, "norm.weight")->offset;
    float good = norm[0];
    norm[0] = 3e38f;
    size_t bytes = trainer.model.table.total * sizeof(float);
    float *before = malloc(bytes);
    memcpy(before, trainer.model.params, bytes);
    for (int i = 0; i < 3; i++) {
        assert_ok(trainer_step(&trainer, &result, &error), &error);
        assert_true(result.skipped);
        assert_true(strncmp(result.where, "gradient of ", 12) == 0);
    }
    assert_memory_equal(before, trainer.model.params, bytes);
    assert_int_equal(trainer.optimizer.updates, 2);
    assert_int_equal(trainer.step, 5);
    norm[0] = good;
    steps(&trainer, 1);   // a good step ends the row
    norm[0] = 3e38f;
    for (int i = 0; i < TRAINER_MAX_SKIPPED - 1; i++) {
        assert_ok(trainer_step(&trainer, &result, &error), &error);
    }
    assert_int_equal(trainer_step(&trainer, &result, &error), -1);
    assert_non_null(strstr(error.text, "10 steps in a row"));
    free(before);
    trainer_free(&trainer);
}

static void test_nan_weight_is_named(void **state)
{
    Trainer trainer;
    Error error;
    StepResult result;
    tiny_trainer(&trainer, *state, 2, 1);
    steps(&trainer, 1);
    assert_ok(trainer_check_weights(&trainer, &error), &error);
    trainer.model.params[tensor_find(&trainer.model.table, "layers.1.mixer.k.weight")->offset + 3] = NAN;
    assert_int_equal(trainer_step(&trainer, &result, &error), -1);
    assert_non_null(strstr(error.text, "layers.1.mixer.k.weight"));
    assert_non_null(strstr(error.text, "step 2"));
    assert_int_equal(trainer_check_weights(&trainer, &error), -1);
    trainer_free(&trainer);
}

static void test_stop_leaves_everything(void **state)
{
    Trainer trainer;
    Error error;
    StepResult result;
    volatile sig_atomic_t stop = 1;
    tiny_trainer(&trainer, *state, 2, 2);
    steps(&trainer, 1);
    trainer.stop = &stop;
    assert_int_equal(trainer_step(&trainer, &result, &error), TRAINER_STOPPED);
    double loss;
    assert_int_equal(trainer_evaluate(&trainer, &loss, &error), TRAINER_STOPPED);
    assert_int_equal(trainer.step, 1);
    assert_int_equal(trainer.window, 4);
    trainer_free(&trainer);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_learns),
        TEST(test_accumulation),
        TEST(test_reset_at_document),
        TEST(test_shares),
        TEST(test_gates_at_their_ends),
        TEST(test_threads),
        TEST(test_clip_and_spike),
        TEST(test_skips),
        TEST(test_nan_weight_is_named),
        TEST(test_stop_leaves_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
