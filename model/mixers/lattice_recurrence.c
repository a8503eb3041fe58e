// The recurrence inside a chunk of Lattice (lattice_chunk.h) as it stands there: scalars for each slot and token, in vectors over slots; and its backward.
// Nearly all chunks go the faster way of lattice_factors.c.
#include "model/mixers/lattice_chunk.h"

// The formula for n² is right for slots of length exactly 1. Where it loses digits the norm is taken from the vector itself: below this share of
// n² / (a² ‖h‖²) by cancellation, and where an error in the slot's length would have grown to more than this multiple since it was last known exactly: a token
// multiplies it by rho².
#define CANCELLED 0.05f
#define STRETCHED 2.0f

// s~ of slot i, from the numbers before token t: P_t−1,j is before_j [mp].
static __attribute__((noinline)) float norm_of_vector(const Chunk *k, const float *before, size_t t, size_t i)
{
    const float *b = k->start + i * k->d;
    float u = k->u[t * k->mp + i], a = k->g[t] * k->c[t * k->c_row + i], keep = k->gated ? k->mu[t] - a * u : k->mu[t];
    float own = keep * (t > 0 ? k->own[(t - 1) * k->mp + i] : 1.0f) - (k->gated ? 0.0f : a * u);
    double square = 0.0;   // the squares may leave the range of f32: a forget gate near 0
    for (size_t j = 0; j < k->d; j += VECTOR_FLOATS) {
        size_t rest = k->d - j;
        vfloat x = v_fma(v_set(a), v_load_n(k->h + t * k->d + j, rest), v_set(own) * v_load_n(b + j, rest));
        for (size_t l = 0; l < t; l++) {
            x = v_fma(v_set(keep * before[l * k->mp + i]), v_load_n(k->h + l * k->d + j, rest), x);
        }
        for (size_t l = 0; l < VECTOR_FLOATS; l++) {
            square += (double)x[l] * (double)x[l];
        }
    }
    return (float)__builtin_sqrt(square);
}

// Replaces 1 / n of every lost slot of `width` vectors from slot i0 on. 0: nothing left of the slot and nothing written, it is zeros from here on.
static __attribute__((noinline)) void mend_norms(vfloat inverses[TOGETHER], const vint lost[TOGETHER], const Chunk *k, const float *before,
                                                 size_t t, size_t i0, size_t width)
{
    float inverse[TOGETHER * VECTOR_FLOATS];
    memcpy(inverse, inverses, width * sizeof *inverses);
    for (size_t l = 0; l < width * VECTOR_FLOATS; l++) {
        if (lost[l / VECTOR_FLOATS][l % VECTOR_FLOATS]) {
            float n = i0 + l < k->m ? norm_of_vector(k, before, t, i0 + l) : 0.0f;
            inverse[l] = n == 0.0f ? 0.0f : 1.0f / n;
        }
    }
    memcpy(inverses, inverse, width * sizeof *inverses);
}

// 1 / n of a slot whose y is known. *y becomes y − u z in the frozen form. lost: where the formula loses digits. length: ‖s‖², which is 1 or, of a slot of
// zeros, 0; growth: of an error in it.
INLINE vfloat plan_norm(vint *lost, vfloat *y, vfloat z, vfloat length, vfloat growth, vfloat keep, vfloat a, vfloat u, vfloat square, bool gated)
{
    vfloat a2 = a * a, keep2 = keep * keep * length, zero = {0};
    *y = gated ? *y : *y - u * z;
    vfloat n2 = keep2 + v_set(2.0f) * a * keep * *y + a2 * (gated ? square : v_max(square - u * u, zero));
    *lost = n2 < v_max(v_max(v_set(CANCELLED) * a2 * square, v_set(1.0f / STRETCHED) * growth * keep2), v_set(1e-30f));
    return v_inverse_sqrt(n2);
}

// What the backward of one token hands on, for one vector of slots; radial is r.
typedef struct Into {
    vfloat du, da, dmu, dy, radial;
} Into;

// Of the token, as the forward left them; own and length as the token met them.
typedef struct Step {
    vfloat rho, p, a, u, inverse, y, z, own, length, square;
} Step;

