// What happens to text before it is merged: cutting, patterns, normalising, characters with bytes as fallback. The ids in tables are those of
// HuggingFace's library, computed once.
#include <time.h>

#include "base/rng.h"
#include "tests/tokenizer_help.h"

#define BYTES "{'type':'ByteLevel','add_prefix_space':false,'trim_offsets':true,'use_regex':false}"
#define THEN(first, second) "{'type':'Sequence','pretokenizers':[" first "," second "]}"
#define SPLIT(pattern, behavior, invert)                                                                                                  \
    THEN("{'type':'Split','pattern':{" pattern "},'behavior':'" behavior "','invert':" invert "}", BYTES)
#define PREFIXED "{'type':'ByteLevel','add_prefix_space':true,'trim_offsets':true"

// ---- pre-tokenizers ----

static void pieces_are_cut_as_the_reference_does(void **state)
{
    (void)state;
    static const char *const merges[][2] = {{"a", "a"}, {"\xC4\xA0", "a"}, {"a", "\xC4\xA0"}, {"a", "1"}, {"1", "1"}, {"1", "a"}, {"a", "-"},
                                            {"-", "a"}, {"\xC4\xA0", "\xC4\xA0"}, {"-", "-"}, {"\xC4\xA0", "1"}, {"\xC4\xA0", "-"}};
    static const struct {
        const char *pre, *text, *ids;
    } cases[] = {
        {SPLIT("'String':'-'", "Isolated", "false"), "a--a -1-a-", "97 45 45 259 45 49 45 97 45"},
        {SPLIT("'String':'-'", "Isolated", "true"), "a--a -1-a-", "97 45 45 259 45 49 45 97 45"},
        {SPLIT("'String':'-'", "Removed", "false"), "a--a -1-a-", "97 259 49 97"},
        {SPLIT("'String':'-'", "Removed", "true"), "a--a -1-a-", "45 45 45 45 45"},
        {SPLIT("'String':'-'", "MergedWithPrevious", "false"), "a--a -1-a-", "263 45 259 45 49 45 263"},
        {SPLIT("'String':'-'", "MergedWithPrevious", "true"), "a--a -1-a-", "97 45 45 259 45 49 264 45"},
        {SPLIT("'String':'-'", "MergedWithNext", "false"), "a--a -1-a-", "97 45 45 259 45 49 264 45"},
        {SPLIT("'String':'-'", "MergedWithNext", "true"), "a--a -1-a-", "263 45 259 45 49 45 263"},
        {SPLIT("'String':'-'", "Contiguous", "false"), "a--a -1-a-", "97 266 259 45 49 45 97 45"},
        {SPLIT("'String':'-'", "Contiguous", "true"), "a--a -1-a-", "97 266 259 45 49 45 97 45"},
        {SPLIT("'Regex':'\\\\d{2}'", "Isolated", "false"), "a11111a1", "97 261 261 49 260"},
        {SPLIT("'Regex':'(?=1)'", "Isolated", "false"), "aa11a1", "257 49 262 49"},
        {SPLIT("'Regex':'1*'", "MergedWithNext", "false"), "aa11a1a", "97 97 261 97 262"},
        {SPLIT("'Regex':'[^\\\\S\\\\n]+|\\\\p{Lu}'", "Isolated", "false"), "a  aAa-1", "97 265 97 65 263 49"},
        {THEN("{'type':'Digits','individual_digits':true}", "{'type':'ByteLevel','add_prefix_space':false}"), "a 11 aa1", "97 32 49 49 32 257 49"},
        {THEN("{'type':'Digits','individual_digits':false}", "{'type':'ByteLevel','add_prefix_space':false}"), "a 11 aa1", "97 32 261 32 257 49"},
        {PREFIXED "}", "aa-", "32 257 45"},
        {PREFIXED "}", " aa<e>aa<e> a", "32 257 269 32 257 269 258"},
        {PREFIXED ",'use_regex':false}", "aa <l> a <r> a<l><r>\t\n a", "32 257 270 258 32 271 258 270 271 258"},
        {BYTES, "a\xC2\xA0\xE3\x80\x80<l>  <r>\xE2\x80\x83<b> \xE2\x80\x8B<b>x", "97 270 265 271 272 226 128 139 272 120"},
    };
    cJSON *json = bare_json();
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        add_merge(json, merges[i][0], merges[i][1]);
    }
    add_special(json, "<e>", 269, false, false, false);
    add_special(json, "<l>", 270, true, false, false);
    add_special(json, "<r>", 271, false, true, false);
    add_special(json, "<b>", 272, true, true, false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_part(json, "pre_tokenizer", cases[i].pre);
        Tokenizer *tokenizer = must_load(json);
        check_encodes(tokenizer, cases[i].pre, cases[i].text, cases[i].ids);
        assert_int_equal(tokenizer_cut(tokenizer, "ab\ncd", 5, 4), 0);
        tokenizer_free(tokenizer);
    }
    cJSON_Delete(json);
}

