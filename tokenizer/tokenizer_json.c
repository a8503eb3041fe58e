// tokenizer.json of HuggingFace's tokenizers library: byte-level BPE with GPT-2's pattern. Every field that could change ids is either
// understood or refused by name. In the file a token's bytes are written as characters of GPT-2's alphabet, one a byte.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "tokenizer/bpe_internal.h"
#include "tokenizer/byte_map.h"
#include "tokenizer/pretokenize.h"

enum { MAX_FILE = 1 << 28, ALPHABET_END = 256 + 68 };

// A file while it is read. Names are the tokens as written there; their number in the map is not their id.
typedef struct Loading {
    ByteMap names;              // name → id
    size_t n_vocab;             // of names in model.vocab
    const char **name_of;       // by id
    bool *is_text;              // by id: an added token that is not written in the alphabet
    Tokenizer *tokenizer;
} Loading;

// The characters of the alphabet by byte, and back (−1: not in it). Visible Latin-1 stands for itself, the rest begins at U+0100.
static void make_alphabet(uint16_t code_of[256], int16_t byte_of[ALPHABET_END])
{
    uint16_t next = 256;
    for (int i = 0; i < ALPHABET_END; i++) {
        byte_of[i] = -1;
    }
    for (int byte = 0; byte < 256; byte++) {
        bool visible = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        code_of[byte] = visible ? (uint16_t)byte : next++;
        byte_of[code_of[byte]] = (int16_t)byte;
    }
}

// Decodes a name into `bytes` (room for strlen(name)). Returns the number of bytes, or -1 if a character is not in the alphabet.
static int64_t decode_name(const char *name, const int16_t byte_of[ALPHABET_END], char *bytes)
{
    int64_t count = 0;
    for (const unsigned char *p = (const unsigned char *)name; *p != 0;) {
        unsigned code = *p++;
        if (code >= 0x80) {
            if (code < 0xC2 || code > 0xDF || (*p & 0xC0) != 0x80) {
                return -1;
            }
            code = (code & 31) << 6 | (*p++ & 63);
        }
        if (code >= ALPHABET_END || byte_of[code] < 0) {
            return -1;
        }
        bytes[count++] = (char)byte_of[code];
    }
    return count;
}

// Refuses keys that are not in `known` (ends with NULL) and keys that come twice.
static int check_keys(const cJSON *object, const char *where, const char *const *known, Error *error)
{
    unsigned seen = 0;
    const cJSON *item;
    if (!cJSON_IsObject(object)) {
        return error_set(error, "%s must be an object", where);
    }
    cJSON_ArrayForEach(item, object) {
        unsigned k = 0;
        while (known[k] != NULL && strcmp(known[k], item->string) != 0) {
            k++;
        }
        if (known[k] == NULL) {
            return error_set(error, "%s has a field \"%.100s\", which is not supported", where, item->string);
        }
        if (seen & 1u << k) {
            return error_set(error, "%s has \"%s\" twice", where, item->string);
        }
        seen |= 1u << k;
    }
    return 0;
}

static const cJSON *field(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNull(item) ? NULL : item;
}

static bool has_type(const cJSON *object, const char *type)
{
    const cJSON *item = field(object, "type");
    return cJSON_IsString(item) && strcmp(item->valuestring, type) == 0;
}

// A switch that may be absent.
static int get_switch(const cJSON *object, const char *key, bool otherwise, bool *value, Error *error)
{
    *value = otherwise;
    return field(object, key) != NULL ? json_get_bool(object, key, value, error) : 0;
}

