// tokenizer/: pre-tokens against PCRE2 with the whole pattern, merging against a plain loop, files, ids of the reference.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/json.h"
#include "base/file.h"
#include "base/rng.h"
#include "tokenizer/bpe.h"
#include "tokenizer/bpe_internal.h"
#include "tokenizer/bpe_train.h"
#include "tokenizer/pretokenize.h"

static char folder[256], file[300];

static int make_folder(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/lattice-tokenizer-XXXXXX", base != NULL ? base : "/tmp");
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    snprintf(file, sizeof file, "%s/tokenizer.json", folder);
    return 0;
}

static int drop_folder(void **state)
{
    (void)state;
    Error error;
    return folder_remove(folder, &error);
}

// ---- what the tests make ----

static Tokenizer *train(const char *text, size_t vocab_size)
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

static cJSON *to_json(const Tokenizer *tokenizer)
{
    Error error = {0};
    assert_int_equal(tokenizer_save(tokenizer, file, &error), 0);
    cJSON *json = json_read_file(file, 1 << 28, &error);
    assert_non_null(json);
    return json;
}

static Tokenizer *load_json(const cJSON *json, Error *error)
{
    assert_int_equal(json_write_file(file, json, false, error), 0);
    return tokenizer_load(file, error);
}

// A file of the 256 bytes, <|endoftext|> and no merges.
static cJSON *bare_json(void)
{
    Tokenizer *bare = train("", BPE_TRAINER_MIN_VOCAB);
    cJSON *json = to_json(bare);
    tokenizer_free(bare);
    return json;
}

static cJSON *at(cJSON *json, const char *first, const char *second)
{
    cJSON *item = cJSON_GetObjectItemCaseSensitive(json, first);
    return second != NULL ? cJSON_GetObjectItemCaseSensitive(item, second) : item;
}

// Adds a merge of two tokens written in visible ASCII, and its result if the vocabulary has none.
static void add_merge(cJSON *json, const char *left, const char *right)
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

static const char prose[] =
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, it was the epoch of belief,\n"
    "it was the epoch of incredulity, it was the season of Light, it was the season of Darkness, it was the spring of hope, it was the winter of\n"
    "despair. We had everything before us, we had nothing before us; na\xC3\xAFve na\xC3\xAFve caf\xC3\xA9 caf\xC3\xA9 1859 1859 \xE2\x80\x94 \xE2\x80\x94\n";

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
    static const uint32_t some[] = {' ', ' ', ' ', '\n', '\t', '\r', '\'', '\'', 's', 't', 'r', 'e', 'v', 'm', 'l', 'd', 'a', 'Z', '0', '9', '.', '<', 0, 0x1C, 0x7F,
                                    0x85, 0xA0, 0x1680, 0x180E, 0x2003, 0x200B, 0x2028, 0x2029, 0x202F, 0x3000, 0xFEFF, 0xE9, 0x301, 0x4E2D, 0xBD, 0x664,
                                    0x1F600, 0x1F3FD, 0x31350, 0x1E4F0, 0x10FFFF, 0x17F};
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
    static const char source[] = "'s|'t|'re|'ve|'m|'ll|'d| ?[" PRETOKENIZE_LETTERS "]+| ?[" PRETOKENIZE_NUMBERS "]+| ?[^" PRETOKENIZE_SPACES
                                 PRETOKENIZE_LETTERS PRETOKENIZE_NUMBERS "]+|[" PRETOKENIZE_SPACES "]+(?![^" PRETOKENIZE_SPACES "])|["
                                 PRETOKENIZE_SPACES "]+";
    Error error = {0};
    int code;
    PCRE2_SIZE offset;
    pcre2_code *pattern = pcre2_compile((PCRE2_SPTR)source, sizeof source - 1, PCRE2_UTF | PCRE2_UCP, &code, &offset, NULL);
    assert_non_null(pattern);
    pcre2_match_data *match = pcre2_match_data_create(4, NULL);
    Pretokenizer *pretokenizer = pretokenizer_create(&error);
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
    Pretokenizer *pretokenizer = pretokenizer_create(&error);
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

static void cuts_keep_the_pretokens(void **state)
{
    (void)state;
    Error error = {0};
    Pretokenizer *whole = pretokenizer_create(&error), *part = pretokenizer_create(&error);
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
    assert_int_equal(pretokenize_cut("ab\ncd\nef", 8, 4), 2);
    assert_int_equal(pretokenize_cut("abcd\nef", 7, 1), 4);
    assert_int_equal(pretokenize_cut("ab \n\ncd", 7, 6), 0);
    assert_int_equal(pretokenize_cut("", 0, 6), 0);
    pretokenizer_free(whole);
    pretokenizer_free(part);
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
#if defined(__SANITIZE_ADDRESS__)
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

// ---- files ----

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
        {"\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}", "normalizer"},
        {"\"pre_tokenizer\":{\"type\":\"ByteLevel\"", "\"pre_tokenizer\":{\"type\":\"Whitespace\"", "pre_tokenizer"},
        {"\"pre_tokenizer\":{", "\"x\":{", "\"x\""},
        {"\"add_prefix_space\":false", "\"add_prefix_space\":true", "add_prefix_space"},
        {"\"add_prefix_space\":false,", "", "add_prefix_space"},
        {"\"use_regex\":true", "\"use_regex\":false", "use_regex"},
        {"\"use_regex\":true", "\"use_regex\":3", "use_regex"},
        {"\"post_processor\":{\"type\":\"ByteLevel\"", "\"post_processor\":{\"type\":\"TemplateProcessing\"", "post_processor"},
        {"\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"Fuse\"", "decoder"},
        {"\"type\":\"BPE\"", "\"type\":\"WordPiece\"", "BPE"},
        {"\"dropout\":null", "\"dropout\":0.1", "dropout"},
        {"\"byte_fallback\":false", "\"byte_fallback\":true", "byte_fallback"},
        {"\"byte_fallback\":false", "\"ignore_merges\":true", "ignore_merges"},
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
        {"\"a\":97,", "", "whole number from 0 to 256"},
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
        {"\"lstrip\":false", "\"lstrip\":true", "lstrip"},
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

// ---- the reference's ids ----

static void ids_equal_the_reference(void **state)
{
    (void)state;
    static const char tokenizer_path[] = "../shared/tokenizers/gpt2/tokenizer.json", expected_path[] = "../shared/tokenizers/EXPECTED.json";
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
    const cJSON *text = at(expected, "strings", NULL)->child, *ids = at(expected, "ids", "gpt2")->child, *plain = at(expected, "tiktoken_gpt2", NULL)->child;
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
        cmocka_unit_test(merges_are_read_in_both_forms), cmocka_unit_test(hash_tells_every_merge),
        cmocka_unit_test(hostile_files_are_refused),     cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(ids_equal_the_reference),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, make_folder, drop_folder);
}
