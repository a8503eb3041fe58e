// Stories of the quickstart corpus: the same bytes everywhere, correct English as far as a program can tell, endings that agree with
// their beginnings.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "data/story.h"

enum { STORIES = 3000, MAX_WORDS = 4096 };

static void same_bytes_for_a_seed(void **state)
{
    (void)state;
    static Story story;
    XXH3_state_t *hash = XXH3_createState();
    XXH3_64bits_reset(hash);
    for (uint64_t i = 0; i < 200; i++) {
        story_tell(&story, 1, i);
        XXH3_64bits_update(hash, story.text, story.length);
    }
    uint64_t value = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    if (value != UINT64_C(0x0dfbb2caa65375bd)) {
        fail_msg("the stories of seed 1 have the hash 0x%016llx", (unsigned long long)value);
    }
}

static void stories_differ(void **state)
{
    (void)state;
    static Story a, b;
    static uint64_t hashes[STORIES];
    for (uint64_t i = 0; i < STORIES; i++) {
        story_tell(&a, 1, i);
        hashes[i] = XXH3_64bits(a.text, a.length);
        for (uint64_t j = 0; j < i; j++) {
            assert_true(hashes[j] != hashes[i]);
        }
    }
    story_tell(&a, 1, 0);
    story_tell(&b, 2, 0);
    assert_string_not_equal(a.text, b.text);
    story_tell(&b, 1, 0);
    assert_string_equal(a.text, b.text);
}

static size_t count_words(const char *text)
{
    size_t words = 0;
    for (const char *p = text; *p != 0; p++) {
        words += !isspace((unsigned char)*p) && (p == text || isspace((unsigned char)p[-1]));
    }
    return words;
}

static void check_paragraph(const char *text, size_t length)
{
    assert_true(length > 0);
    size_t quotes = 0;
    for (size_t i = 0; i < length; i++) {
        quotes += text[i] == '"';
    }
    assert_int_equal(quotes % 2, 0);
    assert_true(isupper((unsigned char)(text[0] == '"' ? text[1] : text[0])));
    char last = text[length - 1], before = text[length - 2];
    assert_true(last == '.' || (last == '"' && strchr(".?!", before) != NULL));
}

static void check_letters(const char *text)
{
    for (const char *p = text; *p != 0; p++) {
        assert_true(*p == '\n' || (*p >= ' ' && *p < 127));
        assert_null(strchr("{}_", *p));
        assert_false(p[0] == ' ' && (p[1] == ' ' || p[1] == '.' || p[1] == ',' || p[1] == '\n'));
        if (p[0] == '.' && p[1] == ' ') {
            assert_true(isupper((unsigned char)(p[2] == '"' ? p[3] : p[2])));
        }
        // "a" before a consonant, "an" before a vowel.
        if (p > text && !isalpha((unsigned char)p[-1]) && tolower((unsigned char)p[0]) == 'a') {
            bool vowel_after_a = p[1] == ' ' && strchr("aeiou", p[2]) != NULL;
            bool consonant_after_an = p[1] == 'n' && p[2] == ' ' && strchr("aeiou", p[3]) == NULL;
            if (vowel_after_a || consonant_after_an) {
                fail_msg("wrong article: %.30s", p);
            }
        }
    }
}

static void english_looks_right(void **state)
{
    (void)state;
    static Story story;
    size_t least = SIZE_MAX, most = 0;
    for (uint64_t i = 0; i < STORIES; i++) {
        story_tell(&story, 5, i);
        assert_int_equal(story.length, strlen(story.text));
        size_t words = count_words(story.text);
        least = words < least ? words : least;
        most = words > most ? words : most;
        check_letters(story.text);
        const char *start = story.text;
        for (const char *end = strstr(start, "\n\n"); end != NULL; start = end + 2, end = strstr(start, "\n\n")) {
            check_paragraph(start, (size_t)(end - start));
        }
        check_paragraph(start, strlen(start));
    }
    assert_true(least >= 150 && least < 220);
    assert_true(most <= 700 && most > 580);
}

static size_t count_in(const char *text, const char *words)
{
    size_t count = 0;
    for (const char *p = strstr(text, words); p != NULL; p = strstr(p + 1, words)) {
        count++;
    }
    return count;
}

static void endings_need_the_beginnings(void **state)
{
    (void)state;
    static Story story;
    static char early[STORY_BYTES];
    size_t moved = 0, kinds[FACT_KINDS] = {0}, far = 0, facts = 0;
    for (uint64_t i = 0; i < STORIES; i++) {
        story_tell(&story, 9, i);
        memcpy(early, story.text, story.ending);
        early[story.ending] = 0;
        const char *ending = story.text + story.ending;
        assert_int_equal(story.facts[0].kind, FACT_OBJECT);
        for (size_t f = 0; f < story.n_facts; f++) {
            const StoryFact *fact = &story.facts[f];
            assert_true(fact->owner != fact->other);
            // Told early, and again in the ending; nowhere in the ending what is no longer true.
            const char *first = strstr(early, fact->first_answer);
            assert_non_null(first);
            // A sentence may begin with the answer: its first letter may be a capital.
            const char *last = strstr(ending, fact->answer + 1);
            if (last == NULL) {
                fail_msg("\"%s\" is missing in the ending of story %llu", fact->answer, (unsigned long long)i);
            }
            assert_non_null(strstr(early, fact->answer));
            assert_true(fact->moved || strcmp(fact->answer, fact->first_answer) == 0);
            if (fact->moved) {
                assert_string_not_equal(fact->answer, fact->first_answer);
                assert_int_equal(count_in(ending, fact->first_answer), 0);
            }
            moved += fact->moved;
            kinds[fact->kind]++;
            facts++;
            far += (last - story.text) - (first - early) > 800;
        }
        for (size_t p = 0; p < story.n_people; p++) {
            assert_non_null(strstr(early, story.names[p]));
        }
    }
    assert_true(moved > 100);
    for (int k = 0; k < FACT_KINDS; k++) {
        assert_true(kinds[k] > STORIES / 10);
    }
    // Most answers lie more than 800 characters (about 180 tokens) behind their fact.
    assert_true(far > facts / 2);
}

// Lower-case words without "'s"; a small vocabulary is what lets a small model learn from few tokens.
static void vocabulary_is_small(void **state)
{
    (void)state;
    static Story story;
    static char words[MAX_WORDS][32];
    size_t n_words = 0;
    for (uint64_t i = 0; i < 500; i++) {
        story_tell(&story, 3, i);
        char *p = story.text;
        while (*p != 0) {
            size_t length = 0;
            char word[32] = "";
            while (isalpha((unsigned char)p[length]) && length < sizeof word - 1) {
                word[length] = (char)tolower((unsigned char)p[length]);
                length++;
            }
            p += length > 0 ? length : 1;
            size_t w = 0;
            while (w < n_words && strcmp(words[w], word) != 0) {
                w++;
            }
            if (length > 0 && w == n_words && n_words < MAX_WORDS) {
                memcpy(words[n_words++], word, sizeof word);
            }
        }
    }
    assert_true(n_words > 600 && n_words < 1200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes_for_a_seed),      cmocka_unit_test(stories_differ),
        cmocka_unit_test(english_looks_right),        cmocka_unit_test(endings_need_the_beginnings),
        cmocka_unit_test(vocabulary_is_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
