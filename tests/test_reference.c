// The reference is right: against central differences and cases worked out by hand (test_golden_check.c: against golden files).
#include "tests/check.h"

#include <math.h>
#include <stdlib.h>

#include "tests/choices.h"
#include "tests/reference/golden.h"
#include "tests/rivals.h"

// ---- Central differences ----

#define MAX_INPUTS 9
#define STEP 2e-5

// A layer as a function of several inputs; its loss is Σ dout · out.
typedef struct Problem {
    const char *name;
    void (*forward)(double *out, const struct Problem *p);
    void (*backward)(double *const *grads, const double *dout, const struct Problem *p);
    size_t n_out, n_inputs, counts[MAX_INPUTS];
    double *inputs[MAX_INPUTS];
    size_t n, dim, out_dim, n_head;     // sizes as the layer reads them
    ReferenceConvShape conv;
    ReferenceForm form;
    const int32_t *ids;
} Problem;

// Slope of loss(context) along the number at x, which is part of the context: central differences of fourth order with step h.
static double slope_along(double *x, double h, double (*loss)(void *context), void *context)
{
    static const double steps[4] = {1.0, -1.0, 2.0, -2.0}, weights[4] = {8.0, -8.0, -1.0, 1.0};
    double before = *x, sum = 0.0;
    for (size_t i = 0; i < 4; i++) {
        *x = before + steps[i] * h;
        sum += weights[i] * loss(context);
    }
    *x = before;
    return sum / (12.0 * h);
}

typedef struct ProblemLoss {
    const Problem *problem;
    double *out;
    const double *dout;
} ProblemLoss;

static double problem_loss(void *context)
{
    ProblemLoss *l = context;
    double loss = 0.0;
    memset(l->out, 0, l->problem->n_out * sizeof *l->out);
    l->problem->forward(l->out, l->problem);
    for (size_t i = 0; i < l->problem->n_out; i++) {
        loss += l->dout[i] * l->out[i];
    }
    return loss;
}

static double rms(const double *x, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        sum += x[i] * x[i];
    }
    return sqrt(sum / (double)n);
}

static bool agrees(double slope, double gradient, double scale) { return fabs(slope - gradient) <= 1e-6 * (scale + fabs(gradient)) + 1e-9; }

static void check_slope(const char *name, size_t input, size_t i, double slope, double gradient, double scale)
{
    if (!agrees(slope, gradient, scale)) {
        fail_msg("%s: input %zu, coordinate %zu: central difference %.9g, gradient %.9g", name, input, i, slope, gradient);
    }
}

static void check_problem(Problem *p, uint64_t seed)
{
    Pool pool = {0};
    Rng rng;
    rng_seed(&rng, seed, 0);
    double *grads[MAX_INPUTS] = {NULL}, *out = pool_doubles(&pool, p->n_out), *dout = random_doubles(&pool, &rng, p->n_out, 1.0);
    for (size_t k = 0; k < p->n_inputs; k++) {
        grads[k] = pool_doubles(&pool, p->counts[k]);
    }
    p->backward(grads, dout, p);
    ProblemLoss loss = {p, out, dout};
    for (size_t k = 0; k < p->n_inputs; k++) {
        for (size_t trial = 0; p->counts[k] > 0 && trial < 12; trial++) {
            size_t i = rng_below(&rng, p->counts[k]);
            double scale = rms(grads[k], p->counts[k]), slope = slope_along(&p->inputs[k][i], STEP, problem_loss, &loss);
            // A threshold has kinks: where one lies within the steps, smaller steps leave it out.
            for (double h = STEP / 10.0; p->form.l1 > 0.0 && !agrees(slope, grads[k][i], scale) && h > STEP / 200.0; h /= 10.0) {
                slope = slope_along(&p->inputs[k][i], h, problem_loss, &loss);
            }
            check_slope(p->name, k, i, slope, grads[k][i], scale);
        }
    }
    pool_free(&pool);
}

