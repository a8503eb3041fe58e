// Faults on purpose (tests/faults.h): saving, loading and pruning checkpoints, state files, the log, a training step.
#include "tests/faults.h"

#ifndef WITHOUT_FAULTS

#include "checkpoint/checkpoint.h"
#include "data/loader.h"
#include "data/shards.h"
#include "infer/session.h"
#include "training/log.h"
#include "training/snapshot.h"
#include "training/trainer.h"

enum { VOCAB = 24 };

// ---- checkpoints ----

typedef struct Checkpoints {
    Model old, fresh;
    char *out, *tokenizer;
    Model loaded;
    bool is_loaded;
    Error note;
} Checkpoints;

static void make_model(Model *model, uint64_t seed)
{
    ModelConfig config;
    Error error;
    assert_int_equal(config_preset(&config, "nano", &error), 0);
    config.vocab_size = VOCAB;
    config.d_model = 8;
    config.n_layer = 1;
    config.n_head = 1;
    config.d_head = config.n_slot = 4;
    config.mlp_hidden = 0;
    const Kernels *kernels = kernels_select(&error);
    assert_non_null(kernels);
    assert_int_equal(model_create(model, &config, kernels, &error), 0);
    model_init(model, seed, 16);
}

static void open_checkpoints(void **state, Checkpoints *c)
{
    *c = (Checkpoints){.out = in_folder(state, "run"), .tokenizer = make_file(state, "tokenizer.json", "{}", 2)};
    make_model(&c->old, 1);
    make_model(&c->fresh, 2);
}

static void close_checkpoints(Checkpoints *c)
{
    model_free(&c->old);
    model_free(&c->fresh);
    free(c->out);
    free(c->tokenizer);
}

static int save(const Checkpoints *c, const Model *model, int64_t step, Error *error)
{
    TensorTable some = model->table;
    some.count = 2;
    const NamedArena moments[] = {{"m.", &some, model->params}};
    cJSON *trainer = cJSON_CreateObject();
    int status = cJSON_AddNumberToObject(trainer, "step", (double)step) != NULL ? 0 : error_set(error, "out of memory");
    CheckpointSource source = {model, c->tokenizer, moments, 1, trainer};
    status = status == 0 ? checkpoint_save(&source, c->out, step, error) : -1;
    cJSON_Delete(trainer);
    return status;
}

static void must_save(const Checkpoints *c, const Model *model, int64_t step)
{
    Error error;
    if (save(c, model, step, &error)) {
        fail_msg("%s", error.text);
    }
}

static bool same_weights(const Model *a, const Model *b)
{
    return a->table.total == b->table.total && memcmp(a->params, b->params, a->table.total * sizeof *a->params) == 0;
}

// Which of the two models the run's newest good checkpoint holds. There must be one, and none that looks whole may be broken.
static const Model *newest(const Checkpoints *c)
{
    Error error, note;
    Model model;
    char *folder = checkpoint_resolve(c->out, &note, &error);
    if (folder == NULL || note.text[0] != 0) {
        fail_msg("the good checkpoint is lost: %s%s", folder == NULL ? error.text : "", note.text);
    }
    assert_int_equal(checkpoint_load_model(&model, c->old.kernels, folder, &error), 0);
    const Model *found = same_weights(&model, &c->fresh) ? &c->fresh : same_weights(&model, &c->old) ? &c->old : NULL;
    model_free(&model);
    free(folder);
    assert_non_null(found);
    return found;
}

static void one_checkpoint(void *context)
{
    Checkpoints *c = context;
    Error error;
    assert_int_equal(folder_remove(c->out, &error), 0);
    must_save(c, &c->old, 1);
}

static void after_save(void *context, int status, const Fault *fault)
{
    (void)fault;
    Checkpoints *c = context;
    const Model *found = newest(c);
    assert_true(status != 0 || found == &c->fresh);
    Error error;
    assert_int_equal(checkpoint_prune(c->out, 1, &error), 0);
    PathList names = {0};
    assert_int_equal(folder_list(&names, c->out, &error), 0);
    assert_int_equal(names.count, 1);   // nothing unfinished stays
    path_list_free(&names);
    assert_ptr_equal(newest(c), found);
}

static int run_save(void *context, Error *error)
{
    Checkpoints *c = context;
    return save(c, &c->fresh, 2, error);
}

static int run_replace(void *context, Error *error)
{
    Checkpoints *c = context;
    return save(c, &c->fresh, 1, error);
}

static void saving(void **state)
{
    Checkpoints c;
    open_checkpoints(state, &c);
    sweep(&(Case){"save", &c, one_checkpoint, run_save, after_save}, 200);
    sweep(&(Case){"replace", &c, one_checkpoint, run_replace, after_save}, 200);
    close_checkpoints(&c);
}

static void two_checkpoints(void *context)
{
    Checkpoints *c = context;
    one_checkpoint(context);
    must_save(c, &c->fresh, 2);
}

// As a kill between the two renames of a save leaves it where folders cannot be exchanged.
static void newest_aside(void *context)
{
    Checkpoints *c = context;
    two_checkpoints(context);
    char *from = path_join(c->out, "step_00000002"), *to = path_join(c->out, "step_00000002.old");
    assert_int_equal(rename(from, to), 0);
    free(from);
    free(to);
}

