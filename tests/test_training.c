// The parts around the training step: schedule, optimizer, log, settings.
#include <math.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/json.h"
#include "base/rng.h"
#include "training/log.h"
#include "training/loss_watch.h"
#include "training/optimizer.h"
#include "training/schedule.h"
#include "training/settings.h"

#include "tests/training.h"

// ---- schedule ----

static void test_schedule(void **state)
{
    (void)state;
    Schedule s = {.kind = SCHEDULE_COSINE, .lr = 1.0, .min_lr = 0.1, .warmup = 10, .steps = 110};
    assert_float_equal(schedule_rate(&s, 0), 0.1, 1e-12);
    assert_float_equal(schedule_rate(&s, 9), 1.0, 1e-12);
    assert_float_equal(schedule_rate(&s, 10), 1.0, 1e-12);
    assert_float_equal(schedule_rate(&s, 60), 0.55, 1e-12);
    assert_float_equal(schedule_rate(&s, 35), 0.1 + 0.45 * (1.0 + sqrt(0.5)), 1e-12);
    assert_float_equal(schedule_rate(&s, 110), 0.1, 1e-12);
    assert_float_equal(schedule_rate(&s, 100000), 0.1, 1e-12);
    s.kind = SCHEDULE_WSD;   // the last fifth of 110 steps: from step 88 on
    assert_float_equal(schedule_rate(&s, 4), 0.5, 1e-12);
    assert_float_equal(schedule_rate(&s, 88), 1.0, 1e-12);
    assert_float_equal(schedule_rate(&s, 99), 0.55, 1e-12);
    assert_float_equal(schedule_rate(&s, 110), 0.1, 1e-12);
    s.kind = SCHEDULE_CONSTANT;
    assert_float_equal(schedule_rate(&s, 109), 1.0, 1e-12);
    s.warmup = 0;
    assert_float_equal(schedule_rate(&s, 0), 1.0, 1e-12);
    s = (Schedule){.kind = SCHEDULE_COSINE, .lr = 1.0, .min_lr = 0.0, .warmup = INT64_C(3000000000), .steps = INT64_C(10000000000)};
    assert_float_equal(schedule_rate(&s, INT64_C(1500000000) - 1), 0.5, 1e-12);
    assert_float_equal(schedule_rate(&s, INT64_C(6500000000)), 0.5, 1e-9);
    Error error;
    ScheduleKind kind;
    assert_int_equal(schedule_kind(&kind, "wsd", &error), 0);
    assert_int_equal(kind, SCHEDULE_WSD);
    assert_int_equal(schedule_kind(&kind, "linear", &error), -1);
    assert_non_null(strstr(error.text, "cosine"));
}

// ---- optimizer ----

static void test_optimizer(void **state)
{
    (void)state;
    Error error;
    Model model;
    Optimizer optimizer;
    ModelConfig config = tiny_config();
    assert_ok(model_create(&model, &config, kernels(), &error), &error);
    model_init(&model, 1, SEQ_LEN);
    size_t n = model.table.total;
    assert_ok(optimizer_create(&optimizer, OPTIMIZER_ADAMW, &model.table, 0.1, &error), &error);
    double *p = calloc(n, sizeof *p), *m = calloc(n, sizeof *m), *v = calloc(n, sizeof *v);
    float *gradients = calloc(n, sizeof *gradients), *expected = calloc(n, sizeof *expected);
    Rng rng;
    rng_seed(&rng, 9, 0);
    for (size_t i = 0; i < n; i++) {
        p[i] = (double)model.params[i];
    }
    for (int step = 1; step <= 5; step++) {
        double lr = 0.01 * step, scale = 0.5;
        for (size_t i = 0; i < n; i++) {
            gradients[i] = (float)rng_normal(&rng);
        }
        optimizer_step(&optimizer, &model, gradients, scale, lr);
        for (size_t t = 0; t < model.table.count; t++) {
            const Tensor *tensor = &model.table.items[t];
            for (size_t i = tensor->offset; i < tensor->offset + tensor->count; i++) {
                double g = (double)gradients[i] * scale;
                m[i] = 0.9 * m[i] + 0.1 * g;
                v[i] = 0.95 * v[i] + 0.05 * g * g;
                double update = m[i] / (1.0 - pow(0.9, step)) / (sqrt(v[i] / (1.0 - pow(0.95, step))) + 1e-8);
                p[i] -= lr * (update + (tensor->is_matrix ? 0.1 : 0.0) * p[i]);
            }
        }
    }
    for (size_t i = 0; i < n; i++) {
        expected[i] = (float)p[i];
    }
    for (size_t t = 0; t < model.table.count; t++) {
        const Tensor *tensor = &model.table.items[t];
        if (!(relative_rms(model.params + tensor->offset, expected + tensor->offset, tensor->count) < 1e-5)) {
            fail_msg("%s differs from the plain formula", tensor->name);
        }
    }
    assert_int_equal(optimizer.updates, 5);
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)gradients[i] * (double)gradients[i];
    }
    assert_true(fabs(arena_sum_squares(&model, gradients) / sum - 1.0) < 1e-5);
    free(p);
    free(m);
    free(v);
    free(gradients);
    free(expected);
    optimizer_free(&optimizer);
    model_free(&model);
}