// Allocates the inputs with the counts that stand in the problem.
static void fill_problem(Problem *p, Pool *pool, uint64_t seed)
{
    Rng rng;
    rng_seed(&rng, seed, 1);
    for (size_t k = 0; k < p->n_inputs; k++) {
        p->inputs[k] = random_doubles(pool, &rng, p->counts[k], 1.0);
    }
}

static void linear_forward(double *out, const Problem *p) { reference_linear_forward(out, p->inputs[0], p->inputs[1], p->n, p->dim, p->out_dim); }

static void linear_backward(double *const *g, const double *dout, const Problem *p)
{
    reference_linear_backward(g[0], g[1], dout, p->inputs[0], p->inputs[1], p->n, p->dim, p->out_dim);
}

static void rmsnorm_forward(double *out, const Problem *p) { reference_rmsnorm_forward(out, p->inputs[0], p->inputs[1], 1e-2, p->n, p->dim); }

static void rmsnorm_backward(double *const *g, const double *dout, const Problem *p)
{
    reference_rmsnorm_backward(g[0], g[1], dout, p->inputs[0], p->inputs[1], 1e-2, p->n, p->dim);
}

static void conv_forward(double *out, const Problem *p) { reference_conv_forward(out, p->inputs[0], p->inputs[1], p->inputs[2], &p->conv); }

static void conv_backward(double *const *g, const double *dout, const Problem *p)
{
    reference_conv_backward(g[0], g[1], g[2], dout, p->inputs[0], p->inputs[1], p->inputs[2], &p->conv);
}

static void gate_forward(double *out, const Problem *p)
{
    reference_gate_forward(out, p->inputs[0], p->inputs[1], p->inputs[2], 1e-2, p->n, p->n_head, p->dim);
}

static void gate_backward(double *const *g, const double *dout, const Problem *p)
{
    reference_gate_backward(g[0], g[1], g[2], dout, p->inputs[0], p->inputs[1], p->inputs[2], 1e-2, p->n, p->n_head, p->dim);
}

static void swiglu_forward(double *out, const Problem *p) { reference_swiglu_forward(out, p->inputs[0], p->inputs[1], p->n); }

static void swiglu_backward(double *const *g, const double *dout, const Problem *p)
{
    reference_swiglu_backward(g[0], g[1], dout, p->inputs[0], p->inputs[1], p->n);
}

// Its two outputs one after the other. Inputs x, bias, rate.
static void softplus_forward(double *out, const Problem *p)
{
    reference_softplus_forward(out, out + p->n * p->dim, p->inputs[0], p->inputs[1], p->inputs[2], p->n, p->dim);
}

static void softplus_backward(double *const *g, const double *dout, const Problem *p)
{
    reference_softplus_backward(g[0], g[1], g[2], dout, dout + p->n * p->dim, p->inputs[0], p->inputs[1], p->inputs[2], p->n, p->dim);
}

static void slot_decay_forward(double *out, const Problem *p) { reference_slot_decay_forward(out, p->inputs[0], p->inputs[1], p->n, p->dim); }

static void slot_decay_backward(double *const *g, const double *dout, const Problem *p)
{
    Pool pool = {0};
    double *out = pool_doubles(&pool, p->n * p->dim);
    slot_decay_forward(out, p);
    reference_slot_decay_backward(g[0], g[1], dout, out, p->n, p->dim);
    pool_free(&pool);
}

static void sigmoid_forward(double *out, const Problem *p) { reference_sigmoid_forward(out, p->inputs[0], p->inputs[1], p->n, p->dim); }

static void sigmoid_backward(double *const *g, const double *dout, const Problem *p)
{
    Pool pool = {0};
    double *out = pool_doubles(&pool, p->n_out);
    sigmoid_forward(out, p);
    reference_sigmoid_backward(g[0], g[1], dout, out, p->n, p->dim);
    pool_free(&pool);
}

static void embedding_forward(double *out, const Problem *p) { reference_embedding_forward(out, p->inputs[0], p->ids, p->n, p->dim); }

static void embedding_backward(double *const *g, const double *dout, const Problem *p)
{
    reference_embedding_backward(g[0], dout, p->ids, p->n, p->dim);
}

