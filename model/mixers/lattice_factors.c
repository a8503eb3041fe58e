// The recurrence inside a chunk of Lattice (lattice_chunk.h) by factors. A slot over its scale, x_t = s_t / R_t, only ever adds what is written:
//
//     x_t = x_{t−1} + f_t (h_t − u_t b)  (gated: f_t h_t)        f_t = a_t / (keep_t R_{t−1})        so that  x_t = (1 + D_t) b + Σ_{j≤t} f_j h_j
//
// with D_t = −Σ_{j≤t} f_j u_j (gated: 0), and so A_t = R_t (1 + D_t) and P_tj = R_t f_j. Where every token normalises is R_t = 1 / ‖x_t‖, which forgets all
// that was forgotten; else it is the product of what was kept:
//
//     N_t = ‖x_t‖² = N_{t−1} + 2 f_t w_t + f_t² (G_tt − u_t²)        w_t = Σ_{j<t} G_tj f_j + D_{t−1} u_t  (gated: u_t, and no u_t²)        W_tj = Σ_i (q_ti R_ti) f_ij
//
// and back, with F the products do_t·h_j (j ≤ t), E_j the gradient into f_j, and L_t that into log R_t as far as R_t stands alone:
//
//     E_j = R_C (h_j·ds) + Σ_{t≥j} F_tj q_t R_t + Σ_{t>j} G_tj dw_t        dq_t = R_t ((1 + D_t) (b·do_t) + Σ_{j≤t} F_tj f_j)        dG_tj = Σ_i dw_t f_ij
//     L_t = q_t dq_t − f_{t+1} df_{t+1}        2 dN_t = 2 dN_{t+1} − R_t² L_t        dw_t = 2 f_t dN_t        df_t = E_t + 2 dN_t (w_t + f_t (G_tt − u_t²)) − u_t dD_t
//     du_t = D_t dw_t − f_t dD_t  (gated: dw_t)        dD_{t−1} = dD_t + u_t dw_t + q_{t−1} R_{t−1} (b·do_{t−1})
//
// All but the sums over G are products. f and R leave f32 where a slot is nearly forgotten, and digits are lost where keep is near 0: such a chunk goes through
// lattice_recurrence.c.
#include "model/mixers/lattice_chunk.h"
#include "model/mixers/products.h"

// Of a chunk that goes by factors: the most of R and 1 / R, where nothing normalises, and the range of N: far from where f32 ends, for the cubes in the
// backward, too.
#define MOST_DECAY 0x1p40f
#define LEAST_SQUARE 0x1p-40f
#define MOST_SQUARE 0x1p80f
#define LEAST_KEEP 0.0625f

// N is taken from the slot itself where it is below this share of what it was, or of f² ‖h‖²: its sum would have lost digits.
#define SHRUNK 0.5f
#define CANCELLED 0.05f

// What one vector of slots carries from token to token: D, N, R and 1 / R; the most of N since it was last known exactly, or of R and 1 / R, where nothing
// normalises; the least keep; and which slots have left their range.
typedef struct Slots {
    vfloat own, square, decay, root, most, kept;
    vint out;
} Slots;

// ‖x_t‖² of slot i; own: 1 + D_t. f_j are known up to token t.
static double square_of_vector(const Chunk *k, float own, size_t t, size_t i)
{
    double square = 0.0;
    for (size_t j = 0; j < k->d; j += VECTOR_FLOATS) {
        size_t rest = k->d - j;
        vfloat x = v_set(own) * v_load_n(k->start + i * k->d + j, rest);
        for (size_t l = 0; l <= t; l++) {
            x = v_fma(v_set(k->factors[l * k->mp + i]), v_load_n(k->h + l * k->d + j, rest), x);
        }
        for (size_t l = 0; l < VECTOR_FLOATS; l++) {
            square += (double)x[l] * (double)x[l];
        }
    }
    return square;
}

// Replaces N of every lost slot of `width` vectors from slot i0 on; owns: D. false: one is out of range, as that of a slot of which nothing is left.
static __attribute__((noinline)) bool mend_squares(vfloat squares[TOGETHER], const vfloat owns[TOGETHER], const vint lost[TOGETHER], const Chunk *k, size_t t,
                                                   size_t i0, size_t width)
{
    for (size_t l = 0; l < width * VECTOR_FLOATS; l++) {
        size_t w = l / VECTOR_FLOATS, lane = l % VECTOR_FLOATS;
        if (lost[w][lane]) {
            double square = square_of_vector(k, 1.0f + (k->gated ? 0.0f : owns[w][lane]), t, i0 + l);
            if (!(square >= (double)LEAST_SQUARE)) {
                return false;
            }
            squares[w][lane] = (float)square;
        }
    }
    return true;
}

