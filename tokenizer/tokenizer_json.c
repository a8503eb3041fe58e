// tokenizer.json of HuggingFace's tokenizers library: BPE models. Every field that could change ids is understood or refused by name. In a
// byte-level file a token's bytes are written as characters of GPT-2's alphabet, one a byte; in others the text stands there, and "<0x0A>"
// for a byte.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/alphabet.h"
#include "tokenizer/bpe_internal.h"
#include "tokenizer/json_fields.h"

enum { BYTE_NAME_LENGTH = 6 };

// A file while it is read. Names are the tokens as written there; their number in the map is not their id.
typedef struct Loading {
    ByteMap names;              // name → id
    size_t n_ids;               // largest id in model.vocab + 1
    size_t capacity;            // of the next two
    const char **name_of;       // by id; NULL where no token has the id
    bool *is_text;              // by id: byte-level, an added token that is not written in the alphabet
    Tokenizer *tokenizer;
} Loading;

static int check_surroundings(const cJSON *root, Error *error)
{
    static const char *const known[] = {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                                        "decoder", "model", NULL};
    static const char *const must_be_null[] = {"truncation", "padding"};
    if (fields_check(root, "the file", known, error) != 0) {
        return -1;
    }
    if (strcmp(field_text(root, "version"), "1.0") != 0) {
        return error_set(error, "\"version\" must be \"1.0\": this is no tokenizer.json, or of a form not known here");
    }
    for (size_t i = 0; i < sizeof must_be_null / sizeof *must_be_null; i++) {
        if (field(root, must_be_null[i]) != NULL) {
            return error_set(error, "\"%s\" is not supported: it must be null", must_be_null[i]);
        }
    }
    return 0;
}

static int check_model(const cJSON *model, Tokenizer *t, Error *error)
{
    static const char *const known[] = {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                                        "byte_fallback", "ignore_merges", "vocab", "merges", NULL};
    static const char *const must_be_empty[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    bool byte_fallback;
    if (fields_check(model, "\"model\"", known, error) != 0) {
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
    for (size_t i = 0; i < sizeof must_be_empty / sizeof *must_be_empty; i++) {
        const cJSON *text = field(model, must_be_empty[i]);
        if (text != NULL && !(cJSON_IsString(text) && text->valuestring[0] == 0)) {
            return error_set(error, "\"model\": \"%s\" is not supported: it must be null or empty", must_be_empty[i]);
        }
    }
    if (field_switch(model, "byte_fallback", false, &byte_fallback, error) != 0
        || field_switch(model, "ignore_merges", false, &t->whole_first, error) != 0) {
        return -1;
    }
    if (!t->pipeline.byte_level && !byte_fallback) {
        return error_set(error, "\"model\": \"byte_fallback\" must be true where the \"pre_tokenizer\" is not \"ByteLevel\": text without a "
                                "token would be lost");
    }
    return 0;
}

static int out_of_memory(Error *error)
{
    return error_set(error, "out of memory");
}

// The number of ids that the names need, at most twice as many as there are names and a few; 0 with `error` set.
static size_t count_ids(const cJSON *vocab, Error *error)
{
    size_t count = 0, n_ids = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, vocab) {
        count++;
    }
    size_t limit = 2 * count + 1000 < MAX_VOCAB ? 2 * count + 1000 : MAX_VOCAB;
    cJSON_ArrayForEach(item, vocab) {
        double number = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(number >= 0 && number < (double)limit) || number != (double)(size_t)number) {
            error_set(error, "\"model\": \"vocab\": the id of \"%.100s\" must be a whole number from 0 to %zu, each once", item->string,
                      limit - 1);
            return 0;
        }
        n_ids = (size_t)number >= n_ids ? (size_t)number + 1 : n_ids;
    }
    return n_ids;
}

