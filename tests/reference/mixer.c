// Mixers as their definitions say, one head of one sequence at a time. Further forms stand beside `lattice_exact` in the list at the end of the file.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/reference/reference.h"

typedef enum Objective {
    OBJECTIVE_DECODE,
    OBJECTIVE_ENCODE,
    OBJECTIVE_SIMILARITY,
} Objective;

static Objective objective_of(const ReferenceForm *form)
{
    if (strcmp(form->objective, "encode") == 0) {
        return OBJECTIVE_ENCODE;
    }
    return strcmp(form->objective, "similarity") == 0 ? OBJECTIVE_SIMILARITY : OBJECTIVE_DECODE;
}

static double dot(const double *x, const double *y, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        sum += x[i] * y[i];
    }
    return sum;
}

// out [d] = S k: the slots s [m, d] weighted by k [m]
static void read_state(double *out, const double *s, const double *k, size_t m, size_t d)
{
    for (size_t j = 0; j < d; j++) {
        out[j] = 0.0;
        for (size_t i = 0; i < m; i++) {
            out[j] += s[i * d + j] * k[i];
        }
    }
}

// What one token writes, computed from the state `s` before it: the pair (h, c) of the objective.
static void objective_pair(double *h, double *c, const double *s, const double *k, const double *v, Objective objective, size_t m, size_t d)
{
    memcpy(h, v, d * sizeof *h);
    memcpy(c, k, m * sizeof *c);
    if (objective == OBJECTIVE_DECODE) {
        read_state(h, s, k, m, d);
        for (size_t j = 0; j < d; j++) {
            h[j] = v[j] - h[j];
        }
    } else if (objective == OBJECTIVE_ENCODE) {
        for (size_t i = 0; i < m; i++) {
            c[i] = k[i] - dot(s + i * d, v, d);
        }
    }
}

// Adds the gradients of objective_pair, given dh and dc, to those of s, k and v.
static void objective_pair_backward(double *ds, double *dk, double *dv, const double *dh, const double *dc, const double *s, const double *k, const double *v,
                                    Objective objective, size_t m, size_t d)
{
    for (size_t j = 0; j < d; j++) {
        dv[j] += dh[j];
    }
    for (size_t i = 0; i < m; i++) {
        dk[i] += dc[i];
        if (objective == OBJECTIVE_DECODE) {
            dk[i] -= dot(s + i * d, dh, d);
            for (size_t j = 0; j < d; j++) {
                ds[i * d + j] -= k[i] * dh[j];
            }
        } else if (objective == OBJECTIVE_ENCODE) {
            for (size_t j = 0; j < d; j++) {
                dv[j] -= dc[i] * s[i * d + j];
                ds[i * d + j] -= dc[i] * v[j];
            }
        }
    }
}

// slots [m, d] = state0 with every slot divided by its length
static void start_state(double *slots, const double *state0, size_t m, size_t d)
{
    for (size_t i = 0; i < m; i++) {
        double length = sqrt(dot(state0 + i * d, state0 + i * d, d));
        for (size_t j = 0; j < d; j++) {
            slots[i * d + j] = state0[i * d + j] / length;
        }
    }
}

// dstate0 += gradient of start_state given ds
static void start_state_backward(double *dstate0, const double *ds, const double *state0, size_t m, size_t d)
{
    for (size_t i = 0; i < m; i++) {
        const double *x = state0 + i * d;
        double length = sqrt(dot(x, x, d)), projection = dot(x, ds + i * d, d) / (length * length);
        for (size_t j = 0; j < d; j++) {
            dstate0[i * d + j] += (ds[i * d + j] - projection * x[j]) / length;
        }
    }
}

