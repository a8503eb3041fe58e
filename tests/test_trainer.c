// The guarded training step, and snapshots that go on with the same bits.
//
//     test_trainer                             runs the tests
//     test_trainer --poison CHECKPOINT TENSOR VALUE   puts a number (nan, 3e38) into a weight of a checkpoint, checksums and all
//     test_trainer --rewind CHECKPOINT         makes a checkpoint of step 0 beside it, with its weights; both for tests of ./train
#include <math.h>
#include <signal.h>
#include <stdbool.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/json.h"
#include "base/rng.h"
#include "checkpoint/checkpoint.h"
#include "data/loader.h"
#include "data/shards.h"
#include "training/optimizer.h"
#include "training/snapshot.h"
#include "training/trainer.h"

#include "tests/training.h"

// Two shards with patterns in them, so that there is something to learn and a window can lie in either.
static void make_shards(PathList *list, const char *folder)
{
    Error error;
    ShardWriter *writer = shard_writer_create(folder, "train", 1500, VOCAB, 0, &error);
    assert_non_null(writer);
    Rng rng;
    rng_seed(&rng, 5, 0);
    int32_t ids[2600];
    for (size_t i = 0; i < 2600; i++) {
        ids[i] = i % 3 == 0 ? (int32_t)rng_below(&rng, VOCAB) : (ids[i - 1] * 2 + 1) % VOCAB;
    }
    assert_ok(shard_writer_add(writer, ids, 2600, &error), &error);
    uint64_t total;
    size_t n_shards;
    assert_ok(shard_writer_close(writer, &total, &n_shards, &error), &error);
    assert_int_equal(n_shards, 2);
    char path[600];
    for (size_t i = 0; i < n_shards; i++) {
        snprintf(path, sizeof path, "%s/train_%06zu.bin", folder, i);
        assert_ok(path_list_add(list, path, &error), &error);
    }
}

typedef struct Fixture {
    char *folder;
    PathList shards;
    Loader *loader;
    Loader *mix;   // the two shards as two sources, three parts to one
} Fixture;

static Loader *make_mix(const Fixture *fixture)
{
    Error error;
    PathList one = {.items = fixture->shards.items, .count = 1}, other = {.items = fixture->shards.items + 1, .count = 1};
    const LoaderSource sources[] = {{"one", &one, 3}, {"other", &other, 1}};
    Loader *mix = loader_create_mix(sources, 2, SEQ_LEN, 3, 0, VOCAB, &error);
    assert_non_null(mix);
    return mix;
}

static int set_up(void **state)
{
    Fixture *fixture = calloc(1, sizeof *fixture);
    fixture->folder = make_folder();
    make_shards(&fixture->shards, fixture->folder);
    Error error;
    fixture->loader = loader_create(&fixture->shards, SEQ_LEN, 3, 0, VOCAB, &error);
    assert_non_null(fixture->loader);
    fixture->mix = make_mix(fixture);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    Fixture *fixture = *state;
    loader_free(fixture->loader);
    loader_free(fixture->mix);
    path_list_free(&fixture->shards);
    remove_folder(fixture->folder);
    free(fixture);
    return 0;
}

static TrainerOptions tiny_options(OptimizerKind optimizer, size_t micro_batch, size_t n_micro)
{
    return (TrainerOptions){.micro_batch = micro_batch, .n_micro = n_micro, .seq_len = SEQ_LEN, .optimizer = optimizer, .weight_decay = 0.1,
                            .clip = 1.0, .seed = 1,
                            .schedule = {.kind = SCHEDULE_COSINE, .lr = 1e-2, .min_lr = 1e-3, .warmup = 2, .steps = 30}};
}

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

static StepResult steps(Trainer *trainer, int count)
{
    Error error;
    StepResult result = {0};
    for (int i = 0; i < count; i++) {
        assert_ok(trainer_step(trainer, &result, &error), &error);
        assert_false(result.skipped);
    }
    return result;
}

