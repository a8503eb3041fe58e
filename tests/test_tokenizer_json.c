// tokenizer.json: the forms that are read, the hash, and what is refused.
#include "tests/tokenizer_help.h"

static void merges_are_read_in_both_forms(void **state)
{
    (void)state;
    Error error = {0};
    Tokenizer *tokenizer = train(prose, 310);
    cJSON *json = to_json(tokenizer), *merges = at(json, "model", "merges"), *merge;
    cJSON *lists = cJSON_CreateArray();
    cJSON_ArrayForEach(merge, merges) {
        char *space = strchr(merge->valuestring, ' ');
        *space = 0;
        const char *pair[2] = {merge->valuestring, space + 1};
        cJSON_AddItemToArray(lists, cJSON_CreateStringArray(pair, 2));
    }
    cJSON_ReplaceItemInObjectCaseSensitive(at(json, "model", NULL), "merges", lists);
    Tokenizer *other = load_json(json, &error);
    if (other == NULL) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(tokenizer_hash(other), tokenizer_hash(tokenizer));
    assert_int_equal(tokenizer_end_of_text(other), 309);
    tokenizer_free(other);
    tokenizer_free(tokenizer);
    cJSON_Delete(json);
}

// The hash of a tokenizer with five tokens above the bytes, and of five possible merges those that `order` names, in its order.
static uint32_t hash_of(const char *order)
{
    static const char *const pairs[][2] = {{"a", "b"}, {"b", "c"}, {"ab", "c"}, {"a", "bc"}, {"d", "e"}};
    Error error = {0};
    cJSON *json = bare_json();
    for (size_t i = 0; i < 5; i++) {
        add_merge(json, pairs[i][0], pairs[i][1]);
    }
    cJSON_ReplaceItemInObjectCaseSensitive(at(json, "model", NULL), "merges", cJSON_CreateArray());
    for (; *order != 0; order++) {
        add_merge(json, pairs[*order - '0'][0], pairs[*order - '0'][1]);
    }
    Tokenizer *tokenizer = load_json(json, &error);
    assert_non_null(tokenizer);
    assert_int_equal(tokenizer_vocab_size(tokenizer), 261);
    uint32_t hash = tokenizer_hash(tokenizer);
    tokenizer_free(tokenizer);
    cJSON_Delete(json);
    return hash;
}

static void hash_tells_every_merge(void **state)
{
    (void)state;
    static const char *const orders[] = {"01234", "1234", "0234", "0134", "0124", "0123", "10234", "02134", "01324", "01243", "41230", ""};
    enum { N = sizeof orders / sizeof *orders };
    uint32_t hashes[N];
    for (size_t i = 0; i < N; i++) {
        hashes[i] = hash_of(orders[i]);
        assert_int_not_equal(hashes[i], 0);
        for (size_t k = 0; k < i; k++) {
            assert_int_not_equal(hashes[i], hashes[k]);
        }
    }
    assert_int_equal(hash_of(orders[0]), hashes[0]);
}

// Text with the first `from` replaced by `to`; a fresh buffer.
static char *replace(const char *text, const char *from, const char *to)
{
    const char *place = strstr(text, from);
    if (place == NULL) {
        fail_msg("the file has no %s", from);
    }
    size_t size = strlen(text) + strlen(to) + 1;
    char *out = malloc(size);
    assert_non_null(out);
    snprintf(out, size, "%.*s%s%s", (int)(place - text), text, to, place + strlen(from));
    return out;
}