static void test_first_not_finite(void **state)
{
    (void)state;
    Error error;
    Model model;
    ModelConfig config = tiny_config();
    assert_ok(model_create(&model, &config, kernels(), &error), &error);
    float *arena = calloc(model.table.total, sizeof *arena);
    assert_null(arena_not_finite(&model, arena));
    arena[tensor_find(&model.table, "embed.weight")->offset + 7] = NAN;
    assert_string_equal(arena_not_finite(&model, arena)->name, "embed.weight");
    arena[tensor_find(&model.table, "layers.0.mixer.o.weight")->offset] = -INFINITY;
    assert_string_equal(arena_not_finite(&model, arena)->name, "layers.0.mixer.o.weight");
    arena[tensor_find(&model.table, "layers.1.norm.weight")->offset] = NAN;
    assert_string_equal(arena_not_finite(&model, arena)->name, "layers.1.norm.weight");
    arena[tensor_find(&model.table, "norm.weight")->offset + 31] = NAN;
    assert_string_equal(arena_not_finite(&model, arena)->name, "norm.weight");
    free(arena);
    model_free(&model);
}

// ---- loss ----

// How many times `count` losses of about `loss` make the watch speak; *last is the number of the last such loss, from 1.
static int count_told(LossWatch *watch, double loss, int count, int *last)
{
    int told = 0;
    for (int i = 1; i <= count; i++) {
        if (loss_watch_add(watch, loss + (i % 2 == 0 ? 0.05 : -0.05) * loss)) {
            told++;
            *last = i;
        }
    }
    return told;
}

static void test_loss_watch(void **state)
{
    (void)state;
    LossWatch watch = {0};
    int last = 0;
    assert_int_equal(count_told(&watch, 4.0, 50, &last), 0);
    assert_int_equal(count_told(&watch, 2.0, 500, &last), 0);
    assert_true(fabs(watch.mean - 2.0) < 0.01 && watch.least < 2.0);
    // A loss that is half again as high: the mean is a tenth above after some ten steps; told once.
    assert_int_equal(count_told(&watch, 3.0, 1000, &last), 1);
    assert_in_range(last, LOSS_WATCH_STEPS + 5, LOSS_WATCH_STEPS + 20);
    // Another rise counts only behind a new least, and a short one not at all.
    assert_int_equal(count_told(&watch, 2.1, 500, &last) + count_told(&watch, 3.0, 500, &last), 0);
    assert_int_equal(count_told(&watch, 1.0, 500, &last), 0);
    assert_int_equal(count_told(&watch, 1.2, 60, &last) + count_told(&watch, 1.0, 100, &last), 0);
    assert_int_equal(count_told(&watch, 1.2, 500, &last), 1);
    assert_false(loss_is_unlikely(log(2048.0) + 0.3, 2048));
    assert_true(loss_is_unlikely(log(2048.0) + 1.1, 2048));
    assert_true(loss_is_unlikely(log(2048.0) - 1.1, 2048));
    assert_true(loss_is_unlikely(NAN, 2048));
}

// ---- log ----

static int count_lines(const char *path, char **text)
{
    Error error;
    size_t size;
    *text = file_read(path, 1 << 20, &size, &error);
    assert_non_null(*text);
    int lines = 0;
    for (size_t i = 0; i < size; i++) {
        lines += (*text)[i] == '\n';
    }
    return lines;
}

