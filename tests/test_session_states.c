// The size of states: attention keeps no more tokens than a session has room for, with the bits of a state for whole windows; state files of either size
// load; what no machine holds, and files of another size, are refused.
#include <inttypes.h>

#include <xxhash.h>

#include "base/memory.h"
#include "checkpoint/safetensors.h"
#include "infer/session.h"
#include "tests/infer.h"

#define LONG "attention:16777216"        // 3 GB for each layer and sequence, if it were all there
#define MIXED "attention:70," LONG       // a ring that turns beside one that does not
#define MIXED_SHORT "attention:70,attention:500"

enum { LENGTH = 460, FIRST = 130 };

static void random_tokens(int32_t *tokens, size_t count, size_t vocab)
{
    Rng rng;
    rng_seed(&rng, 5, 0);
    for (size_t i = 0; i < count; i++) {
        tokens[i] = (int32_t)rng_below(&rng, (uint64_t)vocab);
    }
}

static Session *open_session(const Model *model, size_t capacity)
{
    Error error;
    Session *session = session_create(model, capacity, 64, &error);
    assert_non_null(session);
    return session;
}

static void reserve(Session *session, size_t count)
{
    Error error;
    if (session_reserve(session, count, &error) != 0) {
        fail_msg("%s", error.text);
    }
}

// The state for whole windows and the logits after `count` tokens, in pieces of 64 as a session reads them and then one by one from `steps_from` on.
static void run_whole(float *state, float *logits, const Model *model, const int32_t *tokens, size_t count, size_t steps_from)
{
    Error error;
    Workspace *workspace = workspace_create(model, 1, 64, WORKSPACE_INFERENCE, &error);
    assert_non_null(workspace);
    model_state_init(model, &model->state, state);
    for (size_t begin = 0, length; begin < count; begin += length) {
        size_t stop = begin < steps_from ? steps_from : begin + 1;
        length = stop - begin < 64 ? stop - begin : 64;
        length = length < count - begin ? length : count - begin;
        model_forward(model, workspace, state, begin, tokens + begin, 1, length);
        model_logits(logits, model, workspace, length - 1, 1);
    }
    workspace_free(workspace);
}

static void room_changes_no_bit(void **state)
{
    const Fixture *fixture = *state;
    size_t vocab = (size_t)fixture->model.config.vocab_size, bytes = vocab * sizeof(float);
    int32_t tokens[LENGTH];
    Model model, model_short;
    random_tokens(tokens, LENGTH, vocab);
    make_mixer_model(&model, vocab, MIXED, 1);
    make_mixer_model(&model_short, vocab, MIXED_SHORT, 1);
    float *whole = malloc(model_short.state.table.total * sizeof *whole), *logits = malloc(bytes);
    assert_true(whole != NULL && logits != NULL);
    Session *once = open_session(&model, 1), *grown = open_session(&model, 3);
    reserve(once, LENGTH);
    assert_true(once->layout.table.total < model.state.table.total / 1000);
    session_feed(once, tokens, FIRST);
    // Room in several steps: before, between and while three sequences live.
    reserve(grown, 64);
    session_feed(grown, tokens, 64);
    reserve(grown, FIRST - 64);
    session_feed(grown, tokens + 64, FIRST - 64);
    session_fork(grown, 3);
    for (size_t t = FIRST; t < LENGTH; t++) {
        int32_t same[3] = {tokens[t], tokens[t], tokens[t]};
        session_step(once, &tokens[t]);
        reserve(grown, t % 3 + 1);
        session_step(grown, same);
        if (t % 50 == 0 || t + 1 == LENGTH) {
            run_whole(whole, logits, &model_short, tokens, t + 1, FIRST);
            assert_memory_equal(session_logits(once, 0), logits, bytes);
            assert_memory_equal(session_logits(grown, 0), logits, bytes);
            assert_memory_equal(session_logits(grown, 2), logits, bytes);
        }
    }
    // The window alone from here on: no room is ever wanted again.
    Session *full = open_session(&model_short, 1);
    reserve(full, SIZE_MAX);
    assert_int_equal(full->layout.table.total, model_short.state.table.total);
    const float *states = full->states;
    reserve(full, SIZE_MAX);
    assert_ptr_equal(full->states, states);
    session_free(full);
    session_free(once);
    session_free(grown);
    free(whole);
    free(logits);
    model_free(&model);
    model_free(&model_short);
}

