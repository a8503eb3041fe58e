// The recurrence inside a chunk of Lattice (lattice_chunk.h): scalars for each slot and token, in vectors over slots; and its backward.
#include "model/mixers/lattice_chunk.h"

// Vectors of slots that go through the tokens together: enough to hide the latency of one chain of sums.
#define TOGETHER 4

// The formula for n² is right for slots of length exactly 1. Where it loses digits the norm is taken from the vector itself: below this share of
// n² / (a² ‖h‖²) by cancellation, and above this rho² because an error in the slot's length would grow with every such token.
#define CANCELLED 0.05f
#define STRETCHED 1.5f

// s~ of slot i, from the numbers before token t.
static float norm_of_vector(const Chunk *k, size_t t, size_t i)
{
    const float *before = t > 0 ? written_by(k, t - 1) : NULL, *b = k->start + i * k->d;
    float u = k->u[t * k->mp + i], a = k->g[t] * k->c[t * k->mp + i], keep = k->gated ? k->mu[t] - a * u : k->mu[t];
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

// Replaces n of every lost slot of `width` vectors from slot i0 on.
static void mend_norms(vfloat n[TOGETHER], const vint lost[TOGETHER], const Chunk *k, size_t t, size_t i0, size_t width)
{
    for (size_t w = 0; w < width; w++) {
        for (size_t l = 0; l < VECTOR_FLOATS; l++) {
            size_t i = i0 + w * VECTOR_FLOATS + l;
            if (lost[w][l] && i < k->m) {
                n[w][l] = norm_of_vector(k, t, i);
            }
        }
    }
}

// row [columns] += the sum over all elements of each of sums[0 … last]; what stands behind `last` in sums is lost.
INLINE void add_sums(float *row, vfloat *sums, size_t last)
{
    for (size_t j = last + 1; j % VECTOR_FLOATS != 0; j++) {
        sums[j] = (vfloat){0};
    }
    for (size_t j = 0; j <= last; j += VECTOR_FLOATS) {
        v_store(row + j, v_load(row + j) + sum_each(sums + j));
    }
}

// The slots of `width` vectors from i0 on, through all tokens. width, gated and normalise are constants.
INLINE void run_slots(Chunk *k, size_t i0, size_t width, bool gated, bool normalise)
{
    size_t mp = k->mp;
    vfloat own[TOGETHER], z[TOGETHER], length[TOGETHER], sums[CHUNK_MOST], one = v_set(1.0f), zero = {0};
    for (size_t w = 0; w < width; w++) {
        own[w] = one;
        z[w] = length[w] = v_load(k->squares + i0 + w * VECTOR_FLOATS);
    }
    for (size_t t = 0; t < k->count; t++) {
        const float *gram = k->gram + t * k->cp, *before = (t > 0 ? written_by(k, t - 1) : k->written) + i0;
        float *after = written_by(k, t) + i0;
        size_t at = t * mp + i0;
        vfloat y[TOGETHER], rho[TOGETHER], p[TOGETHER], q[TOGETHER], keep[TOGETHER], a[TOGETHER], pull[TOGETHER], n[TOGETHER];
        vint lost[TOGETHER], any = {0};
        for (size_t w = 0; w < width; w++) {
            y[w] = own[w] * v_load(k->u + at + w * VECTOR_FLOATS);
        }
        for (size_t j = 0; normalise && j < t; j++) {
            for (size_t w = 0; w < width; w++) {
                y[w] = v_fma(v_set(gram[j]), v_load(before + j * mp + w * VECTOR_FLOATS), y[w]);
            }
        }
        for (size_t w = 0; w < width; w++) {
            vfloat u = v_load(k->u + at + w * VECTOR_FLOATS), mu = v_set(k->mu[t]);
            a[w] = v_set(k->g[t]) * v_load(k->c + at + w * VECTOR_FLOATS);
            keep[w] = gated ? mu - a[w] * u : mu;
            pull[w] = gated ? zero : -a[w] * u;
            if (normalise) {
                vfloat square = v_set(gram[t]), a2 = a[w] * a[w], keep2 = keep[w] * keep[w] * length[w];
                y[w] = gated ? y[w] : y[w] - u * z[w];
                vfloat n2 = keep2 + v_set(2.0f) * a[w] * keep[w] * y[w] + a2 * (gated ? square : v_max(square - u * u, zero));
                n[w] = v_sqrt(n2);
                lost[w] = (n2 < v_set(CANCELLED) * a2 * square) | (keep2 > v_set(STRETCHED) * n2) | (n2 < v_set(1e-30f));
                any |= lost[w];
            }
        }
        if (normalise && v_any(any)) {
            mend_norms(n, lost, k, t, i0, width);
        }
        for (size_t w = 0; w < width; w++) {
            size_t l = at + w * VECTOR_FLOATS;
            // Nothing left of the slot and nothing written: zeros from here on.
            vfloat inverse = normalise ? v_select(n[w] == zero, zero, one / n[w]) : one, along = pull[w] * inverse, u = v_load(k->u + l);
            rho[w] = keep[w] * inverse;
            p[w] = a[w] * inverse;
            q[w] = v_load(k->q + l);
            v_store(k->rho + l, rho[w]);
            v_store(k->p + l, p[w]);
            v_store(k->inverse + l, inverse);
            v_store(k->y + l, y[w]);
            v_store(k->z + l, z[w]);
            z[w] = v_fma(rho[w], z[w], v_fma(p[w], u, along * v_load(k->squares + i0 + w * VECTOR_FLOATS)));
            own[w] = v_fma(rho[w], own[w], along);
            v_store(k->own + l, own[w]);
            v_store(k->mixed + l, q[w] * own[w]);
            length[w] = normalise ? v_select(n[w] == zero, zero, one) : one;
        }
        for (size_t j = 0; j < t; j++) {
            vfloat sum = zero;
            for (size_t w = 0; w < width; w++) {
                vfloat x = rho[w] * v_load(before + j * mp + w * VECTOR_FLOATS);
                v_store(after + j * mp + w * VECTOR_FLOATS, x);
                sum = v_fma(q[w], x, sum);
            }
            sums[j] = sum;
        }
        sums[t] = zero;
        for (size_t w = 0; w < width; w++) {
            v_store(after + t * mp + w * VECTOR_FLOATS, p[w]);
            sums[t] = v_fma(q[w], p[w], sums[t]);
        }
        add_sums(k->weights + t * k->cp, sums, t);
    }
}

INLINE void run_all(Chunk *k, bool gated, bool normalise)
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
    memset(k->weights, 0, k->count * k->cp * sizeof(float));
    if (k->gated && k->normalise) {
        run_all(k, true, true);
    } else if (k->gated) {
        run_all(k, true, false);
    } else if (k->normalise) {
        run_all(k, false, true);
    } else {
        run_all(k, false, false);
    }
}

