// Lattice in all its forms (docs/memories.md 2 and 4): three objectives, exact and in chunks, and the ablations. lattice.c is the fast path of the default form.
//
// Chunks without ablations go by matrix products (lattice_chunk.c) where a call brings more than one token of a chunk from its beginning. Everything else
// goes token by token, here: chunks of 1, the ablations, decoding, and what a carried state still lacks of its chunk.
//
// S is the memory that a token meets, B that at the start of its chunk (chunk 1: S itself). Per token, with (h, c) the objective's pair at B,
// u_i = b_i·h, a_i = g c_i and x_i = b_i (frozen) or s_i (gated):
//
//     s~_i = mu s_i + a_i (h − u_i x_i)        s_i <- s~_i / n_i, or s~_i until the chunk's end        o = Σ q_i s_i
//
// With a gate for each slot, a_i = g_i c_i.
//
// Lengths are taken from the vectors themselves, so that no form loses digits. The forward keeps S and B every GROUP tokens (but the start); the
// backward recomputes a group's memories and walks back, carrying the gradients into S and into B.
#include "model/mixers/lattice_chunk.h"

#define GROUP KEPT_TOKENS

static size_t head_floats(const MixerShape *shape) { return shape->n_slot * shape->d_head; }

// Floats of one head that either of the two ways may keep.
static size_t head_kept_floats(const MixerShape *shape)
{
    size_t states = kept_states(shape->length) * head_floats(shape), inputs = shape->length * ISA_NAME(chunk_input_floats)(shape->n_slot, shape->d_head);
    return 2 * states > states + inputs ? 2 * states : states + inputs;
}

// The memory, then in chunks of more than one token the chunks' starts: [H][m, d] each.
static size_t state_floats(const ModelConfig *config)
{
    return (config->chunk > 1 ? 2 : 1) * (size_t)config->n_head * (size_t)config->n_slot * (size_t)config->d_head;
}

// What a training forward keeps of one head, or of one of its documents. Token by token: the memory and the chunk's start before each group; by chunks: the
// memory before some of them, and what chunk_forward keeps of every token.
typedef struct KeptAt {
    size_t states, inputs;   // where they begin in what is saved
} KeptAt;

// Of the document that begins at row `first` of head `task`.
static KeptAt kept_at(const MixerShape *shape, size_t task, size_t first, bool by_chunks)
{
    size_t own = task * head_kept_floats(shape), size = head_floats(shape);
    return (KeptAt){
        .states = own + kept_before(first) * (by_chunks ? size : 2 * size),
        .inputs = own + kept_states(shape->length) * size + first * ISA_NAME(chunk_input_floats)(shape->n_slot, shape->d_head),
    };
}

static size_t saved_floats(const MixerShape *shape) { return shape->batch * shape->n_head * head_kept_floats(shape); }

// Gradients into S and B; the memory after each token of a group, and where chunks start in it; h, u, c and n of its tokens.
#define STARTS (GROUP / 2 + 1)
static size_t backward_token_floats(const MixerShape *shape) { return (GROUP + STARTS) * head_floats(shape) + GROUP * (shape->d_head + 3 * shape->n_slot); }

// Two memories (backward: their gradients, and the sum of those into starts), and what either way through the tokens needs.
static size_t head_scratch_floats(const MixerShape *shape, bool backward)
{
    size_t tokens = backward ? backward_token_floats(shape) : 0, chunks = ISA_NAME(chunk_scratch_floats)(shape->n_slot, shape->d_head, backward);
    return (backward ? 3 : 2) * head_floats(shape) + (tokens > chunks ? tokens : chunks);
}

static size_t scratch_floats(const MixerShape *shape, bool backward) { return shape->batch * shape->n_head * head_scratch_floats(shape, backward); }

// The start as it is: the forward of position 0 knows whether it is to be normalised. It also sets the chunk's start, where there is one.
static void state_init(float *state, const float *state0, const MixerShape *shape)
{
    memcpy(state, state0, shape->n_head * head_floats(shape) * sizeof(float));
}

static bool projects(const Head *head) { return !head->form.no_projection && !head->form.no_normalisation; }

// What one token writes: h [d]; u, c and n [m].
typedef struct Write {
    float *h, *u, *c, *n;
} Write;