static void test_log(void **state)
{
    (void)state;
    Error error;
    TrainLog log;
    char *folder = make_folder(), *path = path_join(folder, "log.jsonl"), *text;
    assert_ok(train_log_open(&log, folder, 0, &error), &error);
    for (int step = 1; step <= 12; step++) {
        LogRecord record = {.step = step, .tokens = UINT64_C(5000000000) * (uint64_t)step, .loss = step == 3 ? NAN : 2.5, .lr = 1e-3, .grad_norm = 0.5,
                            .tokens_per_second = 100.0, .val_loss = step == 4 ? 2.25 : NAN, .rising = step == 5,
                            .skipped = step == 3 ? "gradient of norm.weight" : NULL};
        assert_ok(train_log_write(&log, &record, &error), &error);
    }
    train_log_close(&log);
    assert_int_equal(count_lines(path, &text), 12);
    char *line = strtok(text, "\n");
    for (int step = 1; step <= 12; step++, line = strtok(NULL, "\n")) {
        cJSON *json = cJSON_Parse(line);
        assert_non_null(json);
        assert_true(cJSON_GetObjectItem(json, "step")->valueint == step);
        assert_true(cJSON_GetObjectItem(json, "tokens")->valuedouble == 5e9 * step);
        assert_true(cJSON_IsNull(cJSON_GetObjectItem(json, "loss")) == (step == 3));
        assert_true(cJSON_HasObjectItem(json, "skipped") == (step == 3));
        assert_true(cJSON_HasObjectItem(json, "val_loss") == (step == 4));
        assert_true(cJSON_IsTrue(cJSON_GetObjectItem(json, "rising")) == (step == 5));
        cJSON_Delete(json);
    }
    free(text);
    // A crash tore the last line; the checkpoint is of step 7.
    FILE *file = fopen(path, "a");
    fputs("{\"step\":13,\"tok", file);
    fclose(file);
    assert_ok(train_log_open(&log, folder, 7, &error), &error);
    LogRecord record = {.step = 8, .loss = 1.5, .val_loss = NAN};
    assert_ok(train_log_write(&log, &record, &error), &error);
    train_log_close(&log);
    assert_int_equal(count_lines(path, &text), 8);
    assert_non_null(strstr(text, "{\"step\":8,\"tokens\":0,\"loss\":1.5,"));
    assert_null(strstr(text, "\"step\":9"));
    free(text);
    // The torn line is also cut when the checkpoint is newer than the log.
    file = fopen(path, "a");
    fputs("{\"step\":9,\"tok", file);
    fclose(file);
    assert_ok(train_log_open(&log, folder, 50, &error), &error);
    train_log_close(&log);
    assert_int_equal(count_lines(path, &text), 8);
    assert_null(strstr(text, "\"step\":9"));
    free(text);
    // Lines that are no records stay, and so do the records behind them, up to the first one that is done again.
    file = fopen(path, "a");
    fputs("no record\n{\"step\":9,\"x\":1}\n{\"step\":10,\"x\":1}\nno record\n", file);
    fclose(file);
    assert_ok(train_log_open(&log, folder, 9, &error), &error);
    train_log_close(&log);
    assert_int_equal(count_lines(path, &text), 10);
    assert_non_null(strstr(text, "no record\n{\"step\":9,\"x\":1}\n"));
    free(text);
    // What has no end is not read.
    assert_int_equal(remove(path), 0);
    assert_int_equal(symlink("/dev/zero", path), 0);
    assert_int_equal(train_log_open(&log, folder, 9, &error), -1);
    assert_non_null(strstr(error.text, "is no regular file"));
    free(path);
    remove_folder(folder);
}

// ---- settings ----

