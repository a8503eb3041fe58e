// Lattice in all its forms (docs/memories.md 2 to 4), token by token: every state is kept, then walked back.
#include <math.h>
#include <string.h>

#include "tests/reference/reference.h"

typedef enum Objective {
    OBJECTIVE_DECODE,
    OBJECTIVE_ENCODE,
    OBJECTIVE_SIMILARITY,
} Objective;

// A form with its names resolved, and the sizes.
typedef struct Lattice {
    Objective objective;
    size_t chunk;
    bool gated;         // the write is orthogonal to the slot as it is, not as it was at the chunk's start
    bool project, normalise;
    bool once;          // normalised at a chunk's end only
    bool relative;      // what is read is what the slots have gained since the start
    size_t gates, gate_step;   // numbers of g a token, 1 or m; and from slot to slot, 0 or 1
    double l1;
    size_t length, m, d;
} Lattice;

static bool is(const char *name, const char *value) { return name != NULL && strcmp(name, value) == 0; }

static Lattice lattice_of(const ReferenceForm *form, const ReferenceMixerShape *shape)
{
    return (Lattice){
        .objective = is(form->objective, "encode") ? OBJECTIVE_ENCODE : is(form->objective, "similarity") ? OBJECTIVE_SIMILARITY : OBJECTIVE_DECODE,
        .chunk = form->chunk,
        .gated = form->chunk > 1 && is(form->chunk_form, "gated"),
        .project = !form->no_projection && !form->no_normalisation,
        .normalise = !form->no_normalisation,
        .once = form->chunk > 1 && is(form->chunk_norm, "chunk"),
        .relative = form->relative_read,
        .gates = reference_gates(form, shape->n_slot),
        .gate_step = form->slot_gate ? 1 : 0,
        .l1 = form->l1,
        .length = shape->length,
        .m = shape->n_slot,
        .d = shape->d_head,
    };
}

// All that the forward leaves for the backward. after[t] is what token t reads: at a chunk's end the state before it is normalised once.
typedef struct Trace {
    double *before;     // [T, m, d] the state that token t meets
    double *written;    // [T, m, d] mu s + a (h − u s), before threshold and normalisation
    double *after;      // [T, m, d]
    double *end;        // [m, d]
    double *start;      // [m, d]
    double *start_lengths, *lengths;   // [m], [T, m]: what the slots were divided by
} Trace;

// What one token writes, computed from the state `s`: the pair (h, c) of the objective.
static void objective_pair(double *h, double *c, const double *s, const double *k, const double *v, const Lattice *l)
{
    memcpy(h, v, l->d * sizeof *h);
    memcpy(c, k, l->m * sizeof *c);
    if (l->objective == OBJECTIVE_DECODE) {
        reference_read(h, s, k, l->m, l->d);
        for (size_t j = 0; j < l->d; j++) {
            h[j] = v[j] - h[j];
        }
    } else if (l->objective == OBJECTIVE_ENCODE) {
        for (size_t i = 0; i < l->m; i++) {
            c[i] = k[i] - reference_dot(s + i * l->d, v, l->d);
        }
    }
}

// Adds the gradients of objective_pair, given dh and dc, to those of s, k and v.
static void objective_pair_backward(double *ds, double *dk, double *dv, const double *dh, const double *dc, const double *s, const double *k, const double *v,
                                    const Lattice *l)
{
    size_t d = l->d;
    for (size_t j = 0; j < d; j++) {
        dv[j] += dh[j];
    }
    for (size_t i = 0; i < l->m; i++) {
        dk[i] += dc[i];
        if (l->objective == OBJECTIVE_DECODE) {
            dk[i] -= reference_dot(s + i * d, dh, d);
            for (size_t j = 0; j < d; j++) {
                ds[i * d + j] -= k[i] * dh[j];
            }
        } else if (l->objective == OBJECTIVE_ENCODE) {
            for (size_t j = 0; j < d; j++) {
                dv[j] -= dc[i] * s[i * d + j];
                ds[i * d + j] -= dc[i] * v[j];
            }
        }
    }
}

// x towards zero by `threshold`, at most to zero
static double soft_threshold(double x, double threshold) { return x > threshold ? x - threshold : x < -threshold ? x + threshold : 0.0; }

