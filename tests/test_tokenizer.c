// tokenizer/: pre-tokens against PCRE2 with the whole pattern, merging against a plain loop, ids of the reference.
#include <time.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/rng.h"
#include "tests/tokenizer_help.h"
#include "tokenizer/merge.h"
#include "tokenizer/pretokenize.h"

static TokenList encode(const Tokenizer *tokenizer, const char *text, size_t length, int specials)
{
    Error error = {0};
    TokenList list = {0};
    Encoder *encoder = encoder_create(tokenizer, &error);
    assert_non_null(encoder);
    assert_int_equal(encoder_encode(encoder, &list, text, length, specials, &error), 0);
    encoder_free(encoder);
    return list;
}

static void check_ids(const char *what, const TokenList *list, const int32_t *expected, size_t count)
{
    for (size_t i = 0; i < count && i < list->count; i++) {
        if (list->ids[i] != expected[i]) {
            fail_msg("%s: id %zu is %d, expected %d", what, i, (int)list->ids[i], (int)expected[i]);
        }
    }
    if (list->count != count) {
        fail_msg("%s: %zu ids, expected %zu", what, list->count, count);
    }
}

static void check_decodes(const Tokenizer *tokenizer, const TokenList *list, const char *text, size_t length)
{
    size_t done = 0, n = 0;
    for (size_t i = 0; i < list->count; i++) {
        const char *token = tokenizer_token(tokenizer, list->ids[i], &n);
        assert_non_null(token);
        assert_true(n > 0 && n <= length - done);
        assert_memory_equal(token, text + done, n);
        done += n;
    }
    assert_int_equal(done, length);
}

static size_t put_character(char *out, uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, code >>= 6) {
        out[i] = (char)(0x80 | (code & 63));
    }
    out[0] = (char)((0xF00 >> length) | code);
    return length;
}

// Random text of up to `size` bytes: words, white space of all kinds, any characters, and with `broken` bytes that are no UTF-8.
static size_t random_text(Rng *rng, char *out, size_t size, bool broken)
{
    static const uint32_t some[] = {' ', ' ', ' ', '\n', '\t', '\r', '\'', '\'', 's', 't', 'r', 'e', 'v', 'm', 'l', 'd',
                                    'a', 'Z', '0', '9', '.', '<', 0, 0x1C, 0x7F, 0x85, 0xA0, 0x1680, 0x180E, 0x2003, 0x200B,
                                    0x2028, 0x2029, 0x202F, 0x3000, 0xFEFF, 0xE9, 0x301, 0x4E2D, 0xBD, 0x664, 0x1F600, 0x1F3FD,
                                    0x31350, 0x1E4F0, 0x10FFFF, 0x17F};
    size_t length = 0;
    while (length + 4 <= size) {
        uint64_t kind = rng_below(rng, 16);
        if (kind == 0 && broken) {
            out[length++] = (char)rng_below(rng, 256);
        } else if (kind <= 1) {
            uint32_t code = (uint32_t)rng_below(rng, rng_below(rng, 2) ? 0x110000 : 0x3000);
            length += put_character(out + length, code >= 0xD800 && code < 0xE000 ? 'x' : code);
        } else {
            length += put_character(out + length, some[rng_below(rng, kind < 10 ? sizeof some / sizeof *some : 16)]);
        }
    }
    return length;
}

// ---- pre-tokens ----

// Checks the pre-tokens of text against the whole pattern, matched by PCRE2. Text must be valid UTF-8.
static void check_against_pattern(Pretokenizer *pretokenizer, pcre2_code *pattern, pcre2_match_data *match, const char *text, size_t length)
{
    const char *token;
    size_t done = 0, n;
    pretokenizer_start(pretokenizer, text, length);
    while (done < length) {
        int groups = pcre2_match(pattern, (PCRE2_SPTR)text, length, done, PCRE2_ANCHORED, match, NULL);
        assert_true(groups > 0);
        size_t expected = pcre2_get_ovector_pointer(match)[1] - done;
        n = pretokenizer_next(pretokenizer, &token);
        assert_ptr_equal(token, text + done);
        if (n != expected) {
            fail_msg("pre-token of %zu bytes, expected %zu, before \"%.40s\"", n, expected, text + done);
        }
        done += n;
    }
    assert_int_equal(pretokenizer_next(pretokenizer, &token), 0);
}

