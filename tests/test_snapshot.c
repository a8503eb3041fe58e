// Snapshots of the trainer that go on with the same bits.
//
//     test_snapshot                                    runs the tests
//     test_snapshot --poison CHECKPOINT TENSOR VALUE   puts a number (nan, 3e38) into a weight of a checkpoint, checksums and all
//     test_snapshot --rewind CHECKPOINT                makes a checkpoint of step 0 beside it, with its weights; both for tests of ./train
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "training/optimizer.h"
#include "training/snapshot.h"

#include "tests/trainer.h"

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
    options.bf16 = way->bf16;
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
    cJSON *altered = cJSON_Parse("{\"data\": {\"arguments\": {\"a\": \"docs\", \"b\": \"more\"}}}");   // items, but no list
    assert_non_null(altered);
    assert_null(snapshot_arguments(&count, altered, &error));
    assert_non_null(strstr(error.text, "names no data: give DATA on the command line"));
    cJSON_Delete(altered);
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_snapshot, set_up, tear_down),
        cmocka_unit_test(test_snapshot_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