// model.vocab: name → id, each id at most once. Some ids may have no token.
static int read_vocab(Loading *l, const cJSON *vocab, size_t n_added, Error *error)
{
    if (!cJSON_IsObject(vocab) || vocab->child == NULL) {
        return error_set(error, "\"model\": \"vocab\" is missing or no object of tokens");
    }
    l->n_ids = count_ids(vocab, error);
    if (l->n_ids == 0) {
        return -1;
    }
    // Added tokens that are not in the vocabulary follow it, with holes of at most as many ids.
    l->capacity = l->n_ids + 2 * n_added + 1000;
    l->name_of = calloc(l->capacity, sizeof *l->name_of);
    l->is_text = calloc(l->capacity, sizeof *l->is_text);
    if (l->name_of == NULL || l->is_text == NULL) {
        return out_of_memory(error);
    }
    const cJSON *item;
    cJSON_ArrayForEach(item, vocab) {
        size_t id = (size_t)item->valuedouble;
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
    Tokenizer *t = l->tokenizer;
    AddedToken *added = &t->added[t->n_added];
    const char *content;
    int64_t id;
    bool is_new, single_word;
    if (fields_check(item, "it", known, error) != 0 || json_get_int(item, "id", 0, INT32_MAX, &id, error) != 0
        || json_get_string(item, "content", &content, error) != 0
        || field_switch(item, "special", false, &added->special, error) != 0
        || field_switch(item, "normalized", !added->special, &added->normalized, error) != 0
        || field_switch(item, "lstrip", false, &added->left_strip, error) != 0
        || field_switch(item, "rstrip", false, &added->right_strip, error) != 0
        || field_switch(item, "single_word", false, &single_word, error) != 0) {
        return -1;
    }
    if (single_word) {
        return error_set(error, "\"single_word\" is not supported: it must be false");
    }
    size_t length = strlen(content);
    if (length == 0 || utf8_valid_length(content, length) != length) {
        return error_set(error, "\"content\" is %s", length == 0 ? "empty" : "not valid UTF-8");
    }
    ByteMapEntry *entry = byte_map_insert(&l->names, content, length, &is_new);
    if (entry == NULL) {
        return out_of_memory(error);
    }
    if (is_new && ((size_t)id >= l->capacity || l->name_of[id] != NULL)) {
        return error_set(error, "\"id\" is %lld, which is %s", (long long)id,
                         (size_t)id >= l->capacity ? "too far behind the vocabulary" : "that of another token");
    }
    if (is_new) {
        entry->value = (uint64_t)id;
        l->name_of[id] = content;
        l->is_text[id] = true;
        t->vocab_size = (size_t)id >= t->vocab_size ? (size_t)id + 1 : t->vocab_size;
    }
    if (entry->value != (uint64_t)id) {
        return error_set(error, "\"id\" is %lld, but \"%.100s\" has the id %llu", (long long)id, content, (unsigned long long)entry->value);
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
    return t->n_added > 0 && bsearch(&key, t->added, t->n_added, sizeof key, compare_added) != NULL;
}

// Byte-level: turns a name into bytes. Returns their number, or -1 with `error` set.
static int64_t decode_byte_level(Loading *l, const Alphabet *alphabet, size_t id, char *bytes, Error *error)
{
    Tokenizer *t = l->tokenizer;
    const char *name = l->name_of[id];
    int64_t length = l->is_text[id] ? -1 : alphabet_decode(alphabet, name, bytes);
    bool added = is_added(t, id);
    if (length < 0 && !added) {
        return error_set(error, "\"model\": \"vocab\": \"%.100s\" (id %zu) is not written in the alphabet of byte-level BPE", name, id);
    }
    if (length >= 0 && added && ((size_t)length != strlen(name) || memcmp(name, bytes, (size_t)length) != 0)) {
        return error_set(error, "\"added_tokens\": \"%.100s\" (id %zu) is at once text and a token of other bytes in the vocabulary", name, id);
    }
    if (length < 0) {
        l->is_text[id] = true;
        length = (int64_t)strlen(name);
        memcpy(bytes, name, (size_t)length);
    } else if (length == 1) {
        t->byte_ids[(unsigned char)bytes[0]] = (int32_t)id;
    }
    return length;
}

// The byte that "<0x0A>" stands for, else −1.
static int byte_of_name(const char *name)
{
    static const char digits[] = "0123456789ABCDEF";
    if (strlen(name) != BYTE_NAME_LENGTH || memcmp(name, "<0x", 3) != 0 || name[5] != '>') {
        return -1;
    }
    const char *high = strchr(digits, name[3]), *low = strchr(digits, name[4]);
    return high != NULL && low != NULL ? (int)((high - digits) * 16 + (low - digits)) : -1;
}

// Characters: the symbols that single characters are, and what a name writes out. Returns the number of bytes.
static int64_t decode_characters(Loading *l, size_t id, char *bytes)
{
    Tokenizer *t = l->tokenizer;
    const unsigned char *name = (const unsigned char *)l->name_of[id];
    size_t length = strlen(l->name_of[id]), n = 1, used = 0, space = strlen(t->pipeline.space);
    int byte = byte_of_name(l->name_of[id]);
    memcpy(t->names + t->name_offsets[id], name, length);
    if (byte >= 0) {
        bytes[0] = (char)byte;
        t->byte_ids[byte] = (int32_t)id;
        return 1;
    }
    if (!l->is_text[id] && utf8_length(name, name + length) == length) {
        t->character_ids[length == 1 ? name[0] : utf8_get(name, &n)] = (int32_t)id + 1;
    }
    for (size_t i = 0; i < length;) {
        bool is_space = space > 0 && length - i >= space && memcmp(name + i, t->pipeline.space, space) == 0;
        bytes[used++] = is_space ? ' ' : (char)name[i];
        i += is_space ? space : 1;
    }
    return (int64_t)used;
}

// Turns names into bytes, and notes the symbols.
static int decode_tokens(Loading *l, Error *error)
{
    Tokenizer *t = l->tokenizer;
    bool byte_level = t->pipeline.byte_level;
    Alphabet alphabet;
    alphabet_make(&alphabet);
    t->bytes = malloc(l->names.bytes_used + 1);
    t->offsets = calloc(t->vocab_size + 1, sizeof *t->offsets);
    if (!byte_level) {
        t->names = malloc(l->names.bytes_used + 1);
        t->name_offsets = calloc(t->vocab_size + 1, sizeof *t->name_offsets);
        t->character_ids = calloc(N_CODE_POINTS, sizeof *t->character_ids);
    }
    bool no_names = !byte_level && (t->names == NULL || t->name_offsets == NULL || t->character_ids == NULL);
    if (t->bytes == NULL || t->offsets == NULL || no_names) {
        return out_of_memory(error);
    }
    memset(t->byte_ids, -1, sizeof t->byte_ids);
    for (size_t id = 0; id < t->vocab_size; id++) {
        int64_t length = 0;
        if (l->name_of[id] != NULL) {
            char *bytes = t->bytes + t->offsets[id];
            length = byte_level ? decode_byte_level(l, &alphabet, id, bytes, error) : decode_characters(l, id, bytes);
        }
        if (length < 0) {
            return -1;
        }
        t->offsets[id + 1] = t->offsets[id] + (size_t)length;
        if (!byte_level) {
            t->name_offsets[id + 1] = t->name_offsets[id] + (l->name_of[id] != NULL ? strlen(l->name_of[id]) : 0);
        }
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        bool in_utf8 = byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
        if (t->byte_ids[byte] < 0 && byte_level && !in_utf8) {
            t->lacks_bytes = true;   // GPT-NeoX's lacks what is never a part of valid text
            continue;
        }
        if (t->byte_ids[byte] < 0 && byte_level) {
            return error_set(error, "\"model\": \"vocab\" has no token for the byte 0x%02X (U+%04X in the alphabet of byte-level BPE)", byte,
                             (unsigned)alphabet.code_of[byte]);
        }
        if (t->byte_ids[byte] < 0) {
            return error_set(error, "\"model\": \"vocab\" has no token <0x%02X>", byte);
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

// "ignore_merges": pre-tokens are looked up in model.vocab before they are merged.
static int index_whole(Loading *l, Error *error)
{
    Tokenizer *t = l->tokenizer;
    for (size_t id = 0; t->whole_first && id < l->n_ids; id++) {
        size_t length = 0;
        const char *name = token_name(t, id, &length);
        bool is_new;
        if (length > 0 && !l->is_text[id]) {
            ByteMapEntry *entry = byte_map_insert(&t->whole, name, length, &is_new);
            if (entry == NULL) {
                return out_of_memory(error);
            }
            entry->value = id;
        }
    }
    return 0;
}

static int read_all(Loading *l, const cJSON *root, Error *error)
{
    const cJSON *model = field(root, "model"), *added = field(root, "added_tokens");
    Tokenizer *t = l->tokenizer;
    if (check_surroundings(root, error) != 0 || pipeline_read(&t->pipeline, root, error) != 0 || check_model(model, t, error) != 0) {
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
    t->vocab_size = l->n_ids;
    return read_added(l, added, n_added, error) != 0 || decode_tokens(l, error) != 0 || read_merges(l, field(model, "merges"), error) != 0
                   || index_whole(l, error) != 0
               ? -1
               : 0;
}

// Parses the text [length], behind which a NUL stands.
static cJSON *parse(const char *text, size_t length, const char *what, Error *error)
{
    const char *end = text;
    cJSON *json = cJSON_ParseWithLengthOpts(text, length + 1, &end, true);
    if (json == NULL || end != text + length) {
        size_t line = 1;
        for (const char *c = text; c < end; c++) {
            line += *c == '\n';
        }
        error_set(error, "%s: line %zu is not valid JSON", what, line);
        cJSON_Delete(json);
        return NULL;
    }
    return json;
}

Tokenizer *tokenizer_from_json(char *text, size_t length, const char *what, const char *form, Error *error)
{
    cJSON *root = parse(text, length, what, error);
    Loading l = {.tokenizer = root != NULL ? calloc(1, sizeof(Tokenizer)) : NULL};
    int status = root == NULL ? -1 : l.tokenizer != NULL ? read_all(&l, root, error) : out_of_memory(error);
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
        if (root != NULL) {
            error_prefix(error, "%s", what);
        }
        free(text);
        return NULL;
    }
    tokenizer->form = form;
    tokenizer->source = text;
    tokenizer->source_length = length;
    return tokenizer;
}