// A text may be cut in words only where no added token has one with a space, and at line ends only where none has such.
static void added_tokens_keep_texts_whole(void **state)
{
    (void)state;
    static const struct {
        const char *added;
        size_t cut;
    } cases[] = {{"<e>", 2}, {"  ", 2}, {"b c", 0}, {"\r", 0}, {"x\n", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cJSON *json = bare_json();
        add_special(json, cases[i].added, 257, false, false, false);
        set_part(json, "pre_tokenizer", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}");
        Tokenizer *tokenizer = must_load(json);
        assert_int_equal(tokenizer_cut(tokenizer, "ab cd", 5, 4), cases[i].cut);
        assert_int_equal(tokenizer_cut(tokenizer, "ab\ncd", 5, 4), cases[i].cut);
        tokenizer_free(tokenizer);
        cJSON_Delete(json);
    }
}

// The patterns that are matched by hand against PCRE2 with their text, on random text.
static void hand_made_matchers_follow_their_patterns(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        PretokenPattern pattern;
    } cases[] = {{PATTERN_GPT2, PRETOKENIZE_GPT2}, {PATTERN_LLAMA3, PRETOKENIZE_LLAMA3}, {PATTERN_QWEN2, PRETOKENIZE_QWEN2}};
    static const uint32_t some[] = {' ', ' ', '\n', '\r', '\t', '\'', 's', 'T', 'r', 'E', 'l', 'L', 'v', 'd', 'm', 'a', '1', '2', '.', '<', '$',
                                    0x85, 0xA0, 0x17F, 0xE9, 0x301, 0x180E, 0x2028, 0x3000, 0x4E2D, 0xBD, 0x664, 0x1F600, 0x10D70, 0x1E4F0};
    Error error = {0};
    Matcher *matcher = matcher_create(&error);
    assert_non_null(matcher);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        Pattern *pattern = pattern_create(cases[c].source, false, &error);
        Pretokenizer *pretokenizer = pretokenizer_create(cases[c].pattern, &error);
        assert_true(pattern != NULL && pretokenizer != NULL);
        Rng rng;
        rng_seed(&rng, 21, c);
        for (int round = 0; round < 5000; round++) {
            char text[128];
            size_t length = 0, done = 0, start = 0, end = 0, n, wanted = 1 + rng_below(&rng, sizeof text - 4);
            while (length < wanted) {
                length += utf8_put((unsigned char *)text + length, some[rng_below(&rng, sizeof some / sizeof *some)]);
            }
            const char *token;
            pretokenizer_start(pretokenizer, text, length);
            while ((n = pretokenizer_next(pretokenizer, &token)) > 0) {
                assert_int_equal(pattern_find(pattern, matcher, text, length, done, &start, &end, &error), 1);
                assert_int_equal(start, done);
                if (end != done + n) {
                    fail_msg("pattern %zu: %zu bytes in place of %zu at \"%.*s\"", c, n, end - done, (int)(length - done), text + done);
                }
                done = end;
            }
            assert_int_equal(done, length);
        }
        pretokenizer_free(pretokenizer);
        pattern_free(pattern);
    }
    matcher_free(matcher);
}