// From the gradients into rho, p, pull / n and z after the token. With r = s·ds, the part of ds along the slot, which the norm takes away: dy = −r rho p;
// u and z of the frozen form stand in n² beside y, and get their parts of the same.
INLINE Into step_backward(vfloat drho, vfloat dp, vfloat dpull, vfloat dz, const Step *s, bool gated, bool normalise)
{
    vfloat rho = s->rho, p = s->p, u = s->u, a = s->a, zero = {0}, pull = gated ? zero : p * u;
    Into to = {.dmu = drho, .da = gated ? dp : dp - u * dpull, .dy = zero, .radial = zero};
    if (normalise) {
        vfloat r = v_fma(drho, rho, dp * p) - dpull * pull, across = gated ? s->square : s->square - u * u;
        to.radial = r;
        to.dy = -r * rho * p;
        to.dmu = s->inverse * (drho - r * (rho * s->length + p * s->y));
        to.da = s->inverse * (to.da - r * (rho * s->y + p * across));
    }
    if (gated) {
        to.da -= u * to.dmu;
        to.du = to.dy * s->own - a * to.dmu;
    } else {
        to.du = p * (dz - dpull + to.radial * pull) + to.dy * (s->own - s->z);
    }
    return to;
}

INLINE void put_sum(const Chunk *k, size_t t, size_t j, vfloat sum) { v_store(k->sums + (t * (t + 1) / 2 + j) * VECTOR_FLOATS, sum); }

// rows [C, cp], element (t, j) += the sum of all elements of what put_sum put there.
static void add_sums(float *rows, const Chunk *k)
{
    const float *sum = k->sums;
    sum_vectors(k->sums, k->sums, k->count * (k->count + 1) / 2);
    for (size_t t = 0; t < k->count; t++) {
        for (size_t j = 0; j <= t; j++) {
            rows[t * k->cp + j] += *sum++;
        }
    }
}

// What one vector of slots carries from token to token, and what the last token made of it.
typedef struct Slots {
    vfloat own, z, length;   // A, s·b and ‖s‖², which is 1 or, of a slot of zeros, 0
    vfloat growth;           // of an error in the slot's length
    vfloat rho, p, q;
} Slots;

// P and W of the token before t, and the part of y of token t that P brings, in one pass.
INLINE void pass_writes(vfloat y[TOGETHER], const Slots s[TOGETHER], const Chunk *k, size_t t, size_t i0, size_t width, bool normalise)
{
    const float *gram = k->gram + (normalise && t < k->count ? t * k->cp : 0), *before = (t > 1 ? written_by(k, t - 2) : k->written) + i0;
    float *after = written_by(k, t - 1) + i0;
    bool next = normalise && t < k->count;
    size_t mp = k->mp;
    for (size_t j = 0; j + 1 < t; j++) {
        vfloat sum = {0}, product = v_set(next ? gram[j] : 0.0f);
        for (size_t w = 0; w < width; w++) {
            vfloat x = s[w].rho * v_load(before + j * mp + w * VECTOR_FLOATS);
            v_store(after + j * mp + w * VECTOR_FLOATS, x);
            sum = v_fma(s[w].q, x, sum);
            if (normalise) {
                y[w] = v_fma(product, x, y[w]);
            }
        }
        put_sum(k, t - 1, j, sum);
    }
    vfloat sum = {0}, product = v_set(next ? gram[t - 1] : 0.0f);
    for (size_t w = 0; w < width; w++) {
        v_store(after + (t - 1) * mp + w * VECTOR_FLOATS, s[w].p);
        sum = v_fma(s[w].q, s[w].p, sum);
        y[w] = v_fma(product, s[w].p, y[w]);
    }
    put_sum(k, t - 1, t - 1, sum);
}

