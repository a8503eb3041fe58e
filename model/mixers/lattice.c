// Lattice, exact orthogonal state recurrence with the decoding objective (docs/memories.md 2 and 3; arXiv 2504.05646).
//
// One head's memory S holds m slots s_i, unit vectors of d numbers, as rows. Per token, with h = v − S k, u_i = s_i·h, a_i = g k_i:
//
//     s_i <- (mu s_i + a_i (h − u_i s_i)) / n_i = alpha_i s_i + beta_i h        n_i² = mu² + a_i² (‖h‖² − u_i²)
//     o    = Σ q_i s_i
//
// so that a token reads the memory twice: once for the u_i, once to update it, which also gathers o and the next token's S k.
// The backward needs the states before each token. The forward keeps one state every GROUP tokens (but the start); the backward recomputes a group's states
// from it (GROUP states of a head stay in the L2 cache) and walks the group back. Sequences and heads are independent: threads share them out.
#include <math.h>

#include "model/mixers/lattice_head.h"
#include "model/mixers/mixer.h"
#include "model/mixers/slots.h"

// Tokens between kept states, and between exact renormalisations of the slots by absolute position, so that rounding cannot add up.
#define GROUP KEPT_TOKENS

// The formula for n² holds for slots of length exactly 1. Where it loses digits the norm is taken from the vector itself: below this share of
// n² / (a² ‖h‖²) by cancellation, and above this alpha² because an error in the slot's length would grow with every such token.
#define CANCELLED 0.05f
#define STRETCHED 1.5f

// s_i = alpha_i s_i + beta_i h; then o = Σ q_i s_i (o not NULL) and p = Σ k_next_i s_i (k_next not NULL). to [m, d] may be s.
INLINE void update_slots(float *to, float *o, float *p, const float *s, const float *alpha, const float *beta, const float *h, const float *q,
                         const float *k_next, size_t m, size_t d)
{
    for (size_t j = 0; j < d; j += COLUMNS * VECTOR_FLOATS) {
        vfloat hs[COLUMNS], os[COLUMNS] = {{0}}, ps[COLUMNS] = {{0}};
        load_columns(hs, h, j, d);
        for (size_t i = 0; i < m; i++) {
            vfloat slot[COLUMNS], keep = v_set(alpha[i]), write = v_set(beta[i]);
            load_columns(slot, s + i * d, j, d);
            for (size_t c = 0; c < COLUMNS; c++) {
                slot[c] = v_fma(keep, slot[c], write * hs[c]);
            }
            store_columns(to + i * d, slot, j, d);
            if (o != NULL) {
                vfloat read = v_set(q[i]);
                for (size_t c = 0; c < COLUMNS; c++) {
                    os[c] = v_fma(read, slot[c], os[c]);
                }
            }
            if (k_next != NULL) {
                vfloat read = v_set(k_next[i]);
                for (size_t c = 0; c < COLUMNS; c++) {
                    ps[c] = v_fma(read, slot[c], ps[c]);
                }
            }
        }
        if (o != NULL) {
            store_columns(o, os, j, d);
        }
        if (k_next != NULL) {
            store_columns(p, ps, j, d);
        }
    }
}

// What one write does to the slots; all [m]. n is the norm before the division.
typedef struct Write {
    float *u, *n, *alpha, *beta;
} Write;

// One slot's norm from the vector itself, for writes whose formula loses digits; u_i is known.
static void plan_slot_exactly(Write *w, size_t i, const float *s, const float *h, float a, float mu, size_t d)
{
    double keep = (double)mu - (double)a * (double)w->u[i];
    vfloat squares = {0};
    for (size_t j = 0; j < d; j += VECTOR_FLOATS) {
        vfloat x = v_set((float)keep) * v_load_n(s + j, d - j) + v_set(a) * v_load_n(h + j, d - j);
        squares += x * x;
    }
    double square = (double)v_sum(squares);
    if (square < 1e-30) {   // a forget gate near 0: the squares leave the range of f32
        square = 0.0;
        for (size_t j = 0; j < d; j++) {
            double x = keep * (double)s[j] + (double)a * (double)h[j];
            square += x * x;
        }
    }
    double n = sqrt(square);
    w->n[i] = (float)n;
    w->alpha[i] = n == 0.0 ? 1.0f : (float)(keep / n);   // nothing left of the slot and nothing written: it stays as it is
    w->beta[i] = n == 0.0 ? 0.0f : (float)((double)a / n);
}