static void patterns_that_differ_between_programs_are_refused(void **state)
{
    (void)state;
    static const char *const patterns[] = {"a$", "^a", "\\w+", "a\\b", "\\p{L}{1,3}+", "[a[b]]", "[a&&b]", "[^\\P{L}]", "(?P<x>a)", "(?R)", "(*ACCEPT)",
                                           "\\1", "\\h", "(a", "[a", "a\\", "\\p{Nonsense}", "(?m:a)", "\\x{110000}", "\\C"};
    Error error = {0};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        error.text[0] = 0;
        Pattern *pattern = pattern_create(patterns[i], false, &error);
        if (pattern != NULL || strstr(error.text, "the pattern") == NULL) {
            fail_msg("%s: %s", patterns[i], pattern != NULL ? "not refused" : error.text);
        }
    }
    // A match that takes too long is an error, not a wait.
    Pattern *slow = pattern_create("(a+)+b|(a+)+c", false, &error);
    Matcher *matcher = matcher_create(&error);
    char text[101];
    size_t start, end;
    memset(text, 'a', sizeof text);
    assert_true(slow != NULL && matcher != NULL);
    assert_int_equal(pattern_find(slow, matcher, text, sizeof text, 0, &start, &end, &error), -1);
    assert_non_null(strstr(error.text, "pattern"));
    matcher_free(matcher);
    pattern_free(slow);
}

// ---- characters with bytes as fallback ----

// A vocabulary as Llama-2's: three special tokens, the bytes, then the names.
static cJSON *character_json(const char *normalizer, const char *pre_tokenizer, const char *const *names, size_t n_names)
{
    cJSON *json = bare_json(), *model = at(json, "model", NULL), *vocab = cJSON_CreateObject();
    cJSON_AddNumberToObject(vocab, "<unk>", 0);
    cJSON_AddNumberToObject(vocab, "<s>", 1);
    cJSON_AddNumberToObject(vocab, "</s>", 2);
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        cJSON_AddNumberToObject(vocab, name, 3 + byte);
    }
    for (size_t i = 0; i < n_names; i++) {
        cJSON_AddNumberToObject(vocab, names[i], 259 + (double)i);
    }
    cJSON_ReplaceItemInObjectCaseSensitive(model, "vocab", vocab);
    cJSON_ReplaceItemInObjectCaseSensitive(model, "byte_fallback", cJSON_CreateTrue());
    cJSON_ReplaceItemInObjectCaseSensitive(json, "added_tokens", cJSON_CreateArray());
    add_special(json, "<unk>", 0, false, false, false);
    add_special(json, "<s>", 1, false, false, false);
    add_special(json, "</s>", 2, false, false, true);
    set_part(json, "normalizer", normalizer);
    set_part(json, "pre_tokenizer", pre_tokenizer);
    set_part(json, "decoder", "{'type':'Sequence','decoders':[{'type':'Replace','pattern':{'String':'\xE2\x96\x81'},'content':' '},"
                              "{'type':'ByteFallback'},{'type':'Fuse'},{'type':'Strip','content':' ','start':1,'stop':0}]}");
    return json;
}

#define LINE "\xE2\x96\x81"   // U+2581
#define PREPEND "{'type':'Sequence','normalizers':[{'type':'Prepend','prepend':'" LINE "'},{'type':'Replace','pattern':{'String':' '},'content':'" LINE "'}]}"
#define METASPACE(scheme, split) "{'type':'Metaspace','replacement':'" LINE "','prepend_scheme':'" scheme "','split':" split "}"

static const char *const llama_names[] = {LINE, "a", "b", "\xC3\xA9", LINE "a", "ab", LINE "ab", LINE LINE, LINE LINE LINE};

static void add_llama_merges(cJSON *json)
{
    static const char *const merges[][2] = {{LINE, "a"}, {"a", "b"}, {LINE "a", "b"}, {LINE, "ab"}, {LINE, LINE}, {LINE LINE, LINE}};
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        add_merge(json, merges[i][0], merges[i][1]);
    }
}

