// Sessions and state files on a small random model: one text read in every way gives the same numbers; other models' and altered files are
// refused.
#include <math.h>

#include "infer/sampler.h"
#include "infer/session.h"
#include "tests/infer.h"

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

static void whole_in_pieces_and_by_token_agree(void **state)
{
    Fixture *fixture = *state;
    size_t vocab = (size_t)fixture->model.config.vocab_size, total = fixture->model.state.table.total;
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
    size_t vocab = (size_t)fixture->model.config.vocab_size, total = fixture->model.state.table.total;
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
    assert_memory_equal(session->states, second->states, fixture->model.state.table.total * sizeof(float));
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
    size_t total = session->model->state.table.total, position = session->position;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_in_pieces_and_by_token_agree),
        cmocka_unit_test(forked_sequences_go_their_own_ways),
        cmocka_unit_test(together_as_alone_in_every_type),
        cmocka_unit_test(saved_and_restored_goes_on_with_the_same_bits),
        cmocka_unit_test(wrong_and_altered_state_files_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