static void cross_entropy_forward(double *out, const Problem *p)
{
    out[0] = reference_cross_entropy(NULL, NULL, p->inputs[0], p->ids, 1.0, p->n, p->dim);
}

static void cross_entropy_backward(double *const *g, const double *dout, const Problem *p)
{
    reference_cross_entropy(NULL, g[0], p->inputs[0], p->ids, dout[0], p->n, p->dim);
}

// Inputs of a mixer's problem, in this order; those that it does not read are empty.
enum { IN_Q, IN_K, IN_V, IN_G, IN_MU, IN_STATE0, IN_ALPHA, IN_LN_WEIGHT, IN_LN_BIAS };

static double *given(double *const *arrays, const Problem *p, size_t which) { return p->counts[which] > 0 ? arrays[which] : NULL; }

static ReferenceTensors problem_tensors(const Problem *p)
{
    double *const *x = p->inputs;
    return (ReferenceTensors){x[IN_Q], x[IN_K], x[IN_V], given(x, p, IN_G), given(x, p, IN_MU), given(x, p, IN_STATE0), given(x, p, IN_ALPHA),
                              given(x, p, IN_LN_WEIGHT), given(x, p, IN_LN_BIAS)};
}

// One head; the output is o followed by the end state, if there is one.
static void mixer_forward(double *out, const Problem *p)
{
    ReferenceTensors in = problem_tensors(p);
    ReferenceMixerShape shape = {p->n, p->dim, p->out_dim};
    reference_mixer_forward(out, out + p->n * p->out_dim, &in, &p->form, &shape);
}

static void mixer_backward(double *const *g, const double *dout, const Problem *p)
{
    ReferenceTensors in = problem_tensors(p);
    ReferenceGradients grad = {g[IN_Q], g[IN_K], g[IN_V], given(g, p, IN_G), given(g, p, IN_MU), given(g, p, IN_STATE0), given(g, p, IN_ALPHA),
                               given(g, p, IN_LN_WEIGHT), given(g, p, IN_LN_BIAS)};
    ReferenceMixerShape shape = {p->n, p->dim, p->out_dim};
    reference_mixer_backward(&grad, dout, dout + p->n * p->out_dim, &in, &p->form, &shape);
}

static void test_layer_differences(void **state)
{
    (void)state;
    static const int32_t ids[] = {3, 0, 6, 3, 3, 1}, targets[] = {3, -1, 6, 0, -1, 1};
    ReferenceConvShape keys = {.batch = 2, .length = 7, .n_head = 3, .head_size = 5, .width = 4, .norm = REFERENCE_L2, .eps = 1e-2}, values = keys, wide = keys,
                       softmax = keys;
    values.norm = REFERENCE_RMS;
    softmax.norm = REFERENCE_SOFTMAX;
    wide.length = 3;
    wide.width = 6;
    Problem problems[] = {
        {"linear", linear_forward, linear_backward, 5 * 3, 2, {5 * 7, 3 * 7}, .n = 5, .dim = 7, .out_dim = 3},
        {"rmsnorm", rmsnorm_forward, rmsnorm_backward, 5 * 7, 2, {5 * 7, 7}, .n = 5, .dim = 7},
        {"conv, l2", conv_forward, conv_backward, 14 * 15, 3, {14 * 15, 15 * 4, 15}, .conv = keys},
        {"conv, rms", conv_forward, conv_backward, 14 * 15, 3, {14 * 15, 15 * 4, 15}, .conv = values},
        {"conv, softmax", conv_forward, conv_backward, 14 * 15, 3, {14 * 15, 15 * 4, 15}, .conv = softmax},
        {"conv, more taps than tokens", conv_forward, conv_backward, 6 * 15, 3, {6 * 15, 15 * 6, 15}, .conv = wide},
        {"gate", gate_forward, gate_backward, 5 * 3 * 7, 3, {5 * 3 * 7, 5 * 3 * 7, 3 * 7}, .n = 5, .n_head = 3, .dim = 7},
        {"swiglu", swiglu_forward, swiglu_backward, 21, 2, {21, 21}, .n = 21},
        {"sigmoid", sigmoid_forward, sigmoid_backward, 5 * 3, 2, {5 * 3, 3}, .n = 5, .dim = 3},
        {"softplus", softplus_forward, softplus_backward, 2 * 5 * 3, 3, {5 * 3, 3, 3}, .n = 5, .dim = 3},
        {"slot decay", slot_decay_forward, slot_decay_backward, 5 * 3, 2, {5 * 3, 3}, .n = 5, .dim = 3},
        {"embedding", embedding_forward, embedding_backward, 6 * 3, 1, {7 * 3}, .n = 6, .dim = 3, .ids = ids},
        {"cross-entropy", cross_entropy_forward, cross_entropy_backward, 1, 1, {6 * 7}, .n = 6, .dim = 7, .ids = targets},
    };
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
        Pool pool = {0};
        fill_problem(&problems[i], &pool, i);
        check_problem(&problems[i], 100 + i);
        pool_free(&pool);
    }
}