static void characters_fall_back_to_bytes(void **state)
{
    (void)state;
    static const char *const forms[][2] = {{PREPEND, "null"}, {"null", METASPACE("always", "true")}, {"null", METASPACE("first", "false")},
                                           {"null", METASPACE("never", "false")}, {"{'type':'NFC'}", METASPACE("first", "true")}};
    static const char bytes[] = "\xC3\xA9 e\xCC\x81\n\xE4\xB8\xAD<0x41>";
    static const struct {
        int form;
        const char *text, *ids;
    } cases[] = {
        {0, "ab", "265"}, {0, "  ab  a", "266 265 259 263"}, {0, LINE "ab cab", "259 265 259 102 264"},
        {0, "<s>ab</s> ab <s> a", "1 265 63 50 118 65 265 259 1 259 263"},   // "</s>" is normalised, and looked for as LINE "</s>"
        {0, bytes, "259 262 259 104 207 132 13 231 187 176 63 51 123 55 52 65"}, {0, "   aab   <p>ab", "267 263 264 266 268 264"},
        {1, "ab", "265"}, {1, "  ab  a", "259 265 259 263"}, {1, LINE "ab cab", "265 259 102 264"},
        {1, "<s>ab</s> ab <s> a", "1 265 2 265 259 1 263"}, {1, bytes, "259 262 259 104 207 132 13 231 187 176 63 51 123 55 52 65"},
        {1, "   aab   <p>ab", "259 259 263 264 259 259 259 268 265"},
        {2, "ab", "265"}, {2, "<s>ab</s> ab <s> a", "1 264 2 265 259 1 263"}, {2, "   aab   <p>ab", "266 263 264 267 268 264"},
        {3, "ab", "264"}, {3, "<s>ab</s> ab <s> a", "1 264 2 265 259 1 263"},
        {3, bytes, "262 259 104 207 132 13 231 187 176 63 51 123 55 52 65"},
        {4, bytes, "259 262 259 262 13 231 187 176 63 51 123 55 52 65"}, {4, "   aab   <p>ab", "259 259 263 264 259 259 259 268 264"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const *form = forms[cases[i].form];
        cJSON *json = character_json(form[0], form[1], llama_names, sizeof llama_names / sizeof *llama_names);
        add_llama_merges(json);
        add_special(json, "<p>", 268, false, false, true);
        Tokenizer *tokenizer = must_load(json);
        size_t length = 0;
        // A "normalized" token is looked for with what normalising puts in front of it.
        check_encodes(tokenizer, form[0], cases[i].text, cases[i].ids);
        assert_memory_equal(tokenizer_token(tokenizer, 265, &length), " ab", 3);
        assert_memory_equal(tokenizer_token(tokenizer, 3 + 0xFF, &length), "\xFF", 1);
        assert_int_equal(length, 1);
        assert_int_equal(tokenizer_end_of_text(tokenizer), 2);
        assert_int_equal(tokenizer_strips_first_space(tokenizer), 1);
        assert_int_equal(tokenizer_cut(tokenizer, "ab\ncd", 5, 4), 0);
        tokenizer_free(tokenizer);
        cJSON_Delete(json);
    }
    Error error = {0};
    cJSON *json = character_json(PREPEND, "null", llama_names, 1);
    cJSON_DeleteItemFromObjectCaseSensitive(at(json, "model", "vocab"), "<0x7F>");
    assert_null(load_json(json, &error));
    assert_non_null(strstr(error.text, "<0x7F>"));
    cJSON_ReplaceItemInObjectCaseSensitive(at(json, "model", NULL), "byte_fallback", cJSON_CreateFalse());
    assert_null(load_json(json, &error));
    assert_non_null(strstr(error.text, "byte_fallback"));
    cJSON_Delete(json);
}

static void long_texts_take_linear_time(void **state)
{
    (void)state;
    enum { SIZE = 1000000 };
    cJSON *json = character_json(PREPEND, "null", llama_names, sizeof llama_names / sizeof *llama_names);
    add_llama_merges(json);
    Tokenizer *tokenizer = must_load(json);
    static const char *const texts[] = {"a", " ", "ab", "\xE4\xB8\xAD", "\xFF", "ab \n"};
    char *text = malloc(SIZE);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t n = strlen(texts[i]);
        for (size_t k = 0; k < SIZE; k++) {
            text[k] = texts[i][k % n];
        }
        clock_t start = clock();
        TokenList list = encode_all(tokenizer, text, SIZE - SIZE % n);
        assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 8);
        assert_true(list.count > SIZE / 4);
        token_list_free(&list);
    }
    free(text);
    tokenizer_free(tokenizer);
    cJSON_Delete(json);
}