static void more_than_a_machine_has_is_refused(void **state)
{
    if (memory_available() == 0.0) {
        print_message("skipped: this system does not tell how much memory is available\n");
        return;
    }
    const Fixture *fixture = *state;
    size_t vocab = (size_t)fixture->model.config.vocab_size;
    Error error = {""};
    Model model;
    int32_t token = 1;
    make_mixer_model(&model, vocab, LONG, 1);
    Session *session = open_session(&model, 512);   // 3 TB
    reserve(session, 2);
    session_feed(session, &token, 1);
    assert_int_equal(session_reserve(session, 1 << 24, &error), -1);
    assert_non_null(strstr(error.text, "the states of 512 sequences"));
    assert_non_null(strstr(error.text, "TB"));
    session_feed(session, &token, 1);   // it goes on as before
    assert_int_equal(session->position, 2);
    session_free(session);
    model_free(&model);
}

static void set_checksum(char checksum[24], const char *hash, const char *position, const char *note, const float *states, size_t n_states,
                         const float *logits, size_t n_logits)
{
    uint64_t sum = XXH3_64bits_withSeed(hash, strlen(hash), 1);
    sum = XXH3_64bits_withSeed(position, strlen(position), sum);
    sum = XXH3_64bits_withSeed(note, strlen(note), sum);
    sum = XXH3_64bits_withSeed(states, n_states * sizeof(float), sum);
    sum = XXH3_64bits_withSeed(logits, n_logits * sizeof(float), sum);
    snprintf(checksum, 24, "%016" PRIx64, sum);
}

// A state file with these tensors, and what else stands in the one at `model_of`.
static void write_state(const char *path, const char *model_of, const TensorTable *table, const float *states, const float *logits, size_t vocab)
{
    SafeFile file;
    Error error;
    char checksum[24];
    assert_int_equal(safetensors_open(&file, model_of, &error), 0);
    const char *hash = safetensors_metadata(&file, "model_hash"), *position = safetensors_metadata(&file, "position");
    SafeTensorOut *tensors = calloc(table->count + 1, sizeof *tensors);
    assert_non_null(tensors);
    for (size_t i = 0; i < table->count; i++) {
        const Tensor *tensor = &table->items[i];
        tensors[i] = (SafeTensorOut){tensor->name, tensor->n_dims, tensor->shape, states + tensor->offset};
    }
    tensors[table->count] = (SafeTensorOut){"logits", 1, &vocab, logits};
    set_checksum(checksum, hash, position, "note", states, table->total, logits, vocab);
    const char *metadata[] = {"format", "lattice-state", "version", "1", "model_hash", hash, "position", position, "checksum", checksum,
                              "note",   "note",          NULL};
    assert_int_equal(safetensors_write(path, tensors, table->count + 1, metadata, &error), 0);
    free(tensors);
    safetensors_close(&file);
}

// Loads the file into a session with its own room, and goes on by steps to LENGTH, where the logits must be those.
static void check_goes_on(const Model *model, const char *path, size_t room, const int32_t *tokens, const float *logits, size_t vocab)
{
    Error error;
    Session *session = open_session(model, 2);
    reserve(session, room);
    if (session_load(session, path, NULL, &error) != 0) {
        fail_msg("%s", error.text);
    }
    reserve(session, LENGTH - session->position);
    for (size_t t = session->position; t < LENGTH; t++) {
        session_step(session, &tokens[t]);
    }
    assert_memory_equal(session_logits(session, 0), logits, vocab * sizeof(float));
    session_free(session);
}

