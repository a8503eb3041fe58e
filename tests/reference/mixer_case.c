#include "tests/reference/mixer_case.h"

#include <math.h>
#include <string.h>

static size_t rows_of(const MixerCase *c) { return c->batch * c->n_head * c->length; }

// Numbers of g a head and token.
static size_t gates_of(const MixerCase *c) { return reference_gates(&c->form, c->n_slot); }

static size_t state_of(const MixerCase *c) { return c->n_head * c->n_slot * c->d_head; }

static double *doubles_if(Pool *pool, size_t n, bool wanted) { return wanted ? pool_doubles(pool, n) : NULL; }

MixerResult mixer_result_create(Pool *pool, const MixerCase *c)
{
    size_t rows = rows_of(c), norm = c->n_head * c->d_head;
    return (MixerResult){
        .o = pool_doubles(pool, rows * c->d_head),
        .state = doubles_if(pool, c->batch * state_of(c), reference_needs(&c->form).state),
        .d_q = pool_doubles(pool, rows * c->n_slot),
        .d_k = pool_doubles(pool, rows * c->n_slot),
        .d_v = pool_doubles(pool, rows * c->d_head),
        .d_g = doubles_if(pool, rows * gates_of(c), c->g != NULL),
        .d_mu = doubles_if(pool, rows, c->mu != NULL),
        .d_state0 = doubles_if(pool, state_of(c), c->state0 != NULL),
        .d_alpha = doubles_if(pool, rows * c->n_slot, c->alpha != NULL),
        .d_ln_weight = doubles_if(pool, norm, c->ln_weight != NULL),
        .d_ln_bias = doubles_if(pool, norm, c->ln_bias != NULL),
    };
}

// n numbers N(0, spread²) + mean that f32 holds
static double *normals(Pool *pool, size_t n, Rng *rng, double mean, double spread)
{
    double *x = pool_doubles(pool, n);
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(mean + spread * rng_normal(rng));
    }
    return x;
}

// n vectors of unit length
static double *unit_vectors(Pool *pool, size_t n, size_t size, Rng *rng)
{
    double *x = normals(pool, n * size, rng, 0.0, 1.0);
    for (size_t i = 0; i < n; i++) {
        double sum = 1e-6;
        for (size_t j = 0; j < size; j++) {
            sum += x[i * size + j] * x[i * size + j];
        }
        for (size_t j = 0; j < size; j++) {
            x[i * size + j] = (float)(x[i * size + j] / sqrt(sum));
        }
    }
    return x;
}

static double *gates(Pool *pool, size_t n, Rng *rng, double mean, double spread)
{
    double *x = normals(pool, n, rng, mean, spread);
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(1.0 / (1.0 + exp(-x[i])));
    }
    return x;
}

void mixer_case_fill(MixerCase *c, Pool *pool, Rng *rng, bool forget_gate, double gate_mean, double gate_spread)
{
    ReferenceNeeds needs = reference_needs(&c->form);
    size_t rows = rows_of(c), norm = c->n_head * c->d_head;
    bool forget = needs.forget && (forget_gate || !needs.no_forget);
    c->q = unit_vectors(pool, rows, c->n_slot, rng);
    c->k = unit_vectors(pool, rows, c->n_slot, rng);
    c->v = normals(pool, rows * c->d_head, rng, 0.0, 1.0);
    c->g = needs.gate ? gates(pool, rows * gates_of(c), rng, gate_mean, gate_spread) : NULL;
    c->mu = forget ? gates(pool, rows, rng, 2.0, gate_spread) : NULL;
    c->state0 = needs.start ? normals(pool, state_of(c), rng, 0.0, 1.0) : NULL;
    c->do_ = normals(pool, rows * c->d_head, rng, 0.0, 1.0);
    c->dstate = needs.state ? normals(pool, c->batch * state_of(c), rng, 0.0, 1.0) : NULL;
    c->alpha = needs.slot_decay ? gates(pool, rows * c->n_slot, rng, 2.0, gate_spread) : NULL;
    c->ln_weight = needs.norm ? normals(pool, norm, rng, 1.0, 0.3) : NULL;
    c->ln_bias = needs.norm ? normals(pool, norm, rng, 0.0, 0.3) : NULL;
}

// x + n, or NULL
static double *at(double *x, size_t n) { return x != NULL ? x + n : NULL; }

