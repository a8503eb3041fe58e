// model/config: presets, JSON, flags, checks.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/config.h"

static ModelConfig preset(const char *name)
{
    ModelConfig config;
    Error error;
    assert_int_equal(config_preset(&config, name, &error), 0);
    return config;
}

static void assert_same(const ModelConfig *a, const ModelConfig *b)
{
    assert_true(a->vocab_size == b->vocab_size && a->d_model == b->d_model && a->n_layer == b->n_layer && a->n_head == b->n_head);
    assert_true(a->d_head == b->d_head && a->n_slot == b->n_slot && a->conv_width == b->conv_width && a->mlp_hidden == b->mlp_hidden);
    assert_true(a->norm_eps == b->norm_eps && a->tie_embeddings == b->tie_embeddings && a->chunk == b->chunk && a->forget_gate == b->forget_gate);
    assert_string_equal(a->mixer, b->mixer);
    assert_string_equal(a->objective, b->objective);
    assert_string_equal(a->chunk_form, b->chunk_form);
    assert_string_equal(a->chunk_norm, b->chunk_norm);
}

static void test_presets(void **state)
{
    (void)state;
    const struct {
        const char *name;
        int64_t d_model, n_layer, n_head, mlp_hidden, vocab;
        double parameters;
    } table[] = {
        {"nano", 128, 4, 2, 352, 2048, 1.1e6}, {"9m", 256, 8, 4, 704, 8192, 9e6}, {"40m", 512, 10, 8, 1408, 16384, 43e6},
        {"110m", 768, 12, 12, 1792, 32000, 110e6},
    };
    Error error;
    for (size_t i = 0; i < 4; i++) {
        ModelConfig c = preset(table[i].name);
        assert_true(c.d_model == table[i].d_model && c.n_layer == table[i].n_layer && c.n_head == table[i].n_head);
        assert_true(c.mlp_hidden == table[i].mlp_hidden && c.vocab_size == table[i].vocab && c.d_head == 64 && c.n_slot == 64 && c.conv_width == 4);
        assert_true(c.norm_eps == 1e-6 && c.tie_embeddings && !c.forget_gate && c.chunk == 1);
        assert_string_equal(c.mixer, "lattice");
        assert_string_equal(c.objective, "decode");
        assert_string_equal(c.chunk_form, "frozen");
        assert_string_equal(c.chunk_norm, "token");
        assert_int_equal(config_validate(&c, &error), 0);
        // Counted by hand from the list of parameters: the presets' names must stay true.
        double hm = (double)(c.n_head * c.n_slot), hd = (double)(c.n_head * c.d_head), d = (double)c.d_model, h = (double)c.n_head;
        double layer = 2 * d + 2 * hm * d + 3 * hd * d + 5 * (2 * hm + hd) + h * d + h + hm * (double)c.d_head + hd + 3 * d * (double)c.mlp_hidden;
        double total = (double)c.vocab_size * d + d + layer * (double)c.n_layer;
        assert_true(fabs(total / table[i].parameters - 1.0) < 0.08);
    }
    ModelConfig c;
    assert_int_equal(config_preset(&c, "big", &error), -1);
    assert_non_null(strstr(error.text, "\"big\": choose from nano, 9m, 40m, 110m"));
}

static void test_validate(void **state)
{
    (void)state;
    const struct {
        size_t offset;
        int64_t value;
        const char *says;
    } wrong[] = {
        {offsetof(ModelConfig, vocab_size), 1, "vocab_size is 1: it must be from 2 to 16777216"},
        {offsetof(ModelConfig, vocab_size), (1 << 24) + 1, "vocab_size"},
        {offsetof(ModelConfig, d_model), 0, "d_model is 0: it must be from 1 to 65536"},
        {offsetof(ModelConfig, d_model), INT64_MAX, "d_model"},
        {offsetof(ModelConfig, n_layer), -1, "n_layer is -1"},
        {offsetof(ModelConfig, n_layer), 1025, "n_layer"},
        {offsetof(ModelConfig, n_head), 0, "n_head"},
        {offsetof(ModelConfig, d_head), 1025, "d_head"},
        {offsetof(ModelConfig, n_slot), 0, "n_slot"},
        {offsetof(ModelConfig, conv_width), 17, "conv_width is 17: it must be from 1 to 16"},
        {offsetof(ModelConfig, mlp_hidden), -1, "mlp_hidden"},
        {offsetof(ModelConfig, mlp_hidden), (1 << 20) + 1, "mlp_hidden"},
        {offsetof(ModelConfig, chunk), 0, "chunk is 0"},
        {offsetof(ModelConfig, chunk), 64, "use chunk 1"},
    };
    Error error;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ModelConfig c = preset("nano");
        *(int64_t *)((char *)&c + wrong[i].offset) = wrong[i].value;
        assert_int_equal(config_validate(&c, &error), -1);
        assert_non_null(strstr(error.text, wrong[i].says));
    }
    const double eps[] = {0.0, -1e-6, 1.0, NAN, INFINITY};
    for (size_t i = 0; i < 5; i++) {
        ModelConfig c = preset("nano");
        c.norm_eps = eps[i];
        assert_int_equal(config_validate(&c, &error), -1);
        assert_non_null(strstr(error.text, "norm_eps"));
    }
    ModelConfig c = preset("nano");
    c.mixer = "attention";
    assert_int_equal(config_validate(&c, &error), -1);
    assert_non_null(strstr(error.text, "mixer \"attention\""));
    assert_non_null(strstr(error.text, "lattice"));
    c = preset("nano");
    c.objective = "encode";
    assert_int_equal(config_validate(&c, &error), -1);
    assert_non_null(strstr(error.text, "use \"decode\""));
    c = preset("nano");
    c.chunk_form = NULL;
    assert_int_equal(config_validate(&c, &error), -1);
    c = preset("nano");
    c.chunk_norm = "neither";
    assert_int_equal(config_validate(&c, &error), -1);
    assert_non_null(strstr(error.text, "token, chunk"));
    // The smallest model there can be.
    c = preset("nano");
    c.vocab_size = 2;
    c.d_model = c.n_layer = c.n_head = c.d_head = c.n_slot = c.conv_width = 1;
    c.mlp_hidden = 0;
    assert_int_equal(config_validate(&c, &error), 0);
}

