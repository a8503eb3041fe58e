// The rivals with a memory of linear writes (docs/memories.md 8).
//
// All are S = S diag(decay) + c h kᵀ and o = S q, with decay 1, mu or alpha; they differ in h [d] and c, which may read p = S k.
#include <math.h>
#include <string.h>

#include "tests/reference/reference.h"

#define LAYER_NORM_EPS 1e-6

typedef enum Kind {
    KIND_PLAIN,         // h = v, c = g or 1
    KIND_DELTA,         // h = v − mu p, c = g
    KIND_OUTPUT_NORM,   // h = v − ẑ (ẑ·v), c = g / ‖z‖, z = p
    KIND_TTT,           // h = −dz, c = g, z = p with S of the chunk's start; o = q + LN(S q)
} Kind;

typedef struct Recurrence {
    Kind kind;
    const ReferenceTensors *in;
    size_t chunk, length, m, d;
    double *states;     // [T + 1, m, d]: the start and what stands after each token
    double *p, *h;      // [d] of the token at hand
} Recurrence;

// Mixers that do not stand here are plain: they differ in their gates and decays alone.
static const struct {
    const char *mixer;
    Kind kind;
} kinds[] = {{"delta", KIND_DELTA}, {"gated_delta", KIND_DELTA}, {"output_norm", KIND_OUTPUT_NORM}, {"ttt", KIND_TTT}};

static Kind kind_of(const char *mixer)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(mixer, kinds[i].mixer) == 0) {
            return kinds[i].kind;
        }
    }
    return KIND_PLAIN;
}

static double gate_of(const ReferenceTensors *in, size_t t) { return in->g != NULL ? in->g[t] : 1.0; }

static double decay_of(const Recurrence *r, size_t t, size_t i)
{
    return r->in->alpha != NULL ? r->in->alpha[t * r->m + i] : r->in->mu != NULL ? r->in->mu[t] : 1.0;
}

static double mean(const double *x, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        sum += x[i];
    }
    return sum / (double)n;
}

// hat [d] = (z − mean) / sigma; returns sigma = sqrt(variance + eps).
static double standardise(double *hat, const double *z, size_t d)
{
    double middle = mean(z, d), variance = 0.0;
    for (size_t j = 0; j < d; j++) {
        variance += (z[j] - middle) * (z[j] - middle) / (double)d;
    }
    double sigma = sqrt(variance + LAYER_NORM_EPS);
    for (size_t j = 0; j < d; j++) {
        hat[j] = (z[j] - middle) / sigma;
    }
    return sigma;
}

// dz [d] = gradient into z, given dhat [d] into hat
static void standardise_backward(double *dz, const double *dhat, const double *hat, double sigma, size_t d)
{
    double middle = mean(dhat, d), along = reference_dot(dhat, hat, d) / (double)d;
    for (size_t j = 0; j < d; j++) {
        dz[j] = (dhat[j] - middle - along * hat[j]) / sigma;
    }
}

// h [d] = minus the gradient by z of ½‖LN(z) − (v − k)‖²
static void ttt_write(double *h, const double *z, size_t t, const Recurrence *r)
{
    Pool pool = {0};
    size_t d = r->d;
    double *hat = pool_doubles(&pool, d), *e = pool_doubles(&pool, d), sigma = standardise(hat, z, d);
    for (size_t j = 0; j < d; j++) {
        e[j] = r->in->ln_weight[j] * (r->in->ln_weight[j] * hat[j] + r->in->ln_bias[j] - r->in->v[t * d + j] + r->in->k[t * d + j]);
    }
    standardise_backward(h, e, hat, sigma, d);
    for (size_t j = 0; j < d; j++) {
        h[j] = -h[j];
    }
    pool_free(&pool);
}