// The slots of `width` vectors from i0 on, through all tokens. width, gated and normalise are constants.
INLINE void run_slots(const Chunk *shared, size_t i0, size_t width, bool gated, bool normalise)
{
    const Chunk k = *shared;   // stores of numbers cannot change a copy's pointers, as far as the compiler knows
    Slots s[TOGETHER];
    vfloat one = v_set(1.0f), zero = {0};
    for (size_t w = 0; w < width; w++) {
        s[w].own = s[w].growth = one;
        s[w].z = s[w].length = v_load(k.squares + i0 + w * VECTOR_FLOATS);
    }
    for (size_t t = 0; t <= k.count; t++) {
        vfloat y[TOGETHER], keep[TOGETHER], a[TOGETHER], u[TOGETHER], inverse[TOGETHER];
        vint lost[TOGETHER], any = {0};
        for (size_t w = 0; w < width; w++) {
            y[w] = zero;
        }
        if (t > 0) {
            pass_writes(y, s, &k, t, i0, width, normalise);
        }
        if (t == k.count) {
            break;
        }
        for (size_t w = 0; w < width; w++) {
            size_t at = t * k.mp + i0 + w * VECTOR_FLOATS;
            u[w] = v_load(k.u + at);
            a[w] = v_set(k.g[t]) * v_load(k.c + t * k.c_row + i0 + w * VECTOR_FLOATS);
            keep[w] = gated ? v_set(k.mu[t]) - a[w] * u[w] : v_set(k.mu[t]);
            if (normalise) {
                y[w] = v_fma(s[w].own, u[w], y[w]);
                inverse[w] = plan_norm(&lost[w], &y[w], s[w].z, s[w].length, s[w].growth, keep[w], a[w], u[w], v_set(k.gram[t * k.cp + t]), gated);
                any |= lost[w];
            }
        }
        if (normalise && v_any(any)) {
            mend_norms(inverse, lost, shared, t > 0 ? written_by(&k, t - 1) : NULL, t, i0, width);
        }
        for (size_t w = 0; w < width; w++) {
            size_t at = t * k.mp + i0 + w * VECTOR_FLOATS;
            vfloat scale = normalise ? inverse[w] : one, pull = gated ? zero : -a[w] * u[w] * scale;
            s[w].rho = keep[w] * scale;
            s[w].p = a[w] * scale;
            s[w].q = v_load(k.q + t * k.q_row + i0 + w * VECTOR_FLOATS);
            if (k.all) {
                v_store(k.rho + at, s[w].rho);
                v_store(k.p + at, s[w].p);
                v_store(k.inverse + at, scale);
                v_store(k.y + at, y[w]);
                v_store(k.z + at, s[w].z);
            }
            s[w].z = v_fma(s[w].rho, s[w].z, v_fma(s[w].p, u[w], pull * v_load(k.squares + i0 + w * VECTOR_FLOATS)));
            s[w].own = v_fma(s[w].rho, s[w].own, pull);
            if (normalise) {
                s[w].length = v_select(scale == zero, zero, one);
                s[w].growth = v_select(lost[w], one, v_max(one, s[w].growth * s[w].rho * s[w].rho));
            }
            v_store(k.own + at, s[w].own);
            v_store(k.mixed + at, s[w].q * s[w].own);
        }
    }
    if (k.new_weights != NULL) {
        add_sums(k.new_weights, shared);
    }
}

INLINE void run_all(const Chunk *k, bool gated, bool normalise)
{
    size_t i = 0;
    for (; i + TOGETHER * VECTOR_FLOATS <= k->mp; i += TOGETHER * VECTOR_FLOATS) {
        run_slots(k, i, TOGETHER, gated, normalise);
    }
    for (; i < k->mp; i += VECTOR_FLOATS) {
        run_slots(k, i, 1, gated, normalise);
    }
}

void ISA_NAME(chunk_recurrence)(Chunk *k)
{
    k->factored = ISA_NAME(chunk_factors)(k);
    if (k->factored) {
        return;
    }
    k->last = written_by(k, k->count - 1);
    if (k->new_weights != NULL) {
        memset(k->new_weights, 0, k->count * k->cp * sizeof(float));
    }
    if (k->gated && k->normalise) {
        run_all(k, true, true);
    } else if (k->gated) {
        run_all(k, true, false);
    } else if (k->normalise) {
        run_all(k, false, true);
    } else {
        run_all(k, false, false);
    }
    memcpy(k->own_end, k->own + (k->count - 1) * k->mp, k->mp * sizeof(float));
}

