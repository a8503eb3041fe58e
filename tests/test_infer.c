// Sessions, state files and perplexity on a small random model: one text read in every way gives the same numbers; other models' and
// altered files are refused.
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

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/file.h"
#include "base/rng.h"
#include "data/shards.h"
#include "infer/perplexity.h"
#include "infer/sampler.h"
#include "infer/session.h"
#include "tokenizer/bpe_train.h"

static const char TEXT[] = "One morning the fox went down to the river, and the river said: come in, come in! The fox did not. "
                           "He sat on a stone in the sun and thought about the morning, the river and the hen. It was a very long morning; "
                           "the sun went up and up. ";

typedef struct Fixture {
    Tokenizer *tokenizer;
    Model model;
    char folder[64];
} Fixture;

// Larger than the usual start values, so that what comes next depends on what was read.
static void fill_model(Model *model, uint64_t seed)
{
    model_init(model, seed, 64);
    for (size_t i = 0; i < model->table.count; i++) {
        const Tensor *tensor = &model->table.items[i];
        for (size_t j = 0; j < tensor->count && tensor->is_matrix; j++) {
            model->params[tensor->offset + j] *= 8.0f;
        }
    }
}

static void make_model(Model *model, size_t vocab, uint64_t seed)
{
    Error error;
    ModelConfig config;
    assert_int_equal(config_preset(&config, "nano", &error), 0);
    config.vocab_size = (int64_t)vocab;
    config.d_model = 32;
    config.n_layer = 2;
    config.n_head = 2;
    config.d_head = 12;
    config.n_slot = 9;
    config.mlp_hidden = 40;
    const Kernels *kernels = kernels_select(&error);
    assert_non_null(kernels);
    if (model_create(model, &config, kernels, &error) != 0) {
        fail_msg("%s", error.text);
    }
    fill_model(model, seed);
}

static int set_up(void **state)
{
    Fixture *fixture = calloc(1, sizeof *fixture);
    Error error;
    BpeTrainer *trainer = bpe_trainer_create(&error);
    assert_non_null(trainer);
    assert_int_equal(bpe_trainer_add(trainer, 0, TEXT, strlen(TEXT), &error), 0);
    fixture->tokenizer = bpe_trainer_finish(trainer, 300, &error);
    bpe_trainer_free(trainer);
    assert_non_null(fixture->tokenizer);
    make_model(&fixture->model, tokenizer_vocab_size(fixture->tokenizer), 1);
    const char *temporary = getenv("TMPDIR");
    snprintf(fixture->folder, sizeof fixture->folder, "%s/lattice-infer-XXXXXX",
             temporary != NULL && strlen(temporary) < 40 ? temporary : "/tmp");
    assert_non_null(mkdtemp(fixture->folder));
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    Fixture *fixture = *state;
    Error error;
    assert_int_equal(folder_remove(fixture->folder, &error), 0);
    tokenizer_free(fixture->tokenizer);
    model_free(&fixture->model);
    free(fixture);
    return 0;
}

static int32_t *random_tokens(const Fixture *fixture, size_t count, uint64_t seed)
{
    int32_t *tokens = malloc((count + 1) * sizeof *tokens);
    assert_non_null(tokens);
    Rng rng;
    rng_seed(&rng, seed, 0);
    for (size_t i = 0; i < count; i++) {
        tokens[i] = (int32_t)rng_below(&rng, (uint64_t)fixture->model.config.vocab_size);
    }
    return tokens;
}

static Session *open_session(const Fixture *fixture, size_t capacity, size_t piece)
{
    Error error;
    Session *session = session_create(&fixture->model, capacity, piece, &error);
    assert_non_null(session);
    return session;
}

static double relative_rms(const float *a, const float *b, size_t n)
{
    double difference = 0.0, size = 0.0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return sqrt(difference / size);
}

// ---- sessions ----