static void pretokens_match_the_pattern(void **state)
{
    (void)state;
    static const char source[] = "'s|'t|'re|'ve|'m|'ll|'d| ?[" CHARACTERS_LETTERS "]+| ?[" CHARACTERS_NUMBERS "]+| ?[^" CHARACTERS_SPACES
                                 CHARACTERS_LETTERS CHARACTERS_NUMBERS "]+|[" CHARACTERS_SPACES "]+(?![^" CHARACTERS_SPACES "])|["
                                 CHARACTERS_SPACES "]+";
    Error error = {0};
    int code;
    PCRE2_SIZE offset;
    pcre2_code *pattern = pcre2_compile((PCRE2_SPTR)source, sizeof source - 1, PCRE2_UTF | PCRE2_UCP, &code, &offset, NULL);
    assert_non_null(pattern);
    pcre2_match_data *match = pcre2_match_data_create(4, NULL);
    Pretokenizer *pretokenizer = pretokenizer_create(PRETOKENIZE_GPT2, &error);
    assert_non_null(pretokenizer);
    Rng rng;
    rng_seed(&rng, 7, 0);
    for (int round = 0; round < 4000; round++) {
        char text[256];
        size_t length = random_text(&rng, text, 1 + rng_below(&rng, sizeof text), false);
        assert_int_equal(utf8_valid_length(text, length), length);
        check_against_pattern(pretokenizer, pattern, match, text, length);
    }
    pretokenizer_free(pretokenizer);
    pcre2_match_data_free(match);
    pcre2_code_free(pattern);
}

static void pretokens_of_examples(void **state)
{
    (void)state;
    // Text, and the same with '|' between its pre-tokens.
    static const char *const examples[] = {
        "Hello  world", "Hello| | world",
        "it's we'll 'twas 'dx I'M", "it|'s| we|'ll| '|twas| '|dx| I|'|M",
        "a \n b\n\n", "a| \n| b|\n\n",
        "x\t\ty \tz", "x|\t|\t|y| |\t|z",
        "12ab 3.5", "12|ab| 3|.|5",
        "a\xE2\x80\xA9\xE2\x80\xA9" "b", "a|\xE2\x80\xA9|\xE2\x80\xA9|b",          // U+2029 is white space
        "a\xE1\xA0\x8E" "b", "a|\xE1\xA0\x8E|b",                                    // U+180E is not
        " \xC3\xA9t\xC3\xA9 \xC2\xBD", " \xC3\xA9t\xC3\xA9| \xC2\xBD",              // letters and a number beyond ASCII
        "e\xCC\x81", "e|\xCC\x81",                                                   // a combining accent is no letter
        "a\xF0\xB1\x8D\x90", "a\xF0\xB1\x8D\x90",                                   // U+31350, a letter since Unicode 15
        "a \x80\xFF b", "a| |\x80\xFF| b",                                           // invalid bytes stand alone
        "\xC3", "\xC3", "x\xE2\x82", "x|\xE2\x82", "\xED\xA0\x80z", "\xED\xA0\x80|z",
    };
    Error error = {0};
    Pretokenizer *pretokenizer = pretokenizer_create(PRETOKENIZE_GPT2, &error);
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i += 2) {
        char joined[256];
        size_t used = 0, n;
        const char *token;
        pretokenizer_start(pretokenizer, examples[i], strlen(examples[i]));
        while ((n = pretokenizer_next(pretokenizer, &token)) > 0) {
            used += (size_t)snprintf(joined + used, sizeof joined - used, "%s%.*s", used > 0 ? "|" : "", (int)n, token);
        }
        assert_string_equal(joined, examples[i + 1]);
    }
    pretokenizer_start(pretokenizer, NULL, 0);
    const char *token;
    assert_int_equal(pretokenizer_next(pretokenizer, &token), 0);
    pretokenizer_free(pretokenizer);
}

