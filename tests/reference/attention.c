// Causal softmax attention with rotary embedding (docs/memories.md 8); m = d. It keeps no state of fixed size.
#include <math.h>
#include <string.h>

#include "tests/reference/reference.h"

#define ROTARY_BASE 10000.0

// out [d] = x [d] at position t: pairs (2i, 2i + 1) turned by t·base^(−2i/d), back with `sign` −1; a last odd number stays.
static void rotate(double *out, const double *x, size_t t, double sign, size_t d)
{
    memcpy(out, x, d * sizeof *out);
    for (size_t i = 0; i + 1 < d; i += 2) {
        double angle = sign * (double)t * pow(ROTARY_BASE, -(double)i / (double)d);
        out[i] = cos(angle) * x[i] - sin(angle) * x[i + 1];
        out[i + 1] = sin(angle) * x[i] + cos(angle) * x[i + 1];
    }
}

// First position that the token at position t sees.
static size_t first_seen(size_t t, const ReferenceForm *form) { return form->window > 0 && t + 1 > form->window ? t + 1 - form->window : 0; }

// weights [T]: the softmax of token t over what it sees, 0 elsewhere. q, k [T, d] are turned already.
static void weigh(double *weights, const double *q, const double *k, size_t t, const ReferenceForm *form, const ReferenceMixerShape *shape)
{
    size_t d = shape->d_head, first = first_seen(t, form);
    double sum = 0.0, highest = -INFINITY;
    memset(weights, 0, shape->length * sizeof *weights);
    for (size_t s = first; s <= t; s++) {
        weights[s] = reference_dot(q + t * d, k + s * d, d) / sqrt((double)d);
        highest = fmax(highest, weights[s]);
    }
    for (size_t s = first; s <= t; s++) {
        weights[s] = exp(weights[s] - highest);
        sum += weights[s];
    }
    for (size_t s = first; s <= t; s++) {
        weights[s] /= sum;
    }
}

static double *rotated(Pool *pool, const double *x, const ReferenceMixerShape *shape)
{
    double *out = pool_doubles(pool, shape->length * shape->d_head);
    for (size_t t = 0; t < shape->length; t++) {
        rotate(out + t * shape->d_head, x + t * shape->d_head, t, 1.0, shape->d_head);
    }
    return out;
}

void reference_attention_forward(double *o, double *state, const ReferenceTensors *in, const ReferenceForm *form, const ReferenceMixerShape *shape)
{
    (void)state;
    Pool pool = {0};
    size_t d = shape->d_head;
    double *q = rotated(&pool, in->q, shape), *k = rotated(&pool, in->k, shape), *weights = pool_doubles(&pool, shape->length);
    for (size_t t = 0; t < shape->length; t++) {
        weigh(weights, q, k, t, form, shape);
        reference_read(o + t * d, in->v, weights, t + 1, d);
    }
    pool_free(&pool);
}

void reference_attention_backward(const ReferenceGradients *grad, const double *do_, const double *dstate, const ReferenceTensors *in,
                                  const ReferenceForm *form, const ReferenceMixerShape *shape)
{
    (void)dstate;
    Pool pool = {0};
    size_t length = shape->length, d = shape->d_head;
    double *q = rotated(&pool, in->q, shape), *k = rotated(&pool, in->k, shape), *weights = pool_doubles(&pool, length);
    double *dq = pool_doubles(&pool, length * d), *dk = pool_doubles(&pool, length * d), *back = pool_doubles(&pool, d);
    for (size_t t = 0; t < length; t++) {
        double sum = 0.0;
        weigh(weights, q, k, t, form, shape);
        for (size_t s = 0; s <= t; s++) {
            sum += weights[s] * reference_dot(do_ + t * d, in->v + s * d, d);
        }
        for (size_t s = 0; s <= t; s++) {
            double dscore = weights[s] * (reference_dot(do_ + t * d, in->v + s * d, d) - sum) / sqrt((double)d);
            for (size_t j = 0; j < d; j++) {
                grad->v[s * d + j] += weights[s] * do_[t * d + j];
                dq[t * d + j] += dscore * k[s * d + j];
                dk[s * d + j] += dscore * q[t * d + j];
            }
        }
    }
    for (size_t t = 0; t < length; t++) {
        rotate(back, dq + t * d, t, -1.0, d);
        for (size_t j = 0; j < d; j++) {
            grad->q[t * d + j] += back[j];
        }
        rotate(back, dk + t * d, t, -1.0, d);
        for (size_t j = 0; j < d; j++) {
            grad->k[t * d + j] += back[j];
        }
    }
    pool_free(&pool);
}