// Saved after so many tokens: the file is as small as they allow; one of whole windows, as it was written once, loads as well.
static void state_files_of_either_size_load(void **state)
{
    const Fixture *fixture = *state;
    size_t vocab = (size_t)fixture->model.config.vocab_size;
    static const size_t positions[] = {FIRST, 1, 64, 128, 300, LENGTH};
    int32_t tokens[LENGTH];
    Error error;
    Model model;
    random_tokens(tokens, LENGTH, vocab);
    make_mixer_model(&model, vocab, "attention:70,attention:350", 1);
    char *path = path_join(fixture->folder, "small.state"), *again = path_join(fixture->folder, "again.state"), *old = path_join(fixture->folder, "old.state");
    float *whole = malloc(model.state.table.total * sizeof *whole), *logits = malloc(vocab * sizeof *logits), *last = malloc(vocab * sizeof *last);
    assert_true(whole != NULL && logits != NULL && last != NULL);
    for (size_t i = 0; i < sizeof positions / sizeof positions[0]; i++) {
        size_t position = positions[i];
        run_whole(whole, last, &model, tokens, LENGTH, position);
        run_whole(whole, logits, &model, tokens, position, position);
        Session *session = open_session(&model, 1), *roomy = open_session(&model, 1);
        reserve(session, position);
        reserve(roomy, position + 90);
        session_feed(session, tokens, position);
        session_feed(roomy, tokens, position);
        assert_int_equal(session_save(session, path, "note", &error), 0);
        assert_int_equal(session_save(roomy, again, "note", &error), 0);
        assert_int_equal(file_size(path), file_size(again));
        write_state(old, path, &model.state.table, whole, logits, vocab);
        assert_true(position >= 350 ? file_size(path) == file_size(old) : file_size(path) < file_size(old));
        const char *const files[] = {path, again, old};
        for (size_t file = 0; file < 3; file++) {
            check_goes_on(&model, files[file], 1, tokens, last, vocab);
            check_goes_on(&model, files[file], LENGTH, tokens, last, vocab);
        }
        session_free(session);
        session_free(roomy);
    }
    free(whole);
    free(logits);
    free(last);
    free(path);
    free(again);
    free(old);
    model_free(&model);
}

// Tensors of another size, but with all sums right: too short for the tokens that were read, too long, and with two memories where there is one.
static void state_files_of_other_sizes_are_refused(void **state)
{
    const Fixture *fixture = *state;
    size_t vocab = (size_t)fixture->model.config.vocab_size;
    Error error = {""};
    int32_t tokens[200];
    char *path = path_join(fixture->folder, "right.state"), *wrong = path_join(fixture->folder, "wrong.state");
    float *logits = calloc(vocab, sizeof *logits);
    random_tokens(tokens, 200, vocab);
    for (int i = 0; i < 3; i++) {
        Model model;
        ModelConfig config = infer_config(vocab);
        snprintf(config.mixer, sizeof config.mixer, "%s", i < 2 ? "attention:300" : "lattice");
        config.objective = i < 2 ? config.objective : "encode";
        config.n_slot = i < 2 ? config.d_head : config.n_slot;
        make_model_of(&model, &config, 1);
        Session *session = open_session(&model, 1);
        reserve(session, 200);
        session_feed(session, tokens, 200);
        assert_int_equal(session_save(session, path, "note", &error), 0);
        StateLayout other;
        config.chunk = i < 2 ? 1 : 2;   // chunks of two tokens have what every chunk had once
        if (i == 1) {
            snprintf(config.mixer, sizeof config.mixer, "attention:999");
        }
        assert_int_equal(state_layout_create(&other, &config, i == 0 ? 64 : SIZE_MAX, &error), 0);
        float *states = calloc(other.table.total, sizeof *states);
        assert_true(states != NULL && logits != NULL);
        write_state(wrong, path, &other.table, states, logits, vocab);
        assert_int_equal(session_load(session, wrong, NULL, &error), -1);
        assert_non_null(strstr(error.text, "wrong.state"));
        static const char *const found[] = {"[2, 3072]", "[2, 26112]", "[4, 9, 12]"}, *const expected[] = {"[2, 7680]", "[2, 7680]", "[2, 9, 12]"};
        if (strstr(error.text, found[i]) == NULL || strstr(error.text, expected[i]) == NULL) {
            fail_msg("no sizes in: %s", error.text);
        }
        assert_int_equal(session->position, 200);
        free(states);
        state_layout_free(&other);
        session_free(session);
        model_free(&model);
    }
    free(logits);
    free(path);
    free(wrong);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_changes_no_bit),
        cmocka_unit_test(more_than_a_machine_has_is_refused),
        cmocka_unit_test(state_files_of_either_size_load),
        cmocka_unit_test(state_files_of_other_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