static void sigmoids(double *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = 1.0 / (1.0 + exp(-x[i]));
    }
}

static void check_mixer_differences(ReferenceForm form, bool forget_gate, const size_t size[3], uint64_t seed)
{
    ReferenceNeeds needs = reference_needs(&form);
    size_t length = size[0], d = size[2], m = needs.square ? d : size[1];
    char name[128];
    snprintf(name, sizeof name, "%s, %s, chunk %zu, %s, %s, T %zu, %s%s%s%s%s", form.mixer, form.objective != NULL ? form.objective : "", form.chunk,
             form.chunk_form != NULL ? form.chunk_form : "", form.chunk_norm != NULL ? form.chunk_norm : "", length,
             forget_gate ? "forget gate" : "no forget gate", form.no_projection ? ", no projection" : "",
             form.no_normalisation ? ", no normalisation" : form.relative_read ? ", relative read" : "", form.l1 > 0.0 ? ", l1" : "",
             form.slot_gate ? ", slot gate" : "");
    Problem p = {.name = name, .forward = mixer_forward, .backward = mixer_backward, .n_out = length * d + (needs.state ? m * d : 0), .n_inputs = MAX_INPUTS,
                 .counts = {[IN_Q] = length * m, [IN_K] = length * m, [IN_V] = length * d, [IN_G] = needs.gate ? length * reference_gates(&form, m) : 0,
                            [IN_MU] = forget_gate ? length : 0, [IN_STATE0] = needs.start ? m * d : 0, [IN_ALPHA] = needs.slot_decay ? length * m : 0,
                            [IN_LN_WEIGHT] = needs.norm ? d : 0, [IN_LN_BIAS] = needs.norm ? d : 0},
                 .n = length, .dim = m, .out_dim = d, .form = form};
    Pool pool = {0};
    fill_problem(&p, &pool, seed);
    sigmoids(p.inputs[IN_G], p.counts[IN_G]);
    sigmoids(p.inputs[IN_MU], p.counts[IN_MU]);
    sigmoids(p.inputs[IN_ALPHA], p.counts[IN_ALPHA]);
    check_problem(&p, 200 + seed);
    pool_free(&pool);
}

static const size_t mixer_sizes[][3] = {{1, 1, 2}, {7, 3, 5}, {13, 6, 4}};   // T, m, d

// Every form of Lattice with every ablation.
static void test_lattice_differences(void **state)
{
    (void)state;
    static const char *const objectives[] = {"decode", "encode", "similarity"}, *const forms[] = {"frozen", "gated"}, *const norms[] = {"token", "chunk"};
    static const size_t chunks[] = {1, 2, 3, 5, 64};
    for (size_t i = 0; i < 3 * 2 * 2 * 2 * 4; i++) {
        size_t ablation = i % 4;
        for (size_t c = 0; c < 5; c++) {
            ReferenceForm form = {.mixer = "lattice", .objective = objectives[i / 32], .chunk = chunks[c], .chunk_form = forms[i / 16 % 2],
                                  .chunk_norm = norms[i / 8 % 2], .no_projection = ablation == 1, .no_normalisation = ablation == 2,
                                  .l1 = ablation == 3 ? 0.1 : 0.0, .relative_read = (i + c) % 7 == 0, .slot_gate = (i + c) % 3 == 0};
            check_mixer_differences(form, i / 4 % 2 == 1, mixer_sizes[(i + c) % 3], i * 5 + c);
        }
    }
}

