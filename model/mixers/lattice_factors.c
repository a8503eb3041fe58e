// The recurrence inside a chunk of Lattice by factors (lattice_chunk.h): with R_t = Π_{l≤t} rho_l and f_j = p_j / R_j is P_tj = R_t f_j, so that no token has
// to pass over all P:
//
//     y_t = A_{t−1} u_t + R_{t−1} Y_t,  Y_t = Σ_{j<t} G_tj f_j        W_tj = Σ_i (q_ti R_ti) f_ij, a product
//
// and back, with F the products do_t·h_j (j ≤ t) and E_j the gradient into f_j:
//
//     E_j = R_C (h_j·ds) + Σ_{t≥j} F_tj q_t R_t + Σ_{t>j} G_tj R_{t−1} dy_t        dq_t = (b·do_t) A_t + R_t Σ_{j≤t} F_tj f_j        dG_tj = Σ_i (dy R_{t−1}) f_ij
//
// All but the sums over G are products. What rho_t gets of all P is S_t / rho_t, S_t = Σ_{j<t} f_j (what E_j has gathered from tokens ≥ t), which goes along:
//
//     S_t = S_{t+1} + R_t (q_t Σ_{j≤t} F_tj f_j + dy_{t+1} Y_{t+1}) − f_t E_t,  S_{C+1} = Σ_j P_Cj (h_j·ds)
//
// In the frozen form what is written stands across b, so that z_t is R_t ‖b‖².
//
// A token that keeps little of a slot, keep near 0, goes through lattice_recurrence.c with its chunk: S_t / rho_t would lose digits, and R may leave f32.
#include "model/mixers/lattice_step.h"
#include "model/mixers/products.h"

// R of a chunk that goes by factors: far from where f32 ends, for 1 / R and sums over slots, too.
#define LEAST_DECAY 0x1p-40f
#define MOST_DECAY 0x1p40f
#define LEAST_KEEP 0.0625f

INLINE vfloat v_abs(vfloat x) { return (vfloat)((vint)x & 0x7fffffff); }

// What one vector of slots carries from token to token: A, the growth of an error in its length, R, and the range in which R was; kept: the least |keep|.
typedef struct Slots {
    vfloat own, growth, decay, least, most, kept;
} Slots;

// The slots of one vector through token t, whose norm is known. `at`: in rows over slots.
INLINE void write_slots(Slots *s, const Chunk *k, size_t at, vfloat q, vfloat keep, vfloat a, vfloat u, vfloat inverse, bool gated)
{
    vfloat rho = keep * inverse, p = a * inverse, zero = {0}, pull = gated ? zero : -p * u;
    s->own = v_fma(rho, s->own, pull);
    s->decay = s->decay * rho;
    vfloat size = v_abs(s->decay);
    s->least = v_min(size, s->least);
    s->most = v_max(size, s->most);
    v_store(k->own + at, s->own);
    v_store(k->mixed + at, q * s->own);
    v_store(k->reads + at, q * s->decay);
    v_store(k->factors + at, p * v_inverse(s->decay));
}

