// Weights for inference: products with bf16 and int8 weights against double precision on every instruction set, what they do to a model, what is refused.
#include <math.h>
#include <stdlib.h>

#include "checkpoint/checkpoint.h"
#include "data/story.h"
#include "infer/session.h"
#include "model/model.h"
#include "tests/check.h"
#include "tests/choices.h"
#include "tokenizer/bpe.h"

enum { FEW = 16 };   // rows of x that read the weights as they are

// A matrix that is packed alone.
static PackedWeights *pack(const float *w, size_t n_out, size_t n_in, WeightType type, Error *error)
{
    Tensor tensor = {.name = "some.weight", .n_dims = 2, .shape = {n_out, n_in}, .count = n_out * n_in, .is_matrix = true};
    return packed_create(w, &(MatrixPlace){0, n_out, n_in}, 1, &(TensorTable){&tensor, 1, tensor.count}, type, error);
}

// The nearest number of 8 significant bits, of two the even one.
static double rounded_to_bf16(double x)
{
    int exponent;
    double mantissa = frexp(x, &exponent);
    return ldexp(nearbyint(ldexp(mantissa, 8)), exponent - 8);
}

// w as `type` holds it, in double: rounded, or the row's scale times an integer.
static double *dequantised(Pool *pool, const float *w, size_t n_out, size_t n_in, WeightType type)
{
    double *out = pool_doubles(pool, n_out * n_in);
    for (size_t row = 0; row < n_out; row++) {
        float most = 0.0f;
        for (size_t k = 0; k < n_in; k++) {
            most = fmaxf(most, fabsf(w[row * n_in + k]));
        }
        for (size_t k = 0; k < n_in; k++) {
            float x = w[row * n_in + k];   // in f32, so that what lies between two integers goes the same way
            out[row * n_in + k] = type == WEIGHTS_BF16 ? rounded_to_bf16(x) : (double)rintf(x * (127.0f / most)) * (double)most / 127.0;
        }
    }
    return out;
}

// Numbers that bf16 and int8 hold exactly: integers −127 … 127 over 64, with the largest in every row.
static float *exact_floats(Pool *pool, Rng *rng, size_t rows, size_t columns)
{
    float *x = pool_floats(pool, rows * columns);
    for (size_t i = 0; i < rows * columns; i++) {
        x[i] = (float)((double)rng_below(rng, 255) - 127.0) / 64.0f;
    }
    for (size_t i = 0; i < rows; i++) {
        x[i * columns + rng_below(rng, columns)] = 127.0f / 64.0f;
    }
    return x;
}

static void product(float *out, const float *x, const PackedWeights *packed, const float *w, size_t n, size_t n_in, size_t n_out, const Kernels *kernels)
{
    fill_floats(out, n * n_out, 7.0f);
    if (packed == NULL) {
        kernels->linear_forward(out, rows_f32(x), weights_f32(w), n, n_in, n_out);
    } else {
        kernels->packed_forward(out, x, packed_find(packed, 0), n);
    }
}

// x exact, so that the product is known to f32's rounding; the same bits on 1, 2 and 3 threads, and for each row of x alone.
static void check_product(size_t n, size_t n_in, size_t n_out, WeightType type, const Kernels *kernels)
{
    Pool pool = {0};
    Rng rng;
    Error error;
    char where[96];
    rng_seed(&rng, n * 1000 + n_in, n_out);
    snprintf(where, sizeof where, "%s %s (n %zu, in %zu, out %zu)", kernels->name, weight_type_name(type), n, n_in, n_out);
    float *w = random_floats(&pool, &rng, n_out * n_in, 1.0), *x = exact_floats(&pool, &rng, n, n_in);
    float *out = pool_floats(&pool, n * n_out), *again = pool_floats(&pool, n * n_out);
    double *expected = pool_doubles(&pool, n * n_out), *held = type == WEIGHTS_F32 ? to_doubles(&pool, w, n_out * n_in) : dequantised(&pool, w, n_out, n_in, type);
    PackedWeights *packed = type == WEIGHTS_F32 ? NULL : pack(w, n_out, n_in, type, &error);
    check_threads(1);
    product(out, x, packed, w, n, n_in, n_out, kernels);
    reference_linear_forward(expected, to_doubles(&pool, x, n * n_in), held, n, n_in, n_out);
    check_close(where, "products", out, expected, n * n_out, 5e-6);
    for (int threads = 2; threads <= 3; threads++) {
        check_threads(threads);
        product(again, x, packed, w, n, n_in, n_out, kernels);
        check_bits(where, "1 thread and more", again, out, n * n_out);
    }
    for (size_t t = 0; t < n && n <= FEW; t++) {
        product(again, x + t * n_in, packed, w, 1, n_in, n_out, kernels);
        check_bits(where, "a row alone and among others", again, out + t * n_out, n_out);
    }
    packed_free(packed);
    pool_free(&pool);
}