static void test_json(void **state)
{
    (void)state;
    ModelConfig c = preset("9m"), back = preset("nano");
    c.norm_eps = 0.1 + 0.2 - 0.29999;
    c.tie_embeddings = false;
    c.forget_gate = true;
    c.chunk = 16;
    c.chunk_form = "gated";
    c.chunk_norm = "chunk";
    c.n_slot = 7;
    c.conv_width = 3;
    cJSON *json = config_to_json(&c);
    assert_non_null(json);
    assert_int_equal(cJSON_GetArraySize(json), 17);   // sixteen keys and model_type
    char *text = json_to_text(json, false);
    cJSON_Delete(json);
    assert_non_null(strstr(text, "\"model_type\":\"lattice\""));
    json = cJSON_Parse(text);
    free(text);
    Error error;
    assert_int_equal(config_from_json(&back, json, &error), 0);
    cJSON_Delete(json);   // the strings must outlive the tree
    assert_same(&c, &back);

    json = cJSON_Parse("{\"d_model\": 96, \"forget_gate\": true}");
    ModelConfig part = preset("nano"), expected = preset("nano");
    assert_int_equal(config_from_json(&part, json, &error), 0);
    cJSON_Delete(json);
    expected.d_model = 96;
    expected.forget_gate = true;
    assert_same(&part, &expected);

    const struct {
        const char *text, *says;
    } wrong[] = {
        {"{\"d_modle\": 1}", "unknown key \"d_modle\""},
        {"{\"d_model\": 1, \"d_model\": 2}", "\"d_model\" stands twice"},
        {"{\"d_model\": 1.5}", "\"d_model\" is 1.5: it must be a whole number"},
        {"{\"d_model\": \"128\"}", "not a string"},
        {"{\"d_model\": 1e300}", "whole number"},
        {"{\"tie_embeddings\": 1}", "true or false"},
        {"{\"norm_eps\": null}", "finite number, not null"},
        {"{\"mixer\": \"mamba\"}", "mixer \"mamba\""},
        {"{\"model_type\": \"gpt2\"}", "another kind of model"},
        {"{\"model_type\": 3}", "model_type"},
        {"[]", "JSON object"},
        {"{\"d_model\": 64, \"vocab_size\": {}}", "not an object"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        json = cJSON_Parse(wrong[i].text);
        assert_non_null(json);
        ModelConfig untouched = preset("nano"), before = untouched;
        assert_int_equal(config_from_json(&untouched, json, &error), -1);
        assert_non_null(strstr(error.text, wrong[i].says));
        assert_same(&untouched, &before);
        cJSON_Delete(json);
    }
}

// Parses flags as a program does, on top of a preset.
static int with_flags(ModelConfig *config, const char *name, Error *error, ...)
{
    enum { MAX = 32 };
    ModelConfig flags = preset("nano");
    ArgSpec specs[MAX];
    size_t n = config_arg_specs(specs, MAX, &flags), n_positional;
    ArgProgram program = {"demo", "[flags]", "", specs, n, 0, 0};
    char *argv[MAX] = {(char *)"demo"};
    int argc = 1;
    va_list list;
    va_start(list, error);
    for (char *text; (text = va_arg(list, char *)) != NULL;) {
        argv[argc++] = text;
    }
    va_end(list);
    args_parse(&program, argc, argv, &n_positional);
    *config = preset(name);
    return config_apply_flags(config, specs, n, error);
}

static void test_flags(void **state)
{
    (void)state;
    Error error;
    ModelConfig c, expected = preset("40m");
    assert_int_equal(with_flags(&c, "40m", &error, NULL), 0);
    assert_same(&c, &expected);

    assert_int_equal(with_flags(&c, "40m", &error, "--n-layer", "3", "--forget-gate", "--no-tie-embeddings", "--norm-eps", "1e-5", "--vocab_size=8k", NULL), 0);
    expected.n_layer = 3;
    expected.forget_gate = true;
    expected.tie_embeddings = false;
    expected.norm_eps = 1e-5;
    expected.vocab_size = 8000;
    assert_same(&c, &expected);

    // The widths of heads follow d_model and n_head unless they are given.
    assert_int_equal(with_flags(&c, "9m", &error, "--d-model", "192", "--n-head", "6", NULL), 0);
    assert_true(c.d_model == 192 && c.n_head == 6 && c.d_head == 32 && c.n_slot == 32);
    assert_int_equal(with_flags(&c, "9m", &error, "--n-head", "8", "--n-slot", "16", NULL), 0);
    assert_true(c.d_model == 256 && c.d_head == 32 && c.n_slot == 16);
    assert_int_equal(with_flags(&c, "9m", &error, "--d-model", "100", "--n-head", "3", "--d-head", "20", NULL), 0);
    assert_true(c.d_head == 20 && c.n_slot == 64);
    assert_int_equal(with_flags(&c, "9m", &error, "--d-model", "100", "--n-head", "3", NULL), -1);
    assert_non_null(strstr(error.text, "d_model 100 is not divisible by n_head 3"));

    ArgSpec specs[4];
    assert_int_equal(config_arg_specs(specs, 4, &c), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_presets), cmocka_unit_test(test_validate), cmocka_unit_test(test_json), cmocka_unit_test(test_flags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
