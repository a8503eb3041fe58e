// What the tests of preparing share: stories as documents, a call that prepares named files, and what came out. Functions end the test through cmocka.
#ifndef TESTS_PREPARE_H
#define TESTS_PREPARE_H

#include "tests/scratch.h"

#include <stdbool.h>

#include "base/file.h"
#include "base/json.h"
#include "data/prepare.h"
#include "data/story.h"

static inline void put_story(FILE *file, uint64_t index)
{
    static Story story;
    story_tell(&story, 11, index);
    fputs("{\"text\": \"", file);
    for (const char *p = story.text; *p != 0; p++) {
        fprintf(file, *p == '\n' ? "\\n" : *p == '"' ? "\\\"" : "%c", *p);
    }
    fputs("\"}\n", file);
}

// Stories `from` … `to`−1 as .jsonl.
static inline void make_stories(void **state, const char *name, uint64_t from, uint64_t to)
{
    char *path = in_folder(state, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (uint64_t i = from; i < to; i++) {
        put_story(file, i);
    }
    assert_int_equal(fclose(file), 0);
    free(path);
}

static inline PrepareOptions small_options(void)
{
    PrepareOptions options;
    prepare_defaults(&options);
    options.vocab_size = 400;
    options.quiet = true;
    options.threads = 2;
    return options;
}

// Prepares the named files into the named folder.
static inline int prepare(void **state, const char *out, const PrepareOptions *options, Error *error, size_t n_names, const char *const *names)
{
    PathList list = {0};
    for (size_t i = 0; i < n_names; i++) {
        char *path = in_folder(state, names[i]);
        assert_int_equal(path_list_add(&list, path, error), 0);
        free(path);
    }
    char *folder = in_folder(state, out);
    int result = prepare_documents(&list, folder, options, error);
    free(folder);
    path_list_free(&list);
    return result;
}

#define PREPARE(out, options, ...)                                                                                           \
    prepare(state, out, options, &error, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), (const char *const[]){__VA_ARGS__})

static inline void assert_prepared(int result, const Error *error)
{
    if (result != 0) {
        fail_msg("%s", error->text);
    }
}

static inline void assert_same_folders(void **state, const char *first, const char *second)
{
    Error error;
    PathList a = {0}, b = {0};
    char *first_path = in_folder(state, first), *second_path = in_folder(state, second);
    assert_int_equal(folder_list(&a, first_path, &error), 0);
    assert_int_equal(folder_list(&b, second_path, &error), 0);
    assert_int_equal(a.count, b.count);
    for (size_t i = 0; i < a.count; i++) {
        assert_string_equal(a.items[i], b.items[i]);
        char *p = path_join(first_path, a.items[i]), *q = path_join(second_path, a.items[i]);
        size_t p_size, q_size;
        char *p_bytes = file_read(p, 1 << 26, &p_size, &error), *q_bytes = file_read(q, 1 << 26, &q_size, &error);
        assert_int_equal(p_size, q_size);
        assert_memory_equal(p_bytes, q_bytes, p_size);
        free(p_bytes);
        free(q_bytes);
        free(p);
        free(q);
    }
    free(first_path);
    free(second_path);
    path_list_free(&a);
    path_list_free(&b);
}

static inline int64_t count_of(void **state, const char *out, const char *split, const char *key)
{
    Error error;
    char *folder = in_folder(state, out), *path = path_join(folder, "prepare.json");
    cJSON *json = json_read_file(path, 1 << 20, &error);
    assert_non_null(json);
    int64_t value;
    assert_int_equal(json_get_int(split != NULL ? cJSON_GetObjectItem(json, split) : json, key, 0, INT64_MAX / 2, &value, &error), 0);
    cJSON_Delete(json);
    free(path);
    free(folder);
    return value;
}

#endif