static void products_are_those_of_the_weights_as_held(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {{1, 1}, {1, 63}, {63, 1}, {63, 1000}, {1000, 63}, {64, 4}, {130, 131}, {1000, 1000}};   // in, out
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        for (WeightType type = WEIGHTS_F32; type <= WEIGHTS_INT8; type++) {
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                static const size_t rows[] = {1, 2, 7, 16, 17, 70};
                for (size_t j = 0; j < sizeof rows / sizeof *rows; j++) {
                    if (rows[j] * sizes[i][0] * sizes[i][1] < 5000000) {
                        check_product(rows[j], sizes[i][0], sizes[i][1], type, *kernels);
                    }
                }
            }
        }
    }
    check_threads(2);
}

// Blocks of weights that are expanded: several for one product, the last one narrow.
static void wide_matrices_go_in_blocks(void **state)
{
    (void)state;
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        check_product(18, 5000, 203, WEIGHTS_BF16, *kernels);
        check_product(18, 5000, 203, WEIGHTS_INT8, *kernels);
    }
    check_threads(2);
}

// Any x: what is lost by rounding or quantising it is small, for few rows and for many.
static void any_x_loses_little(void **state)
{
    (void)state;
    enum { IN = 200, OUT = 70 };
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        for (WeightType type = WEIGHTS_BF16; type <= WEIGHTS_INT8; type++) {
            for (size_t n = 1; n < 40; n += 19) {
                Pool pool = {0};
                Rng rng;
                Error error;
                rng_seed(&rng, 7, n);
                float *w = random_floats(&pool, &rng, OUT * IN, 0.02), *x = random_floats(&pool, &rng, n * IN, 3.0), *out = pool_floats(&pool, n * OUT);
                double *expected = pool_doubles(&pool, n * OUT);
                PackedWeights *packed = pack(w, OUT, IN, type, &error);
                product(out, x, packed, NULL, n, IN, OUT, *kernels);
                reference_linear_forward(expected, to_doubles(&pool, x, n * IN), to_doubles(&pool, w, OUT * IN), n, IN, OUT);
                check_close((*kernels)->name, weight_type_name(type), out, expected, n * OUT, type == WEIGHTS_BF16 ? 4e-3 : 2e-2);
                packed_free(packed);
                pool_free(&pool);
            }
        }
    }
}

static void check_only_nan(const float *out, size_t count, size_t step, size_t place, const char *where)
{
    for (size_t i = 0; i < count; i++) {
        if ((i % step == place) != (isnan(out[i]) != 0)) {
            fail_msg("%s: output %zu is %g", where, i, (double)out[i]);
        }
    }
}

static void nan_stays_nan(void **state)
{
    (void)state;
    enum { IN = 100, OUT = 9, ROWS = 20 };
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        for (WeightType type = WEIGHTS_F32; type <= WEIGHTS_INT8; type++) {
            for (size_t n = 3; n <= ROWS; n += ROWS - 3) {
                Pool pool = {0};
                Rng rng;
                Error error;
                rng_seed(&rng, 8, n);
                float *w = random_floats(&pool, &rng, OUT * IN, 1.0), *x = random_floats(&pool, &rng, ROWS * IN, 1.0), *out = pool_floats(&pool, ROWS * OUT);
                float *turned = pool_floats(&pool, ROWS * OUT);
                PackedWeights *packed = type == WEIGHTS_F32 ? NULL : pack(w, OUT, IN, type, &error);
                x[2 * IN + 77] = NAN;
                product(out, x, packed, w, n, IN, OUT, *kernels);
                for (size_t i = 0; i < n * OUT; i++) {
                    turned[i % OUT * n + i / OUT] = out[i];
                }
                check_only_nan(turned, n * OUT, n, 2, "NaN in x");
                packed_free(packed);
                x[2 * IN + 77] = INFINITY;
                w[5 * IN + 33] = NAN;
                packed = type == WEIGHTS_F32 ? NULL : pack(w, OUT, IN, type, &error);
                if (type == WEIGHTS_INT8) {
                    assert_null(packed);
                    assert_non_null(strstr(error.text, "some.weight: weight 533 is NaN"));
                    w[5 * IN + 33] = -INFINITY;
                    assert_null(pack(w, OUT, IN, type, &error));
                    assert_non_null(strstr(error.text, "some.weight: weight 533 is infinite"));
                } else {
                    product(out, x, packed, w, 2, IN, OUT, *kernels);
                    check_only_nan(out, 2 * OUT, OUT, 5, "NaN in w");
                    product(out, x, packed, w, n, IN, OUT, *kernels);
                    assert_true(!isfinite(out[2 * OUT]));
                }
                packed_free(packed);
                pool_free(&pool);
            }
        }
    }
}