// The slots of run_slots whose N lost digits get it from themselves. false: one is out of range.
INLINE bool mend_slots(Slots s[TOGETHER], const vint lost[TOGETHER], const Chunk *k, size_t t, size_t i0, size_t width)
{
    vfloat squares[TOGETHER], owns[TOGETHER];   // copies: what a function gets a pointer to does not stay in registers
    vint which[TOGETHER];
    for (size_t w = 0; w < width; w++) {
        squares[w] = s[w].square;
        owns[w] = s[w].own;
        which[w] = lost[w];
    }
    if (!mend_squares(squares, owns, which, k, t, i0, width)) {
        return false;
    }
    for (size_t w = 0; w < width; w++) {
        s[w].square = squares[w];
        s[w].out |= s[w].most > v_set(MOST_SQUARE);
        s[w].most = v_select(which[w], squares[w], s[w].most);
    }
    return true;
}

// Token t of the vector of slots from i on, up to N, and its keep and 1 / keep; met: Σ G_tj f_j. Returns for which slots N lost digits.
INLINE vint write_token(Slots *s, vfloat *keep, vfloat *inverse_keep, const Chunk *k, vfloat met, size_t t, size_t i, bool gated, bool normalise, bool all)
{
    size_t l = t * k->mp + i;
    float inverse_mu = 1.0f / k->mu[t];
    vfloat u = v_load(k->u + l), c = v_load(k->c + t * k->c_row + i), a = v_set(k->g[t]) * c, f = v_set(k->g[t] * inverse_mu) * c * s->root, zero = {0};
    vint lost = {0};
    *keep = v_set(k->mu[t]);
    *inverse_keep = v_set(inverse_mu);
    if (gated) {
        *keep -= a * u;
        *inverse_keep = v_inverse(*keep);
        f = a * *inverse_keep * s->root;
        s->kept = v_min(*keep, s->kept);
    }
    v_store(k->factors + l, f);
    if (normalise) {
        float square = k->gram[t * k->cp + t];
        vfloat w = gated ? met + u : v_fma(s->own, u, met), across = gated ? v_set(square) : v_max(v_fma(-u, u, v_set(square)), zero), f2 = f * f;
        if (all) {
            v_store(k->along + l, w);
        }
        s->square = v_fma(f2, across, v_fma(f + f, w, s->square));
        s->most = v_max(v_set(CANCELLED / SHRUNK * square) * f2, v_max(s->square, s->most));   // in this order, which a NaN does not get through
        lost = s->square < v_set(SHRUNK) * s->most;
    }
    if (!gated) {
        s->own = v_fma(-f, u, s->own);
    }
    return lost;
}

// The rest of the token: R, and what reads of it.
INLINE void read_token(Slots *s, vfloat keep, vfloat inverse_keep, const Chunk *k, size_t t, size_t i, bool gated, bool normalise, bool all)
{
    size_t l = t * k->mp + i;
    s->decay = normalise ? v_inverse_sqrt(s->square) : s->decay * keep;
    s->root = normalise ? s->square * s->decay : s->root * inverse_keep;
    if (!normalise) {
        s->most = v_max(v_max(s->decay, s->root), s->most);
    }
    vfloat read = v_load(k->q + t * k->q_row + i) * s->decay;
    v_store(k->reads + l, read);
    if (all) {
        v_store(k->decay + l, s->decay);
        v_store(k->own + l, s->own);
    }
    if (!all || !normalise) {
        v_store(k->mixed + l, gated ? read : v_fma(read, s->own, read));
    }
}

// The end of the vector of slots from i on; a normalised one can do without R.
INLINE void end_slots(Slots *s, const Chunk *k, size_t i, bool normalise)
{
    vfloat scale = normalise ? v_set(1.0f) : s->decay;
    s->out |= (s->square != s->square) | (s->kept < v_set(LEAST_KEEP)) | (s->most > v_set(normalise ? MOST_SQUARE : MOST_DECAY));
    v_store(k->own_end + i, v_fma(scale, s->own, scale));
    for (size_t l = i; !normalise && l < k->count * k->mp; l += k->mp) {
        v_store(k->written + l, scale * v_load(k->factors + l));
    }
}