// Fills a Write from the state before the token.
INLINE void plan_write(Write *w, const float *s, const float *h, const float *k, float g, float mu, size_t m, size_t d)
{
    slot_dots(w->u, s, h, m, d);
    vfloat square = v_set(dot(h, h, d)), gs = v_set(g), keep = v_set(mu);
    for (size_t i = 0; i < m; i += VECTOR_FLOATS) {
        vfloat u = v_load_n(w->u + i, m - i), a = gs * v_load_n(k + i, m - i), along = keep - a * u;
        vfloat across = v_max(square - u * u, v_set(0.0f));
        vfloat n2 = keep * keep + a * a * across, n = v_sqrt(n2);
        v_store_n(w->n + i, n, m - i);
        v_store_n(w->alpha + i, along / n, m - i);
        v_store_n(w->beta + i, a / n, m - i);
        vint lost = (n2 < v_set(CANCELLED) * a * a * square) | (along * along > v_set(STRETCHED) * n2) | (n2 < v_set(1e-30f));
        if (v_any(lost)) {
            for (size_t l = i; l < m && l < i + VECTOR_FLOATS; l++) {
                if (lost[l - i]) {
                    plan_slot_exactly(w, l, s + l * d, h, g * k[l], mu, d);
                }
            }
        }
    }
}

INLINE void subtract(float *out, const float *x, const float *y, size_t d)
{
    for (size_t j = 0; j < d; j += VECTOR_FLOATS) {
        v_store_n(out + j, v_load_n(x + j, d - j) - v_load_n(y + j, d - j), d - j);
    }
}

// Runs the tokens of a head through its state s. o at o_row floats a token. kept, if not NULL: [groups − 1][m, d] states before each group but the first.
INLINE void forward_head(float *o, size_t o_row, float *kept, float *s, const Head *head, size_t m, size_t d)
{
    float h[d], p[d], u[m], n[m], alpha[m], beta[m];
    Write write = {u, n, alpha, beta};
    bool have_product = false;
    for (size_t t = 0; t < head->length; t++) {
        const float *k = head->k + t * head->row;
        head_prefetch(head, t + TOKENS_AHEAD);
        if ((head->position + t) % GROUP == 0) {
            slots_normalise(s, m, d);
            have_product = false;
        }
        if (kept != NULL && t > 0 && t % GROUP == 0) {
            memcpy(kept + (t / GROUP - 1) * m * d, s, m * d * sizeof(float));
        }
        if (!have_product) {
            slot_sum(p, s, k, m, d);
        }
        subtract(h, head->v + t * head->row, p, d);
        plan_write(&write, s, h, k, head->g[t * head->gate_row], head_mu(head, t), m, d);
        const float *k_next = t + 1 < head->length ? k + head->row : NULL;
        if (k_next != NULL) {
            update_slots(s, o + t * o_row, p, s, alpha, beta, h, head->q + t * head->row, k_next, m, d);
        } else {
            update_slots(s, o + t * o_row, NULL, s, alpha, beta, h, head->q + t * head->row, NULL, m, d);
        }
        have_product = true;
    }
}

// Sizes of a head that get code of their own: everything unrolled, no borders.
static void forward_any(float *o, size_t o_row, float *kept, float *s, const Head *head)
{
    if (head->m == 64 && head->d == 64) {
        forward_head(o, o_row, kept, s, head, 64, 64);
    } else {
        forward_head(o, o_row, kept, s, head, head->m, head->d);
    }
}

static size_t head_floats(const MixerShape *shape) { return shape->n_slot * shape->d_head; }

static size_t state_floats(const ModelConfig *config) { return (size_t)config->n_head * (size_t)config->n_slot * (size_t)config->d_head; }

static size_t saved_floats(const MixerShape *shape) { return shape->batch * shape->n_head * kept_states(shape->length) * head_floats(shape); }

// Backward scratch: every head's gradient of the start; and the gradient of the state and the states before the GROUP tokens of a group with each token's Write
// and h, for the heads that are at work at once. There is room for all heads, but only as many such memories are touched as there are threads, so that they
// stay in the caches.
static size_t group_floats(const MixerShape *shape) { return head_floats(shape) + GROUP * (head_floats(shape) + 4 * shape->n_slot + shape->d_head); }

