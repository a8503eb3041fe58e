// Several sources in one order: shares, epochs, purity of the order; where documents start.
#include <math.h>
#include <stdbool.h>

#include "data/loader.h"
#include "tests/scratch.h"
#include "training/mix.h"

enum { LENGTH = 4, MAX_SOURCES = 5, MAX_WINDOWS = 64 };

// Source s: one shard of `windows` windows, token i is 1000·s + i.
static void make_source(void **state, PathList *shards, size_t s, size_t windows)
{
    Error error;
    unsigned char bytes[1024 + 2 * (MAX_WINDOWS * LENGTH + 1)] = {0};
    size_t count = windows * LENGTH + 1;
    const uint32_t header[] = {20240520, 1, (uint32_t)count};
    for (size_t i = 0; i < 12; i++) {
        bytes[i] = (unsigned char)(header[i / 4] >> (8 * (i % 4)));
    }
    for (size_t i = 0; i < count; i++) {
        bytes[1024 + 2 * i] = (unsigned char)(1000 * s + i);
        bytes[1025 + 2 * i] = (unsigned char)((1000 * s + i) >> 8);
    }
    char name[32];
    snprintf(name, sizeof name, "s%zu.bin", s);
    char *path = make_file(state, name, bytes, 1024 + 2 * count);
    assert_int_equal(path_list_add(shards, path, &error), 0);
    free(path);
}

typedef struct Mix {
    PathList shards[MAX_SOURCES];
    LoaderSource sources[MAX_SOURCES];
    size_t n_sources;
    Loader *loader;
} Mix;

static Loader *open_mix(const Mix *mix, uint64_t seed)
{
    Error error;
    Loader *loader = loader_create_mix(mix->sources, mix->n_sources, LENGTH, seed, 0, 5000, &error);
    assert_non_null(loader);
    return loader;
}

static void make_mix(void **state, Mix *mix, size_t n_sources, const uint32_t *parts, const size_t *windows, uint64_t seed)
{
    *mix = (Mix){.n_sources = n_sources};
    for (size_t s = 0; s < n_sources; s++) {
        make_source(state, &mix->shards[s], s, windows[s]);
        mix->sources[s] = (LoaderSource){.name = "source", .shards = &mix->shards[s], .parts = parts[s]};
    }
    mix->loader = open_mix(mix, seed);
}

static void free_mix(Mix *mix)
{
    loader_free(mix->loader);
    for (size_t s = 0; s < mix->n_sources; s++) {
        path_list_free(&mix->shards[s]);
    }
}

// The first token of window `index`: 1000·source + LENGTH·window.
static int32_t first_token(const Loader *loader, uint64_t index, bool in_order)
{
    Error error;
    int32_t tokens[LENGTH], targets[LENGTH];
    assert_int_equal((in_order ? loader_window_in_order : loader_window)(loader, tokens, targets, index, &error), 0);
    for (int i = 0; i < LENGTH; i++) {
        assert_int_equal(tokens[i], tokens[0] + i);
        assert_int_equal(targets[i], tokens[0] + i + 1);
    }
    return tokens[0];
}

// At every place of the order each source has had its share, within what the header promises; over a whole pattern exactly.
static void shares_are_exact(void **state)
{
    static const uint32_t parts[][MAX_SOURCES] = {{7, 3}, {1, 1, 1}, {1, 1000000, 7, 333}, {5, 4, 3, 2, 1}, {2147483646, 1}};
    static const size_t n_sources[] = {2, 3, 4, 5, 2}, windows[] = {5, 9, 3, 20, 8};
    for (size_t c = 0; c < 5; c++) {
        Mix mix;
        make_mix(state, &mix, n_sources[c], parts[c], windows, 11 + c);
        uint64_t counts[MAX_SOURCES] = {0}, sum = 0;
        for (size_t s = 0; s < mix.n_sources; s++) {
            sum += parts[c][s];
        }
        double bound = 1.0 + log2((double)mix.n_sources);
        for (uint64_t n = 0; n < 3000; n++) {
            for (size_t s = 0; s < mix.n_sources; s++) {
                assert_int_equal(loader_dealt(mix.loader, s, n), counts[s]);
                assert_true(fabs((double)counts[s] - (double)n * (double)parts[c][s] / (double)sum) < bound);
            }
            counts[first_token(mix.loader, n, false) / 1000]++;
        }
        // Far out the numbers are as exact as at the start.
        uint64_t far = (UINT64_C(1) << 53) / sum * sum, total = 0;
        for (size_t s = 0; s < mix.n_sources; s++) {
            uint64_t dealt = loader_dealt(mix.loader, s, far);
            assert_int_equal(dealt, far / sum * parts[c][s]);
            total += dealt;
            assert_true(fabs(loader_share(mix.loader, s) - (double)parts[c][s] / (double)sum) < 1e-15);
        }
        assert_int_equal(total, far);
        free_mix(&mix);
    }
}

