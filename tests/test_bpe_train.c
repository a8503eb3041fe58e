// Training of the tokenizer against a plain loop that counts all pairs anew for each merge; order, threads, big counts.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tokenizer/bpe_internal.h"
#include "tokenizer/bpe_train.h"

// ---- the plain trainer: words of letters and spaces before them, few and short ----

enum { MAX_WORDS = 200, MAX_WORD = 24, MAX_TOKENS = 400 };

typedef struct PlainWord {
    int32_t ids[MAX_WORD];
    size_t length;
} PlainWord;

typedef struct Plain {
    PlainWord words[MAX_WORDS];
    size_t n_words;
    char tokens[MAX_TOKENS][MAX_WORD + 1];
    size_t n_tokens;
    Merge merges[MAX_TOKENS];
    size_t n_merges;
} Plain;

static uint64_t plain_count(const Plain *p, int32_t left, int32_t right)
{
    uint64_t count = 0;
    for (size_t w = 0; w < p->n_words; w++) {
        for (size_t i = 0; i + 1 < p->words[w].length; i++) {
            count += p->words[w].ids[i] == left && p->words[w].ids[i + 1] == right;
        }
    }
    return count;
}

// The commonest pair, of equals the one with the smallest left id, then the smallest right id. Returns its count.
static uint64_t plain_best(const Plain *p, Merge *best)
{
    uint64_t best_count = 0;
    for (size_t w = 0; w < p->n_words; w++) {
        for (size_t i = 0; i + 1 < p->words[w].length; i++) {
            int32_t left = p->words[w].ids[i], right = p->words[w].ids[i + 1];
            uint64_t count = plain_count(p, left, right);
            bool smaller = left < best->left || (left == best->left && right < best->right);
            if (count > best_count || (count == best_count && smaller)) {
                best_count = count;
                best->left = left;
                best->right = right;
            }
        }
    }
    return best_count;
}

static void plain_train(Plain *p, size_t vocab_size)
{
    Merge merge;
    while (p->n_tokens + 1 < vocab_size && plain_best(p, &merge) >= 2) {
        char joined[2 * MAX_WORD + 2];
        snprintf(joined, sizeof joined, "%s%s", p->tokens[merge.left], p->tokens[merge.right]);
        size_t id = 0;
        while (id < p->n_tokens && strcmp(p->tokens[id], joined) != 0) {
            id++;
        }
        if (id == p->n_tokens) {
            memcpy(p->tokens[p->n_tokens++], joined, strlen(joined) + 1);
        }
        merge.result = (int32_t)id;
        bool known = false;
        for (size_t i = 0; i < p->n_merges; i++) {
            known |= p->merges[i].left == merge.left && p->merges[i].right == merge.right;
        }
        if (!known) {
            p->merges[p->n_merges++] = merge;
        }
        for (size_t w = 0; w < p->n_words; w++) {
            PlainWord *word = &p->words[w];
            size_t out = 0;
            for (size_t i = 0; i < word->length; i++) {
                bool here = i + 1 < word->length && word->ids[i] == merge.left && word->ids[i + 1] == merge.right;
                word->ids[out++] = here ? merge.result : word->ids[i];
                i += here;
            }
            word->length = out;
        }
    }
}

static void training_merges_the_commonest_pair(void **state)
{
    (void)state;
    Rng rng;
    rng_seed(&rng, 21, 0);
    Plain *p = malloc(sizeof *p);
    assert_non_null(p);
    for (int round = 0; round < 40; round++) {
        Error error = {0};
        BpeTrainer *trainer = bpe_trainer_create(&error);
        size_t vocab_size = 257 + rng_below(&rng, 120);
        memset(p, 0, sizeof *p);
        for (; p->n_tokens < 256; p->n_tokens++) {
            p->tokens[p->n_tokens][0] = (char)p->n_tokens;
        }
        for (p->n_words = 0; p->n_words < MAX_WORDS; p->n_words++) {
            PlainWord *word = &p->words[p->n_words];
            char text[MAX_WORD];
            word->length = 1 + rng_below(&rng, round % 4 == 0 ? MAX_WORD : 8);
            for (size_t i = 0; i < word->length; i++) {
                text[i] = (char)('a' + rng_below(&rng, 2 + (uint64_t)round % 3));
                word->ids[i] = text[i];
            }
            assert_int_equal(bpe_trainer_add(trainer, p->n_words % 3, text, word->length, &error), 0);
        }
        plain_train(p, vocab_size);
        Tokenizer *tokenizer = bpe_trainer_finish(trainer, vocab_size, &error);
        assert_non_null(tokenizer);
        assert_int_equal(tokenizer->n_merges, p->n_merges);
        for (size_t i = 0; i < p->n_merges; i++) {
            const Merge *a = &tokenizer->merges[i], *b = &p->merges[i];
            if (a->left != b->left || a->right != b->right || a->result != b->result) {
                fail_msg("round %d: merge %zu is %d %d %d, expected %d %d %d", round, i, a->left, a->right, a->result, b->left, b->right,
                         b->result);
            }
        }
        assert_int_equal(tokenizer_vocab_size(tokenizer), p->n_tokens + 1);
        assert_int_equal(tokenizer_end_of_text(tokenizer), p->n_tokens);
        tokenizer_free(tokenizer);
        bpe_trainer_free(trainer);
    }
    free(p);
}