// The slots of `width` vectors from i0 on, through all tokens. width, gated, normalise and all are constants. false: a slot left its range.
INLINE bool run_slots(const Chunk *shared, size_t i0, size_t width, bool gated, bool normalise, bool all)
{
    const Chunk k = *shared;   // stores of numbers cannot change a copy's pointers, as far as the compiler knows
    Slots s[TOGETHER];
    vfloat one = v_set(1.0f), zero = {0};
    vint out = {0};
#pragma GCC unroll 4
    for (size_t w = 0; w < width; w++) {
        vfloat square = v_load(k.squares + i0 + w * VECTOR_FLOATS);
        s[w] = (Slots){zero, square, one, one, normalise ? v_max(square, v_set(LEAST_SQUARE / SHRUNK)) : one, one, out};
    }
    for (size_t t = 0; t < k.count; t++) {
        vfloat met[TOGETHER], keep[TOGETHER], inverse_keep[TOGETHER];
        vint lost[TOGETHER], any = {0};
#pragma GCC unroll 4
        for (size_t w = 0; w < width; w++) {
            met[w] = zero;
        }
        for (size_t j = 0; normalise && j < t; j++) {
            vfloat product = v_set(k.gram[t * k.cp + j]);
#pragma GCC unroll 4
            for (size_t w = 0; w < width; w++) {
                met[w] = v_fma(product, v_load(k.factors + j * k.mp + i0 + w * VECTOR_FLOATS), met[w]);
            }
        }
#pragma GCC unroll 4
        for (size_t w = 0; w < width; w++) {
            lost[w] = write_token(&s[w], &keep[w], &inverse_keep[w], &k, met[w], t, i0 + w * VECTOR_FLOATS, gated, normalise, all);
            any |= lost[w];
        }
        if (normalise && v_any(any) && !mend_slots(s, lost, shared, t, i0, width)) {
            return false;
        }
#pragma GCC unroll 4
        for (size_t w = 0; w < width; w++) {
            read_token(&s[w], keep[w], inverse_keep[w], &k, t, i0 + w * VECTOR_FLOATS, gated, normalise, all);
        }
    }
#pragma GCC unroll 4
    for (size_t w = 0; w < width; w++) {
        end_slots(&s[w], &k, i0 + w * VECTOR_FLOATS, normalise);
        out |= s[w].out;
    }
    return !v_any(out);
}

INLINE bool run_all(const Chunk *k, bool gated, bool normalise, bool all)
{
    size_t i = 0;
    bool in_range = true;
    for (; in_range && i + TOGETHER * VECTOR_FLOATS <= k->mp; i += TOGETHER * VECTOR_FLOATS) {
        in_range = run_slots(k, i, TOGETHER, gated, normalise, all);
    }
    for (; in_range && i < k->mp; i += VECTOR_FLOATS) {
        in_range = run_slots(k, i, 1, gated, normalise, all);
    }
    return in_range;
}

// Of rows [C, cp] of a number for each token: those of later tokens become 0.
static void clear_later(float *rows, const Chunk *k)
{
    for (size_t t = 0; t < k->count; t++) {
        for (size_t j = t / VECTOR_FLOATS * VECTOR_FLOATS; j < k->cp; j += VECTOR_FLOATS) {
            v_store(rows + t * k->cp + j, v_load_n(rows + t * k->cp + j, rest_of(t + 1, j)));
        }
    }
}

bool ISA_NAME(chunk_factors)(Chunk *k)
{
    bool in_range;
    for (size_t t = 0; t < k->count; t++) {
        if (k->mu[t] < LEAST_KEEP) {
            return false;
        }
    }
    if (k->normalise) {
        in_range = k->gated ? (k->all ? run_all(k, true, true, true) : run_all(k, true, true, false))
                            : (k->all ? run_all(k, false, true, true) : run_all(k, false, true, false));
    } else {
        in_range = k->gated ? run_all(k, true, false, true) : run_all(k, false, false, true);
    }
    if (!in_range) {
        return false;
    }
    k->last = k->normalise ? k->factors : k->written;
    if (k->new_weights != NULL) {
        Term product = {k->reads, k->mp, 1, k->turned, k->cp, k->m, PART_WHOLE};
        transpose(k->turned, k->cp, k->factors, k->mp, k->count, k->mp);
        multiply(&(Result){k->new_weights, k->cp, NULL, 0, NULL, 1.0f, k->ahead}, &product, 1, k->count, k->cp);
        clear_later(k->new_weights, k);
    }
    return true;
}

