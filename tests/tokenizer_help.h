// What the tests of the tokenizer share: a temporary folder, small tokenizers and their files. Functions end the test through cmocka.
#ifndef TESTS_TOKENIZER_HELP_H
#define TESTS_TOKENIZER_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "tokenizer/bpe_internal.h"
#include "tokenizer/bpe_train.h"

static char folder[256], file[300];

static inline int make_folder(void **state)
{
    (void)state;
    Error error;
    if (folder_temporary(folder, sizeof folder, &error) != 0) {
        return -1;
    }
    snprintf(file, sizeof file, "%s/tokenizer.json", folder);
    return 0;
}

static inline int drop_folder(void **state)
{
    (void)state;
    Error error;
    return folder_remove(folder, &error);
}

static inline Tokenizer *train(const char *text, size_t vocab_size)
{
    Error error = {0};
    BpeTrainer *trainer = bpe_trainer_create(&error);
    assert_non_null(trainer);
    assert_int_equal(bpe_trainer_add(trainer, 0, text, strlen(text), &error), 0);
    Tokenizer *tokenizer = bpe_trainer_finish(trainer, vocab_size, &error);
    assert_non_null(tokenizer);
    bpe_trainer_free(trainer);
    return tokenizer;
}

static inline cJSON *to_json(const Tokenizer *tokenizer)
{
    Error error = {0};
    assert_int_equal(tokenizer_save(tokenizer, file, &error), 0);
    cJSON *json = json_read_file(file, 1 << 28, &error);
    assert_non_null(json);
    return json;
}

static inline Tokenizer *load_json(const cJSON *json, Error *error)
{
    assert_int_equal(json_write_file(file, json, false, error), 0);
    return tokenizer_load(file, error);
}

// A file of the 256 bytes, <|endoftext|> and no merges.
static inline cJSON *bare_json(void)
{
    Tokenizer *bare = train("", BPE_TRAINER_MIN_VOCAB);
    cJSON *json = to_json(bare);
    tokenizer_free(bare);
    return json;
}

static inline cJSON *at(cJSON *json, const char *first, const char *second)
{
    cJSON *item = cJSON_GetObjectItemCaseSensitive(json, first);
    return second != NULL ? cJSON_GetObjectItemCaseSensitive(item, second) : item;
}

// Adds a merge of two tokens written in visible ASCII, and its result if the vocabulary has none.
static inline void add_merge(cJSON *json, const char *left, const char *right)
{
    cJSON *vocab = at(json, "model", "vocab");
    char text[512];
    snprintf(text, sizeof text, "%s%s", left, right);
    if (cJSON_GetObjectItemCaseSensitive(vocab, text) == NULL) {
        cJSON_AddNumberToObject(vocab, text, cJSON_GetArraySize(vocab));
    }
    snprintf(text, sizeof text, "%s %s", left, right);
    cJSON_AddItemToArray(at(json, "model", "merges"), cJSON_CreateString(text));
}

// JSON in which ' stands for ".
static inline cJSON *quoted(const char *text)
{
    char *copy = strdup(text);
    assert_non_null(copy);
    for (char *p = copy; *p != 0; p++) {
        *p = *p == '\'' ? '"' : *p;
    }
    cJSON *json = cJSON_Parse(copy);
    if (json == NULL) {
        fail_msg("not JSON: %s", copy);
    }
    free(copy);
    return json;
}

static inline void set_part(cJSON *json, const char *key, const char *text)
{
    cJSON_DeleteItemFromObjectCaseSensitive(json, key);
    cJSON_AddItemToObject(json, key, quoted(text));
}

static inline void add_special(cJSON *json, const char *content, int id, bool left, bool right, bool normalized)
{
    cJSON *token = cJSON_CreateObject();
    cJSON_AddNumberToObject(token, "id", id);
    cJSON_AddStringToObject(token, "content", content);
    cJSON_AddBoolToObject(token, "lstrip", left);
    cJSON_AddBoolToObject(token, "rstrip", right);
    cJSON_AddBoolToObject(token, "normalized", normalized);
    cJSON_AddTrueToObject(token, "special");
    cJSON_AddItemToArray(at(json, "added_tokens", NULL), token);
}

static inline Tokenizer *must_load(const cJSON *json)
{
    Error error = {0};
    Tokenizer *tokenizer = load_json(json, &error);
    if (tokenizer == NULL) {
        fail_msg("%s", error.text);
    }
    return tokenizer;
}

static inline Tokenizer *must_load_file(const char *path, const char *pattern)
{
    Error error = {0};
    Tokenizer *tokenizer = tokenizer_load_as(path, pattern, &error);
    if (tokenizer == NULL) {
        fail_msg("%s", error.text);
    }
    return tokenizer;
}

static inline TokenList encode_all(const Tokenizer *tokenizer, const char *text, size_t length)
{
    Error error = {0};
    TokenList list = {0};
    Encoder *encoder = encoder_create(tokenizer, &error);
    if (encoder == NULL || encoder_encode(encoder, &list, text, length, 1, &error) != 0) {
        fail_msg("%s", error.text);
    }
    encoder_free(encoder);
    return list;
}

static inline void check_encodes(const Tokenizer *tokenizer, const char *what, const char *text, const char *expected)
{
    char actual[512] = "";
    size_t used = 0;
    TokenList list = encode_all(tokenizer, text, strlen(text));
    for (size_t i = 0; i < list.count; i++) {
        used += (size_t)snprintf(actual + used, sizeof actual - used, "%s%d", i > 0 ? " " : "", (int)list.ids[i]);
    }
    if (strcmp(actual, expected) != 0) {
        fail_msg("%s on \"%s\": %s, expected %s", what, text, actual, expected);
    }
    token_list_free(&list);
}

static inline void check_same(const char *what, const TokenList *list, const int32_t *ids, size_t count)
{
    for (size_t i = 0; i < count && i < list->count; i++) {
        if (list->ids[i] != ids[i]) {
            fail_msg("%s: id %zu is %d, expected %d", what, i, (int)list->ids[i], (int)ids[i]);
        }
    }
    assert_int_equal(list->count, count);
}

static const char prose[] =
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, "
    "it was the epoch of belief,\nit was the epoch of incredulity, it was the season of Light, it was the season of Darkness, "
    "it was the spring of hope, it was the winter of\ndespair. We had everything before us, we had nothing before us; "
    "na\xC3\xAFve na\xC3\xAFve caf\xC3\xA9 caf\xC3\xA9 1859 1859 \xE2\x80\x94 \xE2\x80\x94\n";

#endif
