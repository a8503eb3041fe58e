// Choosing tokens, cutting text at characters, drawing charts: the parts of infer/ that need no model.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/plot.h"
#include "infer/sampler.h"
#include "infer/utf8.h"

#define VOCAB 12

static const float LOGITS[VOCAB] = {0.1f, 2.0f, -1.0f, 2.5f, 0.0f, 1.0f, -3.0f, 2.5f, 0.7f, -0.5f, 1.9f, -8.0f};

static SamplerOptions plain(void)
{
    SamplerOptions options;
    sampler_defaults(&options);
    options.temperature = 1.0;
    return options;
}

static Sampler make(const SamplerOptions *options, uint64_t seed)
{
    Sampler sampler;
    Error error;
    assert_int_equal(sampler_create(&sampler, options, VOCAB, seed, 0, &error), 0);
    return sampler;
}

// The probabilities that the options leave, the slow and plain way: sort, cut, renormalise.
static void expected_distribution(double p[VOCAB], const SamplerOptions *options)
{
    int order[VOCAB];
    double sum = 0.0;
    for (int i = 0; i < VOCAB; i++) {
        order[i] = i;
        p[i] = exp(LOGITS[i] / options->temperature);
    }
    for (int i = 0; i < VOCAB; i++) {
        for (int j = i + 1; j < VOCAB; j++) {
            if (LOGITS[order[j]] > LOGITS[order[i]] || (LOGITS[order[j]] == LOGITS[order[i]] && order[j] < order[i])) {
                int swap = order[i];
                order[i] = order[j];
                order[j] = swap;
            }
        }
    }
    int limit = options->top_k > 0 && options->top_k < VOCAB ? (int)options->top_k : VOCAB, kept = 0;
    for (int i = 0; i < limit; i++) {
        sum += p[order[i]];
    }
    double mass = 0.0;
    while (kept < limit && mass < options->top_p * sum && p[order[kept]] >= options->min_p * p[order[0]]) {
        mass += p[order[kept++]];
    }
    for (int i = 0; i < VOCAB; i++) {
        p[order[i]] = i < kept ? p[order[i]] / mass : 0.0;
    }
}

static void check_distribution(const SamplerOptions *options)
{
    enum { DRAWS = 40000 };
    double p[VOCAB];
    int counts[VOCAB] = {0};
    expected_distribution(p, options);
    Sampler sampler = make(options, 7);
    Error error;
    for (int n = 0; n < DRAWS; n++) {
        int32_t token = -1;
        assert_int_equal(sampler_sample(&sampler, &token, LOGITS, &error), 0);
        assert_in_range(token, 0, VOCAB - 1);
        counts[token]++;
    }
    sampler_free(&sampler);
    for (int i = 0; i < VOCAB; i++) {
        double deviation = sqrt(DRAWS * p[i] * (1.0 - p[i]));
        if (fabs(counts[i] - DRAWS * p[i]) > 5.0 * deviation + 1e-6) {   // 5 sigma; exact where the probability is 0 or 1
            fail_msg("token %d: drawn %d times of %d, expected %.1f +- %.1f", i, counts[i], DRAWS, DRAWS * p[i], deviation);
        }
    }
}

static void draws_follow_the_filtered_distribution(void **state)
{
    (void)state;
    SamplerOptions options = plain();
    check_distribution(&options);
    options.temperature = 0.5;
    check_distribution(&options);
    options.top_k = 4;
    check_distribution(&options);
    options.top_k = 1;
    check_distribution(&options);
    options = plain();
    options.top_p = 0.6;
    check_distribution(&options);
    options.top_p = 1e-6;
    check_distribution(&options);
    options = plain();
    options.min_p = 0.2;
    check_distribution(&options);
    options = (SamplerOptions){.temperature = 1.7, .top_k = 7, .top_p = 0.9, .min_p = 0.25, .repeat_penalty = 1.0};
    check_distribution(&options);
    options = (SamplerOptions){.temperature = 2.0, .top_k = 1000, .top_p = 0.95, .min_p = 0.0, .repeat_penalty = 1.0};
    check_distribution(&options);
}

static void greedy_takes_the_first_of_the_largest(void **state)
{
    (void)state;
    SamplerOptions options = plain();
    options.temperature = 0.0;
    Sampler sampler = make(&options, 1);
    Error error;
    int32_t token = -1;
    assert_int_equal(sampler_sample(&sampler, &token, LOGITS, &error), 0);
    assert_int_equal(token, 3);
    sampler_free(&sampler);
}