// What the backward of one token hands on, for one vector of slots; radial is r.
typedef struct Into {
    vfloat du, da, dmu, dy, radial;
} Into;

// From the gradients into rho, p, pull / n and z after token t, whose row of slots stands at `at`. With r = s·ds, the part of ds along the slot, which the
// norm takes away: dy = −r rho p; u and z of the frozen form stand in n² beside y, and get their parts of the same.
INLINE Into step_backward(vfloat drho, vfloat dp, vfloat dpull, vfloat dz, const Chunk *k, size_t t, size_t at, vfloat length, vfloat own_before, bool gated,
                          bool normalise)
{
    vfloat rho = v_load(k->rho + at), p = v_load(k->p + at), u = v_load(k->u + at), zero = {0};
    vfloat a = v_set(k->g[t]) * v_load(k->c + at), pull = gated ? zero : p * u;
    Into to = {.dmu = drho, .da = gated ? dp : dp - u * dpull, .dy = zero, .radial = zero};
    if (normalise) {
        vfloat inverse = v_load(k->inverse + at), y = v_load(k->y + at), square = v_set(k->gram[t * k->cp + t]);
        vfloat r = v_fma(drho, rho, dp * p) - dpull * pull, across = gated ? square : square - u * u;
        to.radial = r;
        to.dy = -r * rho * p;
        to.dmu = inverse * (drho - r * (rho * length + p * y));
        to.da = inverse * (to.da - r * (rho * y + p * across));
    }
    if (gated) {
        to.da -= u * to.dmu;
        to.du = to.dy * own_before - a * to.dmu;
    } else {
        to.du = p * (dz - dpull + to.radial * pull) + to.dy * (own_before - v_load(k->z + at));
    }
    return to;
}