// A share of the step for each rank: smaller micro-batches, at least one a share, and no fewer shares than ranks.
static void test_settings_ranks(void **state)
{
    (void)state;
    Error error;
    RunSize size = {.params = 1100000, .windows = 1000, .ranks = 2};
    TrainSettings *s = PARSE("train", "a.txt", "--out", "run");
    assert_ok(settings_resolve(s, &size, &error), &error);
    assert_true(s->shares == 2 && s->batch_tokens == 4096 && s->micro_batch == 2);
    drop(s);
    size.ranks = 6;
    s = PARSE("train", "a.txt", "--out", "run");
    assert_ok(settings_resolve(s, &size, &error), &error);
    assert_true(s->shares == 6 && s->batch_tokens == 6144 && s->micro_batch == 1);
    drop(s);
    s = PARSE("train", "a.txt", "--out", "run", "--shares", "4");
    assert_int_equal(settings_resolve(s, &size, &error), -1);
    assert_non_null(strstr(error.text, "--shares 4 in a step, too few for 6 ranks"));
    drop(s);
    // By default as many ranks as there may be give the bits of one process.
    for (size.ranks = 1; size.ranks <= 8; size.ranks += 7) {
        s = PARSE("train", "a.txt", "--out", "run", "--batch-tokens", "64k", "--micro-batch", "2");
        assert_ok(settings_resolve(s, &size, &error), &error);
        assert_true(s->shares == 8);
        drop(s);
    }
    size.ranks = 1;
    s = PARSE("train", "a.txt", "--out", "run", "--shares", "3", "--batch-tokens", "4k", "--micro-batch", "2");
    assert_int_equal(settings_resolve(s, &size, &error), -1);
    assert_non_null(strstr(error.text, "has 2 micro-batches, too few for 3 shares"));
    drop(s);
}

static void test_settings_resolve(void **state)
{
    (void)state;
    Error error;
    RunSize size = {.params = 1100000, .windows = 1000};
    TrainSettings *s = PARSE("train", "a.txt", "--out", "run");
    assert_ok(settings_resolve(s, &size, &error), &error);
    assert_int_equal(s->batch_tokens, 4096);
    assert_int_equal(s->micro_batch, 4);
    assert_float_equal(s->lr, 4e-3, 1e-12);
    assert_float_equal(s->min_lr, 4e-4, 1e-12);
    assert_int_equal(s->steps, 1000);   // four epochs of 1,024,000 tokens, which is less than 20 tokens a parameter
    assert_int_equal(s->warmup, 100);
    drop(s);
    s = PARSE("train", "a.txt", "--out", "run", "--seq-len", "32", "--batch-tokens", "500", "--micro-batch=3", "--tokens", "10k", "--min-lr", "0", "--lr", "0.01");
    assert_ok(settings_resolve(s, &size, &error), &error);
    assert_int_equal(s->batch_tokens, 576);   // six micro-batches of 96
    assert_int_equal(s->steps, 18);
    assert_true(s->min_lr == 0.0);
    drop(s);
    s = PARSE("train", "a.txt", "--out", "run", "--epochs", "2.5", "--batch-tokens", "10k");
    assert_ok(settings_resolve(s, &size, &error), &error);
    assert_int_equal(s->batch_tokens, 12288);   // k is 1,024 here, rounded up to micro-batches of 4,096
    assert_int_equal(s->steps, 209);
    drop(s);
    s = PARSE("train", "a.txt", "--out", "run", "--lr", "1e-4", "--min-lr", "1e-3");
    assert_int_equal(settings_resolve(s, &size, &error), -1);
    assert_non_null(strstr(error.text, "--min-lr"));
    drop(s);
    size = (RunSize){.params = 110000000, .windows = UINT64_C(40000000000)};   // more than 2^31 tokens everywhere
    s = PARSE("train", "a.bin", "--out", "run", "--epochs", "1");
    assert_ok(settings_resolve(s, &size, &error), &error);
    assert_int_equal(s->batch_tokens, 262144);
    assert_int_equal(s->steps, INT64_C(40000000000) * 1024 / 262144);
    assert_float_equal(s->lr, 6e-4, 1e-12);
    drop(s);
}

static void test_settings_model(void **state)
{
    (void)state;
    Error error;
    ModelConfig config, checkpoint;
    bool asked;
    TrainSettings *s = PARSE("train", "a.txt", "--out", "run", "--preset", "9m", "--n-layer", "3", "--no-tie-embeddings");
    assert_ok(settings_model(&config, &asked, s, &error), &error);
    assert_int_equal(config.d_model, 256);
    assert_int_equal(config.n_layer, 3);
    assert_false(config.tie_embeddings);
    assert_false(asked);
    checkpoint = config;
    checkpoint.vocab_size = 300;   // the tokenizer came out smaller
    assert_ok(settings_same_model(s, &checkpoint, &error), &error);
    checkpoint.mlp_hidden = 12;
    assert_int_equal(settings_same_model(s, &checkpoint, &error), -1);
    assert_non_null(strstr(error.text, "mlp_hidden is 12 in the checkpoint, 704 now"));
    drop(s);
    s = PARSE("train", "--out", "run", "--resume", "--n-layer", "3");
    assert_ok(settings_same_model(s, &checkpoint, &error), &error);
    drop(s);
    s = PARSE("train", "--out", "run", "--resume", "--n-layer", "4");
    assert_int_equal(settings_same_model(s, &checkpoint, &error), -1);
    assert_non_null(strstr(error.text, "n_layer is 3 in the checkpoint, 4 now"));
    drop(s);
    s = PARSE("train", "a.txt", "--out", "run", "--vocab-size", "777");
    assert_ok(settings_model(&config, &asked, s, &error), &error);
    assert_true(asked);
    assert_int_equal(config.vocab_size, 777);
    drop(s);
    s = PARSE("train", "a.txt", "--out", "run", "--preset", "nano", "--dtype", "bf16");
    assert_true(settings_bf16(s));
    drop(s);
}