// With a norm that all heads share, its gradients go to the first head's place.
static void gather_norm(double *gradient, const MixerCase *c)
{
    for (size_t i = c->d_head; c->shared_norm && gradient != NULL && i < c->n_head * c->d_head; i++) {
        gradient[i % c->d_head] += gradient[i];
        gradient[i] = 0.0;
    }
}

MixerResult mixer_case_reference(Pool *pool, const MixerCase *c)
{
    MixerResult r = mixer_result_create(pool, c);
    size_t length = c->length, m = c->n_slot, d = c->d_head;
    ReferenceMixerShape shape = {length, m, d};
    for (size_t b = 0; b < c->batch; b++) {
        for (size_t head = 0; head < c->n_head; head++) {
            size_t one = b * c->n_head + head, row = one * length;
            ReferenceTensors in = {c->q + row * m, c->k + row * m, c->v + row * d, at(c->g, row * gates_of(c)), at(c->mu, row), at(c->state0, head * m * d),
                                   at(c->alpha, row * m), at(c->ln_weight, head * d), at(c->ln_bias, head * d)};
            ReferenceGradients grad = {r.d_q + row * m, r.d_k + row * m, r.d_v + row * d, at(r.d_g, row * gates_of(c)), at(r.d_mu, row),
                                       at(r.d_state0, head * m * d), at(r.d_alpha, row * m), at(r.d_ln_weight, head * d), at(r.d_ln_bias, head * d)};
            reference_mixer_forward(r.o + row * d, at(r.state, one * m * d), &in, &c->form, &shape);
            reference_mixer_backward(&grad, c->do_ + row * d, at(c->dstate, one * m * d), &in, &c->form, &shape);
        }
    }
    gather_norm(r.d_ln_weight, c);
    gather_norm(r.d_ln_bias, c);
    return r;
}

// heads [B, H, T, size] → rows [B·T, H, size] at row stride `stride`
static void rows_from_heads(float *rows, size_t stride, const double *heads, const MixerCase *c, size_t size)
{
    for (size_t b = 0; b < c->batch; b++) {
        for (size_t head = 0; head < c->n_head; head++) {
            for (size_t t = 0; t < c->length; t++) {
                for (size_t j = 0; j < size; j++) {
                    rows[(b * c->length + t) * stride + head * size + j] = (float)heads[((b * c->n_head + head) * c->length + t) * size + j];
                }
            }
        }
    }
}

void heads_from_rows(double *out, const float *rows, size_t stride, const MixerCase *c, size_t size)
{
    for (size_t b = 0; b < c->batch; b++) {
        for (size_t head = 0; head < c->n_head; head++) {
            for (size_t t = 0; t < c->length; t++) {
                for (size_t j = 0; j < size; j++) {
                    out[((b * c->n_head + head) * c->length + t) * size + j] = rows[(b * c->length + t) * stride + head * size + j];
                }
            }
        }
    }
}

static float *to_floats(Pool *pool, const double *x, size_t n)
{
    float *out = x != NULL ? pool_floats(pool, n) : NULL;
    for (size_t i = 0; x != NULL && i < n; i++) {
        out[i] = (float)x[i];
    }
    return out;
}

// heads [B, H, T, size] as rows of their own, or NULL
static float *own_rows(Pool *pool, const double *heads, const MixerCase *c, size_t size)
{
    float *rows = heads != NULL ? pool_floats(pool, rows_of(c) * size) : NULL;
    if (rows != NULL) {
        rows_from_heads(rows, c->n_head * size, heads, c, size);
    }
    return rows;
}

static bool is(const char *name, const char *value) { return name != NULL && strcmp(name, value) == 0; }

static LatticeForm fast_form(const ReferenceForm *form)
{
    return (LatticeForm){
        .objective = is(form->objective, "encode") ? LATTICE_ENCODE : is(form->objective, "similarity") ? LATTICE_SIMILARITY : LATTICE_DECODE,
        .gated = is(form->chunk_form, "gated"),
        .chunk_norm = is(form->chunk_norm, "chunk"),
        .no_projection = form->no_projection,
        .no_normalisation = form->no_normalisation,
        .l1 = (float)form->l1,
        .slot_gate = form->slot_gate,
    };
}

const char *mixer_case_fast_name(const MixerCase *c)
{
    if (c->fast != NULL || !is(c->form.mixer, "lattice")) {
        return c->fast != NULL ? c->fast : c->form.mixer;
    }
    bool plain = is(c->form.objective, "decode") && c->form.chunk == 1 && !c->form.no_projection && !c->form.no_normalisation && c->form.l1 == 0.0 &&
                 !c->form.slot_gate;
    return plain ? "lattice" : "lattice_forms";
}