static void set_threads(int n)
{
#ifdef _OPENMP
    omp_set_num_threads(n);
#else
    (void)n;
#endif
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
#define END_OF_TEXT 3
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
    int32_t tokens[SEQ_LEN], targets[SEQ_LEN];
    Error error;
    tiny_trainer(&trainer, fixture, 2, 1);
    trainer.schedule = (Schedule){.kind = SCHEDULE_CONSTANT, .lr = 1e-2, .steps = 500};
    const Tensor *gates[] = {tensor_find(&trainer.model.table, "layers.0.mixer.g.bias"), tensor_find(&trainer.model.table, "layers.1.mixer.g.bias")};
    for (size_t i = 0; i < 2; i++) {
        trainer.model.params[gates[i]->offset] = 30.0f;
        trainer.model.params[gates[i]->offset + 1] = -30.0f;
    }
    StepResult last = steps(&trainer, 500);
    assert_true(isfinite(last.loss) && last.loss < log(VOCAB) - 0.3);
    float *floats = malloc(trainer.model.state.total * sizeof *floats);
    Workspace *workspace = workspace_create(&trainer.model, 1, SEQ_LEN, WORKSPACE_INFERENCE, &error);
    assert_non_null(workspace);
    model_state_init(&trainer.model, floats);
    for (uint64_t i = 0; i < 40; i++) {
        assert_ok(loader_window(trainer.train, tokens, targets, i, &error), &error);
        model_forward(&trainer.model, workspace, floats, i * SEQ_LEN, tokens, 1, SEQ_LEN);
    }
    size_t d = (size_t)trainer.model.config.d_head;
    for (size_t layer = 0; layer < 2; layer++) {
        const Tensor *memory = tensor_find(&trainer.model.state, layer == 0 ? "layers.0.mixer.state" : "layers.1.mixer.state");
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
        steps(&trainer[i], optimizer == OPTIMIZER_ADAMW ? 50 : 5);
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

// ---- snapshots ----

static void save_trainer(const Trainer *trainer, const TrainSettings *settings, const DataIdentity *data, const char *out)
{
    Error error;
    cJSON *json = snapshot_to_json(trainer, settings, data);
    assert_non_null(json);
    NamedArena moments[OPTIMIZER_ARENAS];
    optimizer_arenas(moments, &trainer->optimizer, &trainer->model.table);
    CheckpointSource source = {.model = &trainer->model, .moments = moments, .n_moments = OPTIMIZER_ARENAS, .trainer = json};
    assert_ok(checkpoint_save(&source, out, trainer->step, &error), &error);
    cJSON_Delete(json);
}

// The run was trained on FOLDER/a and b.
static void check_arguments(const cJSON *json, const char *folder)
{
    Error error = {""};
    char *a = path_join(folder, "a"), *again = path_join(folder, "./a"), *other = path_join(folder, "c"), *b = (char[]){"b"};
    assert_ok(snapshot_check_arguments(json, (char *[]){a, b}, 2, &error), &error);
    assert_ok(snapshot_check_arguments(json, (char *[]){again, b}, 2, &error), &error);
    assert_int_equal(snapshot_check_arguments(json, (char *[]){other, b}, 2, &error), -1);
    assert_non_null(strstr(error.text, other));
    assert_int_equal(snapshot_check_arguments(json, (char *[]){b, a}, 2, &error), -1);
    assert_int_equal(snapshot_check_arguments(json, (char *[]){a, b, other}, 3, &error), -1);
    assert_int_equal(snapshot_check_arguments(json, (char *[]){a}, 1, &error), -1);
    assert_non_null(strstr(error.text, "trained on b, too"));
    free(a);
    free(again);
    free(other);
}

// A way to train, and what changes when the run goes on.
typedef struct Way {
    const char *name;
    OptimizerKind optimizer;
    bool bf16, mix, recompute, recompute_after, reset_at_document;
    int threads_after;
} Way;

static void make_trainer(Trainer *trainer, Model *model, const Fixture *fixture, const Way *way, bool recompute)
{
    Error error;
    TrainerOptions options = tiny_options(way->optimizer, 3, 2);
    options.recompute = recompute;
    options.reset_at_document = way->reset_at_document;
    options.end_of_text = END_OF_TEXT;
    model->bf16 = way->bf16;
    assert_ok(trainer_create(trainer, model, &options, &error), &error);
    trainer->train = way->mix ? fixture->mix : fixture->loader;
}

static void new_trainer(Trainer *trainer, const Fixture *fixture, const Way *way)
{
    Error error;
    Model model;
    ModelConfig config = tiny_config();
    assert_ok(model_create(&model, &config, kernels(), &error), &error);
    model_init(&model, 1, SEQ_LEN);
    make_trainer(trainer, &model, fixture, way, way->recompute);
}

static void check_data(const cJSON *json, const DataIdentity *data)
{
    Error error;
    DataIdentity other = *data;
    assert_ok(snapshot_check_data(json, data, &error), &error);
    other.tokens++;
    assert_int_equal(snapshot_check_data(json, &other, &error), -1);
    other = *data;
    other.tokenizer_hash++;
    assert_int_equal(snapshot_check_data(json, &other, &error), -1);
    other = *data;
    other.fingerprint++;
    assert_int_equal(snapshot_check_data(json, &other, &error), -1);
}

static void load_trainer(Trainer *trainer, const Fixture *fixture, const Way *way, const char *out, const DataIdentity *data)
{
    Error error, note;
    Model model;
    char *folder = checkpoint_resolve(out, &note, &error);
    assert_non_null(folder);
    cJSON *json = checkpoint_load_trainer(folder, &error);
    assert_non_null(json);
    assert_ok(checkpoint_load_model(&model, kernels(), folder, &error), &error);
    make_trainer(trainer, &model, fixture, way, way->recompute_after);
    NamedArena moments[OPTIMIZER_ARENAS];
    optimizer_arenas(moments, &trainer->optimizer, &trainer->model.table);
    assert_ok(snapshot_restore(trainer, json, &error), &error);
    assert_ok(checkpoint_load_moments(moments, OPTIMIZER_ARENAS, folder, &error), &error);
    check_data(json, data);
    check_arguments(json, fixture->folder);
    size_t count;
    char **arguments = snapshot_arguments(&count, json, &error);
    assert_int_equal(count, 2);
    assert_string_equal(arguments[1], data->arguments[1]);
    assert_true(snapshot_prepared(json));
    free(arguments);
    cJSON_Delete(json);
    free(folder);
}

static void assert_same_trainers(const Trainer *a, const Trainer *b)
{
    size_t bytes = a->model.table.total * sizeof(float);
    assert_memory_equal(a->model.params, b->model.params, bytes);
    assert_memory_equal(a->optimizer.m, b->optimizer.m, bytes);
    assert_memory_equal(a->optimizer.v, b->optimizer.v, a->optimizer.v_table.total * sizeof(float));
    assert_memory_equal(&a->rng, &b->rng, sizeof b->rng);
    assert_true(a->norm_average == b->norm_average);
    assert_memory_equal(&a->watch, &b->watch, sizeof b->watch);
    assert_int_equal(a->window, b->window);
    assert_int_equal(a->tokens_seen, b->tokens_seen);
}

// A run that was saved and loaded goes on with the bits of an unbroken one.
static void check_snapshot(const Fixture *fixture, const Way *way)
{
    Trainer unbroken, before, after;
    uint64_t other_print = 0;
    Error error;
    char *a = path_join(fixture->folder, "a");
    TrainSettings *settings = PARSE("train", a, "b", "--out", "run");
    DataIdentity data = {.arguments = settings->data, .n_arguments = 2, .prepared = true, .tokens = loader_tokens(fixture->loader),
                         .windows = loader_windows(fixture->loader), .tokenizer_hash = UINT32_MAX - 1};
    char *out = path_join(fixture->folder, way->name);
    assert_ok(snapshot_fingerprint(&data.fingerprint, fixture->loader, SEQ_LEN, &error), &error);
    assert_ok(snapshot_fingerprint(&other_print, fixture->loader, SEQ_LEN, &error), &error);
    assert_true(data.fingerprint == other_print && other_print != 0);
    new_trainer(&unbroken, fixture, way);
    steps(&unbroken, 24);
    rng_next(&unbroken.rng);
    new_trainer(&before, fixture, way);
    steps(&before, 11);
    rng_next(&before.rng);
    before.skipped_in_row = 2;
    save_trainer(&before, settings, &data, out);
    set_threads(way->threads_after);
    load_trainer(&after, fixture, way, out, &data);
    assert_int_equal(after.step, 11);
    assert_int_equal(after.optimizer.updates, 11);
    assert_int_equal(after.skipped_in_row, 2);
    steps(&after, 13);   // 144 windows in all: past the end of the first epoch
    set_threads(1);
    assert_true(after.window > loader_windows(fixture->loader));
    assert_same_trainers(&unbroken, &after);
    trainer_free(&unbroken);
    trainer_free(&before);
    trainer_free(&after);
    drop(settings);
    free(a);
    free(out);
}

static void test_snapshot(void **state)
{
    static const Way ways[] = {
        {"adamw", OPTIMIZER_ADAMW, .threads_after = 1},
        {"muon", OPTIMIZER_MUON, .threads_after = 1},
        {"adamw-bf16", OPTIMIZER_ADAMW, .bf16 = true, .threads_after = 3},
        {"muon-bf16-mix", OPTIMIZER_MUON, .bf16 = true, .mix = true, .threads_after = 2},
        {"adamw-mix-recompute", OPTIMIZER_ADAMW, .mix = true, .recompute = true, .threads_after = 2},
        {"muon-recompute-later", OPTIMIZER_MUON, .recompute_after = true, .threads_after = 3},
        {"adamw-documents", OPTIMIZER_ADAMW, .reset_at_document = true, .threads_after = 2},
        {"adamw-bf16-recompute-before", OPTIMIZER_ADAMW, .bf16 = true, .recompute = true, .threads_after = 1},
    };
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        check_snapshot(*state, &ways[i]);
    }
}

static void test_snapshot_refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{}",
        "{\"format\":2,\"step\":1,\"window\":1,\"tokens\":1,\"updates\":1,\"skipped_in_row\":0,\"grad_norm_average\":1,\"random_state\":[\"1\",\"2\",\"3\",\"4\"]}",
        "{\"format\":1,\"step\":-1,\"window\":1,\"tokens\":1,\"updates\":1,\"skipped_in_row\":0,\"grad_norm_average\":1,\"random_state\":[\"1\",\"2\",\"3\",\"4\"]}",
        "{\"format\":1,\"step\":1,\"window\":1,\"tokens\":1,\"updates\":2,\"skipped_in_row\":0,\"grad_norm_average\":1,\"random_state\":[\"1\",\"2\",\"3\",\"4\"]}",
        "{\"format\":1,\"step\":1,\"window\":1,\"tokens\":1,\"updates\":1,\"skipped_in_row\":0,\"grad_norm_average\":1,\"random_state\":[\"1\",\"2\",\"3\"]}",
        "{\"format\":1,\"step\":1,\"window\":1,\"tokens\":1,\"updates\":1,\"skipped_in_row\":0,\"grad_norm_average\":1,\"random_state\":[\"1\",\"2\",\"x\",\"4\"]}",
        ("{\"format\":1,\"step\":1,\"window\":1,\"tokens\":1,\"updates\":1,\"skipped_in_row\":0,\"grad_norm_average\":1,\"random_state\":[\"1\",\"2\",\"3\",\"4\"],"
         "\"loss_watch\":{\"mean\":1,\"least\":1,\"above\":-2}}"),
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        Error error = {""};
        Trainer trainer = {0};
        cJSON *json = cJSON_Parse(bad[i]);
        assert_non_null(json);
        assert_int_equal(snapshot_restore(&trainer, json, &error), -1);
        assert_non_null(strstr(error.text, "trainer.json"));
        cJSON_Delete(json);
    }
}