// What the backward of a chunk gathers for each token over the slots.
typedef struct TokenSums {
    vfloat dg[CHUNK_MOST], dmu[CHUNK_MOST];   // dmu not of the frozen form that normalises
} TokenSums;

// What one vector of slots carries back: the gradients into D, 2 dN, f df of the token behind (less what the end brings into log R), L, and R.
typedef struct Back {
    vfloat down, square, put, grown, decay;
} Back;

// Token t of one vector of slots, with the gradient into f_t but for what comes through N. What is read of the token makes room for what it leaves: Σ F_tj f_j
// for dw, q R for q A, w for P of the last token, D for du.
INLINE void return_token(Back *b, TokenSums *sums, const ChunkGradient *g, const Chunk *k, vfloat end, vfloat e, size_t t, size_t i, bool gated, bool normalise)
{
    size_t l = t * k->mp + i;
    float inverse_mu = 1.0f / k->mu[t];
    vfloat before = t > 0 ? v_load(k->decay + l - k->mp) : v_set(1.0f), root = v_inverse(before), f = v_load(k->factors + l), zero = {0};
    vfloat c = v_load(k->c + t * k->c_row + i), u = v_load(k->u + l), out = v_load(g->dq + l), reads = v_load(k->reads + l), a = v_set(k->g[t]) * c;
    vfloat own = gated ? zero : v_load(k->own + l), read = v_load(g->read + l) + out, value = gated ? read : v_fma(own, out, read), du = zero;
    vfloat change = v_fma(-reads, value, b->put);
    v_store(g->dq + l, b->decay * value);
    v_store(k->reads + l, v_fma(reads, own, reads));
    if (!gated) {
        b->down = v_fma(reads, out, b->down);
        e = v_fma(-u, b->down, e);
        du = -f * b->down;
    }
    if (normalise) {
        vfloat square = v_set(k->gram[t * k->cp + t]), across = gated ? square : v_max(v_fma(-u, u, square), zero);
        b->square = v_fma(b->decay * b->decay, change, b->square);
        vfloat dw = f * b->square;
        e = v_fma(b->square, v_fma(f, across, v_load(k->along + l)), e);
        du = gated ? dw : v_fma(dw, own, du);
        if (!gated) {
            b->down = v_fma(dw, u, b->down);
        }
        v_store(g->read + l, dw);
    } else {
        b->grown -= change;
    }
    v_store(k->along + l, end * f);
    b->put = f * e;
    vfloat keep = gated ? v_set(k->mu[t]) - a * u : v_set(k->mu[t]), inverse_keep = gated ? v_inverse(keep) : v_set(inverse_mu);
    vfloat da = e * root * inverse_keep;
    if (gated || !normalise) {
        vfloat dkeep = inverse_keep * (normalise ? -a * da : b->grown - a * da);
        sums->dmu[t] += dkeep;
        if (gated) {
            da = v_fma(-u, dkeep, da);
            du = v_fma(-a, dkeep, du);
        }
    }
    v_store(k->own + l, du);
    v_store(g->dc + l, v_set(k->g[t]) * da);
    sums->dg[t] = v_fma(da, c, sums->dg[t]);
    b->decay = before;
}

// In: g->dp is E but for what G brings, g->read, and what the end brings into log R in `gathered` [mp]. As run_slots, from the last token to the first.
INLINE void return_slots(TokenSums *sums, const ChunkGradient *into, const Chunk *shared, const float *gathered, size_t i0, size_t width, bool gated,
                         bool normalise)
{
    const ChunkGradient g = *into;
    const Chunk k = *shared;
    size_t mp = k.mp;
    Back back[TOGETHER];
    vfloat end[TOGETHER], zero = {0};
#pragma GCC unroll 4
    for (size_t w = 0; w < width; w++) {
        size_t l = i0 + w * VECTOR_FLOATS, last = (k.count - 1) * mp + l;
        end[w] = v_load(k.decay + last);
        vfloat own = v_load(k.own + last), down = end[w] * v_load(g.down + l);
        v_store(k.own_end + l, v_fma(end[w], own, end[w]));
        back[w] = (Back){down, zero, -(gated ? v_load(gathered + l) + down : v_fma(own, down, v_load(gathered + l) + down)), zero, end[w]};
    }
    for (size_t t = k.count; t-- > 0;) {
        vfloat e[TOGETHER];
        size_t at = t * mp + i0;
#pragma GCC unroll 4
        for (size_t w = 0; w < width; w++) {
            e[w] = v_load(g.dp + at + w * VECTOR_FLOATS);
        }
        for (size_t j = t + 1; normalise && j < k.count; j++) {
            vfloat product = v_set(k.gram[t * k.cp + j]);
#pragma GCC unroll 4
            for (size_t w = 0; w < width; w++) {
                e[w] = v_fma(product, v_load(g.read + j * mp + i0 + w * VECTOR_FLOATS), e[w]);
            }
        }
#pragma GCC unroll 4
        for (size_t w = 0; w < width; w++) {
            return_token(&back[w], sums, &g, &k, end[w], e[w], t, i0 + w * VECTOR_FLOATS, gated, normalise);
        }
    }
}

