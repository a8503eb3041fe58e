// What the tests of whole models share: small models, tokens, and checks against the reference, of learning, and of all ways to run one.
#ifndef TESTS_MODEL_H
#define TESTS_MODEL_H

#include <math.h>

#include "model/model.h"
#include "tests/check.h"
#include "tests/reference/golden.h"

static inline ModelConfig small_config(bool tied, int64_t hidden, bool forget_gate)
{
    return (ModelConfig){.vocab_size = 37, .d_model = 21, .n_layer = 2, .n_head = 3, .d_head = 9, .n_slot = 7, .conv_width = 4, .mlp_hidden = hidden,
                         .norm_eps = 1e-6, .tie_embeddings = tied, .mixer = "lattice", .objective = "decode", .chunk = 1, .chunk_form = "frozen",
                         .chunk_norm = "token", .forget_gate = forget_gate};
}

// A model of the configuration with its start values, and a training workspace; ends the test when there is no memory.
static inline Workspace *new_model_in(Model *model, const ModelConfig *config, bool bf16, const Kernels *kernels, size_t batch, size_t length)
{
    Error error = {""};
    if (model_create(model, config, kernels, &error) < 0) {
        fail_msg("%s", error.text);
    }
    model_init(model, 1, length);
    if (bf16 && model_use_bf16(model, &error) < 0) {
        fail_msg("%s", error.text);
    }
    Workspace *workspace = workspace_create(model, batch, length, WORKSPACE_TRAINING, &error);
    if (workspace == NULL) {
        fail_msg("%s", error.text);
    }
    return workspace;
}

static inline Workspace *new_model(Model *model, const ModelConfig *config, const Kernels *kernels, size_t batch, size_t length)
{
    return new_model_in(model, config, false, kernels, batch, length);
}

static inline void free_model(Model *model, Workspace *workspace)
{
    workspace_free(workspace);
    model_free(model);
}

// n tokens below `vocab`; with `holes` some of them are −1.
static inline int32_t *random_tokens(Pool *pool, Rng *rng, size_t n, int64_t vocab, bool holes)
{
    int32_t *tokens = pool_ints(pool, n);
    for (size_t i = 0; i < n; i++) {
        tokens[i] = holes && rng_below(rng, 5) == 0 ? -1 : (int32_t)rng_below(rng, (uint64_t)vocab);
    }
    return tokens;
}

// Forward, loss and backward in one; gradients are added to grads.
static inline double train_pass(float *grads, const Model *model, Workspace *workspace, const int32_t *tokens, const int32_t *targets, float scale, size_t batch,
                         size_t length)
{
    model_forward(model, workspace, NULL, 0, tokens, batch, length);
    double loss = model_loss(NULL, grads, model, workspace, targets, scale);
    model_backward(grads, model, workspace, tokens);
    return loss;
}

static inline void check_model(const ModelConfig *config, size_t batch, size_t length, const Kernels *kernels)
{
    Pool pool = {0};
    Rng rng;
    Model model;
    char where[160];
    rng_seed(&rng, batch, length);
    Workspace *workspace = new_model(&model, config, kernels, batch, length);
    size_t n = batch * length, vocab = (size_t)config->vocab_size, total = model.table.total;
    // Far from the start values, so that no branch of the model is too weak to be seen.
    for (size_t i = 0; i < total; i++) {
        model.params[i] += (float)(0.3 * rng_normal(&rng));
    }
    int32_t *tokens = random_tokens(&pool, &rng, n, config->vocab_size, false), *targets = random_tokens(&pool, &rng, n, config->vocab_size, true);
    float *logits = pool_floats(&pool, n * vocab), *grads = pool_floats(&pool, total), *losses = pool_floats(&pool, n);
    double *expected_logits = pool_doubles(&pool, n * vocab), *expected_grads = pool_doubles(&pool, total), *expected_losses = pool_doubles(&pool, n);
    double expected = reference_model(expected_logits, expected_grads, config, &model.table, to_doubles(&pool, model.params, total), tokens, targets, 0.25,
                                      batch, length);
    reference_cross_entropy(expected_losses, NULL, expected_logits, targets, 1.0, n, vocab);

    model_forward(&model, workspace, NULL, 0, tokens, batch, length);
    model_logits(logits, &model, workspace, 0, n);
    double loss = model_loss(losses, grads, &model, workspace, targets, 0.25f);
    model_backward(grads, &model, workspace, tokens);
    snprintf(where, sizeof where, "%s, %.32s, %s, chunk %lld, B %zu, T %zu, %s, mlp %lld, %s", kernels->name, config->mixer, config->objective,
             (long long)config->chunk, batch, length, config->tie_embeddings ? "tied" : "untied", (long long)config->mlp_hidden,
             config->forget_gate ? "forget gate" : "no forget gate");
    check_close(where, "logits", logits, expected_logits, n * vocab, GOLDEN_FAST_OUTPUT);
    check_close(where, "losses", losses, expected_losses, n, GOLDEN_FAST_OUTPUT);
    assert_true(fabs(loss - expected) <= 1e-5 * fabs(expected));
    for (size_t i = 0; i < model.table.count; i++) {
        const Tensor *tensor = &model.table.items[i];
        check_close(where, tensor->name, grads + tensor->offset, expected_grads + tensor->offset, tensor->count, GOLDEN_FAST_GRADIENT);
    }
    // Some rows alone are the same rows.
    float *rows = pool_floats(&pool, n * vocab);
    size_t first = n / 3, count = n - first;
    model_forward(&model, workspace, NULL, 0, tokens, batch, length);
    model_logits(rows, &model, workspace, first, count);
    check_close(where, "logits of some rows", rows, to_doubles(&pool, logits + first * vocab, count * vocab), count * vocab, 1e-6);
    free_model(&model, workspace);
    pool_free(&pool);
}