// A text that is one run, longer than what is merged at once: its parts end in front of words, wherever the bytes fall.
static void long_texts_without_words(void **state)
{
    (void)state;
    enum { WORDS = 1000000 };   // of five bytes each, with the space of three
    cJSON *json = character_json(PREPEND, "null", llama_names, sizeof llama_names / sizeof *llama_names);
    add_llama_merges(json);
    Tokenizer *tokenizer = must_load(json);
    char *text = malloc(3 * WORDS);
    assert_non_null(text);
    for (size_t i = 0; i < WORDS; i++) {
        memcpy(text + 3 * i, "ab ", 3);
    }
    TokenList list = encode_all(tokenizer, text, 3 * WORDS - 1);
    assert_int_equal(list.count, WORDS);
    for (size_t i = 0; i < list.count; i++) {
        assert_int_equal(list.ids[i], 265);
    }
    token_list_free(&list);
    free(text);
    tokenizer_free(tokenizer);
    cJSON_Delete(json);
}

// ---- NFC ----

static void text_is_composed(void **state)
{
    (void)state;
    static const Edit nfc = {.kind = EDIT_NFC};
    static const char *const cases[][2] = {
        {"plain", "plain"},
        {"e\xCC\x81z\xC3\xA9", "\xC3\xA9z\xC3\xA9"},
        {"\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "\xED\x95\x9C"},                    // Hangul
        {"\xEA\xB0\x80\xE1\x86\xA7", "\xEA\xB0\x80\xE1\x86\xA7"},                    // U+11A7 is no final consonant
        {"\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA7\xE1\x86\xA8", "\xEA\xB0\x80\xE1\x86\xA7\xE1\x86\xA8"},
        {"a\xCC\x95\xCC\x96\xCC\x81", "\xC3\xA1\xCC\x96\xCC\x95"},                    // U+0315 U+0316 U+0301 in the order of their classes
        {"\xE2\x84\xAB \xE2\x84\xA6", "\xC3\x85 \xCE\xA9"},                           // U+212B, U+2126: singletons
        {"\xCC\x81\xCC\x96x", "\xCC\x96\xCC\x81x"},                                   // marks without a letter
        {"e\xFF\xCC\x81" "e\xCC\x81\xC3", "e\xFF\xCC\x81\xC3\xA9\xC3"},               // around invalid bytes
        {"x\xDF\xBD\xCC\xB4", "x\xDF\xBD\xCC\xB4"},                                   // U+07FD is a mark since Unicode 11 only
        {"\xE0\xA4\xA8\xE0\xA4\xBC", "\xE0\xA4\xA9"},                                 // Devanagari
        {"", ""},
    };
    Error error = {0};
    Normalizer *normalizer = normalizer_create(&error);
    assert_non_null(normalizer);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text = cases[i][0];
        size_t length = strlen(text);
        assert_int_equal(normalizer_apply(normalizer, &nfc, 1, true, &text, &length, &error), 0);
        if (length != strlen(cases[i][1]) || memcmp(text, cases[i][1], length) != 0) {
            fail_msg("case %zu: %.*s", i, (int)length, text);
        }
    }
    // A pile of marks in the worst order takes linear time, and keeps those of one class in order.
    enum { PILE = 200000 };
    char *pile = malloc(1 + 4 * PILE);
    assert_non_null(pile);
    pile[0] = 'q';
    for (size_t i = 0; i < PILE; i++) {
        memcpy(pile + 1 + 4 * i, i % 2 == 0 ? "\xCC\x81\xCC\x96" : "\xCC\x80\xCC\x97", 4);
    }
    const char *text = pile;
    size_t length = 1 + 4 * (size_t)PILE;
    clock_t start = clock();
    assert_int_equal(normalizer_apply(normalizer, &nfc, 1, true, &text, &length, &error), 0);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 5);
    assert_int_equal(length, 1 + 4 * PILE);
    assert_memory_equal(text + 1, "\xCC\x96\xCC\x97\xCC\x96\xCC\x97", 8);
    assert_memory_equal(text + length - 4, "\xCC\x81\xCC\x80", 4);
    free(pile);
    normalizer_free(normalizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_cut_as_the_reference_does),
        cmocka_unit_test(added_tokens_keep_texts_whole), cmocka_unit_test(hand_made_matchers_follow_their_patterns),
        cmocka_unit_test(patterns_that_differ_between_programs_are_refused),
        cmocka_unit_test(characters_fall_back_to_bytes),
        cmocka_unit_test(long_texts_without_words),
        cmocka_unit_test(long_texts_take_linear_time),
        cmocka_unit_test(text_is_composed),
    };
    return cmocka_run_group_tests_name("tokenizer_text", tests, make_folder, drop_folder);
}