static void check_cuts(PretokenPattern pattern)
{
    Error error = {0};
    Pretokenizer *whole = pretokenizer_create(pattern, &error), *part = pretokenizer_create(pattern, &error);
    Rng rng;
    rng_seed(&rng, 8, 0);
    size_t cuts = 0;
    for (int round = 0; round < 2000; round++) {
        char text[200];
        const char *expected, *token;
        size_t length = random_text(&rng, text, sizeof text, true), cut = pretokenize_cut(text, length, rng_below(&rng, length)), n, m;
        cuts += cut > 0;
        pretokenizer_start(whole, text, length);
        pretokenizer_start(part, text, cut);
        while ((n = pretokenizer_next(whole, &expected)) > 0) {
            m = pretokenizer_next(part, &token);
            if (m == 0) {
                pretokenizer_start(part, text + cut, length - cut);
                m = pretokenizer_next(part, &token);
            }
            assert_ptr_equal(token, expected);
            assert_int_equal(m, n);
        }
    }
    assert_in_range(cuts, 1000, 2000);
    pretokenizer_free(whole);
    pretokenizer_free(part);
}

static void cuts_keep_the_pretokens(void **state)
{
    (void)state;
    check_cuts(PRETOKENIZE_GPT2);
    check_cuts(PRETOKENIZE_LLAMA3);
    check_cuts(PRETOKENIZE_QWEN2);
    assert_int_equal(pretokenize_cut("ab\ncd\nef", 8, 4), 2);
    assert_int_equal(pretokenize_cut("abcd\nef", 7, 1), 4);
    assert_int_equal(pretokenize_cut("ab9\r\ncd", 7, 6), 3);
    assert_int_equal(pretokenize_cut("ab cd ef", 8, 4), 2);
    assert_int_equal(pretokenize_cut("ab 9 cd, ef  gh ", 16, 15), 0);
    assert_int_equal(pretokenize_cut("ab \n\ncd", 7, 6), 0);
    assert_int_equal(pretokenize_cut("a\n", 2, 2), 0);
    assert_int_equal(pretokenize_cut("", 0, 6), 0);
}

// ---- encoding ----

static void ids_of_a_small_tokenizer(void **state)
{
    (void)state;
    Tokenizer *tokenizer = train(prose, 300);
    static const char text[] = "it was the best of wisdom\n  us na\xC3\xAFve<|endoftext|>";
    // The same ids come from HuggingFace's library with the file that is saved here.
    static const int32_t plain[] = {261, 262, 263, 268, 266, 116, 264, 256, 292, 100, 111, 109, 10, 32, 280, 115, 271, 286, 175, 275,
                                    60, 124, 101, 110, 100, 111, 102, 116, 101, 120, 116, 124, 62};
    assert_int_equal(tokenizer_vocab_size(tokenizer), 300);
    TokenList list = encode(tokenizer, text, sizeof text - 1, 0);
    check_ids("plain", &list, plain, sizeof plain / sizeof *plain);
    token_list_free(&list);
    list = encode(tokenizer, text, sizeof text - 1, 1);
    assert_int_equal(list.count, 21);
    assert_memory_equal(list.ids, plain, 20 * sizeof *plain);
    assert_int_equal(list.ids[20], 299);
    token_list_free(&list);
    tokenizer_free(tokenizer);
}