static size_t scratch_floats(const MixerShape *shape, bool backward)
{
    return shape->batch * shape->n_head * (head_floats(shape) + (backward ? group_floats(shape) : 0));
}

static void state_init(float *state, const float *state0, const MixerShape *shape)
{
    memcpy(state, state0, shape->n_head * head_floats(shape) * sizeof(float));
    slots_normalise(state, shape->n_head * shape->n_slot, shape->d_head);
}

// The state of one head at the start of a sequence.
static void start_head(float *s, const float *state0, size_t m, size_t d)
{
    memcpy(s, state0, m * d * sizeof(float));
    slots_normalise(s, m, d);
}

static void forward(float *o, float *saved, float *scratch, float *states, size_t state_stride, const MixerTensors *in, const MixerShape *shape)
{
    size_t width = shape->n_head * shape->d_head, size = head_floats(shape), length = shape->length;
#pragma omp parallel for schedule(dynamic) if (shape->batch * shape->length * shape->n_head * size > 65536)
    for (size_t task = 0; task < shape->batch * shape->n_head; task++) {
        size_t b = task / shape->n_head, h = task % shape->n_head;
        Head head = head_of(in, shape, b, h);
        float *out = o + b * length * width + h * head.d, *kept = saved == NULL ? NULL : saved + task * kept_states(length) * size;
        if (states != NULL) {
            forward_any(out, width, kept, states + b * state_stride + h * size, &head);
            continue;
        }
        const uint8_t *starts = sequence_starts(shape->starts, b, length);
        for (size_t first = 0, end; first < length; first = end) {
            end = document_end(starts, first, length);
            Head document = head_document(&head, first, end - first);
            float *s = scratch + task * size;
            start_head(s, in->state0 + h * size, head.m, head.d);
            forward_any(out + first * width, width, kept == NULL ? NULL : kept + kept_before(first) * size, s, &document);
        }
    }
}

// One head's memory during the backward.
typedef struct BackwardMemory {
    float *states;   // [GROUP][m, d] before each token of the group
    float *ds;       // [m, d] gradient into the state after the token at hand
    float *writes;   // [GROUP][4][m]: u, n, alpha, beta
    float *hs;       // [GROUP][d]
} BackwardMemory;

INLINE Write group_write(const BackwardMemory *memory, size_t l, size_t m)
{
    float *w = memory->writes + l * 4 * m;
    return (Write){w, w + m, w + 2 * m, w + 3 * m};
}

// The states before each of `count` tokens from `first` on, from the first of them; and their writes.
INLINE void recompute_group(BackwardMemory *memory, const Head *head, size_t first, size_t count, size_t m, size_t d)
{
    float p[d];
    for (size_t l = 0; l < count; l++) {
        size_t t = first + l;
        const float *k = head->k + t * head->row;
        float *s = memory->states + l * m * d, *h = memory->hs + l * d;
        head_prefetch(head, t - GROUP);   // for the group before
        if (l == 0) {
            slot_sum(p, s, k, m, d);
        }
        subtract(h, head->v + t * head->row, p, d);
        Write write = group_write(memory, l, m);
        plan_write(&write, s, h, k, head->g[t * head->gate_row], head_mu(head, t), m, d);
        if (l + 1 < count) {
            update_slots(s + m * d, NULL, p, s, write.alpha, write.beta, h, NULL, k + head->row, m, d);
        }
    }
}

// Of a block of slots from i0 on, a vector each: s_i·ds_i, h·ds_i and s_i·do.
typedef struct BlockDots {
    vfloat s_ds, h_ds, s_do;
} BlockDots;

INLINE BlockDots block_dots(const float *s, const float *ds, const float *h, const float *do_, size_t i0, size_t m, size_t d)
{
    vfloat x[QUADS], y[QUADS], z[QUADS];
    for (size_t quad = 0; quad < QUADS; quad++) {
        vfloat s_ds[4] = {{0}}, h_ds[4] = {{0}}, s_do[4] = {{0}};
        for (size_t j = 0; j < d; j += COLUMNS * VECTOR_FLOATS) {
            vfloat hs[COLUMNS], outs[COLUMNS];
            load_columns(hs, h, j, d);
            load_columns(outs, do_, j, d);
            for (size_t l = 0; l < 4 && i0 + 4 * quad + l < m; l++) {
                vfloat slot[COLUMNS], dslot[COLUMNS];
                load_columns(slot, s + (i0 + 4 * quad + l) * d, j, d);
                load_columns(dslot, ds + (i0 + 4 * quad + l) * d, j, d);
                for (size_t c = 0; c < COLUMNS; c++) {
                    s_ds[l] += slot[c] * dslot[c];
                    h_ds[l] += dslot[c] * hs[c];
                    s_do[l] += slot[c] * outs[c];
                }
            }
        }
        x[quad] = sum_quad(s_ds);
        y[quad] = sum_quad(h_ds);
        z[quad] = sum_quad(s_do);
    }
    return (BlockDots){sum_quads(x), sum_quads(y), sum_quads(z)};
}