// The slots of `width` vectors from i0 on, through all tokens. width, gated, normalise and all are constants. false: a slot's R left its range.
INLINE bool run_slots(const Chunk *shared, size_t i0, size_t width, bool gated, bool normalise, bool all)
{
    const Chunk k = *shared;   // stores of numbers cannot change a copy's pointers, as far as the compiler knows
    Slots s[TOGETHER];
    vfloat squares[TOGETHER], one = v_set(1.0f), zero = {0};
#pragma GCC unroll 4
    for (size_t w = 0; w < width; w++) {
        squares[w] = v_load(k.squares + i0 + w * VECTOR_FLOATS);
        s[w] = (Slots){one, one, one, one, one, one};
    }
    for (size_t t = 0; t < k.count; t++) {
        vfloat met[TOGETHER], keep[TOGETHER], a[TOGETHER], u[TOGETHER], inverse[TOGETHER];
        const float *gram = k.gram + t * k.cp, *factors = k.factors + i0;
        vint lost[TOGETHER], any = {0};
        size_t at = t * k.mp + i0;
#pragma GCC unroll 4
        for (size_t w = 0; w < width; w++) {
            met[w] = zero;
        }
        for (size_t j = 0; normalise && j < t; j++, factors += k.mp) {
            vfloat product = v_set(gram[j]);
#pragma GCC unroll 4
            for (size_t w = 0; w < width; w++) {
                met[w] = v_fma(product, v_load(factors + w * VECTOR_FLOATS), met[w]);
            }
        }
#pragma GCC unroll 4
        for (size_t w = 0; w < width; w++) {
            u[w] = v_load(k.u + at + w * VECTOR_FLOATS);
            a[w] = v_set(k.g[t]) * v_load(k.c + t * k.c_row + i0 + w * VECTOR_FLOATS);
            keep[w] = gated ? v_set(k.mu[t]) - a[w] * u[w] : v_set(k.mu[t]);
            inverse[w] = one;
            if (normalise) {
                vfloat y = v_fma(s[w].decay, met[w], s[w].own * u[w]);
                inverse[w] = plan_norm(&lost[w], &y, s[w].decay * squares[w], t == 0 ? squares[w] : one, s[w].growth, keep[w], a[w], u[w], v_set(gram[t]), gated);
                any |= lost[w];
            }
        }
        if (normalise && v_any(any)) {
            float decays[TOGETHER * VECTOR_FLOATS];
            for (size_t w = 0; w < width; w++) {
                v_store(decays + w * VECTOR_FLOATS, s[w].decay);
            }
            mend_norms(inverse, lost, shared, k.factors, decays, t, i0, width);
        }
#pragma GCC unroll 4
        for (size_t w = 0; w < width; w++) {
            size_t l = at + w * VECTOR_FLOATS;
            if (gated) {
                s[w].kept = v_min(v_abs(keep[w]), s[w].kept);
            }
            write_slots(&s[w], &k, l, v_load(k.q + t * k.q_row + i0 + w * VECTOR_FLOATS), keep[w], a[w], u[w], inverse[w], gated);
            if (all) {
                v_store(k.decay + l, s[w].decay);
            }
            if (normalise) {
                vfloat rho = keep[w] * inverse[w];
                s[w].growth = v_select(lost[w], one, v_max(one, s[w].growth * rho * rho));
            }
            if (all && normalise) {
                v_store(k.met + l, met[w]);
            }
        }
    }
    vint out = {0};
    for (size_t w = 0; w < width; w++) {
        out |= (s[w].least < v_set(LEAST_DECAY)) | (s[w].most > v_set(MOST_DECAY)) | (s[w].kept < v_set(LEAST_KEEP));
    }
    for (size_t j = 0; j < k.count; j++) {
        for (size_t w = 0; w < width; w++) {
            size_t l = j * k.mp + i0 + w * VECTOR_FLOATS;
            v_store(k.written + l, s[w].decay * v_load(k.factors + l));
        }
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
    k->last = k->written;
    transpose(k->factors_t, k->cp, k->factors, k->mp, k->count, k->mp);
    multiply(&(Result){k->weights, k->cp, NULL, 0, NULL, 1.0f}, &(Term){k->reads, k->mp, 1, k->factors_t, k->cp, k->m, PART_WHOLE}, 1, k->count, k->cp);
    clear_later(k->weights, k);
    return true;
}

// What the backward of a chunk gathers for each token over the slots.
typedef struct TokenSums {
    vfloat dg[CHUNK_MOST], dmu[CHUNK_MOST], square[CHUNK_MOST];   // square: into G_tt, twice
} TokenSums;

// What one vector of slots carries back: gradients into A and z after the token, S, and R dy of the token behind it.
typedef struct Back {
    vfloat down, dz, gathered, pushed;
} Back;

// In: g->dp is E but for what G brings, g->read, and S_{C+1} in `gathered` [mp]. As run_slots, from the last token to the first; R dy takes the place of read.
INLINE void return_slots(TokenSums *sums, const ChunkGradient *into, const Chunk *shared, const float *gathered, size_t i0, size_t width, bool gated,
                         bool normalise)
{
    const ChunkGradient g = *into;
    const Chunk k = *shared;
    size_t mp = k.mp;
    Back back[TOGETHER];
    vfloat decay[TOGETHER], inverse_decay[TOGETHER], one = v_set(1.0f), zero = {0};
#pragma GCC unroll 4
    for (size_t w = 0; w < width; w++) {
        size_t l = i0 + w * VECTOR_FLOATS;
        back[w] = (Back){v_load(g.down + l), zero, v_load(gathered + l), zero};
        decay[w] = v_load(k.decay + (k.count - 1) * mp + l);
        inverse_decay[w] = v_inverse(decay[w]);
    }
    for (size_t t = k.count; t-- > 0;) {
        vfloat e[TOGETHER], dg = zero, dmu = zero, own_square = zero;
        float mu = k.mu[t], inverse_mu = 1.0f / mu;
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
            size_t i = i0 + w * VECTOR_FLOATS, l = t * mp + i;
            vfloat before = t > 0 ? v_load(k.decay + l - mp) : one, inverse_before = t > 0 ? v_inverse(before) : one;
            vfloat q = v_load(k.q + t * k.q_row + i), c = v_load(k.c + t * k.c_row + i), u = v_load(k.u + l);
            vfloat out = v_load(g.dq + l), read = decay[w] * v_load(g.read + l);
            vfloat start = v_load(k.squares + i), a = v_set(k.g[t]) * c, keep = gated ? v_set(mu) - a * u : v_set(mu);
            Step step = {.rho = normalise ? decay[w] * inverse_before : keep, .a = a, .u = u, .own = t > 0 ? v_load(k.own + l - mp) : one};
            step.inverse = normalise ? step.rho * (gated ? v_inverse(keep) : v_set(inverse_mu)) : one;
            step.p = a * step.inverse;
            step.length = t == 0 ? start : one;
            back[w].gathered += q * read;
            if (normalise) {
                step.z = before * start;
                step.y = v_fma(before, v_load(k.met + l), (gated ? step.own : step.own - step.z) * u);
                step.square = v_set(k.gram[t * k.cp + t]);
                back[w].gathered = v_fma(back[w].pushed, t + 1 < k.count ? v_load(k.met + l + mp) : zero, back[w].gathered);
            }
            back[w].gathered -= e[w] * v_load(k.factors + l);
            v_store(g.dq + l, v_fma(v_load(k.own + l), out, read));
            back[w].down = v_fma(q, out, back[w].down);
            vfloat drho = v_fma(back[w].down, step.own, back[w].gathered * before * inverse_decay[w]), dput = e[w] * inverse_decay[w], dpull = back[w].down;
            if (normalise && !gated) {
                drho = v_fma(back[w].dz, step.z, drho);
                dput = v_fma(back[w].dz, u, dput);
                dpull = v_fma(back[w].dz, start, dpull);
            }
            Into to = step_backward(drho, dput, dpull, back[w].dz, &step, gated, normalise);
            back[w].down = v_fma(step.rho, back[w].down, to.dy * u);
            back[w].dz = gated ? zero : v_fma(step.rho, back[w].dz, -to.dy * u);
            v_store(g.du + l, to.du);
            v_store(g.dc + l, v_set(k.g[t]) * to.da);
            dg = v_fma(to.da, c, dg);
            dmu += to.dmu;
            if (normalise) {
                back[w].pushed = before * to.dy;
                v_store(g.read + l, back[w].pushed);
                own_square -= to.radial * step.p * step.p;
            }
            decay[w] = before;
            inverse_decay[w] = inverse_before;
        }
        sums->dg[t] += dg;
        sums->dmu[t] += dmu;
        sums->square[t] += own_square;
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

// dp, into P of the last token, becomes that into the factors, of outputs and end; gathered: S_{C+1}.
static void begin_back(ChunkGradient *g, const Chunk *k, float *gathered)
{
    size_t mp = k->mp, count = k->count;
    for (size_t i = 0; i < mp; i += VECTOR_FLOATS) {
        vfloat sum = {0}, decay = v_load(k->decay + (count - 1) * mp + i);
        for (size_t l = i; l < count * mp; l += mp) {
            vfloat dp = v_load(g->dp + l);
            sum = v_fma(dp, v_load(k->last + l), sum);
            v_store(g->dp + l, decay * dp);
        }
        v_store(gathered + i, sum);
    }
    clear_later(g->f, k);
    multiply(&(Result){g->dp, mp, g->dp, mp, NULL, 1.0f}, &(Term){g->f, 1, k->cp, k->reads, mp, count, PART_UPPER}, 1, count, mp);
    multiply(&(Result){g->read, mp, NULL, 0, NULL, 1.0f}, &(Term){g->f, k->cp, 1, k->factors, mp, count, PART_LOWER}, 1, count, mp);
}

// dgram, from its diagonal and what went into y.
static void put_products(ChunkGradient *g, const Chunk *k, const float *diagonal)
{
    Term term = {g->read, k->mp, 1, k->factors_t, k->cp, k->m, PART_WHOLE};
    multiply(&(Result){g->dgram, k->cp, NULL, 0, NULL, 1.0f}, &term, 1, k->count, k->cp);
    for (size_t t = 0; t < k->count; t++) {
        g->dgram[t * k->cp + t] = diagonal[t];
        for (size_t j = 0; j < t; j++) {
            g->dgram[j * k->cp + t] = g->dgram[t * k->cp + j];
        }
    }
}

void ISA_NAME(chunk_factors_backward)(ChunkGradient *g, const Chunk *k)
{
    size_t count = k->count;
    float diagonal[CHUNK_MOST];
    TokenSums sums;
    memset(sums.dg, 0, padded(count) * sizeof(vfloat));
    memset(sums.dmu, 0, padded(count) * sizeof(vfloat));
    memset(sums.square, 0, padded(count) * sizeof(vfloat));
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
    sum_vectors(g->dg, (const float *)sums.dg, count);
    sum_vectors(g->dmu, (const float *)sums.dmu, count);
    if (k->normalise) {
        sum_vectors(diagonal, (const float *)sums.square, count);
        put_products(g, k, diagonal);
    }
}
