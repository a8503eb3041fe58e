// Packed documents in whole models of every mixer, form and stack (tests/choices.h): a window gives what its documents give one by one, in outputs and in the
// sum of their gradients; nothing of one document reaches another, to the bit; several threads, recomputation and bf16 change none of it.
#include "model/block.h"
#include "model/kernels/documents.h"
#include "tests/choices.h"
#include "tests/documents.h"
#include "tests/model.h"

enum { BATCH = 2, LENGTH = 101, N = BATCH * LENGTH };

static ModelConfig choice_config(size_t i, bool tied)
{
    ModelConfig config = small_config(tied, i % 3 == 0 ? 43 : 0, false);
    make_choice(&config, &model_choices[i]);
    return config;
}

// Far from the start values, so that no branch of the model is too weak to be seen.
static void disturb(Model *model, Rng *rng, double scale)
{
    for (size_t i = 0; i < model->table.total; i++) {
        model->params[i] += (float)(scale * rng_normal(rng));
    }
    model_update_bf16(model);
}

static double documents_pass(float *grads, float *logits, const Model *model, Workspace *workspace, const uint8_t *starts, const int32_t *tokens,
                             const int32_t *targets, size_t batch, size_t length)
{
    model_forward_documents(model, workspace, starts, tokens, batch, length);
    if (logits != NULL) {
        model_logits(logits, model, workspace, 0, batch * length);
    }
    double loss = model_loss(NULL, grads, model, workspace, targets, 0.25f);
    model_backward(grads, model, workspace, tokens);
    return loss;
}

// ---- One by one ----

// Relative RMS of a gradient. A memory that starts empty, or is read relative to its start, answers a document's first query with that token's value, made as
// long as ever: key and query have no part in it but rounding, divided by a product of theirs that may be small. The difference of two reads brings fewer
// digits to begin with. (That the mixers themselves give the same bits is test_documents' to show.)
static double gradient_tolerance(const Model *model)
{
    bool empty = false;
    for (size_t layer = 0; layer < (size_t)model->config.n_layer; layer++) {
        BlockShape shape = model->blocks[layer].shape;
        empty = empty || (!shape.needs.start && !shape.needs.bare);
    }
    return model->config.relative_read ? 1e-2 : empty ? 1e-3 : 3e-5;
}

static void check_alone(const ModelConfig *config, DocumentCut cut, const Kernels *kernels)
{
    Pool pool = {0};
    Rng rng;
    Model model;
    char where[200];
    rng_seed(&rng, 81, cut);
    Workspace *workspace = new_model(&model, config, kernels, BATCH, LENGTH);
    size_t vocab = (size_t)config->vocab_size, total = model.table.total;
    disturb(&model, &rng, 0.2);
    int32_t *tokens = random_tokens(&pool, &rng, N, config->vocab_size, false), *targets = random_tokens(&pool, &rng, N, config->vocab_size, true);
    uint8_t starts[N];
    cut_documents(starts, LENGTH, cut, &rng);
    cut_documents(starts + LENGTH, LENGTH, DOCUMENTS_RANDOM, &rng);
    float *logits = pool_floats(&pool, N * vocab), *grads = pool_floats(&pool, total);
    float *own_logits = pool_floats(&pool, N * vocab), *own_grads = pool_floats(&pool, total);
    check_threads(1);   // documents are too small to be shared out
    double loss = documents_pass(grads, logits, &model, workspace, starts, tokens, targets, BATCH, LENGTH), sum = 0.0;
    for (size_t first = 0, end; first < N; first = end) {
        size_t row = first % LENGTH;
        end = first - row + document_end(starts + first - row, row, LENGTH);
        model_forward(&model, workspace, NULL, 0, tokens + first, 1, end - first);
        model_logits(own_logits + first * vocab, &model, workspace, 0, end - first);
        sum += model_loss(NULL, own_grads, &model, workspace, targets + first, 0.25f);
        model_backward(own_grads, &model, workspace, tokens + first);
    }
    snprintf(where, sizeof where, "%s %.40s, %s, chunk %lld, %s, %s, cut %d", kernels->name, config->mixer, config->objective, (long long)config->chunk,
             config->chunk_form, config->chunk_norm, (int)cut);
    assert_true(fabs(loss - sum) <= 1e-6 * sum);
    // Reading relative to the start takes a difference, which loses digits.
    check_close(where, "logits", logits, to_doubles(&pool, own_logits, N * vocab), N * vocab, config->relative_read ? 1e-4 : 1e-5);
    for (size_t i = 0; i < model.table.count; i++) {
        const Tensor *tensor = &model.table.items[i];
        check_close(where, tensor->name, grads + tensor->offset, to_doubles(&pool, own_grads + tensor->offset, tensor->count), tensor->count,
                    gradient_tolerance(&model));
    }
    free_model(&model, workspace);
    pool_free(&pool);
}