// Rows of zeros and of numbers at the ends of f32's range.
static void extreme_rows(void **state)
{
    (void)state;
    enum { IN = 70, OUT = 3 };
    float w[OUT * IN] = {0}, x[2 * IN] = {0}, out[2 * OUT];
    Error error;
    for (size_t k = 0; k < IN; k++) {
        w[IN + k] = 1e-38f;
        w[2 * IN + k] = k == 3 ? 3e38f : 1.0f;
        x[IN + k] = 1e-3f;
    }
    PackedWeights *packed = pack(w, OUT, IN, WEIGHTS_INT8, &error);
    assert_non_null(packed);
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        product(out, x, packed, NULL, 2, IN, OUT, *kernels);
        for (size_t i = 0; i < 2 * OUT - 1; i++) {
            assert_true(fabsf(out[i]) < 1e-30f);
        }
        assert_true(fabsf(out[5] / 3e35f - 1.0f) < 1e-5f);
        for (size_t k = 0; k < IN; k++) {
            x[k] = 1e-38f;
        }
    }
    packed_free(packed);
}

// Matrices are found by where they stood, and give their rows back; everything has the size that it says.
static void matrices_are_found_by_their_place(void **state)
{
    (void)state;
    Pool pool = {0};
    Rng rng;
    Error error;
    rng_seed(&rng, 3, 0);
    Tensor tensors[] = {
        {.name = "a", .n_dims = 2, .shape = {5, 40}, .offset = 0, .count = 200, .is_matrix = true},
        {.name = "b", .n_dims = 1, .shape = {7}, .offset = 200, .count = 7},
        {.name = "c", .n_dims = 2, .shape = {3, 40}, .offset = 207, .count = 120, .is_matrix = true},
        {.name = "d", .n_dims = 2, .shape = {6, 40}, .offset = 327, .count = 240, .is_matrix = true},
        {.name = "e", .n_dims = 2, .shape = {4, 100}, .offset = 567, .count = 400, .is_matrix = true},
    };
    TensorTable table = {tensors, 5, 967};
    MatrixPlace places[] = {{0, 5, 40}, {207, 9, 40}, {567, 4, 100}};
    float *params = exact_floats(&pool, &rng, 967, 1), rows[3 * 100];
    for (size_t i = 0; i < 967; i += 3) {
        params[i] = -0.5f;
    }
    for (WeightType type = WEIGHTS_BF16; type <= WEIGHTS_INT8; type++) {
        PackedWeights *packed = packed_create(params, places, 3, &table, type, &error);
        assert_non_null(packed);
        size_t bytes = 0, weights;
        for (size_t i = 0; i < 3; i++) {
            const PackedMatrix *m = packed_find(packed, places[i].offset);
            assert_true(m != NULL && m->n_out == places[i].n_out && m->n_in == places[i].n_in);
            assert_int_equal((uintptr_t)m->memory % 64, 0);
            const int32_t ids[] = {2, 0, (int32_t)m->n_out - 1};
            packed_embedding(rows, m, ids, 3);
            for (size_t j = 0; j < 3 * m->n_in; j++) {
                assert_true(fabsf(rows[j] - params[places[i].offset + (size_t)ids[j / m->n_in] * m->n_in + j % m->n_in]) < 1e-6f);
            }
            bytes += packed_bytes(m);
        }
        assert_int_equal(packed_bytes(packed_find(packed, 567)), type == WEIGHTS_INT8 ? 4 * (128 + 8) : 4 * 256);
        assert_int_equal(packed_total(packed, &weights), bytes);
        assert_int_equal(weights, 200 + 360 + 400);
        assert_true(packed_find(packed, 327) == NULL && packed_find(packed, 200) == NULL && packed_find(packed, 5000) == NULL);
        assert_true(packed_holds(packed, 0) && packed_holds(packed, 199) && packed_holds(packed, 327) && packed_holds(packed, 966));
        assert_true(!packed_holds(packed, 200) && !packed_holds(packed, 206) && !packed_holds(packed, 967));
        packed_free(packed);
    }
    places[2].n_in = 70000;
    assert_null(packed_create(params, places, 3, &table, WEIGHTS_BF16, &error));
    assert_non_null(strstr(error.text, "e has rows of 70000 weights"));
    pool_free(&pool);
}