static void hostile_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *message;
    } cases[] = {
        {"\"version\":\"1.0\"", "\"version\":\"2.0\"", "version"},
        {"\"version\":\"1.0\"", "\"version\":\"1.0\",\"surprise\":1", "surprise"},
        {"\"version\":\"1.0\"", "\"version\":\"1.0\",\"model\":{}", "\"model\" twice"},
        {"\"truncation\":null", "\"truncation\":{}", "truncation"},
        {"\"padding\":null", "\"padding\":{\"strategy\":\"BatchLongest\"}", "padding"},
        {"\"normalizer\":null", "\"normalizer\":{\"type\":\"NFKC\"}", "\"normalizer\": the type \"NFKC\""},
        {"\"pre_tokenizer\":{\"type\":\"ByteLevel\"", "\"pre_tokenizer\":{\"type\":\"Whitespace\"", "pre_tokenizer"},
        {"\"pre_tokenizer\":{", "\"x\":{", "\"x\""},
        {"\"add_prefix_space\":false", "\"add_prefix_space\":3", "add_prefix_space"},
        {"\"add_prefix_space\":false,", "", "add_prefix_space"},
        {"\"use_regex\":true", "\"use_regex\":3", "use_regex"},
        {"\"post_processor\":{\"type\":\"ByteLevel\"", "\"post_processor\":{\"type\":\"Surprise\"", "post_processor"},
        {"\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"WordPiece\"", "decoder"},
        {"\"type\":\"BPE\"", "\"type\":\"WordPiece\"", "BPE"},
        {"\"dropout\":null", "\"dropout\":0.1", "dropout"},
        {"\"byte_fallback\":false", "\"byte_fallback\":3", "byte_fallback"},
        {"\"byte_fallback\":false", "\"ignore_merges\":3", "ignore_merges"},
        {"\"continuing_subword_prefix\":null", "\"continuing_subword_prefix\":\"##\"", "continuing_subword_prefix"},
        {"\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"", "end_of_word_suffix"},
        {"\"fuse_unk\":false", "\"tricks\":false", "tricks"},
        {"\"a\":97", "\"a\":98", "id 98"},
        {"\"a\":97", "\"a\":-1", "\"a\""},
        {"\"a\":97", "\"a\":4000000000", "\"a\""},
        {"\"a\":97", "\"a\":1e400", "\"a\""},
        {"\"a\":97", "\"a\":97.5", "\"a\""},
        {"\"a\":97", "\"a\":\"97\"", "\"a\""},
        {"\"a\":97", "\"b\":97", "\"b\" stands there twice"},
        {"\"a\":97", "\"ab\":97", "byte 0x61"},
        {"\"a\":97,", "", "byte 0x61"},
        {"\"a\":97", "\"\xE4\xB8\xAD\":97", "alphabet"},
        {"\"a\":97", "\"\xFF\":97", "alphabet"},
        {"\"a\":97", "\"\":97", "empty"},
        {"\"vocab\":{", "\"vocab\":[],\"x\":{", "\"x\""},
        {"\"merges\":[", "\"merges\":[],\"x\":[", "\"x\""},
        {"\"merges\":[\"x y\"]", "\"merges\":null", "merges"},
        {"\"merges\":[\"x y\"]", "\"merges\":{}", "merges"},
        {"\"merges\":[\"x y\"]", "\"merges\":[\"x y\",\"x y\"]", "merges[1]"},
        {"\"merges\":[\"x y\"]", "\"merges\":[\"x y\",\"x z\"]", "\"xz\""},
        {"\"merges\":[\"x y\"]", "\"merges\":[\"xx y\"]", "\"xx\""},
        {"\"merges\":[\"x y\"]", "\"merges\":[\"xy\"]", "\"merges\"[0]"},
        {"\"merges\":[\"x y\"]", "\"merges\":[\"x y \"]", "\"y \""},
        {"\"merges\":[\"x y\"]", "\"merges\":[[\"x\",\"y\",\"x\"]]", "\"merges\"[0]"},
        {"\"merges\":[\"x y\"]", "\"merges\":[[\"x\",1]]", "\"merges\"[0]"},
        {"\"merges\":[\"x y\"]", "\"merges\":[7]", "\"merges\"[0]"},
        {"\"id\":256", "\"id\":255", "\"id\""},
        {"\"id\":256", "\"id\":99999999999", "\"id\""},
        {"\"id\":256,", "", "\"id\""},
        {"\"content\":\"<|endoftext|>\"", "\"content\":\"\"", "empty"},
        {"\"content\":\"<|endoftext|>\"", "\"content\":\"\xC3\"", "UTF-8"},
        {"\"content\":\"<|endoftext|>\"", "\"content\":\"<|eot|>\"", "\"added_tokens\"[0]"},
        {"\"content\":\"<|endoftext|>\"", "\"content\":7", "content"},
        {"{\"id\":256,\"content\":\"<|endoftext|>\"", "{\"id\":97,\"content\":\"a\"", "<|endoftext|>"},
        {"{\"id\":256,\"content\":\"<|endoftext|>\"", "{\"id\":128,\"content\":\"\xC4\xA2\"", "at once"},
        {"\"lstrip\":false", "\"lstrip\":1", "lstrip"},
        {"\"single_word\":false", "\"single_word\":true", "single_word"},
        {"\"special\":true", "\"special\":1", "special"},
        {"\"added_tokens\":[", "\"added_tokens\":[{\"id\":256,\"content\":\"<|endoftext|>\"},", "twice"},
        {"\"added_tokens\":[", "\"added_tokens\":[3,", "\"added_tokens\"[0]"},
        {"\"added_tokens\":[", "\"added_tokens\":5,\"x\":[", "\"x\""},
        {"}", "", "JSON"},
    };
    Error error = {0};
    cJSON *json = bare_json();
    add_merge(json, "x", "y");
    char *text = cJSON_PrintUnformatted(json);
    assert_int_equal(file_write_atomic(file, text, strlen(text), &error), 0);
    Tokenizer *good = tokenizer_load(file, &error);
    assert_non_null(good);
    tokenizer_free(good);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *changed = replace(text, cases[i].from, cases[i].to);
        assert_int_equal(file_write_atomic(file, changed, strlen(changed), &error), 0);
        error.text[0] = 0;
        if (tokenizer_load(file, &error) != NULL) {
            fail_msg("%s in place of %s was not refused", cases[i].to, cases[i].from);
        }
        if (strstr(error.text, cases[i].message) == NULL || strstr(error.text, "tokenizer.json") == NULL) {
            fail_msg("%s in place of %s: the message is: %s", cases[i].to, cases[i].from, error.text);
        }
        free(changed);
    }
    cJSON_free(text);
    cJSON_Delete(json);
}