void mixer_case_tensors(MixerTensors *in, MixerShape *shape, Pool *pool, const MixerCase *c)
{
    size_t tokens = c->batch * c->length, keys = c->n_head * c->n_slot, stride = 2 * keys + c->n_head * c->d_head, norm = c->n_head * c->d_head;
    float *qkv = pool_floats(pool, tokens * stride);
    rows_from_heads(qkv, stride, c->q, c, c->n_slot);
    rows_from_heads(qkv + keys, stride, c->k, c, c->n_slot);
    rows_from_heads(qkv + 2 * keys, stride, c->v, c, c->d_head);
    *in = (MixerTensors){
        .q = qkv,
        .k = qkv + keys,
        .v = qkv + 2 * keys,
        .qkv_stride = stride,
        .g = own_rows(pool, c->g, c, gates_of(c)),
        .mu = own_rows(pool, c->mu, c, 1),
        .state0 = to_floats(pool, c->state0, state_of(c)),
        .alpha = own_rows(pool, c->alpha, c, c->n_slot),
        .alpha_stride = keys,
        .ln_weight = to_floats(pool, c->ln_weight, norm),
        .ln_bias = to_floats(pool, c->ln_bias, norm),
        .chunk = c->form.chunk,
        .window = c->form.window,
        .form = fast_form(&c->form),
    };
    *shape = (MixerShape){.batch = c->batch, .length = c->length, .n_head = c->n_head, .n_slot = c->n_slot, .d_head = c->d_head, .position = 0};
}

size_t mixer_case_state_floats(const Mixer *mixer, const MixerTensors *in, const MixerShape *shape)
{
    ModelConfig config = {.n_head = (int64_t)shape->n_head, .n_slot = (int64_t)shape->n_slot, .d_head = (int64_t)shape->d_head,
                          .chunk = (int64_t)in->chunk};
    return mixer->state_floats != NULL ? mixer->state_floats(&config) : mixer->window_state_floats(shape, in->window);
}

// Memory whose content must not matter: what is read before it is written spreads as NaN.
static float *nan_floats(Pool *pool, size_t n)
{
    float *x = pool_floats(pool, n);
    for (size_t i = 0; i < n; i++) {
        x[i] = NAN;
    }
    return x;
}

// The end state, by a forward with carried states. A stride wider than the state: what lies between two states is not the mixer's.
static void fast_state(MixerResult *r, const MixerCase *c, const Mixer *mixer, const MixerTensors *in, const MixerShape *shape)
{
    Pool own = {0};
    size_t state = state_of(c), stride = mixer_case_state_floats(mixer, in, shape) + 5;
    float *states = nan_floats(&own, c->batch * stride), *o = pool_floats(&own, rows_of(c) * c->d_head);
    for (size_t b = 0; b < c->batch; b++) {
        mixer->state_init(states + b * stride, in->state0, shape);
    }
    mixer->forward(o, NULL, nan_floats(&own, mixer->scratch_floats(shape, false)), states, stride, in, shape);
    for (size_t b = 0; b < c->batch; b++) {
        for (size_t i = 0; i < state; i++) {
            r->state[b * state + i] = states[b * stride + i];
        }
    }
    // A carried state waits for the rest of its chunk; the reference's sequence ends here.
    bool waits = in->form.chunk_norm && !in->form.no_normalisation && in->chunk > 1 && shape->length % in->chunk != 0;
    if (is(c->form.mixer, "lattice") && waits) {
        size_t slots = c->batch * c->n_head * c->n_slot;
        reference_normalise(r->state, pool_doubles(&own, slots), r->state, slots, c->d_head);
    }
    pool_free(&own);
}

static float *floats_if(Pool *pool, size_t n, bool wanted) { return wanted ? pool_floats(pool, n) : NULL; }

// Floats to doubles where there are any.
static void copy_out(double *out, const float *x, size_t n)
{
    for (size_t i = 0; out != NULL && i < n; i++) {
        out[i] = x[i];
    }
}

static void rows_out(double *out, const float *rows, size_t stride, const MixerCase *c, size_t size)
{
    if (out != NULL) {
        heads_from_rows(out, rows, stride, c, size);
    }
}