// Coefficients of one token's backward. With t_i = s'_i·ds'_i (ds' = ds + q do) and ds~ = (ds' − t s') / n:
//     dh    = Σ (beta_i ds_i + along_i s_i) + from_do do + from_h h
//     ds_i <- alpha_i ds_i + self_i s_i + out_i do + push_i h − k_i dh
typedef struct Coefficients {
    float *along, *self, *out, *push, *dk;   // [m]; dk is the part of dk without s_i·dh
    vfloat from_do, from_h, dg, dmu;         // sums over the slots so far, to be added up
} Coefficients;

// Fills a block's coefficients and dq.
INLINE void plan_backward(Coefficients *c, float *dq, BlockDots dots, const Write *write, const float *q, const float *k, float g, float h_h, float h_do,
                          size_t i, size_t m)
{
    size_t rest = m - i;
    vfloat gs = v_set(g), hh = v_set(h_h), hdo = v_set(h_do), zero = v_set(0.0f);
    vfloat alpha = v_load_n(write->alpha + i, rest), beta = v_load_n(write->beta + i, rest), u = v_load_n(write->u + i, rest);
    vfloat n = v_load_n(write->n + i, rest), qi = v_load_n(q + i, rest), ki = v_load_n(k + i, rest), a = gs * ki;
    vfloat inverse = v_select(n == zero, zero, v_set(1.0f) / n);   // 0 behind the last slot; NaN stays
    vfloat sds = dots.s_ds + qi * dots.s_do, hds = dots.h_ds + qi * hdo;
    v_store_n(dq + i, alpha * dots.s_do + beta * hdo, rest);
    vfloat t = alpha * sds + beta * hds;
    vfloat w = (sds - t * (alpha + beta * u)) * inverse;
    vfloat da = (hds - t * (alpha * u + beta * hh)) * inverse - u * w;
    vfloat du = -a * w;
    v_store_n(c->along + i, du - beta * t * alpha, rest);
    v_store_n(c->self + i, -alpha * alpha * t, rest);
    v_store_n(c->out + i, alpha * qi, rest);
    v_store_n(c->push + i, du - alpha * beta * t, rest);
    v_store_n(c->dk + i, gs * da, rest);
    c->from_do += beta * qi;
    c->from_h -= beta * beta * t;
    c->dg += da * ki;
    c->dmu += w;
}

// dh [d] += Σ (beta_i ds_i + along_i s_i) over a block of slots.
INLINE void add_input_gradient(float *dh, const float *s, const float *ds, const float *beta, const float *along, size_t i0, size_t m, size_t d)
{
    size_t end = i0 + VECTOR_FLOATS < m ? i0 + VECTOR_FLOATS : m;
    for (size_t j = 0; j < d; j += COLUMNS * VECTOR_FLOATS) {
        vfloat sum[COLUMNS];
        load_columns(sum, dh, j, d);
        for (size_t i = i0; i < end; i++) {
            vfloat slot[COLUMNS], dslot[COLUMNS], of_ds = v_set(beta[i]), of_s = v_set(along[i]);
            load_columns(slot, s + i * d, j, d);
            load_columns(dslot, ds + i * d, j, d);
            for (size_t c = 0; c < COLUMNS; c++) {
                sum[c] += of_ds * dslot[c];
                sum[c] += of_s * slot[c];
            }
        }
        store_columns(dh, sum, j, d);
    }
}