// As run_slots, from the last token to the first; dg_sums and dmu_sums [count] are added to.
INLINE void return_slots(ChunkGradient *g, const Chunk *k, vfloat *dg_sums, vfloat *dmu_sums, size_t i0, size_t width, bool gated, bool normalise)
{
    size_t mp = k->mp;
    vfloat down[TOGETHER], dz[TOGETHER], sums[CHUNK_MOST], one = v_set(1.0f), zero = {0};
    for (size_t w = 0; w < width; w++) {
        down[w] = v_load(g->down + i0 + w * VECTOR_FLOATS);
        dz[w] = zero;
    }
    for (size_t t = k->count; t-- > 0;) {
        const float *gram = k->gram + t * k->cp, *f = g->f + t * k->cp, *before = (t > 0 ? written_by(k, t - 1) : k->written) + i0;
        float *dp = g->dp + i0;
        size_t at = t * mp + i0;
        vfloat q[TOGETHER], drho[TOGETHER], read[TOGETHER], dy[TOGETHER], rho[TOGETHER];
        for (size_t w = 0; w < width; w++) {
            q[w] = v_load(k->q + at + w * VECTOR_FLOATS);
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
        sums[t] = zero;
        for (size_t w = 0; w < width; w++) {
            size_t l = at + w * VECTOR_FLOATS, slot = i0 + w * VECTOR_FLOATS;
            vfloat e = v_load(g->dq + l), dput = v_fma(q[w], v_set(f[t]), v_load(dp + t * mp + w * VECTOR_FLOATS)), u = v_load(k->u + l);
            vfloat own_before = t > 0 ? v_load(k->own + l - mp) : one, p = v_load(k->p + l), start = v_load(k->squares + slot);
            vfloat length = t == 0 ? start : v_select(v_load(k->inverse + l - mp) == zero, zero, one);
            rho[w] = v_load(k->rho + l);
            v_store(g->dq + l, v_fma(v_load(k->own + l), e, v_fma(rho[w], read[w], p * v_set(f[t]))));
            down[w] = v_fma(q[w], e, down[w]);
            drho[w] = v_fma(down[w], own_before, drho[w]);
            vfloat dpull = down[w];
            if (normalise && !gated) {
                drho[w] = v_fma(dz[w], v_load(k->z + l), drho[w]);
                dput = v_fma(dz[w], u, dput);
                dpull = v_fma(dz[w], start, dpull);
            }
            Into to = step_backward(drho[w], dput, dpull, dz[w], k, t, l, length, own_before, gated, normalise);
            down[w] = v_fma(rho[w], down[w], to.dy * u);
            dz[w] = gated ? zero : v_fma(rho[w], dz[w], -to.dy * u);
            dy[w] = to.dy;
            v_store(g->du + l, to.du);
            v_store(g->dc + l, v_set(k->g[t]) * to.da);
            dg_sums[t] = v_fma(to.da, v_load(k->c + l), dg_sums[t]);
            dmu_sums[t] += to.dmu;
            sums[t] -= to.radial * p * p;
        }
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
            sums[j] = sum;
        }
        if (normalise) {
            add_sums(g->dgram + t * k->cp, sums, t);
        }
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
    memset(g->dg, 0, sizeof g->dg);
    memset(g->dmu, 0, sizeof g->dmu);
    add_sums(g->dg, dg_sums, k->count - 1);
    add_sums(g->dmu, dmu_sums, k->count - 1);
    for (size_t t = 0; t < k->count; t++) {
        for (size_t j = 0; j < t; j++) {
            g->dgram[j * k->cp + t] = g->dgram[t * k->cp + j];
        }
    }
}
