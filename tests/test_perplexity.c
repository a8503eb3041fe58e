// Perplexity on a small random model: the same targets for every context, the numbers of windows one by one, from documents and from shards; threads and
// copies change nothing.
#include <math.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "data/shards.h"
#include "infer/perplexity.h"
#include "tests/infer.h"

// Writes `count` documents of TEXT, each `repeat` times itself behind a number, into one .jsonl file.
static void write_documents(const Fixture *fixture, PathList *files, const char *name, size_t count, size_t repeat)
{
    Error error;
    char *path = path_join(fixture->folder, name);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    for (size_t i = 0; i < count; i++) {
        fputs("{\"text\": \"", out);
        for (size_t r = 0; r < repeat; r++) {
            fputs(TEXT, out);
        }
        fputs("\"}\n", out);
    }
    assert_int_equal(fclose(out), 0);
    assert_int_equal(path_list_add(files, path, &error), 0);
    free(path);
}

static TokenStream read_stream(const Fixture *fixture, const PathList *files, uint64_t max_targets)
{
    TokenStream stream;
    Error error;
    if (stream_read(&stream, files, fixture->tokenizer, (size_t)fixture->model.config.vocab_size, max_targets, &error) != 0) {
        fail_msg("%s", error.text);
    }
    return stream;
}

// Every window by itself, in one piece, summed in double; with `border` (or −1) a window ends before that token, too.
static double plain_nats(const Fixture *fixture, const TokenStream *stream, size_t context, int32_t border)
{
    Error error;
    double sum = 0.0;
    for (size_t begin = 0, length; begin + 1 < stream->count; begin += length) {
        size_t most = context - begin % context;
        most = stream->count - 1 - begin < most ? stream->count - 1 - begin : most;
        for (length = 1; length < most && stream->ids[begin + length] != border;) {
            length++;
        }
        Workspace *workspace = workspace_create(&fixture->model, 1, length, WORKSPACE_INFERENCE, &error);
        assert_non_null(workspace);
        model_forward(&fixture->model, workspace, NULL, 0, stream->ids + begin, 1, length);
        sum += model_loss(NULL, NULL, &fixture->model, workspace, stream->ids + begin + 1, 0.0f);
        workspace_free(workspace);
    }
    return sum;
}

static Score score_either(const Fixture *fixture, const TokenStream *stream, size_t context, bool reset_at_document)
{
    Score result;
    Error error;
    if (score_context(&result, &fixture->model, fixture->tokenizer, stream, context, reset_at_document, NULL, NULL, &error) != 0) {
        fail_msg("%s", error.text);
    }
    return result;
}

static Score score(const Fixture *fixture, const TokenStream *stream, size_t context) { return score_either(fixture, stream, context, false); }

static void all_contexts_score_the_same_targets(void **state)
{
    Fixture *fixture = *state;
    PathList files = {0};
    write_documents(fixture, &files, "two.jsonl", 2, 5);
    TokenStream stream = read_stream(fixture, &files, 0);
    assert_int_equal(stream.documents, 2);
    assert_int_equal(stream.bytes, 10 * strlen(TEXT));
    assert_int_equal(stream.ids[0], tokenizer_end_of_text(fixture->tokenizer));
    const size_t contexts[] = {1, 7, 64, 512, 700, stream.count - 1, stream.count + 5};
    for (size_t i = 0; i < sizeof contexts / sizeof contexts[0]; i++) {
        Score result = score(fixture, &stream, contexts[i]);
        assert_int_equal(result.tokens, stream.count - 1);
        assert_int_equal(result.bytes, stream.bytes);
        assert_int_equal(result.windows, (stream.count - 2) / contexts[i] + 1);
        if (i > 0) {
            double expected = plain_nats(fixture, &stream, contexts[i], -1);
            assert_true(fabs(result.nats / expected - 1.0) < 1e-5);
        }
        assert_true(fabs(score_bits_per_byte(&result) - result.nats / 0.6931471805599453 / (double)stream.bytes) < 1e-12);
        assert_true(fabs(log(score_perplexity(&result)) - score_loss(&result)) < 1e-9);
    }
    path_list_free(&files);
    stream_free(&stream);
}

static void documents_apart_score_as_windows_of_their_own(void **state)
{
    Fixture *fixture = *state;
    PathList files = {0};
    write_documents(fixture, &files, "short.jsonl", 1, 1);
    write_documents(fixture, &files, "apart.jsonl", 3, 3);
    TokenStream stream = read_stream(fixture, &files, 0);
    int32_t border = tokenizer_end_of_text(fixture->tokenizer);
    const size_t contexts[] = {1, 7, 64, 300, stream.count - 1, stream.count + 5};
    for (size_t i = 0; i < sizeof contexts / sizeof contexts[0]; i++) {
        Score result = score_either(fixture, &stream, contexts[i], true), run_on = score(fixture, &stream, contexts[i]);
        double expected = plain_nats(fixture, &stream, contexts[i], border);
        assert_int_equal(result.tokens, stream.count - 1);
        assert_int_equal(result.bytes, stream.bytes);
        assert_int_equal(result.windows, run_on.windows);
        assert_true(fabs(result.nats / expected - 1.0) < 1e-5);
        assert_true(contexts[i] == 1 || fabs(result.nats / run_on.nats - 1.0) > 1e-5);
    }
    path_list_free(&files);
    stream_free(&stream);
}