static void any_bytes_come_back(void **state)
{
    (void)state;
    Error error = {0};
    Tokenizer *tokenizer = train(prose, 400);
    Encoder *encoder = encoder_create(tokenizer, &error);
    Rng rng;
    rng_seed(&rng, 3, 0);
    TokenList list = {0};
    for (int round = 0; round < 1000; round++) {
        char text[600];
        size_t length = 0;
        if (round % 2 == 0) {
            length = random_text(&rng, text, sizeof text, true);
        } else {
            for (; length < rng_below(&rng, sizeof text); length++) {
                text[length] = (char)rng_next(&rng);
            }
        }
        list.count = 0;
        assert_int_equal(encoder_encode(encoder, &list, text, length, 1, &error), 0);
        check_decodes(tokenizer, &list, text, length);
        // A used cache gives what a fresh one gives.
        TokenList fresh = encode(tokenizer, text, length, 1);
        check_ids("fresh encoder", &list, fresh.ids, fresh.count);
        token_list_free(&fresh);
    }
    list.count = 0;
    assert_int_equal(encoder_encode(encoder, &list, "", 0, 1, &error), 0);
    assert_int_equal(encoder_encode(encoder, &list, NULL, 0, 0, &error), 0);
    assert_int_equal(list.count, 0);
    size_t length;
    assert_null(tokenizer_token(tokenizer, -1, &length));
    assert_null(tokenizer_token(tokenizer, (int32_t)tokenizer_vocab_size(tokenizer), &length));
    token_list_free(&list);
    encoder_free(encoder);
    tokenizer_free(tokenizer);
}

// Merges by the definition: the smallest rank first, the leftmost of equals, one at a time.
static size_t merge_plainly(const Tokenizer *t, int32_t *ids, size_t n)
{
    for (;;) {
        size_t best = t->n_merges, place = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            for (size_t rank = 0; rank < best; rank++) {
                if (t->merges[rank].left == ids[i] && t->merges[rank].right == ids[i + 1]) {
                    best = rank;
                    place = i;
                }
            }
        }
        if (best == t->n_merges) {
            return n;
        }
        ids[place] = t->merges[best].result;
        n--;
        memmove(ids + place + 1, ids + place + 2, (n - place - 1) * sizeof *ids);
    }
}

// A tokenizer with random merges of a and b, in an order that no training would give.
static Tokenizer *random_merges(Rng *rng)
{
    enum { N_TOKENS = 26, LONGEST = 60 };
    Error error = {0};
    cJSON *json = bare_json();
    char tokens[N_TOKENS][2 * LONGEST + 2] = {"a", "b"};
    size_t pairs[N_TOKENS][2], n_pairs = 0;
    while (n_pairs + 2 < N_TOKENS) {
        size_t left = rng_below(rng, n_pairs + 2), right = rng_below(rng, n_pairs + 2);
        bool known = strlen(tokens[left]) + strlen(tokens[right]) > LONGEST;
        for (size_t i = 0; i < n_pairs; i++) {
            known |= strcmp(tokens[pairs[i][0]], tokens[left]) == 0 && strcmp(tokens[pairs[i][1]], tokens[right]) == 0;
        }
        if (!known) {
            char joined[2 * LONGEST + 2];
            snprintf(joined, sizeof joined, "%.60s%.60s", tokens[left], tokens[right]);
            memcpy(tokens[n_pairs + 2], joined, sizeof joined);
            add_merge(json, tokens[left], tokens[right]);
            pairs[n_pairs][0] = left;
            pairs[n_pairs++][1] = right;
        }
    }
    cJSON_ReplaceItemInObjectCaseSensitive(at(json, "model", NULL), "merges", cJSON_CreateArray());
    while (n_pairs > 0) {
        size_t i = rng_below(rng, n_pairs--);
        add_merge(json, tokens[pairs[i][0]], tokens[pairs[i][1]]);
        memcpy(pairs[i], pairs[n_pairs], sizeof pairs[i]);
    }
    Tokenizer *tokenizer = load_json(json, &error);
    if (tokenizer == NULL) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(tokenizer->n_merges, N_TOKENS - 2);
    cJSON_Delete(json);
    return tokenizer;
}