// dp [d] is set from dh [d]; k's, v's and the norm's gradients are added to.
static void ttt_write_backward(double *dp, const ReferenceGradients *grad, const double *dh, const double *z, size_t t, const Recurrence *r)
{
    Pool pool = {0};
    size_t d = r->d;
    const double *w = r->in->ln_weight, *b = r->in->ln_bias, *k = r->in->k + t * d, *v = r->in->v + t * d;
    double *hat = pool_doubles(&pool, d), *rest = pool_doubles(&pool, d), *e = pool_doubles(&pool, d), *out = pool_doubles(&pool, d);
    double *dout = pool_doubles(&pool, d), *de = pool_doubles(&pool, d), *dhat = pool_doubles(&pool, d), sigma = standardise(hat, z, d), dsigma = 0.0;
    for (size_t j = 0; j < d; j++) {
        rest[j] = w[j] * hat[j] + b[j] - v[j] + k[j];
        e[j] = w[j] * rest[j];
        dout[j] = -dh[j];
    }
    // out = (e − mean(e) − hat mean(e hat)) / sigma is linear in e; by hat and by sigma it depends twice.
    standardise_backward(out, e, hat, sigma, d);
    standardise_backward(de, dout, hat, sigma, d);
    double e_along = reference_dot(e, hat, d) / (double)d, out_along = reference_dot(dout, hat, d) / (double)d;
    for (size_t j = 0; j < d; j++) {
        double drest = w[j] * de[j];
        dsigma -= dout[j] * out[j] / sigma;
        grad->ln_weight[j] += de[j] * rest[j] + drest * hat[j];
        grad->ln_bias[j] += drest;
        grad->k[t * d + j] += drest;
        grad->v[t * d + j] -= drest;
        dhat[j] = w[j] * drest - (e_along * dout[j] + out_along * e[j]) / sigma;
    }
    standardise_backward(dp, dhat, hat, sigma, d);
    for (size_t j = 0; j < d; j++) {
        dp[j] += dsigma * hat[j] / (double)d;
    }
    pool_free(&pool);
}

// r->p and r->h from the state that token t reads; returns c.
static double plan_write(const Recurrence *r, const double *s, size_t t)
{
    size_t d = r->d;
    const double *v = r->in->v + t * d;
    double g = gate_of(r->in, t);
    reference_read(r->p, s, r->in->k + t * r->m, r->m, d);
    if (r->kind == KIND_TTT) {
        ttt_write(r->h, r->p, t, r);
        return g;
    }
    double length = sqrt(reference_dot(r->p, r->p, d)), along = reference_dot(r->p, v, d) / length;
    for (size_t j = 0; j < d; j++) {
        r->h[j] = v[j];
        if (r->kind == KIND_DELTA) {
            r->h[j] -= decay_of(r, t, 0) * r->p[j];
        } else if (r->kind == KIND_OUTPUT_NORM) {
            r->h[j] -= along * r->p[j] / length;
        }
    }
    return r->kind == KIND_OUTPUT_NORM ? g / length : g;
}

// From dh [d] and the gradient of c: sets dp [d], adds to the gradients of v, g, mu (and of k and the norm in ttt). r->p and r->h are the token's.
static void plan_write_backward(double *dp, const ReferenceGradients *grad, const double *dh, double dc, size_t t, const Recurrence *r)
{
    size_t d = r->d;
    const double *v = r->in->v + t * d, *z = r->p;
    double length = sqrt(reference_dot(z, z, d)), along_v = reference_dot(z, v, d) / length, along_dh = reference_dot(z, dh, d) / length;
    memset(dp, 0, d * sizeof *dp);
    if (grad->g != NULL) {
        grad->g[t] += r->kind == KIND_OUTPUT_NORM ? dc / length : dc;
    }
    if (r->kind == KIND_TTT) {
        ttt_write_backward(dp, grad, dh, z, t, r);
        return;
    }
    if (r->kind == KIND_DELTA && grad->mu != NULL) {
        grad->mu[t] -= reference_dot(z, dh, d);
    }
    for (size_t j = 0; j < d; j++) {
        double hat = z[j] / length;
        grad->v[t * d + j] += dh[j];
        if (r->kind == KIND_DELTA) {
            dp[j] = -decay_of(r, t, 0) * dh[j];
        } else if (r->kind == KIND_OUTPUT_NORM) {
            grad->v[t * d + j] -= hat * along_dh;
            // h depends on ẑ, whose gradient −(ẑ·v) dh − (ẑ·dh) v loses its part along ẑ; c on the length.
            dp[j] = (-along_v * dh[j] - along_dh * v[j] + 2.0 * along_v * along_dh * hat - dc * gate_of(r->in, t) / length * hat) / length;
        }
    }
}

static Recurrence run(Pool *pool, const ReferenceTensors *in, const ReferenceForm *form, const ReferenceMixerShape *shape)
{
    size_t m = shape->n_slot, d = shape->d_head, size = m * d;
    Recurrence r = {kind_of(form->mixer), in, form->chunk, shape->length, m, d, pool_doubles(pool, (shape->length + 1) * size),
                    pool_doubles(pool, d), pool_doubles(pool, d)};
    if (in->state0 != NULL) {
        memcpy(r.states, in->state0, size * sizeof *r.states);
    }
    for (size_t t = 0; t < r.length; t++) {
        const double *s = r.states + t * size;
        double c = plan_write(&r, r.states + t / r.chunk * r.chunk * size, t);
        for (size_t i = 0; i < m; i++) {
            for (size_t j = 0; j < d; j++) {
                r.states[(t + 1) * size + i * d + j] = decay_of(&r, t, i) * s[i * d + j] + c * in->k[t * m + i] * r.h[j];
            }
        }
    }
    return r;
}