static inline void check_overfit(const ModelConfig *config, const Kernels *kernels)
{
    enum { BATCH = 2, LENGTH = 24, STEPS = 300 };
    Pool pool = {0};
    Rng rng;
    Model model;
    rng_seed(&rng, 5, 0);
    Workspace *workspace = new_model(&model, config, kernels, BATCH, LENGTH);
    size_t total = model.table.total, step = 0;
    int32_t *tokens = random_tokens(&pool, &rng, BATCH * LENGTH, config->vocab_size, false);
    int32_t *targets = random_tokens(&pool, &rng, BATCH * LENGTH, config->vocab_size, false);
    float *grads = pool_floats(&pool, total), *m = pool_floats(&pool, total), *v = pool_floats(&pool, total);
    double first = 0.0, loss = INFINITY;
    while (step < STEPS && !(loss < 0.1)) {
        fill_floats(grads, total, 0.0f);
        loss = train_pass(grads, &model, workspace, tokens, targets, 1.0f / (BATCH * LENGTH), BATCH, LENGTH) / (BATCH * LENGTH);
        first = step == 0 ? loss : first;
        step++;
        kernels->adamw(model.params, m, v, grads, total, 1.0f, 0.01f, 0.9f, 0.95f, 1e-8f, 0.0f, (float)(1.0 - pow(0.9, (double)step)),
                       (float)(1.0 - pow(0.95, (double)step)));
    }
    if (!(loss < 0.1)) {
        fail_msg("%s, %s: one batch is not learned by heart: loss %.3f at first, %.3f after %zu steps", kernels->name, config->mixer, first, loss, step);
    }
    free_model(&model, workspace);
    pool_free(&pool);
}

typedef enum Way {
    WAY_TRAINING,   // whole, no carried state, training workspace
    WAY_WHOLE,      // whole, with a state
    WAY_PIECES,     // 1, 2, 3, … tokens
    WAY_TOKENS,     // one at a time
    WAY_COPIED,     // two halves, the second from a copied state
} Way;

static inline size_t piece_size(Way way, size_t begin, size_t before, size_t length)
{
    size_t size = way == WAY_TOKENS ? 1 : way == WAY_PIECES ? before + 1 : way == WAY_COPIED && begin == 0 ? length / 2 : length;
    return size < length - begin ? size : length - begin;
}

// logits [B, T, V]; states [B, state.table.total] end where the sequences end.
static inline void run_way(float *logits, float *states, Way way, const Model *model, Workspace *workspace, const int32_t *tokens, size_t batch, size_t length)
{
    Pool pool = {0};
    size_t vocab = (size_t)model->config.vocab_size, total = model->state.table.total, size = 0;
    for (size_t b = 0; b < batch; b++) {
        model_state_init(model, &model->state, states + b * total);
    }
    for (size_t begin = 0; begin < length; begin += size) {
        size = piece_size(way, begin, size, length);
        int32_t *piece = pool_ints(&pool, batch * size);
        float *out = pool_floats(&pool, batch * size * vocab);
        for (size_t b = 0; b < batch; b++) {
            memcpy(piece + b * size, tokens + b * length + begin, size * sizeof *piece);
        }
        model_forward(model, workspace, way == WAY_TRAINING ? NULL : states, begin, piece, batch, size);
        model_logits(out, model, workspace, 0, batch * size);
        for (size_t b = 0; b < batch; b++) {
            memcpy(logits + (b * length + begin) * vocab, out + b * size * vocab, size * vocab * sizeof *out);
        }
        if (way == WAY_COPIED) {
            float *copy = copy_floats(&pool, states, batch * total);
            fill_floats(states, batch * total, NAN);
            memcpy(states, copy, batch * total * sizeof *states);
        }
    }
    pool_free(&pool);
}