// As run_slots, from the last token to the first; dg_sums and dmu_sums [count] are added to.
INLINE void return_slots(const ChunkGradient *into, const Chunk *shared, vfloat *dg_sums, vfloat *dmu_sums, size_t i0, size_t width, bool gated, bool normalise)
{
    const ChunkGradient g = *into;
    const Chunk k = *shared;
    size_t mp = k.mp;
    vfloat down[TOGETHER], dz[TOGETHER], one = v_set(1.0f), zero = {0};
    for (size_t w = 0; w < width; w++) {
        down[w] = v_load(g.down + i0 + w * VECTOR_FLOATS);
        dz[w] = zero;
    }
    for (size_t t = k.count; t-- > 0;) {
        const float *gram = k.gram + t * k.cp, *f = g.f + t * k.cp, *before = (t > 0 ? written_by(&k, t - 1) : k.written) + i0;
        float *dp = g.dp + i0;
        size_t at = t * mp + i0;
        vfloat q[TOGETHER], drho[TOGETHER], read[TOGETHER], dy[TOGETHER], rho[TOGETHER];
        for (size_t w = 0; w < width; w++) {
            q[w] = v_load(k.q + t * k.q_row + i0 + w * VECTOR_FLOATS);
            drho[w] = read[w] = zero;
        }
        for (size_t j = 0; j < t; j++) {
            for (size_t w = 0; w < width; w++) {
                size_t l = j * mp + w * VECTOR_FLOATS;
                vfloat x = v_fma(q[w], v_set(f[j]), v_load(dp + l)), met = v_load(before + l);
                v_store(dp + l, x);
                drho[w] = v_fma(x, met, drho[w]);
                read[w] = v_fma(v_set(f[j]), met, read[w]);
            }
        }
        vfloat own_sum = zero;
        for (size_t w = 0; w < width; w++) {
            size_t l = at + w * VECTOR_FLOATS, slot = i0 + w * VECTOR_FLOATS;
            vfloat c = v_load(k.c + t * k.c_row + slot);
            vfloat e = v_load(g.dq + l), dput = v_fma(q[w], v_set(f[t]), v_load(dp + t * mp + w * VECTOR_FLOATS)), u = v_load(k.u + l);
            vfloat own_before = t > 0 ? v_load(k.own + l - mp) : one, p = v_load(k.p + l), start = v_load(k.squares + slot);
            vfloat length = t == 0 ? start : v_select(v_load(k.inverse + l - mp) == zero, zero, one);
            rho[w] = v_load(k.rho + l);
            v_store(g.dq + l, v_fma(v_load(k.own + l), e, v_fma(rho[w], read[w], p * v_set(f[t]))));
            down[w] = v_fma(q[w], e, down[w]);
            drho[w] = v_fma(down[w], own_before, drho[w]);
            vfloat dpull = down[w];
            if (normalise && !gated) {
                drho[w] = v_fma(dz[w], v_load(k.z + l), drho[w]);
                dput = v_fma(dz[w], u, dput);
                dpull = v_fma(dz[w], start, dpull);
            }
            Step step = {rho[w], p, v_set(k.g[t]) * c, u, v_load(k.inverse + l), v_load(k.y + l), v_load(k.z + l), own_before, length,
                         v_set(normalise ? k.gram[t * k.cp + t] : 0.0f)};
            Into to = step_backward(drho[w], dput, dpull, dz[w], &step, gated, normalise);
            down[w] = v_fma(rho[w], down[w], to.dy * u);
            dz[w] = gated ? zero : v_fma(rho[w], dz[w], -to.dy * u);
            dy[w] = to.dy;
            v_store(g.du + l, to.du);
            v_store(g.dc + l, v_set(k.g[t]) * to.da);
            dg_sums[t] = v_fma(to.da, c, dg_sums[t]);
            dmu_sums[t] += to.dmu;
            own_sum -= to.radial * p * p;
        }
        put_sum(&k, t, t, own_sum);
        for (size_t j = 0; j < t; j++) {
            vfloat sum = zero;
            for (size_t w = 0; w < width; w++) {
                size_t l = j * mp + w * VECTOR_FLOATS;
                vfloat x = rho[w] * v_load(dp + l);
                if (normalise) {
                    x = v_fma(dy[w], v_set(gram[j]), x);
                    sum = v_fma(dy[w], v_load(before + l), sum);
                }
                v_store(dp + l, x);
            }
            if (normalise) {
                put_sum(&k, t, j, sum);
            }
        }
    }
    if (normalise) {
        add_sums(g.dgram, shared);
    }
}

INLINE void return_all(ChunkGradient *g, const Chunk *k, vfloat *dg_sums, vfloat *dmu_sums, bool gated, bool normalise)
{
    size_t i = 0;
    for (; i + TOGETHER * VECTOR_FLOATS <= k->mp; i += TOGETHER * VECTOR_FLOATS) {
        return_slots(g, k, dg_sums, dmu_sums, i, TOGETHER, gated, normalise);
    }
    for (; i < k->mp; i += VECTOR_FLOATS) {
        return_slots(g, k, dg_sums, dmu_sums, i, 1, gated, normalise);
    }
}

void ISA_NAME(chunk_recurrence_backward)(ChunkGradient *g, const Chunk *k)
{
    if (k->factored) {
        ISA_NAME(chunk_factors_backward)(g, k);
        return;
    }
    g->du = g->own_du;
    g->last = k->last;
    g->mixed = k->mixed;
    vfloat dg_sums[CHUNK_MOST], dmu_sums[CHUNK_MOST];
    memset(dg_sums, 0, sizeof dg_sums);
    memset(dmu_sums, 0, sizeof dmu_sums);
    memset(g->dgram, 0, k->count * k->cp * sizeof(float));
    if (k->gated && k->normalise) {
        return_all(g, k, dg_sums, dmu_sums, true, true);
    } else if (k->gated) {
        return_all(g, k, dg_sums, dmu_sums, true, false);
    } else if (k->normalise) {
        return_all(g, k, dg_sums, dmu_sums, false, true);
    } else {
        return_all(g, k, dg_sums, dmu_sums, false, false);
    }
    sum_vectors(g->dg, (const float *)dg_sums, k->count);
    sum_vectors(g->dmu, (const float *)dmu_sums, k->count);
    for (size_t t = 0; t < k->count; t++) {
        for (size_t j = 0; j < t; j++) {
            g->dgram[j * k->cp + t] = g->dgram[t * k->cp + j];
        }
    }
}