// after [m, d] = before after one exact OSR write; norms [m] are the lengths n_i divided out.
static void exact_write(double *after, double *norms, const double *before, const double *h, const double *c, double g, double mu, size_t m, size_t d)
{
    for (size_t i = 0; i < m; i++) {
        const double *s = before + i * d;
        double u = dot(s, h, d), a = g * c[i];
        for (size_t j = 0; j < d; j++) {
            after[i * d + j] = mu * s[j] + a * (h[j] - u * s[j]);
        }
        norms[i] = sqrt(dot(after + i * d, after + i * d, d));
        for (size_t j = 0; j < d; j++) {
            after[i * d + j] /= norms[i];
        }
    }
}

// Given ds [m, d] into the state after the write, replaces it by the gradient into the state before it, as far as the write itself goes (h and c held fixed).
// dh [d] and dc [m] are set; dg and dmu are added to.
static void exact_write_backward(double *ds, double *dh, double *dc, double *dg, double *dmu, const double *before, const double *after, const double *norms,
                                 const double *h, const double *c, double g, double mu, size_t m, size_t d)
{
    memset(dh, 0, d * sizeof *dh);
    for (size_t i = 0; i < m; i++) {
        const double *s = before + i * d;
        double *x = ds + i * d;
        double u = dot(s, h, d), a = g * c[i], radial = dot(after + i * d, x, d);
        for (size_t j = 0; j < d; j++) {
            x[j] = (x[j] - radial * after[i * d + j]) / norms[i];
        }
        double w = dot(s, x, d), r = dot(h, x, d), da = r - u * w, du = -a * w;
        *dmu += w;
        *dg += da * c[i];
        dc[i] = g * da;
        for (size_t j = 0; j < d; j++) {
            dh[j] += a * x[j] + du * s[j];
            x[j] = (mu - a * u) * x[j] + du * h[j];
        }
    }
}

// states [T + 1, m, d] and norms [T, m]: the start and what stands after each token.
static void exact_states(double *states, double *norms, const ReferenceTensors *in, Objective objective, const ReferenceMixerShape *shape)
{
    Pool pool = {0};
    size_t m = shape->n_slot, d = shape->d_head;
    double *h = pool_doubles(&pool, d), *c = pool_doubles(&pool, m);
    start_state(states, in->state0, m, d);
    for (size_t t = 0; t < shape->length; t++) {
        const double *before = states + t * m * d;
        objective_pair(h, c, before, in->k + t * m, in->v + t * d, objective, m, d);
        exact_write(states + (t + 1) * m * d, norms + t * m, before, h, c, in->g[t], in->mu != NULL ? in->mu[t] : 1.0, m, d);
    }
    pool_free(&pool);
}

static void lattice_exact_forward(double *o, double *state, const ReferenceTensors *in, const ReferenceForm *form, const ReferenceMixerShape *shape)
{
    Pool pool = {0};
    size_t length = shape->length, m = shape->n_slot, d = shape->d_head;
    double *states = pool_doubles(&pool, (length + 1) * m * d), *norms = pool_doubles(&pool, length * m);
    exact_states(states, norms, in, objective_of(form), shape);
    for (size_t t = 0; t < length; t++) {
        read_state(o + t * d, states + (t + 1) * m * d, in->q + t * m, m, d);
    }
    if (state != NULL) {
        memcpy(state, states + length * m * d, m * d * sizeof *state);
    }
    pool_free(&pool);
}