static void test_rival_differences(void **state)
{
    (void)state;
    const Rivals rivals = rivals_list(false);
    for (size_t i = 0; i < rivals.count; i++) {
        ReferenceNeeds needs = reference_needs(&rivals.forms[i]);
        for (size_t size = 0; size < 3; size++) {
            for (int forget_gate = needs.no_forget ? 0 : 1; forget_gate <= (needs.forget ? 1 : 0); forget_gate++) {
                check_mixer_differences(rivals.forms[i], forget_gate == 1, mixer_sizes[size], 1000 + 3 * i + size);
            }
        }
    }
}

// ---- Worked out by hand ----

static void test_mixer_by_hand(void **state)
{
    (void)state;
    // One slot (2, 0), used as (1, 0); k = 1, v = (0, 1), g = ½. decode: h = v − s = (−1, 1), u = −1: s~ = (1, 0) + ½((−1, 1) + (1, 0)) = (1, ½).
    // encode and similarity: u = s·v = 0; encode: c = 1 − 0 = 1, s~ = (1, 0) + ½ (0, 1) = (1, ½) too. With mu = ¼: s~ = (¼, ½) in all three.
    double q = 3.0, k = 1.0, v[2] = {0.0, 1.0}, g = 0.5, mu = 0.25, state0[2] = {2.0, 0.0}, o[2], end[2];
    static const char *const objectives[] = {"decode", "encode", "similarity"};
    ReferenceMixerShape shape = {1, 1, 2};
    for (size_t i = 0; i < 3; i++) {
        ReferenceForm form = {.mixer = "lattice", .objective = objectives[i], .chunk = 1};
        ReferenceTensors in = {.q = &q, .k = &k, .v = v, .g = &g, .state0 = state0};
        reference_mixer_forward(o, end, &in, &form, &shape);
        assert_true(fabs(end[0] - 1.0 / sqrt(1.25)) < 1e-15 && fabs(end[1] - 0.5 / sqrt(1.25)) < 1e-15);
        assert_true(fabs(o[0] - 3.0 * end[0]) < 1e-15 && fabs(o[1] - 3.0 * end[1]) < 1e-15);
        in.mu = &mu;
        reference_mixer_forward(o, end, &in, &form, &shape);
        assert_true(fabs(end[0] - 0.25 / sqrt(0.3125)) < 1e-15 && fabs(end[1] - 0.5 / sqrt(0.3125)) < 1e-15);
    }
}

static void test_adamw_by_hand(void **state)
{
    (void)state;
    // A gradient that stays the same has bias-corrected moments g and g² at every step.
    double params[2] = {1.0, -2.0}, m[2] = {0.0, 0.0}, v[2] = {0.0, 0.0}, grad[2] = {8.0, -0.5}, expected[2] = {1.0, -2.0};
    for (int step = 1; step <= 20; step++) {
        reference_adamw(params, m, v, grad, 2, 0.25, 0.01, 0.9, 0.95, 0.1, 0.5, step);
        for (size_t i = 0; i < 2; i++) {
            double g = 0.25 * grad[i];
            expected[i] -= 0.01 * (g / (fabs(g) + 0.1) + 0.5 * expected[i]);
            assert_true(fabs(params[i] - expected[i]) < 1e-13);
        }
    }
}

// ---- The whole model ----

static ModelConfig odd_config(bool tied, int64_t hidden, bool forget_gate)
{
    return (ModelConfig){.vocab_size = 11, .d_model = 7, .n_layer = 2, .n_head = 3, .d_head = 5, .n_slot = 4, .conv_width = 3, .mlp_hidden = hidden,
                         .norm_eps = 1e-6, .tie_embeddings = tied, .mixer = "lattice", .objective = "decode", .chunk = 1, .chunk_form = "frozen",
                         .chunk_norm = "token", .forget_gate = forget_gate};
}