static void test_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODEL_CHOICES; i++) {
        ModelConfig config = choice_config(i, i % 2 == 0);
        for (DocumentCut cut = i % 2 == 0 ? DOCUMENTS_FIRST : DOCUMENTS_NONE; cut < DOCUMENT_CUTS; cut += 2) {
            check_alone(&config, cut, kernels_available()[0]);
        }
        for (const Kernels *const *kernels = kernels_available() + 1; *kernels != NULL; kernels++) {
            check_alone(&config, DOCUMENTS_MANY, *kernels);
        }
    }
}

// Heads, taps and widths that have code of their own.
static void test_alone_sizes(void **state)
{
    (void)state;
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        for (int64_t width = 1; width <= 6; width++) {
            ModelConfig config = small_config(true, 0, true);
            config.conv_width = width;
            config.n_head = 1;
            config.d_head = config.n_slot = 64;
            check_alone(&config, width % 2 == 0 ? DOCUMENTS_TWO : DOCUMENTS_EVERY, *kernels);
        }
    }
}

// ---- Nothing leaks ----

// Two documents in window 0, whose tokens are from two halves of the vocabulary; window 1 is one document.
typedef struct Pair {
    uint8_t starts[N];
    int32_t tokens[N], targets[N];
    size_t border;
} Pair;

static void make_pair(Pair *pair, size_t border, int64_t vocab, Rng *rng)
{
    *pair = (Pair){.border = border};
    pair->starts[border] = 1;
    for (size_t i = 0; i < N; i++) {
        uint64_t half = (uint64_t)vocab / 2;
        pair->tokens[i] = (int32_t)(rng_below(rng, half) + (i < border ? 0 : half));
        pair->targets[i] = i < border ? -1 : (int32_t)rng_below(rng, (uint64_t)vocab);
    }
}

static void change_first(Pair *pair, int64_t vocab, Rng *rng)
{
    for (size_t i = 0; i < pair->border; i++) {
        pair->tokens[i] = (int32_t)rng_below(rng, (uint64_t)vocab / 2);
    }
}

static void check_leak(const ModelConfig *config, size_t border, bool bf16, const Kernels *kernels)
{
    Pool pool = {0};
    Rng rng;
    Model model;
    Pair pair;
    rng_seed(&rng, 83, border);
    Workspace *workspace = new_model_in(&model, config, bf16, kernels, BATCH, LENGTH);
    size_t vocab = (size_t)config->vocab_size, width = (size_t)config->d_model, total = model.table.total, rest = (N - border) * vocab;
    disturb(&model, &rng, 0.2);
    make_pair(&pair, border, config->vocab_size, &rng);
    float *logits[3], *grads[2], *embed = model.params + model.embed;
    for (int i = 0; i < 3; i++) {
        logits[i] = pool_floats(&pool, N * vocab);
    }
    for (int i = 0; i < 2; i++) {
        grads[i] = pool_floats(&pool, total);
        documents_pass(grads[i], logits[i], &model, workspace, pair.starts, pair.tokens, pair.targets, BATCH, LENGTH);
        for (size_t j = 0; j < vocab / 2 * width; j++) {
            if (grads[i][model.embed + j] != 0.0f) {
                fail_msg("%s %s: the second document's loss reaches the embedding of the first one's token %zu", kernels->name, config->mixer, j / width);
            }
        }
        change_first(&pair, config->vocab_size, &rng);
    }
    check_bits(config->mixer, "the second document's logits after the first was changed", logits[1] + border * vocab, logits[0] + border * vocab, rest);
    for (size_t i = 0; i < total; i++) {
        if (grads[0][i] != grads[1][i]) {
            fail_msg("%s %s: the gradient of parameter %zu is %.9g and %.9g after the first document was changed", kernels->name, config->mixer, i,
                     (double)grads[0][i], (double)grads[1][i]);
        }
    }
    // Not even what is no number.
    fill_floats(embed, vocab / 2 * width, NAN);
    model_forward_documents(&model, workspace, pair.starts, pair.tokens, BATCH, LENGTH);
    model_logits(logits[2], &model, workspace, 0, N);
    check_bits(config->mixer, "the second document's logits after NaN in the first", logits[2] + border * vocab, logits[0] + border * vocab, rest);
    assert_true(isnan(logits[2][0]));
    free_model(&model, workspace);
    pool_free(&pool);
}