static void merging_follows_the_ranks(void **state)
{
    (void)state;
    Rng rng;
    rng_seed(&rng, 11, 0);
    for (int round = 0; round < 60; round++) {
        Tokenizer *tokenizer = random_merges(&rng);
        for (int k = 0; k < 12; k++) {
            char text[400];
            int32_t ids[400];
            size_t length = 1 + rng_below(&rng, k % 2 ? 20 : sizeof text);   // both ways of merging
            for (size_t i = 0; i < length; i++) {
                text[i] = rng_below(&rng, 4) ? 'a' : 'b';
                ids[i] = tokenizer->byte_ids[(unsigned char)text[i]];
            }
            size_t count = merge_plainly(tokenizer, ids, length);
            TokenList list = encode(tokenizer, text, length, 0);
            check_ids("random merges", &list, ids, count);
            token_list_free(&list);
        }
        tokenizer_free(tokenizer);
    }
}

static void long_runs_are_quick(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__clang__)   // clang 14 does not say whether it sanitizes
    enum { SIZE = 1000000, SECONDS = 10 };
#else
    enum { SIZE = 1000000, SECONDS = 1 };
#endif
    Error error = {0};
    cJSON *json = bare_json();
    add_merge(json, "a", "a");
    add_merge(json, "aa", "aa");
    add_merge(json, "aaaa", "aaaa");
    Tokenizer *tokenizer = load_json(json, &error);
    assert_non_null(tokenizer);
    int32_t result = tokenizer->merges[2].result;
    char *text = malloc(SIZE);
    assert_non_null(text);
    static const char runs[] = {'a', ' ', '\xFF', '=', '\n'};
    for (size_t r = 0; r < sizeof runs; r++) {
        memset(text, runs[r], SIZE);
        clock_t start = clock();
        TokenList list = encode(tokenizer, text, SIZE, 1);
        assert_true((double)(clock() - start) / CLOCKS_PER_SEC < SECONDS);
        assert_int_equal(list.count, runs[r] == 'a' ? SIZE / 8 : SIZE);
        assert_int_equal(list.ids[SIZE / 8 - 1], runs[r] == 'a' ? result : tokenizer->byte_ids[(unsigned char)runs[r]]);
        token_list_free(&list);
    }
    free(text);
    // Longer than what is merged at once: these parts end where a token does.
    size_t size = 2 * MERGER_MAX_LENGTH + 800;
    text = malloc(size);
    assert_non_null(text);
    memset(text, 'a', size);
    TokenList list = encode(tokenizer, text, size, 1);
    assert_int_equal(list.count, size / 8);
    for (size_t i = 0; i < list.count; i++) {
        assert_int_equal(list.ids[i], result);
    }
    token_list_free(&list);
    free(text);
    tokenizer_free(tokenizer);
    cJSON_Delete(json);
}

static void add_token(cJSON *json, const char *content, int id, bool special, bool normalized)
{
    cJSON *token = cJSON_CreateObject();
    cJSON_AddNumberToObject(token, "id", id);
    cJSON_AddStringToObject(token, "content", content);
    cJSON_AddBoolToObject(token, "normalized", normalized);
    cJSON_AddBoolToObject(token, "special", special);
    cJSON_AddItemToArray(at(json, "added_tokens", NULL), token);
}