// Fills h, c and u from the chunk's start.
INLINE void plan_write(Write *w, const float *base, const float *k, const float *v, const Head *head, size_t m, size_t d)
{
    memcpy(w->h, v, d * sizeof(float));
    memcpy(w->c, k, m * sizeof(float));
    if (head->form.objective == LATTICE_DECODE) {
        slot_sum(w->h, base, k, m, d);
        for (size_t j = 0; j < d; j += VECTOR_FLOATS) {
            v_store_n(w->h + j, v_load_n(v + j, d - j) - v_load_n(w->h + j, d - j), d - j);
        }
    } else if (head->form.objective == LATTICE_ENCODE) {
        slot_dots(w->c, base, v, m, d);
        for (size_t i = 0; i < m; i += VECTOR_FLOATS) {
            v_store_n(w->c + i, v_load_n(k + i, m - i) - v_load_n(w->c + i, m - i), m - i);
        }
    }
    if (projects(head)) {
        slot_dots(w->u, base, w->h, m, d);
    } else {
        memset(w->u, 0, m * sizeof(float));
    }
}

INLINE vfloat soft_threshold(vfloat x, float threshold)
{
    vfloat t = v_set(threshold), zero = {0};
    return v_select(x > t, x - t, v_select(x < -t, x + t, v_select(x == x, zero, x)));
}

// to_i = s~_i / n_i of token t (n stays 1 where tokens are not normalised); to may be s. The chunk's start is `base`.
INLINE void write_slots(float *to, Write *w, const float *s, const float *base, const Head *head, size_t t, size_t m, size_t d)
{
    const float *along = head->form.gated ? s : base, *gates = head->g + t * head->g_row;
    float mu = head_mu(head, t);
    bool normalise = normalises_tokens(head);
    vfloat one = v_set(1.0f), zero = {0};
    for (size_t i0 = 0; i0 < m; i0 += VECTOR_FLOATS) {
        vfloat squares[VECTOR_FLOATS];
        for (size_t l = 0; l < VECTOR_FLOATS; l++) {
            squares[l] = zero;
            size_t i = i0 + l;
            float g = i < m ? gates[i * head->g_slot] : 0.0f, threshold = g * head->form.l1;
            for (size_t j = 0; j < d && i < m; j += VECTOR_FLOATS) {
                float a = g * w->c[i];
                vfloat x = v_set(mu) * v_load_n(s + i * d + j, d - j);
                x = v_fma(v_set(-a * w->u[i]), v_load_n(along + i * d + j, d - j), v_fma(v_set(a), v_load_n(w->h + j, d - j), x));
                x = threshold > 0.0f ? soft_threshold(x, threshold) : x;
                v_store_n(to + i * d + j, x, d - j);
                squares[l] = v_fma(x, x, squares[l]);
            }
        }
        vfloat n = normalise ? v_sqrt(sum_each(squares)) : one;
        v_store_n(w->n + i0, n, m - i0);
        for (size_t i = i0; normalise && i < m && i < i0 + VECTOR_FLOATS; i++) {
            scale_to(to + i * d, to + i * d, w->n[i] == 0.0f ? 0.0f : 1.0f / w->n[i], d);
        }
    }
}

