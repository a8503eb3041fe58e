// Tokenizer files of all forms: rank files, pairs and tokenizer.bin against their definitions, what is refused, and the reference's ids.
#include "base/rng.h"
#include "tests/tokenizer_help.h"

// ---- rank files ----

static void write_text(const char *path, const char *text)
{
    Error error = {0};
    assert_int_equal(file_write_atomic(path, text, strlen(text), &error), 0);
}

static void put_base64(char *out, const char *bytes, size_t length)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < length; i += 3) {
        unsigned value = 0;
        for (size_t k = 0; k < 3; k++) {
            value = value << 8 | (i + k < length ? (unsigned char)bytes[i + k] : 0);
        }
        for (size_t k = 0; k < 4; k++) {
            *out++ = k <= length - i ? digits[value >> (18 - 6 * k) & 63] : '=';
        }
    }
    *out = 0;
}

// The tokens of a trained tokenizer without its end of text, as ranks.
static void write_ranks(const char *path, const Tokenizer *trained)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    for (size_t id = 0; id + 1 < tokenizer_vocab_size(trained); id++) {
        size_t length = 0;
        char text[512];
        const char *bytes = tokenizer_token(trained, (int32_t)id, &length);
        assert_true(length < 300);
        put_base64(text, bytes, length);
        fprintf(out, "%s %zu\n", text, id);
    }
    assert_int_equal(fclose(out), 0);
}

// tiktoken by its definition: the neighbours whose joined text has the smallest rank, the leftmost of equals.
static size_t merge_by_text(const Tokenizer *t, const char *text, size_t length, int32_t *ids)
{
    size_t starts[64], n = length;
    for (size_t i = 0; i <= length; i++) {
        starts[i] = i;
    }
    for (;;) {
        int32_t best = INT32_MAX;
        size_t place = 0;
        for (size_t i = 0; i < n; i++) {
            for (size_t span = 1; span <= 2 && i + span <= n; span++) {
                for (int32_t id = 0; (size_t)id + 1 < tokenizer_vocab_size(t); id++) {
                    size_t token = 0;
                    const char *bytes = tokenizer_token(t, id, &token);
                    bool same = token == starts[i + span] - starts[i] && memcmp(bytes, text + starts[i], token) == 0;
                    if (same && span == 1) {
                        ids[i] = id;
                    } else if (same && id < best) {
                        best = id;
                        place = i;
                    }
                }
            }
        }
        if (best == INT32_MAX) {
            return n;
        }
        memmove(starts + place + 1, starts + place + 2, (n - place - 1) * sizeof *starts);
        n--;
    }
}

