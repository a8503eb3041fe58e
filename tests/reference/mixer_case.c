#include "tests/reference/mixer_case.h"

#include <math.h>
#include <string.h>

static size_t rows_of(const MixerCase *c) { return c->batch * c->n_head * c->length; }

static size_t state_of(const MixerCase *c) { return c->n_head * c->n_slot * c->d_head; }

MixerResult mixer_result_create(Pool *pool, const MixerCase *c)
{
    size_t rows = rows_of(c);
    return (MixerResult){
        .o = pool_doubles(pool, rows * c->d_head), .state = pool_doubles(pool, c->batch * state_of(c)),
        .d_q = pool_doubles(pool, rows * c->n_slot), .d_k = pool_doubles(pool, rows * c->n_slot), .d_v = pool_doubles(pool, rows * c->d_head),
        .d_g = pool_doubles(pool, rows), .d_mu = c->mu != NULL ? pool_doubles(pool, rows) : NULL, .d_state0 = pool_doubles(pool, state_of(c)),
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
    size_t rows = rows_of(c);
    c->q = unit_vectors(pool, rows, c->n_slot, rng);
    c->k = unit_vectors(pool, rows, c->n_slot, rng);
    c->v = normals(pool, rows * c->d_head, rng, 0.0, 1.0);
    c->g = gates(pool, rows, rng, gate_mean, gate_spread);
    c->mu = forget_gate ? gates(pool, rows, rng, 2.0, gate_spread) : NULL;
    c->state0 = normals(pool, state_of(c), rng, 0.0, 1.0);
    c->do_ = normals(pool, rows * c->d_head, rng, 0.0, 1.0);
    c->dstate = normals(pool, c->batch * state_of(c), rng, 0.0, 1.0);
}

MixerResult mixer_case_reference(Pool *pool, const MixerCase *c)
{
    MixerResult r = mixer_result_create(pool, c);
    size_t length = c->length, m = c->n_slot, d = c->d_head;
    ReferenceMixerShape shape = {length, m, d};
    for (size_t b = 0; b < c->batch; b++) {
        for (size_t head = 0; head < c->n_head; head++) {
            size_t one = b * c->n_head + head, row = one * length;
            ReferenceTensors in = {c->q + row * m, c->k + row * m, c->v + row * d, c->g + row, c->mu != NULL ? c->mu + row : NULL, c->state0 + head * m * d};
            ReferenceGradients grad = {r.d_q + row * m, r.d_k + row * m, r.d_v + row * d, r.d_g + row, c->mu != NULL ? r.d_mu + row : NULL,
                                       r.d_state0 + head * m * d};
            reference_mixer_forward(r.o + row * d, r.state + one * m * d, &in, &c->form, &shape);
            reference_mixer_backward(&grad, c->do_ + row * d, c->dstate != NULL ? c->dstate + one * m * d : NULL, &in, &c->form, &shape);
        }
    }
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
    float *out = pool_floats(pool, n);
    for (size_t i = 0; i < n; i++) {
        out[i] = (float)x[i];
    }
    return out;
}

void mixer_case_tensors(MixerTensors *in, MixerShape *shape, Pool *pool, const MixerCase *c)
{
    size_t tokens = c->batch * c->length, keys = c->n_head * c->n_slot, stride = 2 * keys + c->n_head * c->d_head;
    float *qkv = pool_floats(pool, tokens * stride), *g = pool_floats(pool, tokens * c->n_head), *mu = NULL;
    rows_from_heads(qkv, stride, c->q, c, c->n_slot);
    rows_from_heads(qkv + keys, stride, c->k, c, c->n_slot);
    rows_from_heads(qkv + 2 * keys, stride, c->v, c, c->d_head);
    rows_from_heads(g, c->n_head, c->g, c, 1);
    if (c->mu != NULL) {
        mu = pool_floats(pool, tokens * c->n_head);
        rows_from_heads(mu, c->n_head, c->mu, c, 1);
    }
    *in = (MixerTensors){qkv, qkv + keys, qkv + 2 * keys, stride, g, mu, to_floats(pool, c->state0, state_of(c))};
    *shape = (MixerShape){.batch = c->batch, .length = c->length, .n_head = c->n_head, .n_slot = c->n_slot, .d_head = c->d_head, .position = 0};
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

MixerResult mixer_case_fast(Pool *pool, const MixerCase *c, const Kernels *kernels)
{
    const Mixer *mixer = mixer_find(kernels->mixers, c->form.mixer);
    MixerResult r = mixer_result_create(pool, c);
    Pool own = {0};
    MixerTensors in;
    MixerShape shape;
    mixer_case_tensors(&in, &shape, &own, c);
    // A stride wider than the state: what lies between two states is not the mixer's.
    size_t tokens = c->batch * c->length, keys = c->n_head * c->n_slot, values = c->n_head * c->d_head, state = state_of(c), state_stride = state + 5;
    float *o = pool_floats(&own, tokens * values), *saved = nan_floats(&own, mixer->saved_floats(&shape));
    float *scratch = nan_floats(&own, mixer->scratch_floats(&shape, false)), *back_scratch = nan_floats(&own, mixer->scratch_floats(&shape, true));
    float *states = pool_floats(&own, c->batch * state_stride), *dstates = NULL;

    for (size_t b = 0; b < c->batch; b++) {
        mixer->state_init(states + b * state_stride, in.state0, &shape);
    }
    mixer->forward(o, NULL, scratch, states, state_stride, &in, &shape);
    for (size_t b = 0; b < c->batch; b++) {
        for (size_t i = 0; i < state; i++) {
            r.state[b * state + i] = states[b * state_stride + i];
        }
    }
    mixer->forward(o, saved, scratch, NULL, 0, &in, &shape);
    heads_from_rows(r.o, o, values, c, c->d_head);

    float *d_qkv = pool_floats(&own, tokens * in.qkv_stride), *d_g = pool_floats(&own, tokens * c->n_head), *d_mu = pool_floats(&own, tokens * c->n_head);
    float *d_state0 = pool_floats(&own, state), *d_out = pool_floats(&own, tokens * values);
    MixerGradients grad = {d_qkv, d_qkv + keys, d_qkv + 2 * keys, d_g, c->mu != NULL ? d_mu : NULL, d_state0};
    rows_from_heads(d_out, values, c->do_, c, c->d_head);
    if (c->dstate != NULL) {
        dstates = pool_floats(&own, c->batch * state_stride);
        for (size_t b = 0; b < c->batch; b++) {
            for (size_t i = 0; i < state; i++) {
                dstates[b * state_stride + i] = (float)c->dstate[b * state + i];
            }
        }
    }
    mixer->backward(&grad, d_out, dstates, state_stride, saved, back_scratch, &in, &shape);
    heads_from_rows(r.d_q, grad.q, in.qkv_stride, c, c->n_slot);
    heads_from_rows(r.d_k, grad.k, in.qkv_stride, c, c->n_slot);
    heads_from_rows(r.d_v, grad.v, in.qkv_stride, c, c->d_head);
    heads_from_rows(r.d_g, d_g, c->n_head, c, 1);
    if (c->mu != NULL) {
        heads_from_rows(r.d_mu, d_mu, c->n_head, c, 1);
    }
    for (size_t i = 0; i < state; i++) {
        r.d_state0[i] = d_state0[i];
    }
    pool_free(&own);
    return r;
}

void mixer_result_compare(const MixerResult *actual, const MixerResult *expected, const MixerCase *c, MixerVisit visit, void *context)
{
    size_t rows = rows_of(c), m = c->n_slot, d = c->d_head;
    visit(context, "outputs", false, relative_rms(actual->o, expected->o, rows * d));
    visit(context, "state", false, relative_rms(actual->state, expected->state, c->batch * state_of(c)));
    visit(context, "q", true, relative_rms(actual->d_q, expected->d_q, rows * m));
    visit(context, "k", true, relative_rms(actual->d_k, expected->d_k, rows * m));
    visit(context, "v", true, relative_rms(actual->d_v, expected->d_v, rows * d));
    visit(context, "g", true, relative_rms(actual->d_g, expected->d_g, rows));
    if (c->mu != NULL) {
        visit(context, "mu", true, relative_rms(actual->d_mu, expected->d_mu, rows));
    }
    visit(context, "S0", true, relative_rms(actual->d_state0, expected->d_state0, state_of(c)));
}