static void test_settings_restore(void **state)
{
    (void)state;
    Error error;
    RunSize size = {.params = 1100000, .windows = 1000};
    TrainSettings *s = PARSE("train", "a.txt", "--out", "run", "--steps", "40", "--lr", "0.00123456789", "--schedule", "wsd", "--val", "b.txt", "--seed", "9");
    assert_ok(settings_resolve(s, &size, &error), &error);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddItemToObject(json, "settings", settings_to_json(s));
    char *text = json_to_text(json, true);
    cJSON *read = cJSON_Parse(text);
    drop(s);
    s = PARSE("train", "--out", "elsewhere", "--resume", "--save-every", "7", "--steps", "60");
    assert_ok(settings_restore(s, read, &error), &error);
    assert_ok(settings_resolve(s, &size, &error), &error);
    assert_int_equal(s->steps, 60);
    assert_int_equal(s->save_every, 7);
    assert_int_equal(s->warmup, 4);
    assert_true(s->lr == 0.00123456789);
    assert_true(s->min_lr == 0.00123456789 / 10.0);
    assert_string_equal(s->schedule, "wsd");
    assert_string_equal(s->val, "b.txt");
    assert_string_equal(s->out, "elsewhere");
    assert_int_equal(s->seed, 9);
    drop(s);
    s = PARSE("train", "--out", "run", "--resume", "--seq-len", "512");
    assert_int_equal(settings_restore(s, read, &error), -1);
    assert_non_null(strstr(error.text, "--seq-len cannot change"));
    drop(s);
    // A checkpoint from before there were shares.
    cJSON_DeleteItemFromObject(cJSON_GetObjectItem(read, "settings"), "shares");
    s = PARSE("train", "--out", "run", "--resume");
    assert_ok(settings_restore(s, read, &error), &error);
    assert_true(s->shares == 0 && s->steps == 40);
    drop(s);
    static const char *const names[] = {"schedule", "optimizer", "dtype"};
    for (size_t i = 0; i < 3; i++) {
        cJSON *good = cJSON_DetachItemFromObject(cJSON_GetObjectItem(read, "settings"), names[i]), *bad[] = {cJSON_CreateNull(), cJSON_CreateString("x")};
        for (size_t j = 0; j < 2; j++) {
            cJSON_AddItemToObject(cJSON_GetObjectItem(read, "settings"), names[i], bad[j]);
            s = PARSE("train", "--out", "run", "--resume");
            assert_int_equal(settings_restore(s, read, &error), -1);
            assert_non_null(strstr(error.text, names[i]));
            drop(s);
            cJSON_DeleteItemFromObject(cJSON_GetObjectItem(read, "settings"), names[i]);
        }
        cJSON_AddItemToObject(cJSON_GetObjectItem(read, "settings"), names[i], good);
    }
    cJSON_ReplaceItemInObject(cJSON_GetObjectItem(read, "settings"), "micro_batch", cJSON_CreateNumber(-5e12));
    s = PARSE("train", "--out", "run", "--resume");
    assert_int_equal(settings_restore(s, read, &error), -1);
    assert_non_null(strstr(error.text, "micro_batch"));
    drop(s);
    cJSON_Delete(read);
    cJSON_Delete(json);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedule),
        cmocka_unit_test(test_optimizer),
        cmocka_unit_test(test_first_not_finite),
        cmocka_unit_test(test_loss_watch),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_settings_resolve),
        cmocka_unit_test(test_settings_ranks),
        cmocka_unit_test(test_settings_model),
        cmocka_unit_test(test_settings_restore),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