static void ranks_are_merged_by_their_definition(void **state)
{
    (void)state;
    char path[320], copy[320];
    Error error = {0};
    Tokenizer *trained = train(prose, 320);
    snprintf(path, sizeof path, "%s/own.tiktoken", folder);
    snprintf(copy, sizeof copy, "%s/copy.json", folder);
    write_ranks(path, trained);
    Tokenizer *ranks = must_load_file(path, "\\S+|\\s+");
    assert_int_equal(tokenizer_vocab_size(ranks), 320);
    assert_int_equal(tokenizer_end_of_text(ranks), 319);
    check_encodes(ranks, "ranks", "<|endoftext|>", "319");
    Rng rng;
    rng_seed(&rng, 5, 0);
    for (int round = 0; round < 300; round++) {
        char text[24];
        int32_t ids[64];
        size_t length = 1 + rng_below(&rng, sizeof text);
        for (size_t i = 0; i < length; i++) {
            text[i] = "thesoainwfr"[rng_below(&rng, 11)];
        }
        TokenList list = encode_all(ranks, text, length);
        check_same("ranks", &list, ids, merge_by_text(trained, text, length, ids));
        token_list_free(&list);
    }
    // The converted file is the same tokenizer.
    assert_int_equal(tokenizer_save(ranks, copy, &error), 0);
    Tokenizer *again = must_load_file(copy, NULL);
    assert_int_equal(tokenizer_hash(again), tokenizer_hash(ranks));
    tokenizer_free(again);
    tokenizer_free(ranks);
    // Known names bring their pattern, and NFC where it belongs to them.
    static const char *const names[][2] = {{"gpt2", "GPT-2's pattern"}, {"cl100k_base", "Llama-3's pattern"}, {"o200k_base", "GPT-4o's pattern"},
                                           {"qwen", "NFC, Qwen-2's pattern"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ranks = must_load_file(path, names[i][0]);
        assert_string_equal(ranks->pipeline.description, names[i][1]);
        check_encodes(ranks, names[i][0], "it was\n", "261 262 10");
        tokenizer_free(ranks);
    }
    assert_null(tokenizer_load(path, &error));
    assert_non_null(strstr(error.text, "319 ranks"));
    assert_null(tokenizer_load_as(path, "nonsense", &error));
    assert_non_null(strstr(error.text, "nonsense"));
    assert_null(tokenizer_load_as(copy, "gpt2", &error));
    assert_non_null(strstr(error.text, "pattern"));
    tokenizer_free(trained);
}

static void pairs_are_read_from_either_file(void **state)
{
    (void)state;
    Error error = {0};
    char vocab[320], merges[320];
    snprintf(vocab, sizeof vocab, "%s/tiny-vocab.json", folder);
    snprintf(merges, sizeof merges, "%s/tiny-merges.txt", folder);
    Tokenizer *trained = train(prose, 320);
    cJSON *json = to_json(trained), *merge;
    assert_int_equal(json_write_file(vocab, at(json, "model", "vocab"), false, &error), 0);
    assert_null(tokenizer_load(vocab, &error));
    assert_non_null(strstr(error.text, "merges.txt"));
    FILE *out = fopen(merges, "w");
    assert_non_null(out);
    fprintf(out, "#version: 0.2\n");
    cJSON_ArrayForEach(merge, at(json, "model", "merges")) {
        fprintf(out, "%s\r\n", merge->valuestring);
    }
    assert_int_equal(fclose(out), 0);
    Tokenizer *first = must_load_file(vocab, NULL), *second = must_load_file(merges, NULL);
    assert_int_equal(tokenizer_hash(first), tokenizer_hash(trained));
    assert_int_equal(tokenizer_hash(second), tokenizer_hash(trained));
    assert_int_equal(tokenizer_save(second, file, &error), 0);
    Tokenizer *saved = must_load_file(file, NULL);
    assert_int_equal(tokenizer_hash(saved), tokenizer_hash(trained));
    tokenizer_free(saved);
    tokenizer_free(first);
    tokenizer_free(second);
    assert_int_equal(unlink(vocab), 0);
    assert_null(tokenizer_load(merges, &error));
    assert_non_null(strstr(error.text, "vocab.json"));
    cJSON_Delete(json);
    tokenizer_free(trained);
}

// ---- llama2.c ----

typedef struct BinToken {
    const char *text;
    float score;
} BinToken;

static const BinToken bin_tokens[] = {{" ", -5}, {"a", -6}, {"b", -7}, {"\xC3\xA9", -8}, {" a", -3}, {"ab", -1}, {" ab", -2}, {"aa", -2.5f}, {"aab", -4},
                                      {"bb", -4.5f}, {"abb", -0.5f}};
enum { N_BIN = sizeof bin_tokens / sizeof *bin_tokens };

static void put_u32(FILE *out, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        fputc((int)(value >> (8 * i) & 255), out);
    }
}

static void put_token(FILE *out, const char *text, float score)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    put_u32(out, bits);
    put_u32(out, (uint32_t)strlen(text));
    fputs(text, out);
}

static void write_bin(const char *path)
{
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    put_u32(out, 8);
    put_token(out, "<unk>", 0);
    put_token(out, "\n<s>\n", 0);
    put_token(out, "\n</s>\n", 0);
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", byte);
        put_token(out, name, 0);
    }
    for (size_t i = 0; i < N_BIN; i++) {
        put_token(out, bin_tokens[i].text, bin_tokens[i].score);
    }
    assert_int_equal(fclose(out), 0);
}

static int bin_find(const char *text)
{
    for (int i = 0; i < N_BIN; i++) {
        if (strcmp(bin_tokens[i].text, text) == 0) {
            return i;
        }
    }
    return -1;
}

