// checkpoint/: save and load, every refusal, replacing, pruning, kills in the middle of a save, full disks.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

static char root[256];

// A path below the tests' folder; the last few stay valid.
static const char *at(const char *format, ...) __attribute__((format(printf, 1, 2)));
static const char *at(const char *format, ...)
{
    static char paths[8][512];
    static size_t next;
    char name[200], *path = paths[next++ % 8];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static int make_root(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/lattice-checkpoint-XXXXXX", base != NULL ? base : "/tmp");
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int drop_root(void **state)
{
    (void)state;
    Error error;
    return folder_remove(root, &error);
}

static ModelConfig tiny_config(bool tied)
{
    ModelConfig config;
    Error error;
    assert_int_equal(config_preset(&config, "nano", &error), 0);
    config.vocab_size = 50;
    config.d_model = 12;
    config.n_layer = 2;
    config.n_head = 2;
    config.d_head = 6;
    config.n_slot = 5;
    config.mlp_hidden = 16;
    config.tie_embeddings = tied;
    return config;
}

static void make_model(Model *model, const ModelConfig *config, uint64_t seed)
{
    Error error;
    const Kernels *kernels = kernels_select(&error);
    assert_non_null(kernels);
    assert_int_equal(model_create(model, config, kernels, &error), 0);
    Rng rng;
    rng_seed(&rng, seed, 0);
    for (size_t i = 0; i < model->table.total; i++) {
        model->params[i] = (float)rng_normal(&rng);
    }
}

static void save(const Model *model, const char *out, int64_t step)
{
    CheckpointSource source = {.model = model};
    Error error = {""};
    if (checkpoint_save(&source, out, step, &error)) {
        fail_msg("%s", error.text);
    }
}

static uint64_t model_hash(const Model *model)
{
    uint64_t hash;
    Error error;
    assert_int_equal(checkpoint_model_hash(&hash, model, &error), 0);
    return hash;
}

static void assert_same_params(const Model *a, const Model *b)
{
    assert_int_equal(a->table.total, b->table.total);
    assert_memory_equal(a->params, b->params, a->table.total * sizeof *a->params);
}

// Loads what a path resolves to and compares it with the model.
static void assert_loads(const char *path, const Model *expected)
{
    Error error = {""}, note;
    char *folder = checkpoint_resolve(path, &note, &error);
    if (folder == NULL) {
        fail_msg("%s", error.text);
    }
    Model loaded;
    assert_int_equal(checkpoint_load_model(&loaded, expected->kernels, folder, &error), 0);
    assert_same_params(expected, &loaded);
    model_free(&loaded);
    free(folder);
}

static void assert_resolves_to(const char *path, const char *name, const char *note_says)
{
    Error error = {""}, note;
    char *folder = checkpoint_resolve(path, &note, &error);
    if (folder == NULL) {
        fail_msg("%s", error.text);
    }
    assert_string_equal(path_base(folder), name);
    if (note_says == NULL) {
        assert_string_equal(note.text, "");
    } else {
        assert_non_null(strstr(note.text, note_says));
    }
    free(folder);
}

static void assert_refused(const char *path, const char *says, const char *says_too)
{
    Error error = {""};
    char *folder = checkpoint_resolve(path, NULL, &error);
    assert_null(folder);
    if (strstr(error.text, says) == NULL || strstr(error.text, says_too) == NULL) {
        fail_msg("expected '%s' and '%s' in: %s", says, says_too, error.text);
    }
}

static void flip(const char *path, int64_t offset)
{
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    unsigned char byte = 0;
    if (offset < 0) {
        offset += file_size(path);
    }
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}

static void write_text(const char *path, const char *text)
{
    Error error;
    assert_int_equal(file_write_atomic(path, text, strlen(text), &error), 0);
}

// ---- saving and loading ----

static void test_round_trip(void **state)
{
    (void)state;
    write_text(at("tokenizer.json"), "{\"made\": \"up\"}");
    for (int tied = 0; tied < 2; tied++) {
        Model model, loaded;
        ModelConfig config = tiny_config(tied);
        config.forget_gate = tied;
        config.norm_eps = 1.0 / 3.0e5;
        make_model(&model, &config, 1);
        Error error;
        size_t total = model.table.total;
        float *moments[2] = {malloc(total * sizeof(float)), malloc(total * sizeof(float))};
        float *back[2] = {calloc(total, sizeof(float)), calloc(total, sizeof(float))};
        for (size_t i = 0; i < total; i++) {
            moments[0][i] = (float)i * 0.5f;
            moments[1][i] = 1.0f / (float)(i + 1);
        }
        cJSON *trainer = cJSON_CreateObject();
        cJSON_AddNumberToObject(trainer, "step", 1000);
        cJSON_AddNumberToObject(trainer, "tokens", 3e10);
        cJSON_AddNumberToObject(trainer, "loss", 0.1 + 0.2);
        cJSON_AddStringToObject(trainer, "files", "replaced by the save");
        // The second arena holds the first tensors only.
        TensorTable some = model.table;
        some.count -= 2;
        some.total = model.table.items[some.count].offset;
        const NamedArena sources[2] = {{"m.", &model.table, moments[0]}, {"v.", &some, moments[1]}};
        CheckpointSource source = {&model, at("tokenizer.json"), sources, 2, trainer};
        const char *out = at("round%d/deeper", tied);
        assert_int_equal(checkpoint_save(&source, out, 1000, &error), 0);
        cJSON_Delete(trainer);

        char *folder = checkpoint_resolve(out, NULL, &error);
        assert_non_null(folder);
        assert_string_equal(path_base(folder), "step_00001000");
        assert_int_equal(checkpoint_load_model(&loaded, model.kernels, folder, &error), 0);
        assert_same_params(&model, &loaded);
        assert_true(loaded.config.norm_eps == config.norm_eps && loaded.config.tie_embeddings == config.tie_embeddings);
        assert_true(loaded.config.n_slot == 5 && loaded.config.forget_gate == config.forget_gate);
        assert_true(model_hash(&model) == model_hash(&loaded));
        NamedArena read[2] = {{"m.", &loaded.table, back[0]}, {"v.", &some, back[1]}};
        assert_int_equal(checkpoint_load_moments(read, 2, folder, &error), 0);
        assert_memory_equal(back[0], moments[0], total * sizeof(float));
        assert_memory_equal(back[1], moments[1], some.total * sizeof(float));
        // Arenas of another optimizer: a tensor is extra or missing.
        assert_int_equal(checkpoint_load_moments(read, 1, folder, &error), -1);
        assert_non_null(strstr(error.text, "tensor v."));
        read[1].table = &loaded.table;
        assert_int_equal(checkpoint_load_moments(read, 2, folder, &error), -1);
        assert_non_null(strstr(error.text, loaded.table.items[some.count].name));
        trainer = checkpoint_load_trainer(folder, &error);
        assert_non_null(trainer);
        assert_true(cJSON_GetObjectItem(trainer, "loss")->valuedouble == 0.1 + 0.2);
        assert_true(cJSON_GetObjectItem(trainer, "tokens")->valuedouble == 3e10);
        assert_true(cJSON_IsObject(cJSON_GetObjectItem(trainer, "files")));
        cJSON_Delete(trainer);
        assert_int_equal(file_size(at("round%d/deeper/step_00001000/tokenizer.json", tied)), 14);
        assert_false(file_exists(at("round%d/deeper/step_00001000.tmp", tied)));

        // Another weight or another constant is another model.
        uint64_t hash = model_hash(&loaded);
        loaded.config.norm_eps *= 1.0000001;
        assert_true(model_hash(&loaded) != hash);
        loaded.config.norm_eps = config.norm_eps;
        loaded.params[total - 1] += 1.0f;
        assert_true(model_hash(&loaded) != hash);
        model_free(&model);
        model_free(&loaded);
        free(folder);
        for (int i = 0; i < 2; i++) {
            free(moments[i]);
            free(back[i]);
        }
    }
}

static void test_missing_tokenizer(void **state)
{
    (void)state;
    Model model;
    ModelConfig config = tiny_config(true);
    make_model(&model, &config, 1);
    CheckpointSource source = {.model = &model, .tokenizer_path = "/no/such/tokenizer.json"};
    Error error;
    assert_int_equal(checkpoint_save(&source, at("mt"), 1, &error), -1);
    assert_non_null(strstr(error.text, "step_00000001 was not saved"));
    assert_non_null(strstr(error.text, "/no/such/tokenizer.json"));
    assert_false(file_exists(at("mt/step_00000001.tmp")));
    assert_false(file_exists(at("mt/step_00000001")));
    write_text(at("a-file"), "");
    source.tokenizer_path = NULL;
    assert_int_equal(checkpoint_save(&source, at("a-file"), 1, &error), -1);
    assert_non_null(strstr(error.text, "is a file"));
    model_free(&model);
}

// ---- damage ----

static void fresh(const Model *model)
{
    Error error;
    write_text(at("tokenizer.json"), "{\"made\": \"up\"}");
    assert_int_equal(folder_remove(at("damage"), &error), 0);
    const NamedArena moments[2] = {{"m.", &model->table, model->params}, {"v.", &model->table, model->params}};
    CheckpointSource source = {model, at("tokenizer.json"), moments, 2, NULL};
    assert_int_equal(checkpoint_save(&source, at("damage"), 7, &error), 0);
}

static void test_damage(void **state)
{
    (void)state;
    Model model;
    ModelConfig config = tiny_config(true);
    make_model(&model, &config, 2);
    static const char *const files[] = {"model.safetensors", "config.json", "tokenizer.json", "optimizer.safetensors", "trainer.json"};
    for (size_t i = 0; i < 5; i++) {
        const int64_t places[] = {0, 9, -3};
        for (size_t j = 0; j < 3; j++) {
            fresh(&model);
            flip(at("damage/step_00000007/%s", files[i]), places[j]);
            assert_refused(at("damage/step_00000007"), files[i], "");
            assert_refused(at("damage"), files[i], "none of the 1 checkpoints");
        }
        fresh(&model);
        char path[512];
        snprintf(path, sizeof path, "%s", at("damage/step_00000007/%s", files[i]));
        assert_int_equal(truncate(path, file_size(path) - 1), 0);
        assert_refused(at("damage/step_00000007"), files[i], "");
        fresh(&model);
        assert_int_equal(truncate(path, 0), 0);
        assert_refused(at("damage/step_00000007"), files[i], "");
        fresh(&model);
        assert_int_equal(unlink(path), 0);
        assert_refused(at("damage/step_00000007"), files[i], i < 4 ? "is missing" : "no complete checkpoint");
    }
    // The model alone needs no optimizer; its other files are verified as ever, and so is an optimizer that is there.
    for (size_t i = 0; i < 5; i++) {
        Error error = {""};
        fresh(&model);
        assert_int_equal(unlink(at("damage/step_00000007/%s", files[i])), 0);
        char *folder = checkpoint_resolve_model(at("damage"), NULL, &error);
        assert_true((folder != NULL) == (i == 3));
        assert_true(folder != NULL || strstr(error.text, files[i]) != NULL);
        free(folder);
        fresh(&model);
        flip(at("damage/step_00000007/%s", files[i]), 9);
        assert_null(checkpoint_resolve_model(at("damage/step_00000007"), NULL, &error));
    }
    assert_true(checkpoint_holds(at("damage/step_00000007/new")));
    assert_false(checkpoint_holds(at("damage/new")));
    // Every byte of trainer.json counts.
    fresh(&model);
    for (int64_t i = file_size(at("damage/step_00000007/trainer.json")); i > 0; i--) {
        flip(at("damage/step_00000007/trainer.json"), -i);
        assert_refused(at("damage/step_00000007"), "trainer.json", "");
        flip(at("damage/step_00000007/trainer.json"), -i);
    }
    assert_resolves_to(at("damage/step_00000007"), "step_00000007", NULL);
    // A file that was put in afterwards would be used unchecked.
    save(&model, at("unlisted"), 1);
    write_text(at("unlisted/step_00000001/tokenizer.json"), "{}");
    assert_refused(at("unlisted/step_00000001"), "tokenizer.json", "not listed");
    model_free(&model);
}

// Puts a text in a file of the checkpoint and makes the manifest agree, as somebody who edits on purpose could.
static void edit(const char *name, const char *text)
{
    Error error;
    write_text(at("damage/step_00000007/%s", name), text);
    assert_int_equal(manifest_write(at("damage/step_00000007"), NULL, &error), 0);
    assert_int_equal(checkpoint_verify(at("damage/step_00000007"), &error), 0);
}

static void assert_load_fails(const char *says)
{
    Error error = {""};
    Model model;
    assert_int_equal(checkpoint_load_model(&model, kernels_select(NULL), at("damage/step_00000007"), &error), -1);
    if (strstr(error.text, says) == NULL) {
        fail_msg("expected '%s' in: %s", says, error.text);
    }
}

static void edit_config(const Model *model, const char *key, double value, const char *says)
{
    fresh(model);
    cJSON *json = config_to_json(&model->config);
    cJSON_ReplaceItemInObject(json, key, cJSON_CreateNumber(value));
    char *text = json_to_text(json, true);
    edit("config.json", text);
    free(text);
    cJSON_Delete(json);
    assert_load_fails(says);
}

static void test_config_against_tensors(void **state)
{
    (void)state;
    Model model;
    ModelConfig config = tiny_config(true);
    make_model(&model, &config, 2);
    edit_config(&model, "d_model", 16, "tensor embed.weight has shape [50, 12], expected [50, 16]");
    // Sizes that no memory could hold must be refused by shape, before anything is allocated.
    edit_config(&model, "d_model", 65536, "tensor embed.weight has shape [50, 12], expected [50, 65536]");
    edit_config(&model, "n_layer", 3, "tensor layers.2.norm.weight is missing");
    edit_config(&model, "n_layer", 1024, "tensor layers.2.norm.weight is missing");
    edit_config(&model, "n_layer", 1, "does not belong to a model of this configuration");
    edit_config(&model, "n_layer", 0, "n_layer is 0");
    edit_config(&model, "chunk", 0, "chunk is 0");
    edit_config(&model, "d_model", 1e18, "whole number");
    edit("config.json", "{\"model_type\": \"lattice\", \"d_model\": 12}");
    assert_load_fails("config.json: \"vocab_size\" is missing");
    edit("config.json", "{\"d_model\": ");
    assert_load_fails("config.json: line 1 is not valid JSON");
    edit("config.json", "[]");
    assert_load_fails("config.json");

    // Tied weights in the file of an untied model, and the other way round.
    fresh(&model);
    config.tie_embeddings = false;
    cJSON *json = config_to_json(&config);
    char *text = json_to_text(json, true);
    edit("config.json", text);
    assert_load_fails("tensor head.weight is missing");
    cJSON_Delete(json);
    free(text);
    Model untied;
    make_model(&untied, &config, 2);
    fresh(&untied);
    json = config_to_json(&model.config);
    text = json_to_text(json, true);
    edit("config.json", text);
    assert_load_fails("tensor head.weight does not belong");
    cJSON_Delete(json);
    free(text);
    model_free(&untied);
    model_free(&model);
}

// ---- resolve, replace, prune ----

static void test_resolve(void **state)
{
    (void)state;
    Model first, second;
    ModelConfig config = tiny_config(true);
    make_model(&first, &config, 3);
    make_model(&second, &config, 4);
    Error error;
    assert_refused(at("nowhere"), "there is no checkpoint or folder", "nowhere");
    assert_int_equal(folder_make(at("run"), &error), 0);
    assert_refused(at("run"), "holds no checkpoint", "step_");
    save(&first, at("run"), 99);
    save(&second, at("run"), 100000000);   // more digits: order is by number, not by name
    assert_resolves_to(at("run"), "step_100000000", NULL);
    assert_resolves_to(at("run/"), "step_100000000", NULL);
    assert_resolves_to(at("run/step_00000099/"), "step_00000099", NULL);
    assert_loads(at("run"), &second);
    // Things that are no checkpoints, and unfinished ones.
    assert_int_equal(folder_make(at("run/step_000000999.tmp"), &error), 0);
    assert_int_equal(folder_make(at("run/step_x"), &error), 0);
    assert_int_equal(folder_make(at("run/data"), &error), 0);
    assert_resolves_to(at("run"), "step_100000000", NULL);
    assert_refused(at("run/step_000000999.tmp"), "is unfinished", "");
    assert_refused(at("run/step_100000000/model.safetensors"), "is a file", "folder of the checkpoint");
    assert_refused(at("run/step_00000001"), "there is no checkpoint", "step_00000001");

    flip(at("run/step_100000000/model.safetensors"), -1);
    assert_resolves_to(at("run"), "step_00000099", "step_100000000/model.safetensors does not match its checksum");
    assert_loads(at("run"), &first);
    assert_refused(at("run/step_100000000"), "model.safetensors", "use another checkpoint");
    flip(at("run/step_00000099/config.json"), 3);
    assert_refused(at("run"), "none of the 2 checkpoints", "step_100000000/model.safetensors");
    model_free(&first);
    model_free(&second);
}

static void test_replace(void **state)
{
    (void)state;
    Model first, second;
    ModelConfig config = tiny_config(true);
    make_model(&first, &config, 5);
    make_model(&second, &config, 6);
    Error error;
    save(&first, at("again"), 5);
    assert_int_equal(folder_make(at("again/step_00000005.tmp"), &error), 0);
    write_text(at("again/step_00000005.tmp/left-over"), "x");
    save(&second, at("again"), 5);
    assert_loads(at("again"), &second);
    PathList names = {0};
    assert_int_equal(folder_list(&names, at("again"), &error), 0);
    assert_int_equal(names.count, 1);
    path_list_free(&names);
    assert_false(file_exists(at("again/step_00000005/left-over")));

    // Where folders cannot be exchanged, a kill between the two renames leaves this.
    assert_int_equal(rename(at("again/step_00000005"), at("again/step_00000005.old")), 0);
    save(&first, at("other"), 5);
    assert_int_equal(rename(at("other/step_00000005"), at("again/step_00000005.tmp")), 0);
    assert_loads(at("again"), &second);
    assert_loads(at("again/step_00000005"), &second);
    assert_int_equal(checkpoint_prune(at("again"), 0, &error), 0);
    assert_resolves_to(at("again"), "step_00000005", NULL);
    assert_loads(at("again"), &second);
    assert_false(file_exists(at("again/step_00000005.tmp")));

    // And a kill after both leaves this: the old one is superseded.
    save(&first, at("other"), 5);
    assert_int_equal(rename(at("other/step_00000005"), at("again/step_00000005.old")), 0);
    assert_loads(at("again"), &second);
    assert_int_equal(checkpoint_prune(at("again"), 0, &error), 0);
    assert_loads(at("again"), &second);
    assert_false(file_exists(at("again/step_00000005.old")));
    model_free(&first);
    model_free(&second);
}

static void test_prune(void **state)
{
    (void)state;
    Model model;
    ModelConfig config = tiny_config(true);
    make_model(&model, &config, 7);
    Error error;
    for (int64_t step = 1; step <= 6; step++) {
        save(&model, at("prune"), step);
    }
    assert_int_equal(folder_make(at("prune/step_00000009.tmp/x"), &error), 0);
    assert_int_equal(folder_make(at("prune/data.tmp"), &error), 0);
    write_text(at("prune/notes.txt"), "stays");
    assert_int_equal(checkpoint_prune(at("prune"), 0, &error), 0);
    assert_true(file_exists(at("prune/step_00000001")));
    assert_false(file_exists(at("prune/step_00000009.tmp")));
    assert_int_equal(checkpoint_prune(at("prune"), 4, &error), 0);
    assert_false(file_exists(at("prune/step_00000002")));
    assert_true(file_exists(at("prune/step_00000003")));
    // A broken newest one is not what `keep` keeps.
    assert_int_equal(truncate(at("prune/step_00000006/model.safetensors"), 100), 0);
    assert_int_equal(checkpoint_prune(at("prune"), 1, &error), 0);
    assert_true(file_exists(at("prune/step_00000005")));
    assert_false(file_exists(at("prune/step_00000004")));
    assert_resolves_to(at("prune"), "step_00000005", "step_00000006");
    assert_true(file_exists(at("prune/notes.txt")) && file_exists(at("prune/data.tmp")));
    assert_int_equal(checkpoint_prune(at("nowhere"), 1, &error), -1);
    model_free(&model);
}

// ---- interruptions ----

// No folder with a complete one's name may be broken, and one must be there.
static void assert_store_whole(const char *out)
{
    Error error = {""}, note;
    char *folder = checkpoint_resolve(out, &note, &error);
    if (folder == NULL || note.text[0] != 0) {
        fail_msg("%s%s", error.text, note.text);
    }
    free(folder);
}

static void test_kills(void **state)
{
    (void)state;
    Model model;
    ModelConfig config = tiny_config(true);
    make_model(&model, &config, 8);
    char out[512];
    snprintf(out, sizeof out, "%s", at("killed"));
    save(&model, out, 1);
    Rng rng;
    rng_seed(&rng, 11, 0);
    CheckpointSource source = {.model = &model};
    Error error;
    int caught = 0;   // kills that left something unfinished
    for (int round = 0; round < 40; round++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            for (int64_t step = 1;; step = 1 + step % 3) {
                if (checkpoint_save(&source, out, step, &error) || checkpoint_prune(out, 1 + (size_t)step % 2, &error)) {
                    _exit(1);
                }
            }
        }
        usleep((useconds_t)rng_below(&rng, 40000));
        kill(child, SIGKILL);
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_store_whole(out);
        for (int step = 1; step <= 3; step++) {
            caught += file_exists(at("killed/step_%08d.tmp", step));
        }
    }
    assert_true(caught > 0);
    assert_loads(out, &model);
    assert_int_equal(checkpoint_prune(out, 1, &error), 0);
    PathList names = {0};
    assert_int_equal(folder_list(&names, out, &error), 0);
    assert_int_equal(names.count, 1);
    path_list_free(&names);
    model_free(&model);
}

// Every write fails at some byte: the save must fail, say so, clean up and leave the older checkpoint.
static void test_write_limit(void **state)
{
    (void)state;
    Model model;
    ModelConfig config = tiny_config(true);
    make_model(&model, &config, 9);
    save(&model, at("limit"), 1);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit old, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    const rlim_t sizes[] = {0, 100, 1000, 10000};
    for (size_t i = 0; i < 4; i++) {
        limit = (struct rlimit){sizes[i], old.rlim_max};
        CheckpointSource source = {.model = &model};
        Error error = {""};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        int status = checkpoint_save(&source, at("limit"), i % 2 ? 1 : 2, &error);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(status, -1);
        assert_non_null(strstr(error.text, "model.safetensors"));
        assert_false(file_exists(at("limit/step_00000001.tmp")) || file_exists(at("limit/step_00000002.tmp")));
        assert_resolves_to(at("limit"), "step_00000001", NULL);
        assert_loads(at("limit"), &model);
    }
    signal(SIGXFSZ, SIG_DFL);
    model_free(&model);
}

enum { NO_MOUNT = 99 };

// Runs in a child with mounts of its own: a file system of 1 MB that holds one checkpoint, but not two.
static int on_full_disk(const Model *model, const char *place)
{
    int flags = CLONE_NEWNS | (geteuid() != 0 ? CLONE_NEWUSER : 0);
    if (unshare(flags) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", place, "tmpfs", 0, "size=1m") != 0) {
        return NO_MOUNT;
    }
    CheckpointSource source = {.model = model};
    Error error = {""}, note;
    if (checkpoint_save(&source, place, 1, &error)) {
        return 1;
    }
    for (int64_t step = 1; step <= 2; step++) {   // replacing, and beside it
        if (checkpoint_save(&source, place, step, &error) == 0 || strstr(error.text, "the disk is full") == NULL) {
            return 2;
        }
        char *folder = checkpoint_resolve(place, &note, &error);
        if (folder == NULL || strcmp(path_base(folder), "step_00000001") != 0 || note.text[0] != 0) {
            return 3;
        }
        free(folder);
    }
    PathList names = {0};
    int status = folder_list(&names, place, &error) == 0 && names.count == 1 ? 0 : 4;
    path_list_free(&names);
    return status;
}

static void test_full_disk(void **state)
{
    (void)state;
    Model model;
    ModelConfig config = tiny_config(true);
    config.vocab_size = 12000;   // 576 kB of weights
    make_model(&model, &config, 10);
    Error error;
    assert_int_equal(folder_make(at("full"), &error), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(on_full_disk(&model, at("full")));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    model_free(&model);
    if (WEXITSTATUS(status) == NO_MOUNT) {
        print_message("a file system of 1 MB cannot be mounted here (it needs root or user namespaces): the full disk is not tried\n");
        return;
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_missing_tokenizer), cmocka_unit_test(test_damage),
        cmocka_unit_test(test_config_against_tensors), cmocka_unit_test(test_resolve), cmocka_unit_test(test_replace), cmocka_unit_test(test_prune),
        cmocka_unit_test(test_kills), cmocka_unit_test(test_write_limit), cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, make_root, drop_root);
}