// What surrounds the model: nothing there may change ids.
static int check_surroundings(const cJSON *root, Error *error)
{
    static const char *const known[] = {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                                        "decoder", "model", NULL};
    static const char *const byte_level[] = {"type", "add_prefix_space", "trim_offsets", "use_regex", NULL};
    static const char *const must_be_null[] = {"truncation", "padding", "normalizer"};
    static const char *const without_effect[] = {"post_processor", "decoder"};
    if (check_keys(root, "the file", known, error) != 0) {
        return -1;
    }
    const cJSON *version = field(root, "version");
    if (!cJSON_IsString(version) || strcmp(version->valuestring, "1.0") != 0) {
        return error_set(error, "\"version\" must be \"1.0\": this is no tokenizer.json, or of a form not known here");
    }
    for (size_t i = 0; i < sizeof must_be_null / sizeof *must_be_null; i++) {
        if (field(root, must_be_null[i]) != NULL) {
            return error_set(error, "\"%s\" is not supported: it must be null", must_be_null[i]);
        }
    }
    for (size_t i = 0; i < sizeof without_effect / sizeof *without_effect; i++) {
        const cJSON *part = field(root, without_effect[i]);
        if (part != NULL && !has_type(part, "ByteLevel")) {
            return error_set(error, "\"%s\" must be null or of type \"ByteLevel\": other types are not supported", without_effect[i]);
        }
    }
    const cJSON *pre = field(root, "pre_tokenizer");
    bool prefix_space, use_regex;
    if (pre == NULL || !has_type(pre, "ByteLevel")) {
        return error_set(error, "\"pre_tokenizer\" must be of type \"ByteLevel\" (GPT-2's): other types are not supported");
    }
    if (check_keys(pre, "\"pre_tokenizer\"", byte_level, error) != 0
        || json_get_bool(pre, "add_prefix_space", &prefix_space, error) != 0
        || get_switch(pre, "use_regex", true, &use_regex, error) != 0) {
        return -1;
    }
    if (prefix_space || !use_regex) {
        return error_set(error, "\"pre_tokenizer\": \"%s\" must be %s: the other form is not supported",
                         prefix_space ? "add_prefix_space" : "use_regex", prefix_space ? "false" : "true");
    }
    return 0;
}

static int check_model(const cJSON *model, Error *error)
{
    static const char *const known[] = {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                                        "byte_fallback", "ignore_merges", "vocab", "merges", NULL};
    static const char *const must_be_empty[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    static const char *const must_be_false[] = {"byte_fallback", "ignore_merges"};
    if (check_keys(model, "\"model\"", known, error) != 0) {
        return -1;
    }
    // Files of the first years have no type. An unknown token is never used, since every byte must have a token.
    if (field(model, "type") != NULL && !has_type(model, "BPE")) {
        return error_set(error, "\"model\" must be of type \"BPE\": other types are not supported");
    }
    const cJSON *dropout = field(model, "dropout");
    if (dropout != NULL && !(cJSON_IsNumber(dropout) && dropout->valuedouble == 0)) {
        return error_set(error, "\"model\": \"dropout\" is not supported: it must be null");
    }
    for (size_t i = 0; i < 2; i++) {
        const cJSON *text = field(model, must_be_empty[i]);
        if (text != NULL && !(cJSON_IsString(text) && text->valuestring[0] == 0)) {
            return error_set(error, "\"model\": \"%s\" is not supported: it must be null or empty", must_be_empty[i]);
        }
        bool on;
        if (get_switch(model, must_be_false[i], false, &on, error) != 0) {
            return -1;
        }
        if (on) {
            return error_set(error, "\"model\": \"%s\" is not supported: it must be false", must_be_false[i]);
        }
    }
    return 0;
}

static int out_of_memory(Error *error)
{
    return error_set(error, "out of memory");
}

// model.vocab: name → id, ids 0 … n − 1 each once.
static int read_vocab(Loading *l, const cJSON *vocab, size_t n_added, Error *error)
{
    if (!cJSON_IsObject(vocab) || vocab->child == NULL) {
        return error_set(error, "\"model\": \"vocab\" is missing or no object of tokens");
    }
    const cJSON *item;
    cJSON_ArrayForEach(item, vocab) {
        l->n_vocab++;
    }
    if (l->n_vocab > MAX_VOCAB) {
        return error_set(error, "\"model\": \"vocab\" has %zu tokens, more than %d", l->n_vocab, MAX_VOCAB);
    }
    l->name_of = calloc(l->n_vocab + n_added, sizeof *l->name_of);
    l->is_text = calloc(l->n_vocab + n_added, sizeof *l->is_text);
    if (l->name_of == NULL || l->is_text == NULL) {
        return out_of_memory(error);
    }
    cJSON_ArrayForEach(item, vocab) {
        double number = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(number >= 0 && number < (double)l->n_vocab) || number != (double)(size_t)number) {
            return error_set(error, "\"model\": \"vocab\": the id of \"%.100s\" must be a whole number from 0 to %zu, each once",
                             item->string, l->n_vocab - 1);
        }
        size_t id = (size_t)number;
        if (l->name_of[id] != NULL) {
            return error_set(error, "\"model\": \"vocab\": \"%.100s\" and \"%.100s\" both have the id %zu", l->name_of[id], item->string, id);
        }
        bool is_new;
        ByteMapEntry *entry = byte_map_insert(&l->names, item->string, strlen(item->string), &is_new);
        if (entry == NULL) {
            return out_of_memory(error);
        }
        if (!is_new) {
            return error_set(error, "\"model\": \"vocab\": \"%.100s\" stands there twice", item->string);
        }
        if (item->string[0] == 0) {
            return error_set(error, "\"model\": \"vocab\": the token with id %zu is empty", id);
        }
        entry->value = id;
        l->name_of[id] = item->string;
    }
    return 0;
}