// ---- the golden model ----

static Model load_golden(const Kernels *kernels, WeightType type)
{
    Model model;
    Error error;
    if (checkpoint_load_model(&model, kernels, "tests/golden/model", &error) != 0 || model_pack(&model, type, &error) != 0) {
        fail_msg("%s", error.text);
    }
    return model;
}

// Loss a token of some stories, read as prompts (in matrices) or token by token.
static double story_loss(const Model *model, bool by_token)
{
    enum { STORIES = 3, MOST = 2000 };
    Error error;
    Tokenizer *tokenizer = tokenizer_load("tests/golden/model/tokenizer.json", &error);
    assert_non_null(tokenizer);
    Encoder *encoder = encoder_create(tokenizer, &error);
    Session *session = session_create(model, 1, 0, &error);
    Workspace *workspace = workspace_create(model, 1, MOST, WORKSPACE_INFERENCE, &error);
    Story *story = malloc(sizeof *story);
    assert_true(encoder != NULL && session != NULL && workspace != NULL && story != NULL);
    double sum = 0.0;
    size_t count = 0, vocab = (size_t)model->config.vocab_size;
    for (size_t s = 0; s < STORIES; s++) {
        TokenList list = {0};
        story_tell(story, 77, s);
        assert_int_equal(encoder_encode(encoder, &list, story->text, story->length, 0, &error), 0);
        size_t n = list.count < MOST ? list.count : MOST;
        session_reset(session);
        for (size_t t = 0; t + 1 < n && by_token; t++) {
            session_step(session, &list.ids[t]);
            const float *logits = session_logits(session, 0);
            double total = 0.0;
            for (size_t i = 0; i < vocab; i++) {
                total += exp((double)logits[i]);
            }
            sum += log(total) - (double)logits[list.ids[t + 1]];
        }
        if (!by_token) {
            model_forward(model, workspace, NULL, 0, list.ids, 1, n - 1);
            sum += model_loss(NULL, NULL, model, workspace, list.ids + 1, 0.0f);
        }
        count += n - 1;
        token_list_free(&list);
    }
    free(story);
    workspace_free(workspace);
    session_free(session);
    encoder_free(encoder);
    tokenizer_free(tokenizer);
    return sum / (double)count;
}

static void perplexity_stays_within_one_percent(void **state)
{
    (void)state;
    check_threads(1);   // threads would only wait for each other on so small a model
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        Model exact = load_golden(*kernels, WEIGHTS_F32);
        double loss = story_loss(&exact, false);
        assert_true(loss > 0.5 && loss < 2.0);
        assert_true(fabs(story_loss(&exact, true) - loss) < 1e-4);
        for (WeightType type = WEIGHTS_BF16; type <= WEIGHTS_INT8; type++) {
            Model model = load_golden(*kernels, type);
            for (int by_token = 0; by_token < 2; by_token++) {
                double ratio = exp(story_loss(&model, by_token == 1) - loss);
                print_message("%s %s %s: perplexity times %.5f\n", (*kernels)->name, weight_type_name(type), by_token == 1 ? "by token" : "whole", ratio);
                assert_true(fabs(ratio - 1.0) < 0.01 && ratio != 1.0);
            }
            model_free(&model);
        }
        model_free(&exact);
    }
    check_threads(2);
}

// The f32 matrices are gone, what is read a step falls to a half and a quarter, and the start states are as they were.
static void packing_makes_a_model_smaller(void **state)
{
    (void)state;
    Error error;
    ModelConfig config;
    const Kernels *kernels = kernels_available()[0];
    for (int tied = 0; tied < 2; tied++) {
        assert_int_equal(config_preset(&config, "nano", &error), 0);
        config.tie_embeddings = tied == 1;
        double bytes[3], matrices = 0.0;
        float *start[3];
        for (WeightType type = WEIGHTS_F32; type <= WEIGHTS_INT8; type++) {
            Model model;
            assert_int_equal(model_create(&model, &config, kernels, &error), 0);
            model_init(&model, 4, 256);
            matrices = 0.0;
            for (size_t i = 0; i < model.table.count; i++) {
                const Tensor *tensor = &model.table.items[i];
                bool unread = !config.tie_embeddings && strcmp(tensor->name, "embed.weight") == 0;
                matrices += tensor->is_matrix && !unread ? (double)tensor->count : 0.0;
            }
            assert_int_equal(model_pack(&model, type, &error), 0);
            bytes[type] = (double)model_step_bytes(&model);
            start[type] = malloc(model.state.table.total * sizeof(float));
            model_state_init(&model, &model.state, start[type]);
            assert_memory_equal(start[type], start[0], model.state.table.total * sizeof(float));
            model_free(&model);
        }
        assert_true(fabs((bytes[0] - bytes[1]) / (2.0 * matrices) - 1.0) < 0.06);   // 352 wide rows are padded to 384
        assert_true(fabs((bytes[0] - bytes[2]) / (3.0 * matrices) - 1.0) < 0.06);
        for (size_t i = 0; i < 3; i++) {
            free(start[i]);
        }
    }
}