// Of a block of slots: ds_i <- alpha_i ds_i + self_i s_i + out_i do + push_i h − k_i dh, and dk_i = c.dk_i − s_i·dh.
INLINE void state_gradient(float *ds, float *dk, const float *s, const float *h, const float *do_, const float *dh, const float *alpha, const float *k,
                           const Coefficients *c, size_t i0, size_t m, size_t d)
{
    vfloat sums[QUADS];
    for (size_t quad = 0; quad < QUADS; quad++) {
        vfloat dots[4] = {{0}};
        for (size_t j = 0; j < d; j += COLUMNS * VECTOR_FLOATS) {
            vfloat hs[COLUMNS], outs[COLUMNS], dhs[COLUMNS];
            load_columns(hs, h, j, d);
            load_columns(outs, do_, j, d);
            load_columns(dhs, dh, j, d);
            for (size_t l = 0; l < 4 && i0 + 4 * quad + l < m; l++) {
                size_t i = i0 + 4 * quad + l;
                vfloat keep = v_set(alpha[i]), self = v_set(c->self[i]), out = v_set(c->out[i]), push = v_set(c->push[i]), take = v_set(k[i]);
                vfloat slot[COLUMNS], value[COLUMNS];
                load_columns(slot, s + i * d, j, d);
                load_columns(value, ds + i * d, j, d);
                for (size_t column = 0; column < COLUMNS; column++) {
                    value[column] = keep * value[column];
                    value[column] += self * slot[column];
                    value[column] += out * outs[column];
                    value[column] += push * hs[column];
                    value[column] -= take * dhs[column];
                    dots[l] += slot[column] * dhs[column];
                }
                store_columns(ds + i * d, value, j, d);
            }
        }
        sums[quad] = sum_quad(dots);
    }
    v_store_n(dk + i0, v_load_n(c->dk + i0, m - i0) - sum_quads(sums), m - i0);
}

// One token back. Two passes over the slots, block by block, so that a block is near for all that a pass does with it; the second goes the other way, from the
// blocks that are still near.
INLINE void backward_token(float *dq, float *dk, float *dh, float *dg, float *dmu, float *ds, const float *s, const Write *write,
                           const float *h, const float *q, const float *k, float g, const float *do_, size_t m, size_t d)
{
    float along[m], self[m], out[m], push[m], part[m], h_h = dot(h, h, d), h_do = dot(h, do_, d);
    Coefficients c = {along, self, out, push, part, {0}, {0}, {0}, {0}};
    memset(dh, 0, d * sizeof(float));
    for (size_t i0 = 0; i0 < m; i0 += VECTOR_FLOATS) {
        plan_backward(&c, dq, block_dots(s, ds, h, do_, i0, m, d), write, q, k, g, h_h, h_do, i0, m);
        add_input_gradient(dh, s, ds, write->beta, along, i0, m, d);
    }
    add_scaled(dh, dh, v_sum(c.from_do), do_, d);
    add_scaled(dh, dh, v_sum(c.from_h), h, d);
    *dg = v_sum(c.dg);
    if (dmu != NULL) {
        *dmu = v_sum(c.dmu);
    }
    for (size_t i0 = (m - 1) / VECTOR_FLOATS * VECTOR_FLOATS + VECTOR_FLOATS; i0 > 0; i0 -= VECTOR_FLOATS) {
        state_gradient(ds, dk, s, h, do_, dh, write->alpha, k, &c, i0 - VECTOR_FLOATS, m, d);
    }
}

INLINE void backward_group(const HeadGradients *grad, BackwardMemory *memory, const Head *head, const float *do_, size_t do_row, size_t first, size_t count,
                           size_t m, size_t d)
{
    float dh[d];
    for (size_t l = count; l-- > 0;) {
        size_t t = first + l;
        const float *s = memory->states + l * m * d;
        Write write = group_write(memory, l, m);
        head_prefetch_backward(grad, head, do_, do_row, t - TOKENS_AHEAD);
        backward_token(grad->q + t * head->row, grad->k + t * head->row, dh, grad->g + t * head->gate_row,
                       grad->mu == NULL ? NULL : grad->mu + t * head->gate_row, memory->ds, s, &write, memory->hs + l * d, head->q + t * head->row,
                       head->k + t * head->row, head->g[t * head->gate_row], do_ + t * do_row, m, d);
        memcpy(grad->v + t * head->row, dh, d * sizeof(float));
    }
}