static int read_added_token(Loading *l, const cJSON *item, Error *error)
{
    static const char *const known[] = {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special", NULL};
    static const char *const must_be_false[] = {"single_word", "lstrip", "rstrip"};
    Tokenizer *t = l->tokenizer;
    AddedToken *added = &t->added[t->n_added];
    const char *content;
    int64_t id;
    bool is_new;
    if (check_keys(item, "it", known, error) != 0 || json_get_int(item, "id", 0, INT32_MAX, &id, error) != 0
        || json_get_string(item, "content", &content, error) != 0
        || get_switch(item, "special", false, &added->special, error) != 0
        || get_switch(item, "normalized", !added->special, &added->normalized, error) != 0) {
        return -1;
    }
    for (size_t i = 0; i < sizeof must_be_false / sizeof *must_be_false; i++) {
        bool on;
        if (get_switch(item, must_be_false[i], false, &on, error) != 0) {
            return -1;
        }
        if (on) {
            return error_set(error, "\"%s\" is not supported: it must be false", must_be_false[i]);
        }
    }
    size_t length = strlen(content);
    if (length == 0 || utf8_valid_length(content, length) != length) {
        return error_set(error, "\"content\" is %s", length == 0 ? "empty" : "not valid UTF-8");
    }
    ByteMapEntry *entry = byte_map_insert(&l->names, content, length, &is_new);
    if (entry == NULL) {
        return out_of_memory(error);
    }
    if (is_new) {
        entry->value = t->vocab_size++;
        l->name_of[entry->value] = content;
        l->is_text[entry->value] = true;
    }
    if (entry->value != (uint64_t)id) {
        return error_set(error, "\"id\" is %lld, but \"%.100s\" has the id %llu (tokens that are not in the vocabulary follow it without "
                         "holes)", (long long)id, content, (unsigned long long)entry->value);
    }
    added->id = (int32_t)id;
    for (size_t i = 0; i < t->n_added; i++) {
        if (t->added[i].id == added->id) {
            return error_set(error, "\"%.100s\" stands there twice", content);
        }
    }
    t->n_added++;
    return 0;
}

static int compare_added(const void *a, const void *b)
{
    int32_t left = ((const AddedToken *)a)->id, right = ((const AddedToken *)b)->id;
    return (left > right) - (left < right);
}

static int read_added(Loading *l, const cJSON *list, size_t count, Error *error)
{
    Tokenizer *t = l->tokenizer;
    t->added = calloc(count + 1, sizeof *t->added);
    if (t->added == NULL) {
        return out_of_memory(error);
    }
    const cJSON *item;
    size_t place = 0;
    cJSON_ArrayForEach(item, list) {
        if (read_added_token(l, item, error) != 0) {
            return error_prefix(error, "\"added_tokens\"[%zu]", place);
        }
        place++;
    }
    qsort(t->added, t->n_added, sizeof *t->added, compare_added);
    return 0;
}

static bool is_added(const Tokenizer *t, size_t id)
{
    AddedToken key = {.id = (int32_t)id};
    return bsearch(&key, t->added, t->n_added, sizeof key, compare_added) != NULL;
}

// Turns names into bytes, and notes the tokens of single bytes.
static int decode_tokens(Loading *l, Error *error)
{
    Tokenizer *t = l->tokenizer;
    uint16_t code_of[256];
    int16_t byte_of[ALPHABET_END];
    make_alphabet(code_of, byte_of);
    t->bytes = malloc(l->names.bytes_used + 1);
    t->offsets = malloc((t->vocab_size + 1) * sizeof *t->offsets);
    if (t->bytes == NULL || t->offsets == NULL) {
        return out_of_memory(error);
    }
    memset(t->byte_ids, -1, sizeof t->byte_ids);
    t->offsets[0] = 0;
    for (size_t id = 0; id < t->vocab_size; id++) {
        const char *name = l->name_of[id];
        char *bytes = t->bytes + t->offsets[id];
        int64_t length = l->is_text[id] ? -1 : decode_name(name, byte_of, bytes);
        bool added = is_added(t, id);
        if (length < 0 && !added) {
            return error_set(error, "\"model\": \"vocab\": \"%.100s\" (id %zu) is not written in the alphabet of byte-level BPE", name, id);
        }
        if (length >= 0 && added && ((size_t)length != strlen(name) || memcmp(name, bytes, (size_t)length) != 0)) {
            return error_set(error, "\"added_tokens\": \"%.100s\" (id %zu) is at once text and a token of other bytes in the vocabulary", name,
                             id);
        }
        if (length < 0) {
            l->is_text[id] = true;
            length = (int64_t)strlen(name);
            memcpy(bytes, name, (size_t)length);
        } else if (length == 1) {
            t->byte_ids[(unsigned char)bytes[0]] = (int32_t)id;
        }
        t->offsets[id + 1] = t->offsets[id] + (size_t)length;
    }
    for (int byte = 0; byte < 256; byte++) {
        if (t->byte_ids[byte] < 0) {
            return error_set(error, "\"model\": \"vocab\" has no token for the byte 0x%02X (U+%04X in the alphabet of byte-level BPE)",
                             (unsigned)byte, (unsigned)code_of[byte]);
        }
    }
    return 0;
}

static int find_token(const Loading *l, const char *name, size_t length, int32_t *id, Error *error)
{
    const ByteMapEntry *entry = byte_map_find(&l->names, name, length);
    if (entry == NULL || l->is_text[entry->value]) {
        return error_set(error, "\"%.*s\" is not in the vocabulary", length < 100 ? (int)length : 100, name);
    }
    *id = (int32_t)entry->value;
    return 0;
}

// One entry of model.merges: "a b", or ["a", "b"] since 2024.
static int read_merge(const Loading *l, const cJSON *item, Merge *merge, char **joined, size_t *capacity, Error *error)
{
    const char *left = NULL, *right = NULL;
    size_t left_length = 0;
    if (cJSON_IsString(item)) {
        left = item->valuestring;
        left_length = strcspn(left, " ");
        right = left[left_length] == ' ' ? left + left_length + 1 : NULL;
    } else if (cJSON_IsArray(item) && cJSON_GetArraySize(item) == 2 && cJSON_IsString(item->child) && cJSON_IsString(item->child->next)) {
        left = item->child->valuestring;
        left_length = strlen(left);
        right = item->child->next->valuestring;
    }
    if (left == NULL || right == NULL) {
        return error_set(error, "it must be two tokens, as \"a b\" or [\"a\", \"b\"]");
    }
    size_t right_length = strlen(right);
    if (find_token(l, left, left_length, &merge->left, error) != 0 || find_token(l, right, right_length, &merge->right, error) != 0) {
        return -1;
    }
    if (array_reserve(joined, capacity, left_length + right_length + 1, 1) != 0) {
        return out_of_memory(error);
    }
    memcpy(*joined, left, left_length);
    memcpy(*joined + left_length, right, right_length + 1);
    return find_token(l, *joined, left_length + right_length, &merge->result, error);
}

static int read_merges(Loading *l, const cJSON *list, Error *error)
{
    Tokenizer *t = l->tokenizer;
    if (!cJSON_IsArray(list)) {
        return error_set(error, "\"model\": \"merges\" is missing or no list");
    }
    size_t count = (size_t)cJSON_GetArraySize(list), capacity = 0;
    t->merges = calloc(count + 1, sizeof *t->merges);
    if (t->merges == NULL) {
        return out_of_memory(error);
    }
    char *joined = NULL;
    int status = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, list) {
        if (read_merge(l, item, &t->merges[t->n_merges], &joined, &capacity, error) != 0) {
            status = error_prefix(error, "\"model\": \"merges\"[%zu]", t->n_merges);
            break;
        }
        t->n_merges++;
    }
    free(joined);
    return status;
}