static void other_files_are_refused(void **state)
{
    (void)state;
    Error error = {0};
    enum { DEPTH = 200000 };
    char *deep = malloc(DEPTH);
    assert_non_null(deep);
    memset(deep, '[', DEPTH);
    static const char *const texts[] = {"", "{}", "[]", "null", "3", "\"text\"", "{\"version\":\"1.0\"}", "{\"model\":{\"vocab\":{},\"merges\":[]}}"};
    for (size_t i = 0; i <= sizeof texts / sizeof *texts; i++) {
        bool last = i == sizeof texts / sizeof *texts;
        assert_int_equal(file_write_atomic(file, last ? deep : texts[i], last ? DEPTH : strlen(texts[i]), &error), 0);
        error.text[0] = 0;
        assert_null(tokenizer_load(file, &error));
        assert_non_null(strstr(error.text, "tokenizer.json"));
    }
    free(deep);
    assert_null(tokenizer_load("/nowhere/tokenizer.json", &error));
    Tokenizer *tokenizer = train(prose, 300);
    assert_int_equal(tokenizer_save(tokenizer, "/nowhere/tokenizer.json", &error), -1);
    assert_non_null(strstr(error.text, "/nowhere/tokenizer.json"));
    tokenizer_free(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_are_read_in_both_forms),
        cmocka_unit_test(hash_tells_every_merge),
        cmocka_unit_test(hostile_files_are_refused),
        cmocka_unit_test(other_files_are_refused),
    };
    return cmocka_run_group_tests_name("tokenizer_json", tests, make_folder, drop_folder);
}