// Logits after a prompt and some steps.
static void read_some(float *logits, const Model *model)
{
    enum { PROMPT = 30, STEPS = 5 };
    Error error;
    int32_t tokens[PROMPT + STEPS];
    size_t vocab = (size_t)model->config.vocab_size;
    for (size_t i = 0; i < PROMPT + STEPS; i++) {
        tokens[i] = (int32_t)(i * 31 % vocab);
    }
    Session *session = session_create(model, 1, 0, &error);
    if (session == NULL || session_reserve(session, PROMPT + STEPS, &error) != 0) {
        fail_msg("%s", error.text);
    }
    session_feed(session, tokens, PROMPT);
    for (size_t i = 0; i < STEPS; i++) {
        session_step(session, &tokens[PROMPT + i]);
    }
    memcpy(logits, session_logits(session, 0), vocab * sizeof *logits);
    session_free(session);
}

// Whatever else a mixer has beside the packed matrices is found after packing; w1, w3 and w2 of one width, too.
static void every_mixer_takes_packed_weights(void **state)
{
    (void)state;
    enum { VOCAB = 97 };
    for (size_t i = 0; i < MODEL_CHOICES; i++) {
        Error error;
        ModelConfig config;
        assert_int_equal(config_preset(&config, "nano", &error), 0);
        config.vocab_size = VOCAB;
        config.d_model = config.mlp_hidden = 64;
        config.n_layer = config.n_head = 2;
        config.d_head = config.n_slot = 32;
        config.tie_embeddings = i % 2 == 0;
        make_choice(&config, &model_choices[i]);
        float logits[VOCAB];
        double exact[VOCAB] = {0};
        for (WeightType type = WEIGHTS_F32; type <= WEIGHTS_INT8; type++) {
            Model model;
            if (model_create(&model, &config, kernels_available()[0], &error) != 0) {
                fail_msg("%s", error.text);
            }
            model_init(&model, 5, 64);
            assert_int_equal(model_pack(&model, type, &error), 0);
            read_some(logits, &model);
            for (size_t j = 0; j < VOCAB && type == WEIGHTS_F32; j++) {
                exact[j] = logits[j];
            }
            check_close(config.mixer, weight_type_name(type), logits, exact, VOCAB, type == WEIGHTS_BF16 ? 2e-2 : type == WEIGHTS_INT8 ? 5e-2 : 0.0);
            model_free(&model);
        }
    }
}

// A model of int8 weights that are NaN is refused by the tensor's name and left as it was; in bf16 it gives NaN.
static void broken_models_are_seen(void **state)
{
    (void)state;
    Error error;
    Model model = load_golden(kernels_available()[0], WEIGHTS_F32);
    model.params[tensor_find(&model.table, "layers.1.mixer.k.weight")->offset + 5] = NAN;
    assert_int_equal(model_pack(&model, WEIGHTS_INT8, &error), -1);
    assert_non_null(strstr(error.text, "layers.1.mixer.k.weight: weight 5 is NaN"));
    assert_true(model.packed == NULL && isnan(story_loss(&model, true)));
    assert_int_equal(model_pack(&model, WEIGHTS_BF16, &error), 0);
    assert_true(isnan(story_loss(&model, true)) && isnan(story_loss(&model, false)));
    model_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_those_of_the_weights_as_held),
        cmocka_unit_test(wide_matrices_go_in_blocks),
        cmocka_unit_test(any_x_loses_little),
        cmocka_unit_test(nan_stays_nan),
        cmocka_unit_test(extreme_rows),
        cmocka_unit_test(matrices_are_found_by_their_place),
        cmocka_unit_test(perplexity_stays_within_one_percent),
        cmocka_unit_test(packing_makes_a_model_smaller),
        cmocka_unit_test(every_mixer_takes_packed_weights),
        cmocka_unit_test(broken_models_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