// written [m, d] = the slots s after a token's write, with everything marked b taken from `base`; g: the token's.
static void write_slots(double *written, const double *s, const double *base, const double *h, const double *c, const double *g, double mu, const Lattice *l)
{
    size_t d = l->d;
    for (size_t i = 0; i < l->m; i++) {
        double u = l->project ? reference_dot(base + i * d, h, d) : 0.0, a = g[i * l->gate_step] * c[i];
        const double *along = (l->gated ? s : base) + i * d;
        for (size_t j = 0; j < d; j++) {
            written[i * d + j] = mu * s[i * d + j] + a * (h[j] - u * along[j]);
        }
    }
}

static bool ends_chunk(size_t t, const Lattice *l) { return t % l->chunk == l->chunk - 1 || t == l->length - 1; }

static Trace run(Pool *pool, const ReferenceTensors *in, const Lattice *l)
{
    size_t m = l->m, d = l->d, size = m * d;
    Trace trace = {pool_doubles(pool, l->length * size), pool_doubles(pool, l->length * size), pool_doubles(pool, l->length * size),
                   pool_doubles(pool, size), pool_doubles(pool, size), pool_doubles(pool, m), pool_doubles(pool, l->length * m)};
    double *h = pool_doubles(pool, d), *c = pool_doubles(pool, m), *lengths = pool_doubles(pool, m);
    memcpy(trace.start, in->state0, size * sizeof *trace.start);
    if (l->normalise) {
        reference_normalise(trace.start, trace.start_lengths, in->state0, m, d);
    }
    memcpy(trace.end, trace.start, size * sizeof *trace.end);
    for (size_t t = 0; t < l->length; t++) {
        double *before = trace.before + t * size, *written = trace.written + t * size, *after = trace.after + t * size;
        const double *base = trace.before + t / l->chunk * l->chunk * size;
        memcpy(before, trace.end, size * sizeof *before);
        objective_pair(h, c, base, in->k + t * m, in->v + t * d, l);
        write_slots(written, before, base, h, c, in->g + t * l->gates, in->mu != NULL ? in->mu[t] : 1.0, l);
        for (size_t i = 0; i < size; i++) {
            after[i] = soft_threshold(written[i], in->g[t * l->gates + i / d * l->gate_step] * l->l1);
        }
        if (l->normalise && !l->once) {
            reference_normalise(after, trace.lengths + t * m, after, m, d);
        }
        memcpy(trace.end, after, size * sizeof *after);
        if (l->normalise && l->once && ends_chunk(t, l)) {
            reference_normalise(trace.end, lengths, after, m, d);
        }
    }
    return trace;
}

void reference_lattice_forward(double *o, double *state, const ReferenceTensors *in, const ReferenceForm *form, const ReferenceMixerShape *shape)
{
    Pool pool = {0};
    Lattice l = lattice_of(form, shape);
    Trace trace = run(&pool, in, &l);
    double *gained = pool_doubles(&pool, l.m * l.d);
    for (size_t t = 0; t < l.length; t++) {
        for (size_t i = 0; i < l.m * l.d; i++) {
            gained[i] = trace.after[t * l.m * l.d + i] - (l.relative ? trace.start[i] : 0.0);
        }
        reference_read(o + t * l.d, gained, in->q + t * l.m, l.m, l.d);
    }
    if (state != NULL) {
        memcpy(state, trace.end, l.m * l.d * sizeof *state);
    }
    pool_free(&pool);
}

// Given ds [m, d] into `written`, replaces it by the gradient into s, and adds to dbase [m, d], dg (as g) and *dmu; dh [d] and dc [m] are set.
static void write_slots_backward(double *ds, double *dbase, double *dh, double *dc, double *dg, double *dmu, const double *s, const double *base,
                                 const double *h, const double *c, const double *g, double mu, const Lattice *l)
{
    size_t d = l->d;
    memset(dh, 0, d * sizeof *dh);
    for (size_t i = 0; i < l->m; i++) {
        const double *along = (l->gated ? s : base) + i * d, *slot_base = base + i * d;
        double *x = ds + i * d, *x_base = dbase + i * d;
        double u = l->project ? reference_dot(slot_base, h, d) : 0.0, own = g[i * l->gate_step], a = own * c[i], projected = reference_dot(along, x, d);
        double da = reference_dot(h, x, d) - u * projected, du = l->project ? -a * projected : 0.0;
        *dmu += reference_dot(s + i * d, x, d);
        dg[i * l->gate_step] += da * c[i];
        dc[i] = own * da;
        for (size_t j = 0; j < d; j++) {
            dh[j] += a * x[j] + du * slot_base[j];
            x_base[j] += du * h[j] - (l->gated ? 0.0 : a * u * x[j]);
            x[j] *= mu - (l->gated ? a * u : 0.0);
        }
    }
}