static void whole_in_pieces_and_by_token_agree(void **state)
{
    Fixture *fixture = *state;
    size_t vocab = (size_t)fixture->model.config.vocab_size, total = fixture->model.state.total;
    enum { LENGTH = 301 };
    int32_t *tokens = random_tokens(fixture, LENGTH, 5);
    Session *whole = open_session(fixture, 1, LENGTH), *pieces = open_session(fixture, 1, 64), *single = open_session(fixture, 1, 0);
    assert_null(session_logits(whole, 0));
    session_feed(whole, tokens, LENGTH);
    session_feed(pieces, tokens, 0);
    session_feed(pieces, tokens, 1);
    session_feed(pieces, tokens + 1, LENGTH - 1);
    for (size_t i = 0; i < LENGTH; i++) {
        session_step(single, &tokens[i]);
    }
    assert_int_equal(whole->position, LENGTH);
    assert_int_equal(pieces->position, LENGTH);
    assert_int_equal(single->position, LENGTH);
    assert_true(relative_rms(session_logits(pieces, 0), session_logits(whole, 0), vocab) < 1e-4);
    assert_true(relative_rms(session_logits(single, 0), session_logits(whole, 0), vocab) < 1e-4);
    assert_true(relative_rms(pieces->states, whole->states, total) < 1e-4);
    assert_true(relative_rms(single->states, whole->states, total) < 1e-4);
    // Another history gives other logits: the comparison above compares something.
    session_reset(single);
    session_feed(single, tokens + LENGTH - 20, 20);
    assert_true(relative_rms(session_logits(single, 0), session_logits(whole, 0), vocab) > 1e-2);
    session_free(whole);
    session_free(pieces);
    session_free(single);
    free(tokens);
}

static void forked_sequences_go_their_own_ways(void **state)
{
    Fixture *fixture = *state;
    size_t vocab = (size_t)fixture->model.config.vocab_size;
    enum { PROMPT = 40, STEPS = 12, BATCH = 3 };
    int32_t *tokens = random_tokens(fixture, PROMPT + BATCH * STEPS, 6);
    Session *batch = open_session(fixture, BATCH, 0), *alone = open_session(fixture, 1, 0);
    session_feed(batch, tokens, PROMPT);
    session_fork(batch, BATCH);
    assert_memory_equal(session_logits(batch, 2), session_logits(batch, 0), vocab * sizeof(float));
    for (size_t t = 0; t < STEPS; t++) {
        int32_t next[BATCH];
        for (size_t b = 0; b < BATCH; b++) {
            next[b] = tokens[PROMPT + b * STEPS + t];
        }
        session_step(batch, next);
    }
    for (size_t b = 0; b < BATCH; b++) {
        session_reset(alone);
        session_feed(alone, tokens, PROMPT);
        for (size_t t = 0; t < STEPS; t++) {
            session_step(alone, &tokens[PROMPT + b * STEPS + t]);
        }
        assert_true(relative_rms(session_logits(batch, b), session_logits(alone, 0), vocab) < 1e-4);
    }
    assert_int_equal(batch->position, PROMPT + STEPS);
    session_free(batch);
    session_free(alone);
    free(tokens);
}