static void added_tokens_are_found(void **state)
{
    (void)state;
    Error error = {0};
    cJSON *json = bare_json();
    add_token(json, "<|end|>", 257, true, false);
    add_token(json, "<|end|>x", 258, true, false);     // the longest of those at one place
    add_token(json, "\xE2\x82\xAC \n", 259, false, false);   // not special: always found
    add_token(json, "y<|e", 260, true, true);          // after those that are not normalized
    Tokenizer *tokenizer = load_json(json, &error);
    if (tokenizer == NULL) {
        fail_msg("%s", error.text);
    }
    static const char text[] = "<|end|>x<|end|><|endoftext|>\xE2\x82\xAC \nzy<|end|>y<|e";
    static const int32_t with[] = {258, 257, 256, 259, 'z', 'y', 257, 260};
    TokenList list = encode(tokenizer, text, sizeof text - 1, 1);
    check_ids("with specials", &list, with, sizeof with / sizeof *with);
    check_decodes(tokenizer, &list, text, sizeof text - 1);
    token_list_free(&list);
    list = encode(tokenizer, text, sizeof text - 1, 0);
    assert_int_equal(list.count, sizeof text - 1 - 5 + 1);
    check_decodes(tokenizer, &list, text, sizeof text - 1);
    token_list_free(&list);
    // What is saved is what was loaded.
    uint32_t hash = tokenizer_hash(tokenizer);
    assert_int_equal(tokenizer_save(tokenizer, file, &error), 0);
    tokenizer_free(tokenizer);
    tokenizer = tokenizer_load(file, &error);
    assert_non_null(tokenizer);
    assert_int_equal(tokenizer_hash(tokenizer), hash);
    list = encode(tokenizer, text, sizeof text - 1, 1);
    check_ids("saved and loaded", &list, with, sizeof with / sizeof *with);
    token_list_free(&list);
    tokenizer_free(tokenizer);
    cJSON_Delete(json);
}

// ---- the reference's ids ----

static void ids_equal_the_reference(void **state)
{
    (void)state;
    static const char tokenizer_path[] = "../shared/tokenizers/gpt2/tokenizer.json";
    static const char expected_path[] = "../shared/tokenizers/EXPECTED.json";
    if (!file_exists(tokenizer_path) || !file_exists(expected_path)) {
        print_message("skipped: there are no %s and %s with ids of the reference\n", tokenizer_path, expected_path);
        skip();
    }
    Error error = {0};
    Tokenizer *tokenizer = tokenizer_load(tokenizer_path, &error);
    cJSON *expected = json_read_file(expected_path, 1 << 28, &error);
    if (tokenizer == NULL || expected == NULL) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(tokenizer_vocab_size(tokenizer), 50257);
    assert_int_equal(tokenizer_end_of_text(tokenizer), 50256);
    const cJSON *text = at(expected, "strings", NULL)->child;
    const cJSON *ids = at(expected, "ids", "gpt2")->child, *plain = at(expected, "tiktoken_gpt2", NULL)->child;
    size_t strings = 0;
    for (; text != NULL; text = text->next, ids = ids->next, plain = plain->next, strings++) {
        const cJSON *lists[2] = {plain, ids};   // without and with special tokens
        for (int specials = 0; specials < 2; specials++) {
            TokenList list = encode(tokenizer, text->valuestring, strlen(text->valuestring), specials);
            int32_t *numbers = calloc((size_t)cJSON_GetArraySize(lists[specials]) + 1, sizeof *numbers);
            size_t count = 0;
            const cJSON *id;
            cJSON_ArrayForEach(id, lists[specials]) {
                numbers[count++] = (int32_t)id->valuedouble;
            }
            check_ids(text->valuestring, &list, numbers, count);
            check_decodes(tokenizer, &list, text->valuestring, strlen(text->valuestring));
            free(numbers);
            token_list_free(&list);
        }
    }
    assert_true(strings >= 80);
    tokenizer_free(tokenizer);
    cJSON_Delete(expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pretokens_match_the_pattern),   cmocka_unit_test(pretokens_of_examples),
        cmocka_unit_test(cuts_keep_the_pretokens),       cmocka_unit_test(ids_of_a_small_tokenizer),
        cmocka_unit_test(any_bytes_come_back),           cmocka_unit_test(merging_follows_the_ranks),
        cmocka_unit_test(long_runs_are_quick),           cmocka_unit_test(added_tokens_are_found),
        cmocka_unit_test(ids_equal_the_reference),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, make_folder, drop_folder);
}