static inline void check_ways(const ModelConfig *config, const Kernels *kernels)
{
    enum { BATCH = 2, LENGTH = 75 };
    static const char *const names[] = {"training", "whole", "in pieces", "token by token", "from a copied state"};
    Pool pool = {0};
    Rng rng;
    Model model;
    Error error = {""};
    rng_seed(&rng, 7, 0);
    Workspace *training = new_model(&model, config, kernels, BATCH, LENGTH), *inference = workspace_create(&model, BATCH, LENGTH, WORKSPACE_INFERENCE, &error);
    assert_non_null(inference);
    for (size_t i = 0; i < model.table.total; i++) {
        model.params[i] += (float)(0.2 * rng_normal(&rng));
    }
    size_t n = BATCH * LENGTH * (size_t)config->vocab_size, n_state = BATCH * model.state.table.total;
    int32_t *tokens = random_tokens(&pool, &rng, BATCH * LENGTH, config->vocab_size, false);
    float *whole = pool_floats(&pool, n), *whole_states = pool_floats(&pool, n_state), *logits = pool_floats(&pool, n), *states = pool_floats(&pool, n_state);
    run_way(whole, whole_states, WAY_WHOLE, &model, inference, tokens, BATCH, LENGTH);
    double *expected = to_doubles(&pool, whole, n), *expected_states = to_doubles(&pool, whole_states, n_state);
    for (Way way = WAY_TRAINING; way <= WAY_COPIED; way++) {
        run_way(logits, states, way, &model, way == WAY_TRAINING ? training : inference, tokens, BATCH, LENGTH);
        for (size_t i = 0; i < n; i++) {
            if (!(fabs((double)logits[i] - expected[i]) <= 1e-4)) {
                fail_msg("%s, %s: %s against whole: logit %zu is %.7g and %.7g", kernels->name, config->mixer, names[way], i, (double)logits[i], expected[i]);
            }
        }
        if (way != WAY_TRAINING) {
            check_close(kernels->name, names[way], states, expected_states, n_state, 1e-5);
        }
    }
    workspace_free(inference);
    free_model(&model, training);
    pool_free(&pool);
}

static inline void check_model_threads(const ModelConfig *config, size_t batch, size_t length, const Kernels *kernels)
{
    Pool pool = {0};
    Rng rng;
    Model model;
    rng_seed(&rng, 11, 0);
    Workspace *workspace = new_model(&model, config, kernels, batch, length);
    size_t n = batch * length, total = model.table.total;
    int32_t *tokens = random_tokens(&pool, &rng, n, config->vocab_size, false), *targets = random_tokens(&pool, &rng, n, config->vocab_size, true);
    float *grads = pool_floats(&pool, total), *again = pool_floats(&pool, total);
    check_threads(1);
    double loss = train_pass(grads, &model, workspace, tokens, targets, 0.01f, batch, length);
    for (int threads = 1; threads <= 8; threads += threads < 3 ? 1 : 5) {
        check_threads(threads);
        fill_floats(again, total, 0.0f);
        double loss_again = train_pass(again, &model, workspace, tokens, targets, 0.01f, batch, length);
        if (loss_again != loss) {
            fail_msg("%s: the loss is %.17g with 1 thread and %.17g with %d", kernels->name, loss, loss_again, threads);
        }
        check_bits(kernels->name, "gradients with 1 thread and more", again, grads, total);
    }
    free_model(&model, workspace);
    pool_free(&pool);
}

static inline void check_recompute(const ModelConfig *config, size_t batch, size_t length, bool bf16, const Kernels *kernels)
{
    Pool pool = {0};
    Rng rng;
    Model model;
    Error error = {""};
    rng_seed(&rng, 19, 0);
    Workspace *keeping = new_model_in(&model, config, bf16, kernels, batch, length), *again = workspace_create(&model, batch, length, WORKSPACE_RECOMPUTE, &error);
    assert_non_null(again);
    size_t n = batch * length, total = model.table.total;
    for (size_t i = 0; i < total; i++) {
        model.params[i] += (float)(0.2 * rng_normal(&rng));
    }
    model_update_bf16(&model);
    float *grads = pool_floats(&pool, total), *grads_again = pool_floats(&pool, total);
    // Two passes with different data: nothing of the first may stay.
    for (int pass = 0; pass < 2; pass++) {
        int32_t *tokens = random_tokens(&pool, &rng, n, config->vocab_size, false), *targets = random_tokens(&pool, &rng, n, config->vocab_size, true);
        double loss = train_pass(grads, &model, keeping, tokens, targets, 0.01f, batch, length);
        double loss_again = train_pass(grads_again, &model, again, tokens, targets, 0.01f, batch, length);
        if (loss_again != loss) {
            fail_msg("%s: the loss is %.17g with kept and %.17g with recomputed activations", kernels->name, loss, loss_again);
        }
        check_bits(kernels->name, "gradients with kept and recomputed activations", grads_again, grads, total);
    }
    workspace_free(again);
    free_model(&model, keeping);
    pool_free(&pool);
}

#endif