static void repeat_penalty_counts_a_token_once_and_forgets(void **state)
{
    (void)state;
    SamplerOptions options = plain();
    options.temperature = 0.0;
    options.repeat_penalty = 1.2;
    Sampler sampler = make(&options, 1);
    Error error;
    int32_t token = -1;
    sampler_accept(&sampler, 3);
    sampler_accept(&sampler, 3);
    sampler_accept(&sampler, 7);
    // Applied once 2.5 / 1.2 = 2.08 is still ahead of token 1 with 2.0, applied twice (1.74) it would not be.
    assert_int_equal(sampler_sample(&sampler, &token, LOGITS, &error), 0);
    assert_int_equal(token, 3);
    sampler.options.repeat_penalty = 1.3;   // 2.5 / 1.3 = 1.92
    assert_int_equal(sampler_sample(&sampler, &token, LOGITS, &error), 0);
    assert_int_equal(token, 1);
    for (int i = 0; i < SAMPLER_WINDOW; i++) {
        sampler_accept(&sampler, 11);
    }
    assert_int_equal(sampler_sample(&sampler, &token, LOGITS, &error), 0);
    assert_int_equal(token, 3);
    float negative[VOCAB];
    for (int i = 0; i < VOCAB; i++) {
        negative[i] = -1.0f - (float)i;
    }
    sampler.options.repeat_penalty = 3.0;
    sampler_accept(&sampler, 0);   // -1 becomes -3: token 1 with -2 is ahead
    assert_int_equal(sampler_sample(&sampler, &token, negative, &error), 0);
    assert_int_equal(token, 1);
    sampler_free(&sampler);
}

static void bad_logits_are_errors(void **state)
{
    (void)state;
    SamplerOptions options = plain();
    Sampler sampler = make(&options, 1);
    Rng before = sampler.rng;
    Error error;
    int32_t token = -1;
    float logits[VOCAB];
    memcpy(logits, LOGITS, sizeof logits);
    logits[5] = NAN;
    assert_int_equal(sampler_sample(&sampler, &token, logits, &error), -1);
    assert_non_null(strstr(error.text, "token 5 is NaN"));
    logits[5] = INFINITY;
    assert_int_equal(sampler_sample(&sampler, &token, logits, &error), -1);
    assert_non_null(strstr(error.text, "infinite"));
    for (int i = 0; i < VOCAB; i++) {
        logits[i] = -INFINITY;
    }
    assert_int_equal(sampler_sample(&sampler, &token, logits, &error), -1);
    assert_memory_equal(&before, &sampler.rng, sizeof before);
    assert_int_equal(sampler.n_seen, 0);
    logits[9] = -1e30f;   // the only one that can come
    for (int i = 0; i < 50; i++) {
        assert_int_equal(sampler_sample(&sampler, &token, logits, &error), 0);
        assert_int_equal(token, 9);
    }
    sampler_free(&sampler);
}

static void options_out_of_range_are_refused(void **state)
{
    (void)state;
    const SamplerOptions bad[] = {
        {-0.1, 0, 1, 0, 1}, {NAN, 0, 1, 0, 1}, {1, -1, 1, 0, 1}, {1, 0, 0, 0, 1},        {1, 0, 1.1, 0, 1},
        {1, 0, 1, -0.1, 1}, {1, 0, 1, 1.5, 1}, {1, 0, 1, 0, 0},  {1, 0, 1, 0, INFINITY},
    };
    Sampler sampler;
    Error error;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(sampler_create(&sampler, &bad[i], VOCAB, 1, 0, &error), -1);
    }
    SamplerOptions good = plain();
    assert_int_equal(sampler_create(&sampler, &good, 0, 1, 0, &error), -1);
}

static void same_seed_same_tokens_and_text_restores_them(void **state)
{
    (void)state;
    SamplerOptions options = plain();
    options.top_p = 0.9;
    options.repeat_penalty = 1.2;
    Sampler a = make(&options, 42), b = make(&options, 42), c = make(&options, 43);
    Error error;
    int32_t x = 0, y = 0;
    int differ = 0;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(sampler_sample(&a, &x, LOGITS, &error), 0);
        assert_int_equal(sampler_sample(&b, &y, LOGITS, &error), 0);
        assert_int_equal(x, y);
        assert_int_equal(sampler_sample(&c, &y, LOGITS, &error), 0);
        differ += x != y;
    }
    assert_true(differ > 20);
    char *text = sampler_to_text(&a);
    assert_non_null(text);
    assert_int_equal(sampler_from_text(&c, text, &error), 0);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(sampler_sample(&a, &x, LOGITS, &error), 0);
        assert_int_equal(sampler_sample(&c, &y, LOGITS, &error), 0);
        assert_int_equal(x, y);
    }
    free(text);
    sampler_free(&a);
    sampler_free(&b);
    sampler_free(&c);
}

