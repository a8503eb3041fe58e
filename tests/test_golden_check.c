// The golden files and the check of them: every file agrees, and altered numbers and broken files are found.
#include "tests/check.h"

#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "tests/reference/golden.h"

static void test_golden_files(void **state)
{
    (void)state;
    const char *folder = golden_folder();
    if (folder == NULL) {
        print_message("skipped: neither tests/golden nor ../shared/golden holds the golden files\n");
        skip();
    }
    glob_t found;
    char pattern[256];
    snprintf(pattern, sizeof pattern, "%s/*.json", folder);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_true(found.gl_pathc >= 49);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char line[4096];
        if (!golden_check(line, sizeof line, found.gl_pathv[i])) {
            fail_msg("%s", line);
        }
        if (strstr(line, " generic:") == NULL) {
            fail_msg("the fast code was not checked: %s", line);
        }
    }
    globfree(&found);
}

static void add_array(cJSON *object, const char *key, const double *x, size_t n_dims, const size_t *dims)
{
    int shape[3];
    size_t count = 1;
    for (size_t i = 0; i < n_dims; i++) {
        shape[i] = (int)dims[i];
        count *= dims[i];
    }
    cJSON *array = cJSON_AddObjectToObject(object, key);
    cJSON_AddItemToObject(array, "shape", cJSON_CreateIntArray(shape, (int)n_dims));
    cJSON_AddItemToObject(array, "data", cJSON_CreateDoubleArray(x, (int)count));
}

// State [N, m, d] as [N, d, m], the order of the files.
static void add_state(cJSON *object, const char *key, const double *x, const MixerCase *c)
{
    Pool pool = {0};
    size_t m = c->n_slot, d = c->d_head, n = c->n_head;
    double *turned = pool_doubles(&pool, n * m * d);
    for (size_t i = 0; i < n * m * d; i++) {
        size_t head = i / (m * d), slot = i / d % m, j = i % d;
        turned[(head * d + j) * m + slot] = x[i];
    }
    add_array(object, key, turned, 3, (size_t[]){n, d, m});
    pool_free(&pool);
}

// A file of the reference's own results for a random case with the forget gate.
static cJSON *make_golden(Pool *pool)
{
    MixerCase c = {.form = {.mixer = "lattice", .objective = "decode", .chunk = 1}, .batch = 1, .n_head = 3, .length = 9, .n_slot = 5, .d_head = 7};
    Rng rng;
    rng_seed(&rng, 5, 0);
    mixer_case_fill(&c, pool, &rng, true, 0.0, 1.0);
    MixerResult r = mixer_case_reference(pool, &c);
    const size_t slots[3] = {3, 9, 5}, values[3] = {3, 9, 7};
    cJSON *json = cJSON_CreateObject(), *meta = cJSON_AddObjectToObject(json, "meta"), *inputs = cJSON_AddObjectToObject(json, "inputs");
    cJSON *grads = cJSON_AddObjectToObject(json, "grads");
    cJSON_AddStringToObject(meta, "mixer", "lattice");
    cJSON_AddStringToObject(meta, "objective", "decode");
    cJSON_AddTrueToObject(meta, "forget_gate");
    cJSON_AddNumberToObject(meta, "N", 3);
    cJSON_AddNumberToObject(meta, "T", 9);
    cJSON_AddNumberToObject(meta, "m", 5);
    cJSON_AddNumberToObject(meta, "d", 7);
    cJSON_AddNumberToObject(meta, "chunk", 1);
    add_array(inputs, "q", c.q, 3, slots);
    add_array(inputs, "k", c.k, 3, slots);
    add_array(inputs, "v", c.v, 3, values);
    add_array(inputs, "g", c.g, 2, slots);
    add_array(inputs, "mu", c.mu, 2, slots);
    add_state(inputs, "S0", c.state0, &c);
    add_array(json, "do", c.do_, 3, values);
    add_array(json, "o", r.o, 3, values);
    add_state(json, "state", r.state, &c);
    add_state(json, "dstate", c.dstate, &c);
    add_array(grads, "q", r.d_q, 3, slots);
    add_array(grads, "k", r.d_k, 3, slots);
    add_array(grads, "v", r.d_v, 3, values);
    add_array(grads, "g", r.d_g, 2, slots);
    add_array(grads, "mu", r.d_mu, 2, slots);
    add_state(grads, "S0", r.d_state0, &c);
    return json;
}

// Writes `text` to a temporary file, checks it as golden and returns the verdict, with the line.
static bool check_text(char *line, size_t line_size, const char *text, size_t length)
{
    char folder[256];
    Error error;
    assert_int_equal(folder_temporary(folder, sizeof folder, &error), 0);
    char *path = path_join(folder, "golden.json");
    assert_int_equal(file_write_atomic(path, text, length, &error), 0);
    bool ok = golden_check(line, line_size, path);
    free(path);
    assert_int_equal(folder_remove(folder, &error), 0);
    return ok;
}