static int read_all(Loading *l, const cJSON *root, Error *error)
{
    const cJSON *model = field(root, "model"), *added = field(root, "added_tokens");
    if (check_surroundings(root, error) != 0 || check_model(model, error) != 0) {
        return -1;
    }
    if (added != NULL && !cJSON_IsArray(added)) {
        return error_set(error, "\"added_tokens\" must be a list");
    }
    size_t n_added = added != NULL ? (size_t)cJSON_GetArraySize(added) : 0;
    if (n_added > MAX_ADDED) {
        return error_set(error, "\"added_tokens\" has %zu tokens, more than %d", n_added, MAX_ADDED);
    }
    if (read_vocab(l, field(model, "vocab"), n_added, error) != 0) {
        return -1;
    }
    l->tokenizer->vocab_size = l->n_vocab;
    return read_added(l, added, n_added, error) != 0 || decode_tokens(l, error) != 0 || read_merges(l, field(model, "merges"), error) != 0;
}

Tokenizer *tokenizer_load(const char *path, Error *error)
{
    cJSON *root = json_read_file(path, MAX_FILE, error);
    if (root == NULL) {
        return NULL;
    }
    Loading l = {.tokenizer = calloc(1, sizeof(Tokenizer))};
    int status = l.tokenizer != NULL ? read_all(&l, root, error) : out_of_memory(error);
    Tokenizer *tokenizer = NULL;
    if (status == 0) {
        tokenizer = tokenizer_complete(l.tokenizer, error);
    } else {
        tokenizer_free(l.tokenizer);
    }
    byte_map_free(&l.names);
    free(l.name_of);
    free(l.is_text);
    cJSON_Delete(root);
    if (tokenizer == NULL) {
        error_prefix(error, "%s", path);
    }
    return tokenizer;
}

