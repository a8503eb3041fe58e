// Multi-query recall: the sequences are what the task says, runs are the same every time, and a small task is learnt.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "experiments/recall.h"
#include "experiments/recall_run.h"

enum { MAX_LENGTH = 512, MAX_VOCAB = 1024 };

// Every key once before the bar and once behind it, at an even place, where its value is the target; no other targets.
static void check_sequence(const int32_t *tokens, const int32_t *targets, size_t pairs, size_t length, size_t vocab)
{
    size_t context = 2 * pairs, half = vocab / 2, queries = 0, seen[MAX_VOCAB] = {0};
    int32_t value[MAX_VOCAB];
    for (size_t i = 0; i < pairs; i++) {
        int32_t key = tokens[2 * i];
        assert_in_range(key, 0, half - 1);
        assert_in_range(tokens[2 * i + 1], half, vocab - 1);
        assert_int_equal(seen[key]++, 0);
        value[key] = tokens[2 * i + 1];
    }
    for (size_t t = 0; t < length; t++) {
        assert_in_range(tokens[t], 0, vocab - 1);
        if (targets[t] < 0) {
            assert_int_equal(targets[t], -1);
            assert_true(t < context || seen[tokens[t]] == 0 || (size_t)tokens[t] >= half);
            continue;
        }
        assert_true(t >= context && t % 2 == 0);
        assert_int_equal(seen[tokens[t]]++, 1);
        assert_int_equal(targets[t], value[tokens[t]]);
        seen[tokens[t]] = 2;
        queries++;
    }
    assert_int_equal(queries, pairs);
}

static void sequences_are_what_the_task_says(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{1, 4, 2}, {16, 128, 64}, {16, 64, 32}, {5, 33, 11}, {64, 512, 1000}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        Recall recall;
        Error error;
        Rng rng;
        int32_t tokens[MAX_LENGTH], targets[MAX_LENGTH];
        assert_int_equal(recall_create(&recall, shapes[i][0], shapes[i][1], shapes[i][2], &error), 0);
        rng_seed(&rng, 1, i);
        for (int repeat = 0; repeat < 200; repeat++) {
            recall_sequence(tokens, targets, &recall, &rng);
            check_sequence(tokens, targets, shapes[i][0], shapes[i][1], shapes[i][2]);
        }
        recall_free(&recall);
    }
}

// Over many sequences: keys, values and filler are even, and the first key's place follows (i + 1)^−0.99, the second's what is left of it.
static void draws_follow_their_laws(void **state)
{
    (void)state;
    enum { PAIRS = 2, LENGTH = 24, VOCAB = 12, PLACES = (LENGTH - 2 * PAIRS) / 2, RUNS = 40000 };
    Recall recall;
    Error error;
    Rng rng;
    int32_t tokens[LENGTH], targets[LENGTH];
    double first[PLACES] = {0}, second[PLACES] = {0}, ids[VOCAB] = {0}, weights[PLACES], total = 0.0;
    assert_int_equal(recall_create(&recall, PAIRS, LENGTH, VOCAB, &error), 0);
    rng_seed(&rng, 3, 0);
    for (int run = 0; run < RUNS; run++) {
        recall_sequence(tokens, targets, &recall, &rng);
        for (size_t i = 0; i < PLACES; i++) {
            int32_t token = tokens[2 * PAIRS + 2 * i];
            first[i] += targets[2 * PAIRS + 2 * i] >= 0 && token == tokens[0];
            second[i] += targets[2 * PAIRS + 2 * i] >= 0 && token == tokens[2];
        }
        for (size_t t = 0; t < 2 * PAIRS; t++) {
            ids[tokens[t]] += 1.0;
        }
    }
    recall_free(&recall);
    for (size_t i = 0; i < PLACES; i++) {
        weights[i] = pow((double)i + 1.0, -0.99);
        total += weights[i];
    }
    for (size_t i = 0; i < PLACES; i++) {
        double p = weights[i] / total, q = 0.0;
        for (size_t j = 0; j < PLACES; j++) {
            q += j == i ? 0.0 : weights[j] / total * weights[i] / (total - weights[j]);
        }
        assert_true(fabs(first[i] / RUNS - p) < 5.0 * sqrt(p * (1.0 - p) / RUNS));
        assert_true(fabs(second[i] / RUNS - q) < 5.0 * sqrt(q * (1.0 - q) / RUNS));
    }
    for (size_t id = 0; id < VOCAB; id++) {
        double p = 1.0 / (VOCAB / 2);   // of keys as of values, two a sequence
        assert_true(fabs(ids[id] / (2.0 * RUNS) - p) < 5.0 * sqrt(p * (1.0 - p) / (2.0 * RUNS)));
    }
}

static void same_seed_same_sequences(void **state)
{
    (void)state;
    enum { LENGTH = 64 };
    Recall a, b;
    Error error;
    Rng x, y;
    int32_t tokens[3][LENGTH], targets[LENGTH];
    assert_int_equal(recall_create(&a, 8, LENGTH, 40, &error), 0);
    assert_int_equal(recall_create(&b, 8, LENGTH, 40, &error), 0);
    rng_seed(&x, 5, 1);
    recall_sequence(tokens[0], targets, &a, &x);   // what was drawn before leaves no trace in the task
    rng_seed(&x, 6, 1);
    rng_seed(&y, 6, 1);
    recall_sequence(tokens[1], targets, &a, &x);
    recall_sequence(tokens[2], targets, &b, &y);
    assert_memory_equal(tokens[1], tokens[2], sizeof tokens[1]);
    assert_memory_not_equal(tokens[0], tokens[1], sizeof tokens[1]);
    recall_free(&a);
    recall_free(&b);
}