static int run_prune(void *context, Error *error)
{
    Checkpoints *c = context;
    return checkpoint_prune(c->out, 1, error);
}

static void after_prune(void *context, int status, const Fault *fault)
{
    (void)status, (void)fault;
    assert_ptr_equal(newest(context), &((Checkpoints *)context)->fresh);
}

static void pruning(void **state)
{
    Checkpoints c;
    open_checkpoints(state, &c);
    sweep(&(Case){"prune", &c, two_checkpoints, run_prune, after_prune}, 20);
    sweep(&(Case){"prune with a checkpoint aside", &c, newest_aside, run_prune, after_prune}, 20);
    close_checkpoints(&c);
}

static int run_load(void *context, Error *error)
{
    Checkpoints *c = context;
    char *folder = checkpoint_resolve(c->out, &c->note, error);
    c->is_loaded = folder != NULL && checkpoint_load_model(&c->loaded, c->old.kernels, folder, error) == 0;
    cJSON *trainer = c->is_loaded ? checkpoint_load_trainer(folder, error) : NULL;
    int status = trainer != NULL ? 0 : -1;
    if (status == 0) {
        float *values = malloc(c->old.table.total * sizeof *values);
        TensorTable some = c->old.table;
        some.count = 2;
        const NamedArena moments[] = {{"m.", &some, values}};
        status = values != NULL ? checkpoint_load_moments(moments, 1, folder, error) : error_set(error, "out of memory");
        free(values);
    }
    cJSON_Delete(trainer);
    free(folder);
    return status;
}

// What is passed over without need would be set aside by a run that goes on.
static void after_load(void *context, int status, const Fault *fault)
{
    Checkpoints *c = context;
    if (status == 0 && !same_weights(&c->loaded, &c->fresh)) {
        assert_true(fault->kind == FAULT_READ && fault->effect == EIO && c->note.text[0] != 0);
    }
    if (c->is_loaded) {
        model_free(&c->loaded);
    }
}

static void loading(void **state)
{
    Checkpoints c;
    open_checkpoints(state, &c);
    two_checkpoints(&c);
    sweep(&(Case){"load", &c, nothing_before, run_load, after_load}, 200);
    close_checkpoints(&c);
}

// ---- state files ----

typedef struct States {
    Model model;
    Session *old, *fresh, *other;
    char *path;
} States;

static const int32_t some_tokens[] = {1, 5, 3, 2, 8, 13, 21};

static Session *make_session(const Model *model, size_t tokens)
{
    Error error;
    Session *session = session_create(model, 1, 4, &error);
    assert_non_null(session);
    session_feed(session, some_tokens, tokens);
    return session;
}

static bool same_session(const Session *a, const Session *b)
{
    return a->position == b->position && memcmp(a->states, b->states, a->model->state.table.total * sizeof *a->states) == 0;
}

static void old_state_file(void *context)
{
    States *s = context;
    Error error;
    assert_int_equal(session_save(s->old, s->path, "note", &error), 0);
}

static int run_save_state(void *context, Error *error)
{
    States *s = context;
    return session_save(s->fresh, s->path, "note", error);
}

static void after_save_state(void *context, int status, const Fault *fault)
{
    (void)fault;
    States *s = context;
    Error error;
    char *note = NULL, *left = malloc(strlen(s->path) + 5);
    if (session_load(s->other, s->path, &note, &error)) {
        fail_msg("the state is lost: %s", error.text);
    }
    assert_true(same_session(s->other, s->fresh) || (status != 0 && same_session(s->other, s->old)));
    assert_string_equal(note, "note");
    sprintf(left, "%s.tmp", s->path);
    assert_true(fault->kind == FAULT_NAMES || !file_exists(left));
    free(left);
    free(note);
}

static int run_load_state(void *context, Error *error)
{
    States *s = context;
    char *note = NULL;
    int status = session_load(s->other, s->path, &note, error);
    free(note);
    return status;
}

static void fresh_session(void *context)
{
    States *s = context;
    session_reset(s->other);
    session_feed(s->other, some_tokens, 7);
}

static void after_load_state(void *context, int status, const Fault *fault)
{
    (void)fault;
    States *s = context;
    assert_true(same_session(s->other, status == 0 ? s->old : s->fresh));
}

static void state_files(void **state)
{
    States s = {.path = in_folder(state, "state")};
    make_model(&s.model, 3);
    s.old = make_session(&s.model, 3);
    s.fresh = make_session(&s.model, 7);
    s.other = make_session(&s.model, 1);
    sweep(&(Case){"save a state", &s, old_state_file, run_save_state, after_save_state}, 30);
    old_state_file(&s);
    sweep(&(Case){"load a state", &s, fresh_session, run_load_state, after_load_state}, 30);
    session_free(s.old);
    session_free(s.fresh);
    session_free(s.other);
    model_free(&s.model);
    free(s.path);
}

// ---- the log ----