static void check_token(const Tokenizer *tokenizer, int32_t id, const char *expected)
{
    size_t length = 0;
    const char *token = tokenizer_token(tokenizer, id, &length);
    assert_non_null(token);
    assert_int_equal(length, strlen(expected));
    assert_memory_equal(token, expected, length);
}

static void big_counts_are_counted(void **state)
{
    (void)state;
    Error error = {0};
    BpeTrainer *trainer = bpe_trainer_create(&error);
    // In 32 bits the first two would count as 1 and 2, below the third.
    assert_int_equal(bpe_trainer_add_weighted(trainer, 0, "ab", 2, (UINT64_C(1) << 32) + 1, &error), 0);
    assert_int_equal(bpe_trainer_add_weighted(trainer, 1, "cd", 2, UINT64_C(1) << 32, &error), 0);
    assert_int_equal(bpe_trainer_add_weighted(trainer, 63, "cd", 2, (UINT64_C(1) << 32) + 2, &error), 0);
    assert_int_equal(bpe_trainer_add_weighted(trainer, 2, "ef", 2, 1000, &error), 0);
    Tokenizer *tokenizer = bpe_trainer_finish(trainer, 260, &error);
    assert_non_null(tokenizer);
    check_token(tokenizer, 256, "cd");
    check_token(tokenizer, 257, "ab");
    check_token(tokenizer, 258, "ef");
    tokenizer_free(tokenizer);
    bpe_trainer_free(trainer);

    trainer = bpe_trainer_create(&error);
    assert_int_equal(bpe_trainer_add_weighted(trainer, 0, "ab", 2, INT64_MAX, &error), -1);
    assert_non_null(strstr(error.text, "2^63"));
    bpe_trainer_free(trainer);
    trainer = bpe_trainer_create(&error);
    assert_int_equal(bpe_trainer_add_weighted(trainer, 0, "ab", 2, INT64_MAX / 3, &error), 0);
    assert_int_equal(bpe_trainer_add_weighted(trainer, 1, "ab", 2, INT64_MAX / 3, &error), 0);
    assert_null(bpe_trainer_finish(trainer, 260, &error));
    assert_non_null(strstr(error.text, "2^63"));
    bpe_trainer_free(trainer);
}

static void order_and_slots_do_not_matter(void **state)
{
    (void)state;
    Error error = {0};
    enum { DOCUMENTS = 300 };
    static char documents[DOCUMENTS][80];
    uint32_t hash = 0;
    Rng rng;
    rng_seed(&rng, 5, 0);
    for (size_t d = 0; d < DOCUMENTS; d++) {
        for (size_t i = 0; i + 1 < sizeof documents[d]; i++) {
            documents[d][i] = "aabbcdeen  rst\n'"[rng_below(&rng, 16)];
        }
    }
    for (size_t round = 0; round < 4; round++) {
        BpeTrainer *trainer = bpe_trainer_create(&error);
        for (size_t i = 0; i < DOCUMENTS; i++) {
            size_t d = round % 2 ? DOCUMENTS - 1 - i : i * 7 % DOCUMENTS;   // 7 and 300 have no common divisor
            assert_int_equal(bpe_trainer_add(trainer, round < 2 ? 0 : d * round % 64, documents[d], 79, &error), 0);
        }
        Tokenizer *tokenizer = bpe_trainer_finish(trainer, 600, &error);
        assert_non_null(tokenizer);
        assert_int_equal(tokenizer_vocab_size(tokenizer), 600);
        hash = round == 0 ? tokenizer_hash(tokenizer) : hash;
        assert_int_equal(tokenizer_hash(tokenizer), hash);
        tokenizer_free(tokenizer);
        bpe_trainer_free(trainer);
    }
}

static void bounds_are_kept(void **state)
{
    (void)state;
    Error error = {0};
    BpeTrainer *trainer = bpe_trainer_create(&error);
    assert_int_equal(bpe_trainer_add(trainer, 64, "ab", 2, &error), -1);
    assert_null(bpe_trainer_finish(trainer, 256, &error));
    assert_non_null(strstr(error.text, "256"));
    assert_null(bpe_trainer_finish(trainer, (size_t)1 << 40, &error));
    // Ties go to the smaller ids; a pair that occurs once is not merged; merges do not cross pre-tokens.
    assert_int_equal(bpe_trainer_add(trainer, 0, "xy ba xy ba q", 13, &error), 0);
    Tokenizer *tokenizer = bpe_trainer_finish(trainer, 1000, &error);
    assert_non_null(tokenizer);
    check_token(tokenizer, 256, " b");    // ' ' 'b' and 'b' 'a' twice each, 'x' 'y' twice: ' ' is the smallest
    check_token(tokenizer, 257, "xy");    // then 'x' 'y' against 256 'a'
    check_token(tokenizer, 258, " ba");
    check_token(tokenizer, 259, "<|endoftext|>");
    assert_int_equal(tokenizer_vocab_size(tokenizer), 260);
    tokenizer_free(tokenizer);
    bpe_trainer_free(trainer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_merges_the_commonest_pair),
        cmocka_unit_test(big_counts_are_counted),
        cmocka_unit_test(order_and_slots_do_not_matter),
        cmocka_unit_test(bounds_are_kept),
    };
    return cmocka_run_group_tests_name("bpe_train", tests, NULL, NULL);
}
