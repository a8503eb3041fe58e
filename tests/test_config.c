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
#include "model/kernels/kernels.h"
#include "model/mixers/mixer.h"
#include "tests/choices.h"

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
    assert_true(a->no_projection == b->no_projection && a->no_normalisation == b->no_normalisation && a->l1 == b->l1 && a->max_seq_len == b->max_seq_len);
    assert_true(a->random_start == b->random_start && a->relative_read == b->relative_read && a->wide_gate == b->wide_gate);
    assert_true(a->gate_shift == b->gate_shift && a->plain_codes == b->plain_codes && a->plain_values == b->plain_values);
    assert_true(a->softmax_codes == b->softmax_codes && a->scaled_keys == b->scaled_keys && a->slot_gate == b->slot_gate);
    assert_true(a->unit_values == b->unit_values);
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
        {offsetof(ModelConfig, max_seq_len), -1, "max_seq_len is -1"},
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
    c.objective = "guess";
    assert_int_equal(config_validate(&c, &error), -1);
    assert_non_null(strstr(error.text, "decode, encode, similarity"));
    c = preset("nano");
    c.l1 = NAN;
    assert_int_equal(config_validate(&c, &error), -1);
    assert_non_null(strstr(error.text, "l1"));
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

// The tests of whole models run through model_choices: no mixer is missing there.
static void test_choices_complete(void **state)
{
    (void)state;
    for (const Mixer *const *row = kernels_available()[0]->mixers; *row != NULL; row++) {
        bool found = (*row)->serves != NULL;
        for (size_t i = 0; i < MODEL_CHOICES; i++) {
            found = found || strcmp(model_choices[i].mixer, (*row)->name) == 0;
        }
        if (!found) {
            fail_msg("mixer %s has no line of its own in tests/choices.h", (*row)->name);
        }
    }
}