enum { MODEL_BATCH = 2, MODEL_LENGTH = 6 };

typedef struct ModelLoss {
    const ModelConfig *config;
    TensorTable table;
    double *params;
    int32_t tokens[MODEL_BATCH * MODEL_LENGTH], targets[MODEL_BATCH * MODEL_LENGTH];
} ModelLoss;

static double model_loss_of(void *context)
{
    ModelLoss *l = context;
    return 0.3 * reference_model(NULL, NULL, l->config, &l->table, l->params, l->tokens, l->targets, 1.0, MODEL_BATCH, MODEL_LENGTH);
}

static void check_model_differences(const ModelConfig *config, uint64_t seed)
{
    Pool pool = {0};
    Rng rng;
    Error error;
    ModelLoss loss = {.config = config};
    assert_int_equal(params_table(&loss.table, config, &error), 0);
    rng_seed(&rng, seed, 0);
    for (size_t i = 0; i < MODEL_BATCH * MODEL_LENGTH; i++) {
        loss.tokens[i] = (int32_t)rng_below(&rng, (uint64_t)config->vocab_size);
        loss.targets[i] = (int32_t)rng_below(&rng, (uint64_t)config->vocab_size + 1) - 1;
    }
    loss.params = random_doubles(&pool, &rng, loss.table.total, 0.5);
    double *grads = pool_doubles(&pool, loss.table.total);
    reference_model(NULL, grads, config, &loss.table, loss.params, loss.tokens, loss.targets, 0.3, MODEL_BATCH, MODEL_LENGTH);
    for (size_t k = 0; k < loss.table.count; k++) {
        const Tensor *tensor = &loss.table.items[k];
        double *g = grads + tensor->offset, scale = rms(g, tensor->count);
        assert_true(scale > 0.0);   // every parameter takes part
        for (size_t trial = 0; trial < 4; trial++) {
            size_t i = rng_below(&rng, tensor->count);
            check_slope(tensor->name, k, i, slope_along(&loss.params[tensor->offset + i], STEP, model_loss_of, &loss), g[i], scale);
        }
    }
    tensor_table_free(&loss.table);
    pool_free(&pool);
}

static void test_model_differences(void **state)
{
    (void)state;
    static const char *const objectives[] = {"decode", "encode", "similarity"};
    for (uint64_t i = 0; i < 8; i++) {
        ModelConfig config = odd_config(i % 2 == 0, i / 2 % 2 == 0 ? 9 : 0, i / 4 == 0);
        config.objective = objectives[i % 3];
        check_model_differences(&config, i);
    }
    for (size_t i = 0; i < MODEL_CHOICES; i++) {
        ModelConfig config = odd_config(i % 2 == 0, i % 3 == 0 ? 9 : 0, false);
        make_choice(&config, &model_choices[i]);
        check_model_differences(&config, 8 + i);
    }
}

// ---- Golden files ----

static void test_relative_rms(void **state)
{
    (void)state;
    double x[3] = {1.0, 2.0, 2.0}, y[3] = {1.0, 2.0, 2.3}, zero[3] = {0.0, 0.0, 0.0}, bad[3] = {1.0, NAN, 2.0};
    assert_true(fabs(relative_rms(y, x, 3) - 0.1) < 1e-15);
    assert_true(relative_rms(zero, zero, 3) == 0.0);
    assert_true(fabs(relative_rms(x, zero, 3) - sqrt(3.0)) < 1e-15);
    assert_true(relative_rms(bad, x, 3) == INFINITY && relative_rms(x, bad, 3) == INFINITY && relative_rms(bad, bad, 3) == INFINITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_relative_rms),
        cmocka_unit_test(test_layer_differences),
        cmocka_unit_test(test_lattice_differences),
        cmocka_unit_test(test_rival_differences),
        cmocka_unit_test(test_mixer_by_hand),
        cmocka_unit_test(test_adamw_by_hand),
        cmocka_unit_test(test_model_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