static void test_leak(void **state)
{
    (void)state;
    static const size_t borders[] = {1, 33, 64, 70, LENGTH - 1, 2};
    for (size_t i = 0; i < MODEL_CHOICES; i++) {
        ModelConfig config = choice_config(i, false);
        for (size_t j = i % 2; j < sizeof borders / sizeof borders[0]; j += 2) {
            check_leak(&config, borders[j], j / 2 % 2 == 1, kernels_available()[0]);
        }
        for (const Kernels *const *kernels = kernels_available() + 1; *kernels != NULL; kernels++) {
            check_leak(&config, 50, i % 2 == 0, *kernels);
        }
    }
}

// Without borders a first token does reach the last ones: what the tests above say is no matter of course.
static void test_whole(void **state)
{
    (void)state;
    Rng rng;
    Pair pair;
    Pool pool = {0};
    Model model;
    ModelConfig config = choice_config(0, false);
    rng_seed(&rng, 85, 0);
    Workspace *workspace = new_model(&model, &config, kernels_available()[0], BATCH, LENGTH);
    size_t vocab = (size_t)config.vocab_size, last = (LENGTH - 1) * vocab;
    disturb(&model, &rng, 0.2);
    make_pair(&pair, 50, config.vocab_size, &rng);
    float *logits[3];
    for (int i = 0; i < 3; i++) {
        logits[i] = pool_floats(&pool, N * vocab);
        model_forward_documents(&model, workspace, NULL, pair.tokens, BATCH, LENGTH);
        model_logits(logits[i], &model, workspace, 0, N);
        if (i == 0) {
            change_first(&pair, config.vocab_size, &rng);
        }
    }
    assert_memory_not_equal(logits[0] + last, logits[1] + last, vocab * sizeof(float));
    // A window without borders is the same by either forward.
    model_forward(&model, workspace, NULL, 0, pair.tokens, BATCH, LENGTH);
    model_logits(logits[0], &model, workspace, 0, N);
    check_bits("lattice", "model_forward against model_forward_documents", logits[0], logits[2], N * vocab);
    free_model(&model, workspace);
    pool_free(&pool);
}

// ---- The same bits ----

// With 1, 2 and 3 threads, with kept and with recomputed activations.
static void check_same_bits(const ModelConfig *config, bool bf16, const Kernels *kernels)
{
    Pool pool = {0};
    Rng rng;
    Model model;
    Error error = {""};
    rng_seed(&rng, 87, 0);
    Workspace *keeping = new_model_in(&model, config, bf16, kernels, BATCH, LENGTH);
    Workspace *again = workspace_create(&model, BATCH, LENGTH, WORKSPACE_RECOMPUTE, &error);
    assert_non_null(again);
    size_t total = model.table.total;
    disturb(&model, &rng, 0.2);
    int32_t *tokens = random_tokens(&pool, &rng, N, config->vocab_size, false), *targets = random_tokens(&pool, &rng, N, config->vocab_size, true);
    uint8_t starts[N];
    cut_documents(starts, LENGTH, DOCUMENTS_RANDOM, &rng);
    cut_documents(starts + LENGTH, LENGTH, DOCUMENTS_MANY, &rng);
    float *expected = pool_floats(&pool, total), *grads = pool_floats(&pool, total);
    check_threads(1);
    double loss = documents_pass(expected, NULL, &model, keeping, starts, tokens, targets, BATCH, LENGTH);
    for (int threads = 1; threads <= 3; threads++) {
        for (int recompute = 0; recompute < 2; recompute++) {
            check_threads(threads);
            fill_floats(grads, total, 0.0f);
            assert_true(documents_pass(grads, NULL, &model, recompute ? again : keeping, starts, tokens, targets, BATCH, LENGTH) == loss);
            check_bits(config->mixer, recompute ? "gradients with recomputation" : "gradients with other threads", grads, expected, total);
        }
    }
    workspace_free(again);
    free_model(&model, keeping);
    pool_free(&pool);
}

static void test_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODEL_CHOICES; i++) {
        ModelConfig config = choice_config(i, true);
        config.n_layer = 3;
        check_same_bits(&config, i % 2 == 1, kernels_available()[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone), cmocka_unit_test(test_alone_sizes), cmocka_unit_test(test_leak), cmocka_unit_test(test_whole),
        cmocka_unit_test(test_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