static void fast_backward(MixerResult *r, const MixerCase *c, const Mixer *mixer, const float *saved, const MixerTensors *in, const MixerShape *shape)
{
    Pool own = {0};
    size_t tokens = c->batch * c->length, keys = c->n_head * c->n_slot, values = c->n_head * c->d_head, state = state_of(c);
    float *d_qkv = nan_floats(&own, tokens * in->qkv_stride), *d_out = own_rows(&own, c->do_, c, c->d_head);
    MixerGradients grad = {
        .q = d_qkv,
        .k = d_qkv + keys,
        .v = d_qkv + 2 * keys,
        .g = floats_if(&own, tokens * c->n_head * gates_of(c), c->g != NULL),
        .mu = floats_if(&own, tokens * c->n_head, c->mu != NULL),
        .state0 = floats_if(&own, state, c->state0 != NULL),
        .alpha = floats_if(&own, tokens * keys, c->alpha != NULL),
        .ln_weight = floats_if(&own, values, c->ln_weight != NULL),
        .ln_bias = floats_if(&own, values, c->ln_bias != NULL),
    };
    size_t stride = state + 5;
    float *dstates = floats_if(&own, c->batch * stride, c->dstate != NULL);
    for (size_t i = 0; c->dstate != NULL && i < c->batch * state; i++) {
        dstates[i / state * stride + i % state] = (float)c->dstate[i];
    }
    mixer->backward(&grad, d_out, dstates, stride, saved, nan_floats(&own, mixer->scratch_floats(shape, true)), in, shape);
    rows_out(r->d_q, grad.q, in->qkv_stride, c, c->n_slot);
    rows_out(r->d_k, grad.k, in->qkv_stride, c, c->n_slot);
    rows_out(r->d_v, grad.v, in->qkv_stride, c, c->d_head);
    rows_out(r->d_g, grad.g, c->n_head * gates_of(c), c, gates_of(c));
    rows_out(r->d_mu, grad.mu, c->n_head, c, 1);
    rows_out(r->d_alpha, grad.alpha, keys, c, c->n_slot);
    copy_out(r->d_state0, grad.state0, state);
    copy_out(r->d_ln_weight, grad.ln_weight, values);
    copy_out(r->d_ln_bias, grad.ln_bias, values);
    gather_norm(r->d_ln_weight, c);
    gather_norm(r->d_ln_bias, c);
    pool_free(&own);
}

MixerResult mixer_case_fast(Pool *pool, const MixerCase *c, const Kernels *kernels)
{
    const Mixer *mixer = mixer_find(kernels->mixers, mixer_case_fast_name(c));
    MixerResult r = mixer_result_create(pool, c);
    Pool own = {0};
    MixerTensors in;
    MixerShape shape;
    mixer_case_tensors(&in, &shape, &own, c);
    if (r.state != NULL) {
        fast_state(&r, c, mixer, &in, &shape);
    }
    size_t values = c->n_head * c->d_head;
    float *o = pool_floats(&own, c->batch * c->length * values), *saved = nan_floats(&own, mixer->saved_floats(&shape));
    mixer->forward(o, saved, nan_floats(&own, mixer->scratch_floats(&shape, false)), NULL, 0, &in, &shape);
    heads_from_rows(r.o, o, values, c, c->d_head);
    fast_backward(&r, c, mixer, saved, &in, &shape);
    pool_free(&own);
    return r;
}

void mixer_result_compare(const MixerResult *actual, const MixerResult *expected, const MixerCase *c, MixerVisit visit, void *context)
{
    size_t rows = rows_of(c), keys = rows * c->n_slot, values = rows * c->d_head, norm = c->n_head * c->d_head;
    const struct {
        const char *name;
        const double *actual, *expected;
        size_t count;
    } arrays[] = {
        {"outputs", actual->o, expected->o, values},
        {"state", actual->state, expected->state, c->batch * state_of(c)},
        {"q", actual->d_q, expected->d_q, keys},
        {"k", actual->d_k, expected->d_k, keys},
        {"v", actual->d_v, expected->d_v, values},
        {"g", actual->d_g, expected->d_g, rows * gates_of(c)},
        {"mu", actual->d_mu, expected->d_mu, rows},
        {"S0", actual->d_state0, expected->d_state0, state_of(c)},
        {"alpha", actual->d_alpha, expected->d_alpha, keys},
        {"ln_w", actual->d_ln_weight, expected->d_ln_weight, norm},
        {"ln_b", actual->d_ln_bias, expected->d_ln_bias, norm},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        if (arrays[i].expected != NULL) {
            visit(context, arrays[i].name, i >= 2, relative_rms(arrays[i].actual, arrays[i].expected, arrays[i].count));
        }
    }
}