// kept and inputs, or NULL: what is kept of these tokens (KeptAt). Without kept, the memory is left in own.
INLINE void forward_head(float *o, size_t o_row, float *kept, float *inputs, float *own, float *base, float *scratch, const Head *head, size_t m, size_t d)
{
    float h[d], u[m], c[m], n[m];
    Write write = {h, u, c, n};
    bool matrices = has_chunk_form(head);
    bool follows = false;   // the call before was of chunk_forward
    if (head->position == 0 && !head->form.no_normalisation) {
        slots_normalise(own, m, d);
    }
    for (size_t t = 0, count; t < head->length; t += count) {
        bool begins = head->chunk > 1 && (head->position + t) % head->chunk == 0;
        count = 1;
        if (begins && matrices) {
            size_t rest = head->length - t;
            count = rest < head->chunk ? rest : head->chunk;
        }
        if (begins && (count == 1 || kept == NULL)) {   // by matrices, only a carried state needs the chunk's start
            memcpy(base, own, m * d * sizeof(float));
        }
        if (begins && matrices && count > 1) {
            size_t next = t / head->chunk + 1, group = kept_chunks(head);
            bool keeps = kept != NULL && next % group == 0 && t + count < head->length;
            float *next_kept = keeps ? kept + (next / group - 1) * m * d : NULL;
            ISA_NAME(chunk_forward)(o + t * o_row, o_row, inputs, next_kept, own, own, scratch, head, t, count, follows);
            follows = true;
            continue;
        }
        follows = false;
        const float *start = head->chunk > 1 ? base : own;
        if (kept != NULL && !matrices && t > 0 && t % GROUP == 0) {
            float *states = kept + (t / GROUP - 1) * 2 * m * d;
            memcpy(states, own, m * d * sizeof(float));
            memcpy(states + m * d, start, m * d * sizeof(float));
        }
        head_prefetch(head, t + TOKENS_AHEAD);
        plan_write(&write, start, head->k + t * head->row, head->v + t * head->row, head, m, d);
        write_slots(own, &write, own, start, head, t, m, d);
        slot_sum(o + t * o_row, own, head->q + t * head->row, m, d);
        if (normalises_chunks(head) && (head->position + t + 1) % head->chunk == 0) {
            slots_normalise(own, m, d);
        }
    }
    v_stream_end();
}

static void forward_any(float *o, size_t o_row, float *kept, float *inputs, float *s, float *base, float *scratch, const Head *head)
{
    if (head->m == 64 && head->d == 64) {
        forward_head(o, o_row, kept, inputs, s, base, scratch, head, 64, 64);
    } else if (head->d == 64) {
        forward_head(o, o_row, kept, inputs, s, base, scratch, head, head->m, 64);
    } else {
        forward_head(o, o_row, kept, inputs, s, base, scratch, head, head->m, head->d);
    }
}

static void forward(float *o, float *saved, float *scratch, float *states, size_t state_stride, const MixerTensors *in, const MixerShape *shape)
{
    size_t width = shape->n_head * shape->d_head, size = head_floats(shape), own_floats = head_scratch_floats(shape, false), length = shape->length;
#pragma omp parallel for schedule(dynamic) if (shape->batch * shape->length * shape->n_head * size > 65536)
    for (size_t task = 0; task < shape->batch * shape->n_head; task++) {
        size_t b = task / shape->n_head, h = task % shape->n_head;
        Head head = head_of(in, shape, b, h);
        float *own = scratch + task * own_floats, *out = o + b * length * width + h * head.d;
        if (states != NULL) {
            float *s = states + b * state_stride + h * size, *base = head.chunk > 1 ? s + shape->n_head * size : NULL;
            forward_any(out, width, NULL, NULL, s, base, own + 2 * size, &head);
            continue;
        }
        const uint8_t *starts = sequence_starts(shape->starts, b, length);
        for (size_t first = 0, end; first < length; first = end) {
            end = document_end(starts, first, length);
            Head document = head_document(&head, first, end - first);
            KeptAt at = kept_at(shape, task, first, has_chunk_form(&head));
            float *kept = saved == NULL ? NULL : saved + at.states, *inputs = saved == NULL ? NULL : saved + at.inputs;
            memcpy(own, in->state0 + h * size, size * sizeof(float));
            forward_any(out + first * width, width, kept, inputs, own, own + size, own + 2 * size, &document);
        }
    }
}

// One head's memory during the backward.
typedef struct BackwardMemory {
    float *dstart;        // [m, d] sum of the gradients into the starts of documents
    float *ds, *dbase;    // [m, d] gradients into the memory after the token at hand, and into the chunk's start
    float *after;         // [GROUP][m, d] what each token of the group reads
    float *starts;        // [STARTS][m, d] of the chunks that begin in the group
    float *hs, *us, *cs, *ns;   // [GROUP][d], [GROUP][m] …
    const float *met[GROUP], *bases[GROUP];   // memory before each token, and at its chunk's start
} BackwardMemory;