// llama2.c's way: a space in front, characters or bytes, then the best score, the first of equals.
static size_t encode_plainly(const char *text, int32_t *ids)
{
    size_t n = 0;
    ids[n++] = 259;
    for (const unsigned char *p = (const unsigned char *)text; *p != 0;) {
        char character[8] = "";
        size_t length = *p < 0x80 ? 1 : *p < 0xE0 ? 2 : 3;
        memcpy(character, p, length);
        int found = bin_find(character);
        for (size_t i = 0; i < (found >= 0 ? 1 : length); i++) {
            ids[n++] = found >= 0 ? 259 + found : 3 + p[i];
        }
        p += length;
    }
    for (;;) {
        int best = -1;
        size_t place = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            char joined[32];
            if (ids[i] >= 259 && ids[i + 1] >= 259) {
                snprintf(joined, sizeof joined, "%s%s", bin_tokens[ids[i] - 259].text, bin_tokens[ids[i + 1] - 259].text);
                int found = bin_find(joined);
                if (found >= 0 && (best < 0 || bin_tokens[found].score > bin_tokens[best].score)) {
                    best = found;
                    place = i;
                }
            }
        }
        if (best < 0) {
            return n;
        }
        ids[place] = 259 + best;
        memmove(ids + place + 1, ids + place + 2, (n - place - 2) * sizeof *ids);
        n--;
    }
}

static void tokenizer_bin_is_read(void **state)
{
    (void)state;
    static const char *const characters[] = {"a", "b", " ", "a", "b", "\xC3\xA9", "\xE4\xB8\xAD", "\n", "<"};
    Error error = {0};
    char path[320];
    snprintf(path, sizeof path, "%s/tokenizer.bin", folder);
    write_bin(path);
    Tokenizer *tokenizer = must_load_file(path, NULL);
    assert_int_equal(tokenizer_vocab_size(tokenizer), 259 + N_BIN);
    assert_int_equal(tokenizer_end_of_text(tokenizer), 2);
    assert_int_equal(tokenizer_strips_first_space(tokenizer), 1);
    Rng rng;
    rng_seed(&rng, 6, 0);
    for (int round = 0; round < 2000; round++) {
        char text[64] = "";
        int32_t ids[80];
        for (size_t n = 1 + rng_below(&rng, 16); n > 0; n--) {
            strcat(text, characters[rng_below(&rng, sizeof characters / sizeof *characters)]);
        }
        TokenList list = encode_all(tokenizer, text, strlen(text));
        check_same(text, &list, ids, encode_plainly(text, ids));
        token_list_free(&list);
    }
    assert_int_equal(tokenizer_save(tokenizer, file, &error), 0);
    Tokenizer *saved = must_load_file(file, NULL);
    assert_int_equal(tokenizer_hash(saved), tokenizer_hash(tokenizer));
    tokenizer_free(saved);
    tokenizer_free(tokenizer);
    // Cut off anywhere it is refused, or has a whole number of tokens less.
    size_t size = 0, refused = 0;
    char *data = file_read(path, 1 << 20, &size, &error);
    assert_non_null(data);
    for (size_t cut = 12; cut < size; cut += 7) {
        assert_int_equal(file_write_atomic(path, data, cut, &error), 0);
        tokenizer = tokenizer_load(path, &error);
        refused += tokenizer == NULL;
        tokenizer_free(tokenizer);
    }
    assert_true(refused > size / 7 - 5);
    free(data);
}

// ---- what is refused, holes ----

static void bad_files_are_refused(void **state)
{
    (void)state;
    static const char *const files[][2] = {
        {"IQ== 0\nIg== 0\n", "rank 0"}, {"IQ== 0\nIQ== 1\n", "twice"}, {"IQ== 0\nx 1\n", "line 2"}, {"IQ== 0\nIg== 99999999999999\n", "line 2"},
        {"IQ== 0\nIg== 16000000\n", "go up to"}, {"IQ== 0\nIg==\n", "line 2"}, {"IQ== 0\nIg== 1\n", "2 ranks"},
        {"{\"a\": 1}", "merges.txt"}, {"#version: 0.2\na b\n", "vocab.json"}, {"a b\nc d\n", "vocab.json"},
        {"\n\x0e\n\x05<unk>\x15", "SentencePiece"}, {"{\"version\": \"1.0\"}", "\"model\""}, {"", "JSON"},
    };
    char path[320];
    snprintf(path, sizeof path, "%s/bad", folder);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        Error error = {0};
        write_text(path, files[i][0]);
        if (tokenizer_load(path, &error) != NULL || strstr(error.text, files[i][1]) == NULL || strstr(error.text, path) == NULL) {
            fail_msg("file %zu: %s", i, error.text);
        }
    }
}