static void threads_and_repetition_change_no_bit(void **state)
{
    Fixture *fixture = *state;
    PathList files = {0};
    write_documents(fixture, &files, "threads.jsonl", 3, 2);
    TokenStream stream = read_stream(fixture, &files, 0);
    Score first = score(fixture, &stream, 100);
    for (int threads = 1; threads <= 8; threads *= 2) {
#ifdef _OPENMP
        omp_set_num_threads(threads);
#endif
        Score again = score(fixture, &stream, 100);
        assert_true(again.nats == first.nats);
    }
#ifdef _OPENMP
    omp_set_num_threads(2);
#endif
    path_list_free(&files);
    stream_free(&stream);
}

static void positions_add_up_and_copies_change_nothing(void **state)
{
    Fixture *fixture = *state;
    PathList one = {0}, two = {0};
    Error error;
    write_documents(fixture, &one, "one.jsonl", 1, 6);
    write_documents(fixture, &two, "copies.jsonl", 2, 6);
    TokenStream single = read_stream(fixture, &one, 0), copies = read_stream(fixture, &two, 0);
    Score a[SCORE_MAX_BUCKETS], b[SCORE_MAX_BUCKETS];
    size_t n_a = 0, n_b = 0;
    assert_int_equal(score_positions(a, &n_a, &fixture->model, fixture->tokenizer, &single, NULL, NULL, &error), 0);
    assert_int_equal(score_positions(b, &n_b, &fixture->model, fixture->tokenizer, &copies, NULL, NULL, &error), 0);
    assert_int_equal(n_a, n_b);
    assert_true(n_a >= 4);
    double nats = 0.0;
    uint64_t tokens = 0, bytes = 0, next = 0;
    for (size_t i = 0; i < n_a; i++) {
        assert_int_equal(a[i].first, next);
        next = a[i].last + 1;
        assert_int_equal(next, (uint64_t)64 << i);
        assert_int_equal(b[i].windows, 2);
        assert_int_equal(b[i].tokens, 2 * a[i].tokens);
        assert_true(fabs(score_loss(&a[i]) - score_loss(&b[i])) < 1e-6);
        if (i + 1 < n_a) {
            assert_int_equal(a[i].tokens, next - a[i].first);
        }
        nats += a[i].nats;
        tokens += a[i].tokens;
        bytes += a[i].bytes;
    }
    // One document, read once: the same as one window that holds all of it.
    Score all = score(fixture, &single, single.count - 1);
    assert_int_equal(tokens, all.tokens);
    assert_int_equal(bytes, 6 * strlen(TEXT));
    assert_true(fabs(nats / all.nats - 1.0) < 1e-6);
    stream_free(&single);
    stream_free(&copies);
    path_list_free(&one);
    path_list_free(&two);
}

static char *write_shard(const Fixture *fixture, const char *prefix, const int32_t *ids, size_t count, size_t vocab, uint32_t hash)
{
    Error error;
    ShardWriter *writer = shard_writer_create(fixture->folder, prefix, 1 << 20, vocab, hash, &error);
    assert_non_null(writer);
    assert_int_equal(shard_writer_add(writer, ids, count, &error), 0);
    uint64_t total = 0;
    size_t n_shards = 0;
    assert_int_equal(shard_writer_close(writer, &total, &n_shards, &error), 0);
    assert_int_equal(total, count);
    char name[64];
    snprintf(name, sizeof name, "%s_000000.bin", prefix);
    return path_join(fixture->folder, name);
}