static void memory_of(BackwardMemory *memory, float *own, const MixerShape *shape)
{
    size_t size = head_floats(shape), m = shape->n_slot;
    memory->dstart = own;
    memory->ds = own + size;
    memory->dbase = memory->ds + size;
    memory->after = memory->dbase + size;
    memory->starts = memory->after + GROUP * size;
    memory->hs = memory->starts + STARTS * size;
    memory->us = memory->hs + GROUP * shape->d_head;
    memory->cs = memory->us + GROUP * m;
    memory->ns = memory->cs + GROUP * m;
    memset(memory->dstart, 0, 3 * size * sizeof(float));
}

static Write group_write(const BackwardMemory *memory, size_t l, size_t m, size_t d)
{
    return (Write){memory->hs + l * d, memory->us + l * m, memory->cs + l * m, memory->ns + l * m};
}

// From the memory s that the group meets, and the start `base` of the chunk that it begins within; s may be memory->starts where a chunk begins with it.
INLINE void recompute_group(BackwardMemory *memory, const float *s, const float *base, const Head *head, size_t first, size_t count, size_t m, size_t d)
{
    float *start = memory->starts;
    for (size_t l = 0; l < count; l++) {
        size_t t = first + l;
        float *after = memory->after + l * m * d;
        if (head->chunk > 1 && t % head->chunk == 0) {
            if (s != start) {
                memcpy(start, s, m * d * sizeof(float));
            }
            if (normalises_chunks(head) && l > 0) {   // the kept one is already
                slots_normalise(start, m, d);
            }
            s = base = start;
            start += m * d;
        }
        head_prefetch(head, t - GROUP);   // for the group before
        base = head->chunk > 1 ? base : s;
        memory->met[l] = s;
        memory->bases[l] = base;
        Write write = group_write(memory, l, m, d);
        plan_write(&write, base, head->k + t * head->row, head->v + t * head->row, head, m, d);
        write_slots(after, &write, s, base, head, t, m, d);
        s = after;
    }
}

// What one token's backward gathers over slots.
typedef struct Sums {
    float *dh, *dv;       // [d]; dv: what encode adds to it
    float *dq, *dk;       // [m] rows; dk is dc so far
    float *dg;            // [m] into each slot's intensity
    float dmu;
} Sums;

// Slots [i0, i0 + VECTOR_FLOATS): ds becomes the gradient into s~ (through reading, normalisation and threshold); dq is set, and dg to the threshold's part.
INLINE void finish_backward(float *ds, float *dq, float *dg, const float *after, const float *q, const float *do_, const float *n, const Head *head,
                            size_t i0, size_t m, size_t d)
{
    vfloat reads[VECTOR_FLOATS], radials[VECTOR_FLOATS], zero = {0};
    for (size_t l = 0; l < VECTOR_FLOATS; l++) {
        reads[l] = radials[l] = zero;
        size_t i = i0 + l;
        for (size_t j = 0; j < d && i < m; j += VECTOR_FLOATS) {
            vfloat out = v_load_n(do_ + j, d - j), slot = v_load_n(after + i * d + j, d - j);
            vfloat x = v_fma(v_set(q[i]), out, v_load_n(ds + i * d + j, d - j));
            v_store_n(ds + i * d + j, x, d - j);
            reads[l] = v_fma(slot, out, reads[l]);
            radials[l] = v_fma(slot, x, radials[l]);
        }
    }
    v_store_n(dq + i0, sum_each(reads), m - i0);
    vfloat radial = sum_each(radials);
    for (size_t i = i0; i < m && i < i0 + VECTOR_FLOATS; i++) {
        if (normalises_tokens(head)) {
            add_scaled(ds + i * d, ds + i * d, -radial[i - i0], after + i * d, d);
            scale_to(ds + i * d, ds + i * d, n[i] == 0.0f ? 0.0f : 1.0f / n[i], d);
        }
        vfloat pulled = zero;
        for (size_t j = 0; head->form.l1 > 0.0f && j < d; j += VECTOR_FLOATS) {
            vfloat slot = v_load_n(after + i * d + j, d - j), x = v_load_n(ds + i * d + j, d - j);
            x = v_select(slot == zero, zero, x);
            v_store_n(ds + i * d + j, x, d - j);
            pulled += v_select(slot < zero, -x, x);
        }
        dg[i] = -head->form.l1 * v_sum(pulled);
    }
}