// ds [m, d] into what token t reads becomes that into what it wrote; dg gets the threshold's part.
static void finish_write_backward(double *ds, double *dg, const Trace *trace, size_t t, const double *g, const Lattice *l)
{
    size_t size = l->m * l->d;
    const double *written = trace->written + t * size;
    if (l->normalise && !l->once) {
        reference_normalise_backward(ds, trace->after + t * size, trace->lengths + t * l->m, l->m, l->d);
    }
    for (size_t i = 0; l->l1 > 0.0 && i < size; i++) {
        size_t gate = i / l->d * l->gate_step;
        if (fabs(written[i]) > g[gate] * l->l1) {
            dg[gate] -= copysign(l->l1, written[i]) * ds[i];
        } else {
            ds[i] = 0.0;
        }
    }
}

void reference_lattice_backward(const ReferenceGradients *grad, const double *do_, const double *dstate, const ReferenceTensors *in,
                                const ReferenceForm *form, const ReferenceMixerShape *shape)
{
    Pool pool = {0};
    Lattice l = lattice_of(form, shape);
    Trace trace = run(&pool, in, &l);
    size_t m = l.m, d = l.d, size = m * d;
    double *ds = pool_doubles(&pool, size), *dbase = pool_doubles(&pool, size), *end = pool_doubles(&pool, size), *lengths = pool_doubles(&pool, m);
    double *h = pool_doubles(&pool, d), *c = pool_doubles(&pool, m), *dh = pool_doubles(&pool, d), *dc = pool_doubles(&pool, m);
    double *dstart = pool_doubles(&pool, size);
    if (dstate != NULL) {
        memcpy(ds, dstate, size * sizeof *ds);
    }
    for (size_t t = l.length; t-- > 0;) {
        const double *before = trace.before + t * size, *after = trace.after + t * size, *base = trace.before + t / l.chunk * l.chunk * size;
        double mu = in->mu != NULL ? in->mu[t] : 1.0, dmu = 0.0;
        if (l.normalise && l.once && ends_chunk(t, &l)) {
            reference_normalise(end, lengths, after, m, d);
            reference_normalise_backward(ds, end, lengths, m, d);
        }
        for (size_t i = 0; i < m; i++) {
            grad->q[t * m + i] += reference_dot(after + i * d, do_ + t * d, d);
            for (size_t j = 0; j < d; j++) {
                ds[i * d + j] += in->q[t * m + i] * do_[t * d + j];
                grad->q[t * m + i] -= l.relative ? trace.start[i * d + j] * do_[t * d + j] : 0.0;
                dstart[i * d + j] -= l.relative ? in->q[t * m + i] * do_[t * d + j] : 0.0;
            }
        }
        finish_write_backward(ds, grad->g + t * l.gates, &trace, t, in->g + t * l.gates, &l);
        objective_pair(h, c, base, in->k + t * m, in->v + t * d, &l);
        write_slots_backward(ds, dbase, dh, dc, grad->g + t * l.gates, &dmu, before, base, h, c, in->g + t * l.gates, mu, &l);
        objective_pair_backward(dbase, grad->k + t * m, grad->v + t * d, dh, dc, base, in->k + t * m, in->v + t * d, &l);
        if (grad->mu != NULL) {
            grad->mu[t] += dmu;
        }
        for (size_t i = 0; t % l.chunk == 0 && i < size; i++) {
            ds[i] += dbase[i];
            dbase[i] = 0.0;
        }
    }
    for (size_t i = 0; i < size; i++) {
        ds[i] += dstart[i];
    }
    if (l.normalise) {
        reference_normalise_backward(ds, trace.start, trace.start_lengths, m, d);
    }
    for (size_t i = 0; i < size; i++) {
        grad->state0[i] += ds[i];
    }
    pool_free(&pool);
}