// ---- changed checkpoints, for tests of ./train ----

// As if no step had been done.
static void rewind_trainer(cJSON *trainer)
{
    static const char *const counters[] = {"step", "window", "tokens", "updates"};
    for (size_t i = 0; i < 4; i++) {
        cJSON_SetNumberValue(cJSON_GetObjectItemCaseSensitive(trainer, counters[i]), 0);
    }
}

// Puts `value` into the middle of a tensor, where there is a name; else begins anew with these weights, as step 0 beside.
static int change(const char *folder, const char *name, float value)
{
    Error error;
    Model model;
    Optimizer optimizer;
    NamedArena moments[OPTIMIZER_ARENAS];
    const Kernels *found = kernels_select(&error);
    cJSON *trainer = checkpoint_load_trainer(folder, &error);
    int64_t step;
    if (found == NULL || trainer == NULL || snapshot_step(&step, trainer, &error) || checkpoint_load_model(&model, found, folder, &error) ||
        optimizer_create(&optimizer, OPTIMIZER_ADAMW, &model.table, 0.0, &error)) {
        return args_fail(&error);
    }
    optimizer_arenas(moments, &optimizer, &model.table);
    const Tensor *tensor = name != NULL ? tensor_find(&model.table, name) : NULL;
    char *tokenizer = path_join(folder, "tokenizer.json"), *out = path_folder(folder);
    if ((name != NULL && tensor == NULL) || checkpoint_load_moments(moments, OPTIMIZER_ARENAS, folder, &error)) {
        return 1;
    }
    if (tensor != NULL) {
        model.params[tensor->offset + tensor->count / 2] = value;
    } else {
        rewind_trainer(trainer);
        step = 0;
    }
    CheckpointSource source = {.model = &model, .tokenizer_path = tokenizer, .moments = moments, .n_moments = OPTIMIZER_ARENAS, .trainer = trainer};
    int failed = checkpoint_save(&source, out, step, &error);
    free(out);
    free(tokenizer);
    optimizer_free(&optimizer);
    cJSON_Delete(trainer);
    model_free(&model);
    return failed ? args_fail(&error) : 0;
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "--poison") == 0) {
        return change(argv[2], argv[3], strtof(argv[4], NULL));
    }
    if (argc == 3 && strcmp(argv[1], "--rewind") == 0) {
        return change(argv[2], NULL, 0.0f);
    }
    set_threads(1);   // so small a model gains nothing from more
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_learns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_accumulation, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_reset_at_document, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_shares, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_gates_at_their_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_threads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_clip_and_spike, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_skips, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nan_weight_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stop_leaves_everything, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_snapshot, set_up, tear_down),
        cmocka_unit_test(test_snapshot_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