// How the gradient x_i into s~_i of a slot is shared out: ds_i = keep x, db_i += pull x + du h − dc v (the last only in encode), dh += a x + du b_i,
// dv −= dc b_i (only in encode).
typedef struct Shares {
    float keep, pull, a, du, dc;
} Shares;

INLINE void share_slots(Sums *sums, float *ds, float *dbase, const float *base, const float *h, const float *v, const Shares *shares, bool encode, size_t i0,
                        size_t m, size_t d)
{
    size_t end = i0 + VECTOR_FLOATS < m ? i0 + VECTOR_FLOATS : m;
    for (size_t j0 = 0; j0 < d; j0 += COLUMNS * VECTOR_FLOATS) {
        vfloat dh[COLUMNS], dv[COLUMNS];
        for (size_t c = 0; c < COLUMNS; c++) {
            size_t j = j0 + c * VECTOR_FLOATS;
            dh[c] = v_load_n(sums->dh + j, rest_of(d, j));
            dv[c] = v_load_n(sums->dv + j, rest_of(d, j));
        }
        for (size_t i = i0; i < end; i++) {
            Shares share = shares[i - i0];
            for (size_t c = 0; c < COLUMNS; c++) {
                size_t j = j0 + c * VECTOR_FLOATS, rest = rest_of(d, j);
                vfloat x = v_load_n(ds + i * d + j, rest), b = v_load_n(base + i * d + j, rest);
                vfloat to_base = v_fma(v_set(share.pull), x, v_set(share.du) * v_load_n(h + j, rest));
                dh[c] = v_fma(v_set(share.a), x, v_fma(v_set(share.du), b, dh[c]));
                if (encode) {
                    to_base -= v_set(share.dc) * v_load_n(v + j, rest);
                    dv[c] -= v_set(share.dc) * b;
                }
                v_store_n(ds + i * d + j, v_set(share.keep) * x, rest);
                v_store_n(dbase + i * d + j, v_load_n(dbase + i * d + j, rest) + to_base, rest);
            }
        }
        for (size_t c = 0; c < COLUMNS; c++) {
            size_t j = j0 + c * VECTOR_FLOATS;
            v_store_n(sums->dh + j, dh[c], rest_of(d, j));
            v_store_n(sums->dv + j, dv[c], rest_of(d, j));
        }
    }
}

// Slots [i0, i0 + VECTOR_FLOATS), whose ds is the gradient into s~: it becomes that into s, and dbase gets what goes to the chunk's start (ds itself, where
// that is s). All but what h = v − B k brings.
INLINE void write_backward(Sums *sums, float *ds, float *dbase, const float *s, const float *base, const Write *w, const Head *head, size_t t, size_t i0,
                           size_t m, size_t d)
{
    const float *gates = head->g + t * head->g_row;
    float mu = head_mu(head, t);
    bool gated = head->form.gated || base == s, project = projects(head);
    vfloat along[VECTOR_FLOATS], kept[VECTOR_FLOATS], written[VECTOR_FLOATS];
    Shares shares[VECTOR_FLOATS];
    for (size_t l = 0; l < VECTOR_FLOATS; l++) {
        along[l] = kept[l] = written[l] = (vfloat){0};
        size_t i = i0 + l;
        for (size_t j = 0; j < d && i < m; j += VECTOR_FLOATS) {
            vfloat x = v_load_n(ds + i * d + j, d - j);
            along[l] = v_fma(v_load_n(base + i * d + j, d - j), x, along[l]);
            kept[l] = v_fma(v_load_n(s + i * d + j, d - j), x, kept[l]);
            written[l] = v_fma(v_load_n(w->h + j, d - j), x, written[l]);
        }
    }
    vfloat w_along = sum_each(along), w_kept = sum_each(kept), w_written = sum_each(written);
    for (size_t i = i0; i < m && i < i0 + VECTOR_FLOATS; i++) {
        float g = gates[i * head->g_slot], a = g * w->c[i], u = w->u[i];
        float projected = gated ? w_kept[i - i0] : w_along[i - i0], da = w_written[i - i0] - u * projected;
        shares[i - i0] = (Shares){.keep = gated ? mu - a * u : mu, .pull = gated ? 0.0f : -a * u, .a = a, .du = project ? -a * projected : 0.0f, .dc = g * da};
        sums->dmu += w_kept[i - i0];
        sums->dg[i] += da * w->c[i];
        sums->dk[i] = g * da;
    }
    share_slots(sums, ds, dbase, base, w->h, head->v + t * head->row, shares, head->form.objective == LATTICE_ENCODE, i0, m, d);
}