// A source is through with its windows, each once, before one comes again; another epoch has another order.
static void each_source_has_its_epochs(void **state)
{
    static const uint32_t parts[] = {3, 1, 2};
    static const size_t windows[] = {40, 13, 64};
    Mix mix;
    make_mix(state, &mix, 3, parts, windows, 5);
    assert_int_equal(loader_windows(mix.loader), 40 + 13 + 64);
    assert_int_equal(loader_tokens(mix.loader), 4 * (40 + 13 + 64) + 3);
    int seen[3][MAX_WINDOWS] = {{0}}, first_order[3][MAX_WINDOWS], same = 0;
    uint64_t given[3] = {0};
    for (uint64_t n = 0; n < 600; n++) {
        int32_t token = first_token(mix.loader, n, false), s = token / 1000, window = token % 1000 / LENGTH;
        assert_true((size_t)window < windows[s]);
        uint64_t epoch = given[s] / windows[s], place = given[s] % windows[s];
        assert_int_equal(seen[s][window]++, epoch);
        if (epoch == 0) {
            first_order[s][place] = window;
        } else if (epoch == 1) {
            same += first_order[s][place] == window;
        }
        given[s]++;
        assert_int_equal(loader_source_windows(mix.loader, (size_t)s), windows[s]);
        assert_int_equal(loader_source_tokens(mix.loader, (size_t)s), windows[s] * LENGTH + 1);
    }
    assert_true(given[1] / windows[1] == 7 && given[0] / windows[0] == 7 && given[2] / windows[2] == 3);
    assert_true(same < 12);   // about one a source by chance
    free_mix(&mix);
}

static void the_order_is_a_pure_function(void **state)
{
    static const uint32_t parts[] = {7, 3};
    static const size_t windows[] = {31, 8};
    Mix mix;
    make_mix(state, &mix, 2, parts, windows, 5);
    Loader *again = open_mix(&mix, 5), *other = open_mix(&mix, 6);
    int32_t order[500];
    size_t other_windows = 0;
    for (uint64_t n = 0; n < 500; n++) {
        order[n] = first_token(mix.loader, n, false);
        other_windows += order[n] != first_token(other, n, false);
    }
    for (uint64_t n = 500; n-- > 0;) {
        assert_int_equal(first_token(again, n, false), order[n]);
    }
    assert_true(other_windows > 300);
    // One source in a mix is dealt as it is alone, and the first source of a mix keeps the order that it has alone.
    Error error;
    Loader *alone = loader_create(&mix.shards[0], LENGTH, 5, 0, 5000, &error);
    assert_non_null(alone);
    for (uint64_t n = 0, k = 0; n < 500; n++) {
        if (order[n] < 1000) {
            assert_int_equal(order[n], first_token(alone, k++, false));
        }
    }
    loader_free(alone);
    loader_free(again);
    loader_free(other);
    free_mix(&mix);
}

static void validation_is_in_order(void **state)
{
    static const uint32_t parts[] = {1, 1};
    static const size_t windows[] = {6, 2};
    Mix mix;
    make_mix(state, &mix, 2, parts, windows, 3);
    uint64_t next[2] = {0};
    for (uint64_t n = 0; n < 40; n++) {
        int32_t token = first_token(mix.loader, n, true), s = token / 1000;
        assert_int_equal(token % 1000 / LENGTH, next[s]++ % windows[s]);
    }
    assert_int_equal(next[0], 20);
    Error error;
    int32_t tokens[LENGTH], targets[LENGTH];
    for (uint64_t w = 0; w < 2; w++) {
        assert_int_equal(loader_source_window(mix.loader, tokens, targets, 1, w, &error), 0);
        assert_int_equal(tokens[0], 1000 + (int)w * LENGTH);
    }
    free_mix(&mix);
}

static void an_empty_source_is_named(void **state)
{
    Error error;
    PathList one = {0}, none = {0};
    make_source(state, &one, 0, 3);
    const LoaderSource sources[] = {{"web", &one, 1}, {"books", &none, 2}};
    assert_null(loader_create_mix(sources, 2, LENGTH, 1, 0, 0, &error));
    assert_says(&error, "books (0 shards");
    assert_null(loader_create_mix(sources, 1, 100, 1, 0, 0, &error));
    assert_says(&error, "web (1 shards");
    assert_says(&error, "13 tokens");
    path_list_free(&one);
}