static void lattice_exact_backward(const ReferenceGradients *grad, const double *do_, const double *dstate, const ReferenceTensors *in,
                                   const ReferenceForm *form, const ReferenceMixerShape *shape)
{
    Pool pool = {0};
    Objective objective = objective_of(form);
    size_t length = shape->length, m = shape->n_slot, d = shape->d_head;
    double *states = pool_doubles(&pool, (length + 1) * m * d), *norms = pool_doubles(&pool, length * m), *ds = pool_doubles(&pool, m * d);
    double *h = pool_doubles(&pool, d), *c = pool_doubles(&pool, m), *dh = pool_doubles(&pool, d), *dc = pool_doubles(&pool, m);
    exact_states(states, norms, in, objective, shape);
    if (dstate != NULL) {
        memcpy(ds, dstate, m * d * sizeof *ds);
    }
    for (size_t t = length; t-- > 0;) {
        const double *before = states + t * m * d, *after = states + (t + 1) * m * d;
        const double *q = in->q + t * m, *k = in->k + t * m, *v = in->v + t * d, *d_out = do_ + t * d;
        for (size_t i = 0; i < m; i++) {
            grad->q[t * m + i] += dot(after + i * d, d_out, d);
            for (size_t j = 0; j < d; j++) {
                ds[i * d + j] += q[i] * d_out[j];
            }
        }
        double mu = in->mu != NULL ? in->mu[t] : 1.0, dmu = 0.0;
        objective_pair(h, c, before, k, v, objective, m, d);
        exact_write_backward(ds, dh, dc, &grad->g[t], &dmu, before, after, norms + t * m, h, c, in->g[t], mu, m, d);
        objective_pair_backward(ds, grad->k + t * m, grad->v + t * d, dh, dc, before, k, v, objective, m, d);
        if (grad->mu != NULL) {
            grad->mu[t] += dmu;
        }
    }
    start_state_backward(grad->state0, ds, in->state0, m, d);
    pool_free(&pool);
}

// ---- The forms there are ----

typedef struct ReferenceMixer {
    const char *mixer;
    bool chunked;   // false: for chunk 1 only
    void (*forward)(double *o, double *state, const ReferenceTensors *in, const ReferenceForm *form, const ReferenceMixerShape *shape);
    void (*backward)(const ReferenceGradients *grad, const double *do_, const double *dstate, const ReferenceTensors *in, const ReferenceForm *form,
                     const ReferenceMixerShape *shape);
} ReferenceMixer;

static const ReferenceMixer mixers[] = {
    {"lattice", false, lattice_exact_forward, lattice_exact_backward},
};

static const ReferenceMixer *find_mixer(const ReferenceForm *form)
{
    for (size_t i = 0; i < sizeof mixers / sizeof mixers[0]; i++) {
        if (strcmp(mixers[i].mixer, form->mixer) == 0 && mixers[i].chunked == (form->chunk > 1)) {
            return &mixers[i];
        }
    }
    return NULL;
}

ReferenceForm reference_form(const ModelConfig *config)
{
    return (ReferenceForm){config->mixer, config->objective, (size_t)config->chunk, config->chunk_form, config->chunk_norm};
}

const char *reference_mixer_unsupported(const ReferenceForm *form, char text[128])
{
    if (strcmp(form->mixer, "lattice") != 0) {
        snprintf(text, 128, "mixer %s", form->mixer);
        return text;
    }
    const char *objective = form->objective != NULL ? form->objective : "(none)";
    if (strcmp(objective, "decode") != 0 && strcmp(objective, "encode") != 0 && strcmp(objective, "similarity") != 0) {
        snprintf(text, 128, "objective %s", objective);
        return text;
    }
    if (find_mixer(form) == NULL) {
        snprintf(text, 128, "chunk %zu with chunk_form %s and chunk_norm %s", form->chunk, form->chunk_form != NULL ? form->chunk_form : "(none)",
                 form->chunk_norm != NULL ? form->chunk_norm : "(none)");
        return text;
    }
    return NULL;
}

void reference_mixer_forward(double *o, double *state, const ReferenceTensors *in, const ReferenceForm *form, const ReferenceMixerShape *shape)
{
    find_mixer(form)->forward(o, state, in, form, shape);
}

void reference_mixer_backward(const ReferenceGradients *grad, const double *do_, const double *dstate, const ReferenceTensors *in, const ReferenceForm *form,
                              const ReferenceMixerShape *shape)
{
    find_mixer(form)->backward(grad, do_, dstate, in, form, shape);
}