static bool check_json(char *line, size_t line_size, const cJSON *json)
{
    char *text = cJSON_PrintUnformatted(json);
    assert_non_null(text);
    bool ok = check_text(line, line_size, text, strlen(text));
    free(text);
    return ok;
}

static cJSON *array_data(cJSON *json, const char *group, const char *key)
{
    cJSON *object = group[0] != '\0' ? cJSON_GetObjectItem(json, group) : json;
    return cJSON_GetObjectItem(cJSON_GetObjectItem(object, key), "data");
}

// What must not pass: every number counts, at its own tolerance.
static void test_golden_check_fails(void **state)
{
    (void)state;
    static const struct {
        const char *group, *key, *expected;
    } numbers[] = {
        {"", "o", "outputs"},  {"", "state", "state"},  {"grads", "q", "q"}, {"grads", "k", "k"}, {"grads", "v", "v"},
        {"grads", "g", "g"},   {"grads", "mu", "mu"},   {"grads", "S0", "S0"},
    };
    Pool pool = {0};
    char line[4096];
    cJSON *json = make_golden(&pool);
    if (!check_json(line, sizeof line, json)) {
        fail_msg("the reference's own results do not pass: %s", line);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        cJSON *item = cJSON_GetArrayItem(array_data(json, numbers[i].group, numbers[i].key), 4);
        double before = item->valuedouble;
        cJSON_SetNumberValue(item, before + 1e-7);
        char expected[64];
        snprintf(expected, sizeof expected, ": FAILED: %s (reference)", numbers[i].expected);
        assert_false(check_json(line, sizeof line, json));
        if (strstr(line, expected) == NULL) {
            fail_msg("expected \"%s\" in: %s", expected, line);
        }
        cJSON_SetNumberValue(item, before);
    }
    cJSON_Delete(json);
    pool_free(&pool);
}

// Replaces the item of an object, and gives back the file's verdict.
static void expect_broken(const char *group, const char *key, cJSON *item, const char *expected)
{
    Pool pool = {0};
    char line[4096];
    cJSON *json = make_golden(&pool);
    cJSON_ReplaceItemInObject(group[0] != '\0' ? cJSON_GetObjectItem(json, group) : json, key, item);
    assert_false(check_json(line, sizeof line, json));
    if (strstr(line, expected) == NULL) {
        fail_msg("expected \"%s\" in: %s", expected, line);
    }
    cJSON_Delete(json);
    pool_free(&pool);
}

static void test_golden_check_refuses(void **state)
{
    (void)state;
    expect_broken("meta", "mixer", cJSON_CreateString("perceptron"), "FAILED: not supported: mixer perceptron");
    expect_broken("meta", "objective", cJSON_CreateString("guess"), "FAILED: not supported: objective guess");
    expect_broken("meta", "chunk", cJSON_CreateNumber(1e300), "FAILED: ");
    expect_broken("meta", "T", cJSON_CreateNumber(8), "FAILED: array \"q\" has a wrong shape");
    expect_broken("meta", "T", cJSON_CreateNumber(0), "FAILED: ");
    expect_broken("meta", "d", cJSON_CreateNumber(1048576), "FAILED: ");
    expect_broken("", "state", cJSON_CreateNull(), "FAILED: no object \"state\"");
    expect_broken("", "inputs", cJSON_CreateString(""), "FAILED: no object \"inputs\"");

    Pool pool = {0};
    char line[4096];
    cJSON *json = make_golden(&pool);
    cJSON_ReplaceItemInArray(array_data(json, "", "o"), 2, cJSON_CreateNull());
    assert_false(check_json(line, sizeof line, json));
    assert_non_null(strstr(line, "FAILED: array \"o\": element 2 is not a finite number"));
    cJSON_DeleteItemFromArray(array_data(json, "", "o"), 2);
    assert_false(check_json(line, sizeof line, json));
    assert_non_null(strstr(line, "FAILED: array \"o\""));
    char *text = cJSON_PrintUnformatted(json);
    assert_non_null(text);
    assert_false(check_text(line, sizeof line, text, strlen(text) / 2));
    assert_non_null(strstr(line, "FAILED: "));
    assert_false(check_text(line, sizeof line, "[]", 2));
    assert_false(check_text(line, sizeof line, "", 0));
    assert_false(golden_check(line, sizeof line, "tests/no-such-file.json"));
    assert_non_null(strstr(line, "no-such-file.json: FAILED: "));
    free(text);
    cJSON_Delete(json);
    pool_free(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_files),
        cmocka_unit_test(test_golden_check_fails),
        cmocka_unit_test(test_golden_check_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