// Up to 16 sequences that are decoded together take the steps that each takes alone, bit by bit, whatever the weights are.
static void together_as_alone_in_every_type(void **state)
{
    Fixture *fixture = *state;
    size_t vocab = (size_t)fixture->model.config.vocab_size, total = fixture->model.state.total;
    enum { PROMPT = 30, STEPS = 6, BATCH = 16 };
    int32_t *tokens = random_tokens(fixture, PROMPT + BATCH * STEPS, 9), next[BATCH];
    for (WeightType type = WEIGHTS_F32; type <= WEIGHTS_INT8; type++) {
        Error error;
        Model model;
        make_model(&model, vocab, 1);
        assert_int_equal(model_pack(&model, type, &error), 0);
        Session *batch = session_create(&model, BATCH, 0, &error), *alone = session_create(&model, 1, 0, &error);
        assert_true(batch != NULL && alone != NULL);
        session_feed(batch, tokens, PROMPT);
        session_fork(batch, BATCH);
        for (size_t t = 0; t < STEPS; t++) {
            for (size_t b = 0; b < BATCH; b++) {
                next[b] = tokens[PROMPT + b * STEPS + t];
            }
            session_step(batch, next);
        }
        for (size_t b = 0; b < BATCH; b++) {
            session_reset(alone);
            session_feed(alone, tokens, PROMPT);
            for (size_t t = 0; t < STEPS; t++) {
                session_step(alone, &tokens[PROMPT + b * STEPS + t]);
            }
            assert_memory_equal(session_logits(batch, b), session_logits(alone, 0), vocab * sizeof(float));
            assert_memory_equal(batch->states + b * total, alone->states, total * sizeof(float));
        }
        // In matrices and token by token: rounding and quantising differ, the text does not.
        Session *single = session_create(&model, 1, 1, &error);
        session_feed(single, tokens, PROMPT);
        session_reset(alone);
        session_feed(alone, tokens, PROMPT);
        static const double tolerance[] = {[WEIGHTS_F32] = 1e-4, [WEIGHTS_BF16] = 2e-2, [WEIGHTS_INT8] = 5e-2};
        assert_true(relative_rms(session_logits(single, 0), session_logits(alone, 0), vocab) < tolerance[type]);
        session_free(single);
        session_free(batch);
        session_free(alone);
        model_free(&model);
    }
    free(tokens);
}

static void generate_tokens(Session *session, Sampler *sampler, int32_t *out, size_t count)
{
    Error error;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(sampler_sample(sampler, &out[i], session_logits(session, 0), &error), 0);
        session_step(session, &out[i]);
    }
}

static void saved_and_restored_goes_on_with_the_same_bits(void **state)
{
    Fixture *fixture = *state;
    size_t vocab = (size_t)fixture->model.config.vocab_size;
    char *path = path_join(fixture->folder, "a.state");
    Error error;
    SamplerOptions options;
    sampler_defaults(&options);
    options.repeat_penalty = 1.2;
    Sampler sampler;
    assert_int_equal(sampler_create(&sampler, &options, vocab, 3, 0, &error), 0);
    int32_t *prompt = random_tokens(fixture, 70, 7), once[60], twice[60];
    Session *session = open_session(fixture, 1, 0);
    session_feed(session, prompt, 70);
    generate_tokens(session, &sampler, once, 60);

    Sampler again;
    assert_int_equal(sampler_create(&again, &options, vocab, 3, 0, &error), 0);
    Session *first = open_session(fixture, 1, 0), *second = open_session(fixture, 2, 16);
    session_feed(first, prompt, 70);
    generate_tokens(first, &again, twice, 25);
    char *note = sampler_to_text(&again), *loaded = NULL;
    assert_int_equal(session_save(first, path, note, &error), 0);
    session_feed(second, prompt, 11);   // a session in use may be replaced
    session_fork(second, 2);
    Sampler other;
    assert_int_equal(sampler_create(&other, &options, vocab, 99, 0, &error), 0);
    assert_int_equal(session_load(second, path, &loaded, &error), 0);
    assert_string_equal(loaded, note);
    assert_int_equal(second->position, 95);
    assert_int_equal(second->batch, 1);
    assert_int_equal(sampler_from_text(&other, loaded, &error), 0);
    generate_tokens(second, &other, twice + 25, 35);
    assert_memory_equal(once, twice, sizeof once);
    assert_memory_equal(session->states, second->states, fixture->model.state.total * sizeof(float));
    assert_memory_equal(session->logits, second->logits, vocab * sizeof(float));

    Session *fresh = open_session(fixture, 1, 0);
    assert_int_equal(session_save(fresh, path, NULL, &error), -1);
    assert_int_equal(session_save(first, "/nonexistent-folder/a.state", NULL, &error), -1);
    assert_int_equal(session_save(first, path, NULL, &error), 0);
    free(loaded);
    assert_int_equal(session_load(fresh, path, &loaded, &error), 0);
    assert_string_equal(loaded, "");
    Session *sessions[] = {session, first, second, fresh};
    for (size_t i = 0; i < 4; i++) {
        session_free(sessions[i]);
    }
    sampler_free(&sampler);
    sampler_free(&again);
    sampler_free(&other);
    free(note);
    free(loaded);
    free(prompt);
    free(path);
}