static void damaged_random_state_is_refused(void **state)
{
    (void)state;
    const char *bad[] = {
        "",
        "1 2 3",
        "1 2 3 4",
        "0 0 0 0 0",
        "1 2 3 4 2 5",
        "1 2 3 4 1 12",
        "1 2 3 4 1 -1",
        "1 2 3 4 65",
        "1 2 3 4 0 7",
        "1 2 3 4 99999999999999999999 1",
        "x 2 3 4 0",
        "1 2 3 4 1 5 ",
    };
    SamplerOptions options = plain();
    Sampler sampler = make(&options, 1);
    Rng before = sampler.rng;
    Error error;
    for (size_t i = 0; i + 1 < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(sampler_from_text(&sampler, bad[i], &error), -1);
        assert_memory_equal(&before, &sampler.rng, sizeof before);
    }
    assert_int_equal(sampler_from_text(&sampler, "1 2 3 4 2 5 11", &error), 0);
    assert_int_equal(sampler.n_seen, 2);
    assert_int_equal(sampler.recent[1], 11);
    sampler_free(&sampler);
}

static void text_is_cut_between_characters(void **state)
{
    (void)state;
    assert_int_equal(utf8_showable("", 0), 0);
    assert_int_equal(utf8_showable("abc", 3), 3);
    assert_int_equal(utf8_showable("a\xc3", 2), 1);
    assert_int_equal(utf8_showable("a\xc3\xa9", 3), 3);
    assert_int_equal(utf8_showable("\xe2\x82", 2), 0);
    assert_int_equal(utf8_showable("\xe2\x82\xac", 3), 3);
    assert_int_equal(utf8_showable("xy\xf0\x9f\x98", 5), 2);
    assert_int_equal(utf8_showable("xy\xf0\x9f\x98\x80", 6), 6);
    assert_int_equal(utf8_showable("a\x80\x80\x80\x80", 5), 5);   // no lead byte: never becomes whole
    assert_int_equal(utf8_showable("\xff", 1), 1);
    assert_int_equal(utf8_showable("\xc0", 1), 1);
    assert_int_equal(utf8_showable("\xc3\xa9\xa9", 3), 3);
    // Byte by byte, everything comes out in the end, and only whole characters before that.
    const char *text = "na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80!";
    size_t shown = 0, length = strlen(text);
    for (size_t n = 1; n <= length; n++) {
        shown += utf8_showable(text + shown, n - shown);
        assert_true(shown == length || ((unsigned char)text[shown] & 0xc0) != 0x80);
    }
    assert_int_equal(shown, length);
}

static uint32_t big_endian(const char *bytes)
{
    const unsigned char *b = (const unsigned char *)bytes;
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static void chart_is_a_png_and_no_points_is_an_error(void **state)
{
    (void)state;
    char folder[256];
    Error error;
    assert_int_equal(folder_temporary(folder, sizeof folder, &error), 0);
    char *path = path_join(folder, "chart.png");
    double x[] = {512, 1024, 2048, 0}, y[] = {30, NAN, 20, 10};
    PlotSeries series[] = {{"na\xc3\xafve", x, y, 4}, {"nothing", x, y, 0}};
    Plot plot = {"A title that is far longer than the chart is wide, to see whether it is cut at the edge of the canvas, instead of "
                 "running out of it",
                 "x", "y", series, 2};
    assert_int_equal(plot_write_png(&plot, path, &error), 0);
    size_t size = 0;
    char *bytes = file_read(path, 1 << 24, &size, &error);
    assert_non_null(bytes);
    assert_true(size > 5000);
    assert_memory_equal(bytes, "\x89PNG\r\n\x1a\n", 8);
    assert_int_equal(big_endian(bytes + 16), 1200);
    assert_int_equal(big_endian(bytes + 20), 720);
    assert_memory_equal(bytes + size - 8, "IEND", 4);
    free(bytes);
    Plot empty = {"t", "x", "y", &series[1], 1};
    assert_int_equal(plot_write_png(&empty, path, &error), -1);
    Plot flat = {"t", "x", "y", &(PlotSeries){"one", x, y, 1}, 1};
    assert_int_equal(plot_write_png(&flat, path, &error), 0);
    assert_int_equal(plot_write_png(&flat, "/nonexistent-folder/chart.png", &error), -1);
    free(path);
    assert_int_equal(folder_remove(folder, &error), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_the_filtered_distribution),
        cmocka_unit_test(greedy_takes_the_first_of_the_largest),
        cmocka_unit_test(repeat_penalty_counts_a_token_once_and_forgets),
        cmocka_unit_test(bad_logits_are_errors),
        cmocka_unit_test(options_out_of_range_are_refused),
        cmocka_unit_test(same_seed_same_tokens_and_text_restores_them),
        cmocka_unit_test(damaged_random_state_is_refused),
        cmocka_unit_test(text_is_cut_between_characters),
        cmocka_unit_test(chart_is_a_png_and_no_points_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