// The name of a token in a fresh buffer: the text of an added token, else its bytes in the alphabet. NULL when out of memory.
static char *make_name(const Tokenizer *t, size_t id, const uint16_t code_of[256])
{
    size_t length = 0, n = 0;
    const char *bytes = tokenizer_token(t, (int32_t)id, &length);
    char *name = malloc(2 * length + 1);
    if (name == NULL) {
        return NULL;
    }
    bool as_text = is_added(t, id);
    for (size_t i = 0; i < length; i++) {
        unsigned code = code_of[(unsigned char)bytes[i]];
        if (as_text) {
            name[n++] = bytes[i];
        } else if (code < 0x80) {
            name[n++] = (char)code;
        } else {
            name[n++] = (char)(0xC0 | code >> 6);
            name[n++] = (char)(0x80 | (code & 63));
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
           && cJSON_AddFalseToObject(part, "add_prefix_space") != NULL && cJSON_AddTrueToObject(part, "trim_offsets") != NULL && cJSON_AddTrueToObject(part, "use_regex") != NULL;
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
    uint16_t code_of[256];
    int16_t byte_of[ALPHABET_END];
    make_alphabet(code_of, byte_of);
    cJSON *root = cJSON_CreateObject();
    char **names = calloc(t->vocab_size, sizeof *names);
    bool ok = names != NULL;
    for (size_t id = 0; ok && id < t->vocab_size; id++) {
        names[id] = make_name(t, id, code_of);
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
