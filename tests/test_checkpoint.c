// checkpoint/: save and load, every refusal, replacing, pruning.
#include <fcntl.h>

#include "base/json.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "tests/checkpoint.h"

static uint64_t model_hash(const Model *model)
{
    uint64_t hash;
    Error error;
    assert_int_equal(checkpoint_model_hash(&hash, model, &error), 0);
    return hash;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_missing_tokenizer),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_config_against_tensors),
        cmocka_unit_test(test_resolve),
        cmocka_unit_test(test_replace),
        cmocka_unit_test(test_prune),
    };
    return cmocka_run_group_tests(tests, make_root, drop_root);
}