static void shards_give_the_same_stream_and_strangers_are_refused(void **state)
{
    Fixture *fixture = *state;
    PathList documents = {0}, shards = {0};
    Error error;
    size_t vocab = (size_t)fixture->model.config.vocab_size;
    write_documents(fixture, &documents, "shards.jsonl", 3, 1);
    TokenStream stream = read_stream(fixture, &documents, 0), again, short_stream = read_stream(fixture, &documents, 50);
    assert_int_equal(short_stream.count, 51);
    assert_memory_equal(short_stream.ids, stream.ids, 51 * sizeof(int32_t));
    stream_free(&short_stream);
    // Cut in the middle of a document, the first shard without its leading <|endoftext|>, of known and of unknown tokenizer.
    size_t half = stream.count / 2;
    char *first = write_shard(fixture, "first", stream.ids + 1, half - 1, vocab, tokenizer_hash(fixture->tokenizer));
    char *second = write_shard(fixture, "second", stream.ids + half, stream.count - half, vocab, 0);
    assert_int_equal(path_list_add(&shards, first, &error), 0);
    assert_int_equal(path_list_add(&shards, second, &error), 0);
    again = read_stream(fixture, &shards, 0);
    assert_int_equal(again.count, stream.count);
    assert_int_equal(again.bytes, stream.bytes);
    assert_int_equal(again.documents, 3);
    assert_memory_equal(again.ids, stream.ids, stream.count * sizeof(int32_t));
    stream_free(&again);

    char *strange = write_shard(fixture, "strange", stream.ids, 20, vocab, tokenizer_hash(fixture->tokenizer) + 1);
    PathList list = {0};
    assert_int_equal(path_list_add(&list, strange, &error), 0);
    assert_int_equal(stream_read(&again, &list, fixture->tokenizer, vocab, 0, &error), -1);
    assert_non_null(strstr(error.text, "another tokenizer"));
    int32_t outside[] = {1, 2, (int32_t)vocab, 3};
    char *wide = write_shard(fixture, "wide", outside, 4, 50000, 0);
    free(list.items[0]);
    list.items[0] = strdup(wide);
    assert_int_equal(stream_read(&again, &list, fixture->tokenizer, vocab, 0, &error), -1);
    assert_non_null(strstr(error.text, "place 2"));
    PathList none = {0};
    assert_int_equal(stream_read(&again, &none, fixture->tokenizer, vocab, 0, &error), -1);
    char *names[] = {first, second, strange, wide};
    for (size_t i = 0; i < 4; i++) {
        free(names[i]);
    }
    path_list_free(&list);
    path_list_free(&documents);
    path_list_free(&shards);
    stream_free(&stream);
}

// A window far longer than the text takes no more memory than the text, and scores as one that just reaches over it.
static void long_windows_of_attention_cost_what_contexts_need(void **state)
{
    Fixture *fixture = *state;
    PathList files = {0};
    Error error = {""};
    size_t vocab = (size_t)fixture->model.config.vocab_size;
    write_documents(fixture, &files, "windows.jsonl", 3, 6);
    TokenStream stream = read_stream(fixture, &files, 0);
    Fixture far = *fixture, near = *fixture;
    make_mixer_model(&far.model, vocab, "attention:16777216,attention:100", 1);   // 3 GB a sequence, if it were all there
    make_mixer_model(&near.model, vocab, "attention:700,attention:100", 1);
    const size_t contexts[] = {1, 64, 300, 700};
    assert_true(stream.count > 800);
    for (size_t i = 0; i < sizeof contexts / sizeof contexts[0]; i++) {
        Score a = score(&far, &stream, contexts[i]), b = score(&near, &stream, contexts[i]);
        assert_true(a.nats == b.nats);
        assert_true(contexts[i] == 1 || fabs(a.nats / plain_nats(&near, &stream, contexts[i], -1) - 1.0) < 1e-5);
    }
    Score buckets[2][SCORE_MAX_BUCKETS];
    size_t count = 0;
    assert_int_equal(score_positions(buckets[0], &count, &far.model, fixture->tokenizer, &stream, NULL, NULL, &error), 0);
    assert_int_equal(score_positions(buckets[1], &count, &near.model, fixture->tokenizer, &stream, NULL, NULL, &error), 0);
    assert_memory_equal(buckets[0], buckets[1], count * sizeof buckets[0][0]);
    model_free(&far.model);
    model_free(&near.model);
    stream_free(&stream);
    path_list_free(&files);
}

static void loss_that_is_not_finite_is_an_error(void **state)
{
    Fixture *fixture = *state;
    PathList files = {0};
    Error error;
    write_documents(fixture, &files, "nan.jsonl", 1, 1);
    TokenStream stream = read_stream(fixture, &files, 0);
    Model broken;
    make_model(&broken, (size_t)fixture->model.config.vocab_size, 1);
    broken.params[tensor_find(&broken.table, "norm.weight")->offset] = NAN;
    Score result;
    assert_int_equal(score_context(&result, &broken, fixture->tokenizer, &stream, 32, false, NULL, NULL, &error), -1);
    assert_non_null(strstr(error.text, "not finite"));
    model_free(&broken);
    stream_free(&stream);
    path_list_free(&files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_contexts_score_the_same_targets),
        cmocka_unit_test(documents_apart_score_as_windows_of_their_own),
        cmocka_unit_test(threads_and_repetition_change_no_bit),
        cmocka_unit_test(positions_add_up_and_copies_change_nothing),
        cmocka_unit_test(shards_give_the_same_stream_and_strangers_are_refused),
        cmocka_unit_test(long_windows_of_attention_cost_what_contexts_need),
        cmocka_unit_test(loss_that_is_not_finite_is_an_error),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