static const char five_lines[] = "{\"step\":1,\"x\":1}\n{\"step\":2,\"x\":1}\n{\"step\":3,\"x\":1}\n{\"step\":4,\"x\":1}\n{\"step\":5,\"x\":";
enum { THREE_LINES = 3 * 17 };

static void write_lines(void *context)
{
    Error error;
    char *path = path_join(context, "log.jsonl");
    assert_int_equal(file_write_atomic(path, five_lines, sizeof five_lines - 1, &error), 0);
    free(path);
}

static int run_log(void *context, Error *error)
{
    TrainLog log;
    if (train_log_open(&log, context, 3, error)) {
        return -1;
    }
    int status = train_log_write(&log, &(LogRecord){.step = 4, .val_loss = 1.0}, error) || train_log_sync(&log, error) ? -1 : 0;
    train_log_close(&log);
    return status;
}

// The records that were good stay, and none is torn but the one that was.
static void after_log(void *context, int status, const Fault *fault)
{
    (void)fault;
    Error error;
    size_t size = 0;
    char *path = path_join(context, "log.jsonl"), *text = file_read(path, 10000, &size, &error);
    assert_non_null(text);
    assert_true(size >= THREE_LINES);
    assert_memory_equal(text, five_lines, THREE_LINES);
    if (status == 0) {
        assert_true(text[size - 1] == '\n' && strchr(text + THREE_LINES, '\n') == text + size - 1);
        assert_memory_equal(text + THREE_LINES, "{\"step\":4,\"tokens\":", 19);
    }
    free(text);
    free(path);
}

static void logging(void **state)
{
    sweep(&(Case){"log", ((Fixture *)*state)->folder, write_lines, run_log, after_log}, 2);
}

// ---- a training step ----

typedef struct Steps {
    PathList shards;
    float *expected;   // the weights after a step
    char *text;        // trainer.json after it
} Steps;

static int step_and_compare(Trainer *trainer, Steps *s, Error *error)
{
    StepResult result;
    TrainSettings settings;
    if (trainer_step(trainer, &result, error)) {
        return -1;
    }
    size_t bytes = trainer->model.table.total * sizeof(float);
    settings_init(&settings);
    cJSON *json = snapshot_to_json(trainer, &settings, &(DataIdentity){.arguments = s->shards.items, .n_arguments = 1});
    char *text = json != NULL ? json_to_text(json, false) : NULL;
    cJSON_Delete(json);
    settings_free(&settings);
    if (text == NULL) {
        return error_set(error, "out of memory");
    }
    if (s->expected == NULL) {
        s->expected = malloc(bytes);
        memcpy(s->expected, trainer->model.params, bytes);
        s->text = text;
        return 0;
    }
    assert_memory_equal(s->expected, trainer->model.params, bytes);
    assert_string_equal(s->text, text);
    free(text);
    return 0;
}

static int run_step(void *context, Error *error)
{
    Steps *s = context;
    Model model;
    Trainer trainer;
    ModelConfig config;
    const TrainerOptions options = {.micro_batch = 2, .n_micro = 2, .seq_len = 16, .clip = 1.0, .seed = 1, .bf16 = true,
                                    .schedule = {.kind = SCHEDULE_CONSTANT, .lr = 1e-2, .steps = 3}};
    Loader *loader = loader_create(&s->shards, 16, 1, 0, VOCAB, error);
    if (loader == NULL) {
        return -1;
    }
    int status = config_preset(&config, "nano", error);
    config.vocab_size = VOCAB;
    config.d_model = 16;
    config.n_layer = 1;
    status = status == 0 ? model_create(&model, &config, kernels_select(error), error) : status;
    if (status == 0) {
        model_init(&model, 1, 16);
        status = trainer_create(&trainer, &model, &options, error);
    }
    if (status == 0) {
        trainer.train = loader;
        status = step_and_compare(&trainer, s, error);
        trainer_free(&trainer);
    }
    loader_free(loader);
    return status;
}

static void training_step(void **state)
{
    Error error;
    Steps s = {0};
    ShardWriter *writer = shard_writer_create(((Fixture *)*state)->folder, "train", 1000, VOCAB, 0, &error);
    int32_t ids[400];
    for (int i = 0; i < 400; i++) {
        ids[i] = i * i % VOCAB;
    }
    assert_int_equal(shard_writer_add(writer, ids, 400, &error) | shard_writer_close(writer, NULL, NULL, &error), 0);
    char *path = in_folder(state, "train_000000.bin");
    assert_int_equal(path_list_add(&s.shards, path, &error), 0);
    free(path);
    if (run_step(&s, &error)) {
        fail_msg("%s", error.text);
    }
    sweep_memory(&(Case){"a step", &s, nothing_before, run_step, nothing_after}, 100);
    path_list_free(&s.shards);
    free(s.expected);
    free(s.text);
}

int main(void)
{
    faults_start();
    const struct CMUnitTest tests[] = {
        TEST(saving),
        TEST(pruning),
        TEST(loading),
        TEST(state_files),
        TEST(logging),
        TEST(training_step),
    };
    return cmocka_run_group_tests_name("faults", tests, NULL, NULL);
}

#endif