static void vocabularies_may_have_holes(void **state)
{
    (void)state;
    cJSON *json = bare_json();
    cJSON_AddNumberToObject(at(json, "model", "vocab"), "ab", 300);
    cJSON_AddItemToArray(at(json, "model", "merges"), cJSON_CreateString("a b"));
    Tokenizer *tokenizer = must_load(json);
    size_t length;
    assert_int_equal(tokenizer_vocab_size(tokenizer), 301);
    assert_null(tokenizer_token(tokenizer, 299, &length));
    check_encodes(tokenizer, "holes", "abc", "300 99");
    tokenizer_free(tokenizer);
    // A pre-token that is a token is taken whole with ignore_merges, though no merge makes it.
    cJSON_AddNumberToObject(at(json, "model", "vocab"), "abc", 301);
    cJSON_AddTrueToObject(at(json, "model", NULL), "ignore_merges");
    tokenizer = must_load(json);
    check_encodes(tokenizer, "ignore_merges", "abc abc", "301 32 300 99");
    tokenizer_free(tokenizer);
    cJSON_Delete(json);
}

// ---- the reference's ids ----

static void check_reference(const char *name, const char *path, const cJSON *expected)
{
    char full[320];
    snprintf(full, sizeof full, "../shared/tokenizers/%s", path);
    Tokenizer *tokenizer = must_load_file(full, NULL);
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(expected, "strings")->child, *list = at((cJSON *)(uintptr_t)expected, "ids", name)->child;
    size_t strings = 0;
    for (; text != NULL; text = text->next, list = list->next, strings++) {
        int32_t *numbers = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *numbers);
        assert_non_null(numbers);
        size_t count = 0;
        const cJSON *id;
        cJSON_ArrayForEach(id, list) {
            numbers[count++] = (int32_t)id->valuedouble;
        }
        TokenList ids = encode_all(tokenizer, text->valuestring, strlen(text->valuestring));
        check_same(text->valuestring, &ids, numbers, count);
        token_list_free(&ids);
        free(numbers);
    }
    assert_true(strings >= 80);
    tokenizer_free(tokenizer);
}

static void ids_equal_the_reference(void **state)
{
    (void)state;
    static const char expected_path[] = "../shared/tokenizers/EXPECTED.json";
    if (!file_exists(expected_path)) {
        print_message("skipped: there is no %s with ids of the reference\n", expected_path);
        skip();
    }
    Error error = {0};
    cJSON *expected = json_read_file(expected_path, 1 << 28, &error);
    assert_non_null(expected);
    check_reference("gpt2", "gpt2/tokenizer.json", expected);
    check_reference("gpt2", "gpt2/vocab.bpe", expected);
    check_reference("gpt2", "gpt2/encoder.json", expected);
    check_reference("gpt-neox", "gpt-neox/20B_tokenizer.json", expected);
    check_reference("mistral", "mistral-hf/tokenizer.json", expected);
    check_reference("openllama", "openllama/tokenizer.json", expected);
    check_reference("qwen3", "qwen3-hf/tokenizer.json", expected);
    tokenizer_free(must_load_file("../shared/tokenizers/gpt-neox/EleutherAI_gpt-neox-20b.tiktoken", NULL));
    cJSON_Delete(expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_merged_by_their_definition),
        cmocka_unit_test(pairs_are_read_from_either_file),
        cmocka_unit_test(tokenizer_bin_is_read),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(vocabularies_may_have_holes),
        cmocka_unit_test(ids_equal_the_reference),
    };
    return cmocka_run_group_tests_name("tokenizer_forms", tests, make_folder, drop_folder);
}