// h = v − Σ k_i b_i: db_i −= k_i dh, dk_i −= b_i·dh.
INLINE void read_backward(float *dbase, float *dk, const float *base, const float *k, const float *dh, size_t m, size_t d)
{
    for (size_t i0 = 0; i0 < m; i0 += VECTOR_FLOATS) {
        vfloat dots[VECTOR_FLOATS];
        for (size_t l = 0; l < VECTOR_FLOATS; l++) {
            dots[l] = (vfloat){0};
            size_t i = i0 + l;
            for (size_t j = 0; j < d && i < m; j += VECTOR_FLOATS) {
                vfloat x = v_load_n(dh + j, d - j);
                v_store_n(dbase + i * d + j, v_fma(v_set(-k[i]), x, v_load_n(dbase + i * d + j, d - j)), d - j);
                dots[l] = v_fma(v_load_n(base + i * d + j, d - j), x, dots[l]);
            }
        }
        v_store_n(dk + i0, v_load_n(dk + i0, m - i0) - sum_each(dots), m - i0);
    }
}

// to: a token's gates, of one head.
INLINE void put_gate_gradient(float *to, const float *dg, const Head *head, size_t m)
{
    if (head->form.slot_gate) {
        memcpy(to, dg, m * sizeof(float));
        return;
    }
    float sum = 0.0f;
    for (size_t i = 0; i < m; i++) {
        sum += dg[i];
    }
    *to = sum;
}

INLINE void backward_token(const HeadGradients *grad, BackwardMemory *memory, const Head *head, const float *do_, size_t t, size_t l, size_t m, size_t d)
{
    float dh[d], dv[d], dg[m];
    const float *s = memory->met[l], *base = memory->bases[l], *after = memory->after + l * m * d;
    float *dbase = base == s ? memory->ds : memory->dbase;
    Write write = group_write(memory, l, m, d);
    Sums sums = {.dh = dh, .dv = dv, .dq = grad->q + t * head->row, .dk = grad->k + t * head->row, .dg = dg};
    memset(dh, 0, sizeof dh);
    memset(dv, 0, sizeof dv);
    for (size_t i0 = 0; i0 < m; i0 += VECTOR_FLOATS) {
        finish_backward(memory->ds, sums.dq, dg, after, head->q + t * head->row, do_, write.n, head, i0, m, d);
        write_backward(&sums, memory->ds, dbase, s, base, &write, head, t, i0, m, d);
    }
    if (head->form.objective == LATTICE_DECODE) {
        read_backward(dbase, sums.dk, base, head->k + t * head->row, dh, m, d);
    }
    add_scaled(grad->v + t * head->row, dh, 1.0f, dv, d);
    put_gate_gradient(grad->g + t * head->g_row, dg, head, m);
    if (grad->mu != NULL) {
        grad->mu[t * head->gate_row] = sums.dmu;
    }
}

INLINE void backward_head(const HeadGradients *grad, BackwardMemory *memory, const float *kept, const float *state0, const Head *head, const float *do_,
                          size_t do_row, size_t m, size_t d)
{
    for (size_t group = (head->length + GROUP - 1) / GROUP; group-- > 0;) {
        size_t first = group * GROUP, count = head->length - first < GROUP ? head->length - first : GROUP;
        if (group > 0) {
            const float *s = kept + (group - 1) * 2 * m * d;
            recompute_group(memory, s, s + m * d, head, first, count, m, d);
        } else {
            memcpy(memory->starts, state0, m * d * sizeof(float));
            if (!head->form.no_normalisation) {
                slots_normalise(memory->starts, m, d);
            }
            recompute_group(memory, memory->starts, memory->starts, head, first, count, m, d);
        }
        for (size_t l = count; l-- > 0;) {
            size_t t = first + l;
            if (normalises_chunks(head) && ((t + 1) % head->chunk == 0 || t + 1 == head->length)) {
                slots_normalise_backward(memory->ds, memory->after + l * m * d, m, d);
            }
            head_prefetch_backward(grad, head, do_, do_row, t - TOKENS_AHEAD);
            backward_token(grad, memory, head, do_ + t * do_row, t, l, m, d);
            if (head->chunk > 1 && t % head->chunk == 0) {
                add_scaled(memory->ds, memory->ds, 1.0f, memory->dbase, m * d);
                memset(memory->dbase, 0, m * d * sizeof(float));
            }
        }
    }
}