INLINE void backward_head(const HeadGradients *grad, BackwardMemory *memory, const float *kept, const float *state0, const Head *head, const float *do_,
                          size_t do_row, size_t m, size_t d)
{
    for (size_t group = (head->length + GROUP - 1) / GROUP; group-- > 0;) {
        size_t first = group * GROUP, count = head->length - first < GROUP ? head->length - first : GROUP;
        if (group > 0) {
            memcpy(memory->states, kept + (group - 1) * m * d, m * d * sizeof(float));
        } else {
            start_head(memory->states, state0, m, d);
            slots_normalise(memory->states, m, d);   // as the forward does at the beginning of every group
        }
        recompute_group(memory, head, first, count, m, d);
        backward_group(grad, memory, head, do_, do_row, first, count, m, d);
    }
}

static void backward_any(const HeadGradients *grad, BackwardMemory *memory, const float *kept, const float *state0, const Head *head, const float *do_,
                         size_t do_row)
{
    if (head->m == 64 && head->d == 64) {
        backward_head(grad, memory, kept, state0, head, do_, do_row, 64, 64);
    } else {
        backward_head(grad, memory, kept, state0, head, do_, do_row, head->m, head->d);
    }
}

// Head h of sequence b, document by document from its end: sets the rows of grad, and dstart [m, d] to the sum of the gradients into the documents' starts.
static void backward_sequence(float *dstart, const MixerGradients *grad, BackwardMemory *memory, const float *dstate, const float *kept, const float *do_,
                              const MixerTensors *in, const MixerShape *shape, size_t b, size_t h)
{
    size_t size = head_floats(shape), width = shape->n_head * shape->d_head;
    const uint8_t *starts = sequence_starts(shape->starts, b, shape->length);
    Head head = head_of(in, shape, b, h);
    HeadGradients to = head_gradients_of(grad, in, shape, b, h);
    do_ += b * shape->length * width + h * head.d;
    if (dstate == NULL) {
        memset(memory->ds, 0, size * sizeof(float));
    } else {
        memcpy(memory->ds, dstate, size * sizeof(float));
    }
    memset(dstart, 0, size * sizeof(float));
    for (size_t end = shape->length, first; end > 0; end = first) {
        first = document_begin(starts, end);
        Head document = head_document(&head, first, end - first);
        HeadGradients rows = head_gradients_document(&to, &head, first);
        backward_any(&rows, memory, kept + kept_before(first) * size, in->state0 + h * size, &document, do_ + first * width, width);
        add_scaled(dstart, dstart, 1.0f, memory->ds, size);
        memset(memory->ds, 0, size * sizeof(float));
    }
}

static void backward(const MixerGradients *grad, const float *do_, const float *dstates, size_t state_stride, const float *saved, float *scratch,
                     const MixerTensors *in, const MixerShape *shape)
{
    size_t size = head_floats(shape), tasks = shape->batch * shape->n_head, memories = 0;
#pragma omp parallel
    {
        float *own = NULL;
#pragma omp for schedule(dynamic)
        for (size_t task = 0; task < tasks; task++) {
            size_t b = task / shape->n_head, h = task % shape->n_head;
            if (own == NULL) {   // a thread that has work takes the next memory: no more are taken than there are tasks
                size_t number;
#pragma omp atomic capture
                number = memories++;
                own = scratch + tasks * size + number * group_floats(shape);
            }
            BackwardMemory memory = {own, own + GROUP * size, own + (GROUP + 1) * size, own + (GROUP + 1) * size + GROUP * 4 * shape->n_slot};
            backward_sequence(scratch + task * size, grad, &memory, dstates == NULL ? NULL : dstates + b * state_stride + h * size,
                              saved + task * kept_states(shape->length) * size, do_, in, shape, b, h);
        }
    }
#pragma omp parallel for schedule(static)
    for (size_t h = 0; h < shape->n_head; h++) {
        for (size_t b = 0; b < shape->batch; b++) {
            float *ds = scratch + (b * shape->n_head + h) * size;
            slots_normalise_backward(ds, in->state0 + h * size, shape->n_slot, shape->d_head);
            add_scaled(grad->state0 + h * size, grad->state0 + h * size, 1.0f, ds, size);
        }
    }
}

extern const Mixer ISA_NAME(lattice_mixer);

const Mixer ISA_NAME(lattice_mixer) = {
    .name = "lattice",
    .state_floats = state_floats,
    .saved_floats = saved_floats,
    .scratch_floats = scratch_floats,
    .state_init = state_init,
    .forward = forward,
    .backward = backward,
    .needs = {.gate = true, .may_forget = true, .start = true},
};