// Every choice of a mixer is valid; what no layer would read, and what a mixer cannot run, is refused.
static void test_validate_mixers(void **state)
{
    (void)state;
    Error error;
    for (size_t i = 0; i < MODEL_CHOICES; i++) {
        ModelConfig c = preset("nano");
        make_choice(&c, &model_choices[i]);
        if (config_validate(&c, &error) != 0) {
            fail_msg("%s: %s", c.mixer, error.text);
        }
    }
    const struct {
        ModelChoice choice;
        int64_t n_slot;
        const char *says;
    } wrong[] = {
        {{.mixer = "mamba"}, 64, "mixer \"mamba\" does not exist in this build: choose from lattice, linear, mamba2, gla,"},
        {{.mixer = "lattice_forms"}, 64, "mixer \"lattice_forms\" does not exist"},
        {{.mixer = ""}, 64, "mixer \"\""},
        {{.mixer = "lattice,"}, 64, "mixer \"\""},
        {{.mixer = ",lattice"}, 64, "mixer \"\""},
        {{.mixer = "lattice, linear"}, 64, "mixer \" linear\""},
        {{.mixer = "lattice,lattice,lattice,lattice,attention"}, 64, "mixer names 5 layers, n_layer is 4"},
        {{.mixer = "lattice:4"}, 64, "only attention has a window"},
        {{.mixer = "attention:0"}, 64, "a window is a number of tokens from 1 to"},
        {{.mixer = "attention:"}, 64, "a window is a number of tokens from 1 to"},
        {{.mixer = "attention:1:2"}, 64, "a window is a number of tokens from 1 to"},
        {{.mixer = "attention:99999999999999999999999999"}, 64, "a window is a number of tokens from 1 to"},
        {{.mixer = "attention:1g"}, 64, "a window is a number of tokens from 1 to"},
        {{.mixer = "attention:8"}, 32, "mixer attention needs n_slot = d_head, not 32 and 64"},
        {{.mixer = "delta,ttt"}, 32, "mixer ttt needs n_slot = d_head"},
        {{.mixer = "delta", .chunk = 4}, 64, "chunk is 4, but mixer \"delta\" has no chunks"},
        {{.mixer = "gla", .forget_gate = true}, 64, "forget_gate is on, but mixer \"gla\" has none"},
        {{.mixer = "ttt", .objective = "encode"}, 64, "objective is a key of Lattice"},
        {{.mixer = "delta", .no_projection = true}, 64, "no_projection is a key of Lattice"},
        {{.mixer = "delta", .no_normalisation = true}, 64, "no_normalisation is a key of Lattice"},
        {{.mixer = "delta", .l1 = 0.1}, 64, "l1 is a key of Lattice"},
        {{.mixer = "delta", .random_start = true}, 64, "random_start is a key of Lattice"},
        {{.mixer = "output_norm", .relative_read = true}, 64, "relative_read is a key of Lattice"},
        {{.mixer = "mamba2,linear", .wide_gate = true}, 64, "wide_gate is set, but mixer \"mamba2,linear\" has no write gate that is a sigmoid"},
        {{.mixer = "linear", .gate_shift = 1.0}, 64, "gate_shift is set"},
        {{.mixer = "attention", .plain_codes = true}, 64, "plain_codes is set, but mixer \"attention\" normalises nothing"},
        {{.mixer = "attention:9", .plain_values = true}, 64, "plain_values is set"},
        {{.mixer = "attention", .unit_values = true}, 64, "unit_values is set, but mixer \"attention\" normalises nothing"},
        {{.mixer = "delta", .unit_values = true}, 64, "unit_values is set, but mixer \"delta\" answers in proportion to its values"},
        {{.mixer = "lattice", .plain_values = true, .unit_values = true}, 64, "plain_values and unit_values"},
        {{.mixer = "attention:9", .softmax_codes = true}, 64, "softmax_codes is set"},
        {{.mixer = "gla,attention:9", .scaled_keys = true}, 64, "scaled_keys is set, but mixer \"gla,attention:9\" answers in proportion to its keys"},
        {{.mixer = "lattice", .plain_codes = true, .softmax_codes = true}, 64, "plain_codes and softmax_codes"},
        {{.mixer = "delta", .plain_codes = true, .scaled_keys = true}, 64, "plain_codes and scaled_keys"},
        {{.mixer = "delta", .slot_gate = true}, 64, "slot_gate is a key of Lattice"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ModelConfig c = preset("nano");
        make_choice(&c, &wrong[i].choice);
        c.n_slot = wrong[i].n_slot;
        assert_int_equal(config_validate(&c, &error), -1);
        if (strstr(error.text, wrong[i].says) == NULL) {
            fail_msg("\"%s\" is not said of %s: %s", wrong[i].says, c.mixer, error.text);
        }
    }
    ModelConfig c = preset("nano");
    choose_mixer(&c, "lattice,attention");
    assert_int_equal(config_validate(&c, &error), -1);
    assert_non_null(strstr(error.text, "give max_seq_len, or attention:N"));
}

static void test_layer_mixers(void **state)
{
    (void)state;
    const Mixer *const *table = kernels_available()[0]->mixers;
    ModelConfig c = preset("nano");
    choose_mixer(&c, "lattice,delta,attention:2k,attention");
    config_settle_length(&c, 777);
    config_settle_length(&c, 999);   // settled already
    static const struct {
        const char *name;
        size_t window;
    } expected[] = {{"lattice", 0}, {"delta", 0}, {"attention", 2048}, {"attention", 777}};
    for (size_t layer = 0; layer < 9; layer++) {
        LayerMixer mixer = config_layer_mixer(&c, table, layer);
        assert_string_equal(mixer.mixer->name, expected[layer % 4].name);
        assert_int_equal(mixer.window, expected[layer % 4].window);
    }
    // Another form than the plain one has another row, and the other mixers theirs still.
    c.chunk = 2;
    assert_string_equal(config_layer_mixer(&c, table, 4).mixer->serves, "lattice");
    assert_string_equal(config_layer_mixer(&c, table, 5).mixer->name, "delta");
    c = preset("nano");
    config_settle_length(&c, 777);
    assert_int_equal(c.max_seq_len, 0);   // nobody needs it
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
    assert_null(config_missing_key(json));
    cJSON_DeleteItemFromObject(json, "chunk");
    assert_string_equal(config_missing_key(json), "chunk");
    cJSON_Delete(json);   // the strings must outlive the tree
    assert_same(&c, &back);

    // Keys with a usual value stand there where they have another.
    choose_mixer(&c, "lattice,attention:1k");
    c.no_projection = c.no_normalisation = true;
    c.l1 = 0.1;
    c.max_seq_len = 9;
    c.random_start = c.relative_read = c.wide_gate = c.plain_codes = c.plain_values = true;
    c.unit_values = c.softmax_codes = c.scaled_keys = c.slot_gate = true;
    c.gate_shift = -0.5;
    json = config_to_json(&c);
    assert_int_equal(cJSON_GetArraySize(json), 31);
    assert_int_equal(config_from_json(&back, json, &error), 0);
    cJSON_Delete(json);
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
        {"{\"mixer\": [\"lattice\"]}", "\"mixer\""},
        {"{\"objective\": \"guess\"}", "objective \"guess\""},
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
    enum { MAX = 64 };
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

// New models read relative to their start wherever a layer is Lattice, unless a flag says otherwise.
static void test_new_models(void **state)
{
    (void)state;
    ModelConfig c = preset("nano"), flags = preset("nano");
    ArgSpec specs[64];
    size_t n = config_arg_specs(specs, 64, &flags);
    assert_false(c.relative_read);   // what a file without the key means
    config_settle_new(&c, specs, n);
    assert_true(c.relative_read);
    choose_mixer(&c, "delta,attention");
    config_settle_new(&c, specs, n);
    assert_false(c.relative_read);
    choose_mixer(&c, "delta,lattice");
    config_settle_new(&c, NULL, 0);
    assert_true(c.relative_read);
    for (size_t i = 0; i < n; i++) {
        specs[i].given = strcmp(specs[i].name, "relative-read") == 0;
    }
    c.relative_read = false;
    config_settle_new(&c, specs, n);
    assert_false(c.relative_read);
}

// Flags that no layer reads are refused; in a file such keys may stand.
static void test_flags_unread(void **state)
{
    (void)state;
    Error error;
    ModelConfig c;
    static const struct {
        const char *mixer, *flag, *says;
    } wrong[] = {
        {"delta", "--chunk-form=gated", "chunk_form is a key of Lattice"},
        {"ttt", "--chunk-norm=chunk", "chunk_norm is a key of Lattice"},
        {"attention:9,lattice", "--max-seq-len=9", "max_seq_len is 9, but no layer of mixer \"attention:9,lattice\" is attention without a window"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(with_flags(&c, "nano", &error, "--mixer", wrong[i].mixer, wrong[i].flag, NULL), -1);
        assert_non_null(strstr(error.text, wrong[i].says));
    }
    assert_int_equal(with_flags(&c, "nano", &error, "--mixer", "delta,lattice", "--chunk-form=gated", NULL), 0);
    assert_int_equal(with_flags(&c, "nano", &error, "--mixer", "attention,lattice", "--max-seq-len=9", NULL), 0);
    c = preset("nano");
    choose_mixer(&c, "delta");
    c.chunk_form = "gated";
    c.max_seq_len = 9;
    assert_int_equal(config_validate(&c, &error), 0);
}

// --help names every mixer that there is.
static void test_help_mixers(void **state)
{
    (void)state;
    enum { MAX = 64 };
    ModelConfig flags = preset("nano");
    ArgSpec specs[MAX];
    ArgProgram program = {"demo", "[flags]", "", specs, config_arg_specs(specs, MAX, &flags), 0, 0};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    args_help(&program, out);
    fclose(out);
    const char *mixer = strstr(text, "--mixer NAMES"), *end = strstr(text, "--objective");
    assert_true(mixer != NULL && end > mixer);
    for (const Mixer *const *row = kernels_available()[0]->mixers; *row != NULL; row++) {
        const char *name = strstr(mixer, (*row)->name);
        assert_true((name != NULL && name < end) == ((*row)->serves == NULL));
    }
    free(text);
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

    assert_int_equal(with_flags(&c, "nano", &error, "--mixer", "linear,attention", "--l1=0.5", "--no-projection", "--max-seq-len", "2k", NULL), 0);
    assert_string_equal(c.mixer, "linear,attention");
    assert_true(c.l1 == 0.5 && c.no_projection && !c.no_normalisation && c.max_seq_len == 2048);
    assert_int_equal(with_flags(&c, "nano", &error, "--slot-gate", NULL), 0);   // the last of them
    assert_true(c.slot_gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_presets), cmocka_unit_test(test_validate), cmocka_unit_test(test_choices_complete), cmocka_unit_test(test_validate_mixers),
        cmocka_unit_test(test_layer_mixers), cmocka_unit_test(test_json), cmocka_unit_test(test_new_models), cmocka_unit_test(test_flags_unread),
        cmocka_unit_test(test_help_mixers), cmocka_unit_test(test_flags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