// ---- the values of --data ----

static int parse(double *weights, PathList *data, size_t n, const char *const *texts, Error *error)
{
    *data = (PathList){0};
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(path_list_add(data, texts[i], error), 0);
    }
    int result = mix_parse(weights, data, error);
    return result;
}

static void weights_are_taken_off(void **state)
{
    Error error;
    PathList data;
    double weights[3];
    char *colon = make_file(state, "a:3", "x", 1), *plain = make_file(state, "a", "x", 1), text[512], other[512];
    snprintf(text, sizeof text, "%s:0.25", colon);
    snprintf(other, sizeof other, "%s:1e2", plain);
    assert_int_equal(parse(weights, &data, 3, (const char *[]){text, other, "web/*.jsonl:.5"}, &error), 0);
    assert_string_equal(data.items[0], colon);
    assert_string_equal(data.items[1], plain);
    assert_string_equal(data.items[2], "web/*.jsonl");
    assert_true(weights[0] == 0.25 && weights[1] == 100.0 && weights[2] == 0.5);
    path_list_free(&data);
    // As it stands it is a file, so it has no weight.
    assert_int_equal(parse(weights, &data, 2, (const char *[]){colon, plain}, &error), 0);
    assert_string_equal(data.items[0], colon);
    assert_true(weights[0] == 0.0 && weights[1] == 0.0);
    path_list_free(&data);

    snprintf(text, sizeof text, "%s:many", plain);
    const struct {
        const char *texts[2], *words;
    } wrong[] = {{{"b:0", "c:1"}, "must be above 0"}, {{"b:-2", "c:1"}, "must be above 0"}, {{"b:inf", "c:1"}, "must be above 0"},
                 {{"b:1e-300", "c:1"}, "must be above 0"}, {{text, "c:1"}, "ends with no weight"}, {{"b:1", "b:2"}, "given twice"},
                 {{"b:1", "c"}, "give every source a weight"}, {{":1", "c:1"}, "names no path"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(parse(weights, &data, 2, wrong[i].texts, &error), -1);
        assert_says(&error, wrong[i].words);
        path_list_free(&data);
    }
    free(colon);
    free(plain);
}

static void weights_become_whole_numbers(void **state)
{
    (void)state;
    uint32_t parts[3];
    mix_parts(parts, (const double[]){0.7, 0.3}, 2);
    assert_true(parts[0] == 7 && parts[1] == 3);
    mix_parts(parts, (const double[]){70.0, 29.125, 0.875}, 3);
    assert_true(parts[0] == 70000 && parts[1] == 29125 && parts[2] == 875);
    mix_parts(parts, (const double[]){4e9, 1e9}, 2);   // sizes of large sources: the ratio stays
    assert_true(fabs((double)parts[0] / (double)parts[1] - 4.0) < 1e-8 && (uint64_t)parts[0] + parts[1] <= LOADER_MAX_PARTS);
    mix_parts(parts, (const double[]){1.0 / 3.0, 2.0 / 3.0}, 2);
    assert_true(fabs((double)parts[1] / (double)parts[0] - 2.0) < 1e-8);
    mix_parts(parts, (const double[]){1e9, 1e-9}, 2);
    assert_true(parts[1] == 1 && parts[0] >= (1u << 30) - 1);
}

static void documents_start_at_their_first_token(void **state)
{
    (void)state;
    const int32_t tokens[] = {5, 0, 7, 0, 0, 9, 1, 0};
    const uint8_t wanted[] = {0, 1, 0, 1, 1, 0, 0, 1};
    uint8_t starts[9];
    memset(starts, 77, sizeof starts);
    loader_document_starts(starts, tokens, 8, 0);
    assert_memory_equal(starts, wanted, 8);
    assert_int_equal(starts[8], 77);
    loader_document_starts(starts, tokens, 8, 1);
    assert_int_equal(starts[6], 1);
    assert_int_equal(starts[1] + starts[3] + starts[7], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(shares_are_exact),
        TEST(each_source_has_its_epochs),
        TEST(the_order_is_a_pure_function),
        TEST(validation_is_in_order),
        TEST(an_empty_source_is_named),
        TEST(weights_are_taken_off),
        TEST(weights_become_whole_numbers),
        TEST(documents_start_at_their_first_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