static void expect_refused(Session *session, const char *path, const char *expected)
{
    Error error = {""};
    size_t total = session->model->state.total, position = session->position;
    float *before = malloc(total * sizeof(float));
    memcpy(before, session->states, total * sizeof(float));
    assert_int_equal(session_load(session, path, NULL, &error), -1);
    assert_non_null(strstr(error.text, path_base(path)));
    if (strstr(error.text, expected) == NULL) {
        fail_msg("expected '%s' in: %s", expected, error.text);
    }
    assert_int_equal(session->position, position);
    assert_memory_equal(before, session->states, total * sizeof(float));
    free(before);
}

// Without the fsync of file_write_atomic, which would make thousands of small writes slow.
static void write_file(const char *path, const char *bytes, size_t size)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, size, out), size);
    assert_int_equal(fclose(out), 0);
}

static void wrong_and_altered_state_files_are_refused(void **state)
{
    Fixture *fixture = *state;
    char *path = path_join(fixture->folder, "b.state"), *changed = path_join(fixture->folder, "changed.state");
    Error error;
    int32_t *prompt = random_tokens(fixture, 30, 8);
    Session *session = open_session(fixture, 1, 0);
    session_feed(session, prompt, 30);
    assert_int_equal(session_save(session, path, "note", &error), 0);
    size_t size = 0;
    char *bytes = file_read(path, 1 << 24, &size, &error);
    assert_non_null(bytes);
    session_feed(session, prompt, 3);

    Model other;
    make_model(&other, (size_t)fixture->model.config.vocab_size, 2);
    Session *stranger = session_create(&other, 1, 0, &error);
    assert_non_null(stranger);
    expect_refused(stranger, path, "another model");
    session_free(stranger);
    model_free(&other);

    // Every byte of the header and every 101st of the data, one bit flipped each.
    uint64_t header = 0;
    memcpy(&header, bytes, 8);
    size_t n_tried = 0;
    for (size_t i = 0; i < size; i += i < header + 8 ? 1 : 101) {
        bytes[i] = (char)(bytes[i] ^ 0x01);
        write_file(changed, bytes, size);
        // A space of the header's padding may become '!', which no parser may accept either.
        expect_refused(session, changed, "");
        bytes[i] = (char)(bytes[i] ^ 0x01);
        n_tried++;
    }
    assert_true(n_tried > header);
    const size_t cuts[] = {0, 7, 8, 100, (size_t)header + 8, size / 2, size - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        write_file(changed, bytes, cuts[i]);
        expect_refused(session, changed, "");
    }
    bytes[size - 2] = (char)(bytes[size - 2] ^ 0x10);
    write_file(changed, bytes, size);
    expect_refused(session, changed, "checksum");
    unlink(changed);
    expect_refused(session, changed, "");
    session_free(session);
    free(bytes);
    free(prompt);
    free(path);
    free(changed);
}

// ---- perplexity ----

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
        cmocka_unit_test(whole_in_pieces_and_by_token_agree),
        cmocka_unit_test(forked_sequences_go_their_own_ways),
        cmocka_unit_test(together_as_alone_in_every_type),
        cmocka_unit_test(saved_and_restored_goes_on_with_the_same_bits),
        cmocka_unit_test(wrong_and_altered_state_files_are_refused),
        cmocka_unit_test(all_contexts_score_the_same_targets),
        cmocka_unit_test(documents_apart_score_as_windows_of_their_own),
        cmocka_unit_test(threads_and_repetition_change_no_bit),
        cmocka_unit_test(positions_add_up_and_copies_change_nothing),
        cmocka_unit_test(shards_give_the_same_stream_and_strangers_are_refused),
        cmocka_unit_test(loss_that_is_not_finite_is_an_error),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
