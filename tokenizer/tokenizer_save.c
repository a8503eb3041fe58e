// Writing a tokenizer.json: the one that was read, or for a trained tokenizer a new one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "tokenizer/alphabet.h"
#include "tokenizer/bpe_internal.h"

static bool is_added(const Tokenizer *t, size_t id)
{
    for (size_t i = 0; i < t->n_added; i++) {
        if ((size_t)t->added[i].id == id) {
            return true;
        }
    }
    return false;
}

// The name of a token in a fresh buffer: the text of an added token, else its bytes in the alphabet. NULL when out of memory.
static char *make_name(const Tokenizer *t, size_t id, const Alphabet *alphabet)
{
    size_t length = 0, n = 0;
    const char *bytes = tokenizer_token(t, (int32_t)id, &length);
    char *name = malloc(2 * length + 1);
    if (name == NULL) {
        return NULL;
    }
    if (is_added(t, id)) {
        memcpy(name, bytes, length);
        n = length;
    } else {
        for (size_t i = 0; i < length; i++) {
            n += (size_t)alphabet_put(alphabet, (unsigned char)bytes[i], name + n);
        }
    }
    name[n] = 0;
    return name;
}

// model.vocab and model.merges. Returns false when out of memory.
static bool add_tables(cJSON *model, const Tokenizer *t, char **names)
{
    cJSON *vocab = cJSON_AddObjectToObject(model, "vocab");
    cJSON *merges = cJSON_AddArrayToObject(model, "merges");
    bool ok = vocab != NULL && merges != NULL;
    for (size_t id = 0; ok && id < t->vocab_size; id++) {
        ok = cJSON_AddNumberToObject(vocab, names[id], (double)id) != NULL;
    }
    char *pair = NULL;
    size_t capacity = 0;
    for (size_t i = 0; ok && i < t->n_merges; i++) {
        const char *left = names[t->merges[i].left], *right = names[t->merges[i].right];
        size_t length = strlen(left) + strlen(right) + 2;
        ok = array_reserve(&pair, &capacity, length, 1) == 0;
        if (ok) {
            snprintf(pair, length, "%s %s", left, right);
            cJSON *item = cJSON_CreateString(pair);
            ok = item != NULL && cJSON_AddItemToArray(merges, item);
        }
    }
    free(pair);
    return ok;
}

static bool add_added(cJSON *list, const Tokenizer *t, char **names)
{
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < t->n_added; i++) {
        cJSON *item = cJSON_CreateObject();
        ok = item != NULL && cJSON_AddItemToArray(list, item) && cJSON_AddNumberToObject(item, "id", t->added[i].id) != NULL
             && cJSON_AddStringToObject(item, "content", names[t->added[i].id]) != NULL && cJSON_AddFalseToObject(item, "single_word") != NULL
             && cJSON_AddFalseToObject(item, "lstrip") != NULL && cJSON_AddFalseToObject(item, "rstrip") != NULL
             && cJSON_AddBoolToObject(item, "normalized", t->added[i].normalized) != NULL
             && cJSON_AddBoolToObject(item, "special", t->added[i].special) != NULL;
    }
    return ok;
}

// A part of type ByteLevel under `key`.
static bool add_byte_level(cJSON *root, const char *key)
{
    cJSON *part = cJSON_AddObjectToObject(root, key);
    return part != NULL && cJSON_AddStringToObject(part, "type", "ByteLevel") != NULL
           && cJSON_AddFalseToObject(part, "add_prefix_space") != NULL && cJSON_AddTrueToObject(part, "trim_offsets") != NULL
           && cJSON_AddTrueToObject(part, "use_regex") != NULL;
}

static bool fill_file(cJSON *root, const Tokenizer *t, char **names)
{
    if (root == NULL || cJSON_AddStringToObject(root, "version", "1.0") == NULL || cJSON_AddNullToObject(root, "truncation") == NULL
        || cJSON_AddNullToObject(root, "padding") == NULL || !add_added(cJSON_AddArrayToObject(root, "added_tokens"), t, names)
        || cJSON_AddNullToObject(root, "normalizer") == NULL || !add_byte_level(root, "pre_tokenizer")
        || !add_byte_level(root, "post_processor") || !add_byte_level(root, "decoder")) {
        return false;
    }
    cJSON *model = cJSON_AddObjectToObject(root, "model");
    return model != NULL && cJSON_AddStringToObject(model, "type", "BPE") != NULL && cJSON_AddNullToObject(model, "dropout") != NULL
           && cJSON_AddNullToObject(model, "unk_token") != NULL && cJSON_AddNullToObject(model, "continuing_subword_prefix") != NULL
           && cJSON_AddNullToObject(model, "end_of_word_suffix") != NULL && cJSON_AddFalseToObject(model, "fuse_unk") != NULL
           && cJSON_AddFalseToObject(model, "byte_fallback") != NULL && add_tables(model, t, names);
}

int tokenizer_save(const Tokenizer *t, const char *path, Error *error)
{
    if (t->source != NULL) {
        return file_write_atomic(path, t->source, t->source_length, error);
    }
    Alphabet alphabet;
    alphabet_make(&alphabet);
    cJSON *root = cJSON_CreateObject();
    char **names = calloc(t->vocab_size, sizeof *names);
    bool ok = names != NULL;
    for (size_t id = 0; ok && id < t->vocab_size; id++) {
        names[id] = make_name(t, id, &alphabet);
        ok = names[id] != NULL;
    }
    ok = ok && fill_file(root, t, names);
    int status = ok ? json_write_file(path, root, true, error) : error_set(error, "cannot write %s: out of memory", path);
    for (size_t id = 0; names != NULL && id < t->vocab_size; id++) {
        free(names[id]);
    }
    free(names);
    cJSON_Delete(root);
    return status;
}