void reference_recurrent_forward(double *o, double *state, const ReferenceTensors *in, const ReferenceForm *form, const ReferenceMixerShape *shape)
{
    Pool pool = {0};
    Recurrence r = run(&pool, in, form, shape);
    size_t m = r.m, d = r.d;
    for (size_t t = 0; t < r.length; t++) {
        double *out = o + t * d;
        reference_read(out, r.states + (t + 1) * m * d, in->q + t * m, m, d);
        if (r.kind == KIND_TTT) {
            standardise(out, out, d);
            for (size_t j = 0; j < d; j++) {
                out[j] = in->q[t * m + j] + in->ln_weight[j] * out[j] + in->ln_bias[j];
            }
        }
    }
    if (state != NULL) {
        memcpy(state, r.states + r.length * m * d, m * d * sizeof *state);
    }
    pool_free(&pool);
}

// dy [d], gradient into S q, from that into the output; ttt's layer norm and residual add to the gradients of q and of the norm.
static void output_backward(double *dy, const ReferenceGradients *grad, const double *do_, size_t t, const Recurrence *r)
{
    Pool pool = {0};
    size_t m = r->m, d = r->d;
    memcpy(dy, do_, d * sizeof *dy);
    if (r->kind == KIND_TTT) {
        double *hat = pool_doubles(&pool, d), *dhat = pool_doubles(&pool, d);
        reference_read(hat, r->states + (t + 1) * m * d, r->in->q + t * m, m, d);
        double sigma = standardise(hat, hat, d);
        for (size_t j = 0; j < d; j++) {
            grad->q[t * m + j] += do_[j];
            grad->ln_weight[j] += do_[j] * hat[j];
            grad->ln_bias[j] += do_[j];
            dhat[j] = do_[j] * r->in->ln_weight[j];
        }
        standardise_backward(dy, dhat, hat, sigma, d);
    }
    pool_free(&pool);
}

// Walks token t back: ds [m, d] into the state after it becomes that into the state before it; what p reads goes to dbase [m, d].
static void token_backward(double *ds, double *dbase, const ReferenceGradients *grad, const double *do_, size_t t, const Recurrence *r)
{
    Pool pool = {0};
    size_t m = r->m, d = r->d, size = m * d;
    const double *before = r->states + t * size, *after = before + size, *base = r->states + t / r->chunk * r->chunk * size;
    const double *q = r->in->q + t * m, *k = r->in->k + t * m;
    double *dy = pool_doubles(&pool, d), *dh = pool_doubles(&pool, d), *dp = pool_doubles(&pool, d), dc = 0.0, c = plan_write(r, base, t);
    output_backward(dy, grad, do_ + t * d, t, r);
    for (size_t i = 0; i < m; i++) {
        double *x = ds + i * d;
        grad->q[t * m + i] += reference_dot(after + i * d, dy, d);
        for (size_t j = 0; j < d; j++) {
            x[j] += q[i] * dy[j];
            dh[j] += c * k[i] * x[j];
        }
        double written = reference_dot(r->h, x, d), kept = reference_dot(before + i * d, x, d);
        grad->k[t * m + i] += c * written;
        dc += k[i] * written;
        if (grad->alpha != NULL) {
            grad->alpha[t * m + i] += kept;
        } else if (grad->mu != NULL) {
            grad->mu[t] += kept;
        }
        for (size_t j = 0; j < d; j++) {
            x[j] *= decay_of(r, t, i);
        }
    }
    plan_write_backward(dp, grad, dh, dc, t, r);
    for (size_t i = 0; i < m; i++) {
        grad->k[t * m + i] += reference_dot(base + i * d, dp, d);
        for (size_t j = 0; j < d; j++) {
            dbase[i * d + j] += k[i] * dp[j];
        }
    }
    pool_free(&pool);
}

void reference_recurrent_backward(const ReferenceGradients *grad, const double *do_, const double *dstate, const ReferenceTensors *in,
                                  const ReferenceForm *form, const ReferenceMixerShape *shape)
{
    Pool pool = {0};
    Recurrence r = run(&pool, in, form, shape);
    size_t size = r.m * r.d;
    double *ds = pool_doubles(&pool, size), *dbase = pool_doubles(&pool, size);
    if (dstate != NULL) {
        memcpy(ds, dstate, size * sizeof *ds);
    }
    for (size_t t = r.length; t-- > 0;) {
        token_backward(ds, dbase, grad, do_, t, &r);
        for (size_t i = 0; t % r.chunk == 0 && i < size; i++) {
            ds[i] += dbase[i];
            dbase[i] = 0.0;
        }
    }
    for (size_t i = 0; grad->state0 != NULL && i < size; i++) {
        grad->state0[i] += ds[i];
    }
    pool_free(&pool);
}