static void impossible_tasks_are_refused(void **state)
{
    (void)state;
    Recall recall;
    Error error;
    assert_int_equal(recall_create(&recall, 0, 16, 16, &error), -1);
    assert_int_equal(recall_create(&recall, 8, 31, 16, &error), -1);
    assert_non_null(strstr(error.text, "four tokens a pair"));
    assert_int_equal(recall_create(&recall, 8, 32, 15, &error), -1);
    assert_non_null(strstr(error.text, "from 16"));
}

static RecallRun small_run(const char *mixer)
{
    RecallRun run = {.pairs = 4, .length = 32, .batch = 8, .n_test = 32, .steps = 600, .lr = 1e-2, .until = 0.95, .seed = 1};
    Error error;
    assert_int_equal(config_preset(&run.config, "nano", &error), 0);
    run.config.vocab_size = 16;
    run.config.d_model = 64;
    run.config.d_head = run.config.n_slot = 64;
    run.config.n_layer = 2;
    run.config.n_head = 1;
    run.config.mlp_hidden = 0;
    snprintf(run.config.mixer, sizeof run.config.mixer, "%s", mixer);
    return run;
}

static void small_task_is_learnt(void **state)
{
    (void)state;
    static const char *const mixers[] = {"delta", "linear"};
    for (size_t i = 0; i < sizeof mixers / sizeof *mixers; i++) {
        RecallRun run = small_run(mixers[i]);
        RecallResult result;
        Error error;
        assert_int_equal(recall_run(&result, &run, &error), 0);
        assert_true(result.accuracy >= 0.95 && result.accuracy <= 1.0);
        assert_true(result.loss > 0.0 && result.loss < 0.6);
        assert_true(result.steps < run.steps);
        assert_int_equal(result.state, 2 * 64 * 64);
    }
}

// Sequences that grow are learnt where whole ones are not yet, and do not grow past what is not learnt.
static void growing_sequences_are_learnt_sooner(void **state)
{
    (void)state;
    RecallRun run = small_run("delta");
    RecallResult whole, grown, stuck;
    Error error;
    run.pairs = 16;
    run.length = 128;
    run.config.vocab_size = 32;
    run.steps = 700;
    run.until = 0.9;
    run.grow_from = 3;   // from 4 pairs in 32 tokens: 2 would be below
    assert_int_equal(recall_run(&grown, &run, &error), 0);
    assert_true(grown.accuracy >= 0.9);
    assert_int_equal(grown.pairs, 16);
    run.grow_from = 0;
    run.steps = grown.steps;
    assert_int_equal(recall_run(&whole, &run, &error), 0);
    assert_true(whole.accuracy < 0.3);
    assert_int_equal(whole.pairs, 16);
    run.grow_from = 3;
    run.lr = 1e-6;
    run.steps = 10;
    assert_int_equal(recall_run(&stuck, &run, &error), 0);
    assert_int_equal(stuck.pairs, 4);
    run.length = 66;   // half of it, 33 tokens, cannot be halved again
    assert_int_equal(recall_run(&stuck, &run, &error), 0);
    assert_int_equal(stuck.pairs, 8);
    run.grow_from = 17;
    assert_int_equal(recall_run(&stuck, &run, &error), -1);
    assert_non_null(strstr(error.text, "cannot grow from 17"));
}

static void runs_repeat_to_the_bit(void **state)
{
    (void)state;
    RecallRun run = small_run("lattice");
    RecallResult results[3];
    Error error;
    run.steps = 12;
    for (int i = 0; i < 3; i++) {
        run.seed = i < 2 ? 7 : 8;
        assert_int_equal(recall_run(&results[i], &run, &error), 0);
        assert_int_equal(results[i].steps, 12);
        assert_true(fabs(results[i].loss - log(16.0)) < 1.0);
    }
    assert_true(results[0].loss == results[1].loss && results[0].accuracy == results[1].accuracy);
    assert_true(results[0].loss != results[2].loss);
}

// Ends before the weights are harmed, with what they answer.
static void run_that_diverges_ends(void **state)
{
    (void)state;
    RecallRun run = small_run("lattice");
    RecallResult result;
    Error error;
    run.lr = 1e30;
    run.steps = 50;
    assert_int_equal(recall_run(&result, &run, &error), 0);
    assert_true(result.steps < 50);
    assert_true(result.accuracy >= 0.0 && result.accuracy < 0.9);
    run.config.chunk = 0;
    assert_int_equal(recall_run(&result, &run, &error), -1);
    assert_non_null(strstr(error.text, "chunk"));
}

int main(void)
{
#ifdef _OPENMP
    omp_set_num_threads(1);   // such small models gain nothing from more, and lose much on a busy machine
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_are_what_the_task_says), cmocka_unit_test(draws_follow_their_laws),    cmocka_unit_test(same_seed_same_sequences),
        cmocka_unit_test(impossible_tasks_are_refused),     cmocka_unit_test(small_task_is_learnt),       cmocka_unit_test(runs_repeat_to_the_bit),
        cmocka_unit_test(run_that_diverges_ends),           cmocka_unit_test(growing_sequences_are_learnt_sooner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