INLINE void return_all(TokenSums *sums, const ChunkGradient *g, const Chunk *k, const float *gathered, bool gated, bool normalise)
{
    size_t i = 0;
    for (; i + TOGETHER * VECTOR_FLOATS <= k->mp; i += TOGETHER * VECTOR_FLOATS) {
        return_slots(sums, g, k, gathered, i, TOGETHER, gated, normalise);
    }
    for (; i < k->mp; i += VECTOR_FLOATS) {
        return_slots(sums, g, k, gathered, i, 1, gated, normalise);
    }
}

// dp, into P of the last token, becomes that into the factors, of outputs and end; gathered: Σ_j f_j of that of the end.
static void begin_back(ChunkGradient *g, const Chunk *k, float *gathered)
{
    size_t mp = k->mp, count = k->count;
    for (size_t i = 0; i < mp; i += VECTOR_FLOATS) {
        vfloat sum = {0}, decay = v_load(k->decay + (count - 1) * mp + i);
        for (size_t l = i; l < count * mp; l += mp) {
            vfloat df = decay * v_load(g->dp + l);
            sum = v_fma(df, v_load(k->factors + l), sum);
            v_store(g->dp + l, df);
        }
        v_store(gathered + i, sum);
    }
    clear_later(g->f, k);
    multiply(&(Result){g->dp, mp, g->dp, mp, NULL, 1.0f, k->ahead}, &(Term){g->f, 1, k->cp, k->reads, mp, count, PART_UPPER}, 1, count, mp);
    multiply(&(Result){g->read, mp, NULL, 0, NULL, 1.0f, k->ahead}, &(Term){g->f, k->cp, 1, k->factors, mp, count, PART_LOWER}, 1, count, mp);
}

// dgram [C, cp]: what dw brings, of which the lower half stands for both, and its transpose.
static void put_products(ChunkGradient *g, const Chunk *k)
{
    size_t cp = k->cp;
    transpose(g->turned, cp, k->factors, k->mp, k->count, k->mp);
    multiply(&(Result){g->dgram, cp, NULL, 0, NULL, 1.0f, k->ahead}, &(Term){g->read, k->mp, 1, g->turned, cp, k->m, PART_WHOLE}, 1, k->count, cp);
    for (size_t t = 0; t < k->count; t++) {
        g->dgram[t * cp + t] *= 0.5f;
    }
    clear_later(g->dgram, k);
    transpose(g->f, cp, g->dgram, cp, k->count, k->count);   // in the place of F, which nobody reads any more
    add_scaled(g->dgram, g->dgram, 1.0f, g->f, k->count * cp);
}

void ISA_NAME(chunk_factors_backward)(ChunkGradient *g, const Chunk *k)
{
    size_t count = k->count;
    bool sums_mu = k->gated || !k->normalise;
    TokenSums sums;
    memset(sums.dg, 0, padded(count) * sizeof(vfloat));
    memset(sums.dmu, 0, sums_mu ? padded(count) * sizeof(vfloat) : 0);
    begin_back(g, k, g->gathered);
    if (k->gated && k->normalise) {
        return_all(&sums, g, k, g->gathered, true, true);
    } else if (k->gated) {
        return_all(&sums, g, k, g->gathered, true, false);
    } else if (k->normalise) {
        return_all(&sums, g, k, g->gathered, false, true);
    } else {
        return_all(&sums, g, k, g->gathered, false, false);
    }
    g->last = k->along;
    g->mixed = k->reads;
    g->du = k->own;
    sum_vectors(g->dg, (const float *)sums.dg, count);
    if (sums_mu) {
        sum_vectors(g->dmu, (const float *)sums.dmu, count);
    }
    for (size_t t = 0; t < count && !sums_mu; t++) {
        g->dmu[t] = -k->g[t] / k->mu[t] * g->dg[t];   // mu stands in f alone, as g / mu
    }
    if (k->normalise) {
        put_products(g, k);
    }
}