static void backward_any(const HeadGradients *grad, BackwardMemory *memory, const float *kept, const float *inputs, const float *state0, const Head *head,
                         const float *do_, size_t do_row)
{
    if (has_chunk_form(head)) {
        ISA_NAME(chunk_backward)(grad, memory->ds, memory->after, kept, inputs, state0, head, do_, do_row);
    } else if (head->m == 64 && head->d == 64) {
        backward_head(grad, memory, kept, state0, head, do_, do_row, 64, 64);
    } else if (head->d == 64) {
        backward_head(grad, memory, kept, state0, head, do_, do_row, head->m, 64);
    } else {
        backward_head(grad, memory, kept, state0, head, do_, do_row, head->m, head->d);
    }
}

// Head `task`, document by document from its end: sets the rows of grad, and memory->dstart to the gradient into state0.
static void backward_sequence(const MixerGradients *grad, BackwardMemory *memory, const float *saved, const float *do_, const MixerTensors *in,
                              const MixerShape *shape, size_t task)
{
    size_t b = task / shape->n_head, h = task % shape->n_head, width = shape->n_head * shape->d_head, size = head_floats(shape);
    const uint8_t *starts = sequence_starts(shape->starts, b, shape->length);
    const float *state0 = in->state0 + h * size;
    Head head = head_of(in, shape, b, h);
    HeadGradients to = head_gradients_of(grad, in, shape, b, h);
    do_ += b * shape->length * width + h * head.d;
    for (size_t end = shape->length, first; end > 0; end = first) {
        first = document_begin(starts, end);
        Head document = head_document(&head, first, end - first);
        HeadGradients rows = head_gradients_document(&to, &head, first);
        KeptAt at = kept_at(shape, task, first, has_chunk_form(&head));
        backward_any(&rows, memory, saved + at.states, saved + at.inputs, state0, &document, do_ + first * width, width);
        add_scaled(memory->dstart, memory->dstart, 1.0f, memory->ds, size);
        memset(memory->ds, 0, size * sizeof(float));
    }
    if (!head.form.no_normalisation) {
        slots_normalise_backward(memory->dstart, state0, head.m, head.d);
    }
}

// dstates go into the memory as a sequence leaves it: where slots are normalised once a chunk, a last chunk that is shorter ends with the sequence.
static void backward(const MixerGradients *grad, const float *do_, const float *dstates, size_t state_stride, const float *saved, float *scratch,
                     const MixerTensors *in, const MixerShape *shape)
{
    size_t size = head_floats(shape), own = head_scratch_floats(shape, true);
#pragma omp parallel for schedule(dynamic)
    for (size_t task = 0; task < shape->batch * shape->n_head; task++) {
        BackwardMemory memory;
        memory_of(&memory, scratch + task * own, shape);
        if (dstates != NULL) {
            memcpy(memory.ds, dstates + task / shape->n_head * state_stride + task % shape->n_head * size, size * sizeof(float));
        }
        backward_sequence(grad, &memory, saved, do_, in, shape, task);
    }
    for (size_t task = 0; task < shape->batch * shape->n_head; task++) {
        float *to = grad->state0 + task % shape->n_head * size;
        add_scaled(to, to, 1.0f, scratch + task * own, size);
    }
}

extern const Mixer ISA_NAME(lattice_forms_mixer);

const Mixer ISA_NAME(lattice_forms_mixer) = {
    .name = "lattice_forms",
    .state_floats = state_floats,
    .saved_floats = saved_floats,
    .scratch_floats = scratch_floats,
    .state_init = state_init,
    .forward = forward,
    .backward = backward,
    .needs = {.gate = true, .may_forget = true, .start = true, .chunk = true, .form = true},
    .serves = "lattice",
};
