// One token of the recurrence inside a chunk of Lattice, for one vector of slots: its norm, and its backward (lattice_chunk.h). The recurrence stands in
// lattice_factors.c, and for the rare chunk whose decay leaves the range of f32 in lattice_recurrence.c.
#ifndef MODEL_MIXERS_LATTICE_STEP_H
#define MODEL_MIXERS_LATTICE_STEP_H

#include "model/mixers/lattice_chunk.h"

// Vectors of slots that go through the tokens together: enough to hide the latency of one chain of sums.
#define TOGETHER 4

// The formula for n² is right for slots of length exactly 1. Where it loses digits the norm is taken from the vector itself: below this share of
// n² / (a² ‖h‖²) by cancellation, and where an error in the slot's length would have grown to more than this multiple since it was last known exactly: a token
// multiplies it by rho².
#define CANCELLED 0.05f
#define STRETCHED 2.0f

// s~ of slot i, from the numbers before token t: P_t−1,j is scale · before_j [mp].
static __attribute__((noinline)) float norm_of_vector(const Chunk *k, const float *before, float scale, size_t t, size_t i)
{
    const float *b = k->start + i * k->d;
    float u = k->u[t * k->mp + i], a = k->g[t] * k->c[t * k->c_row + i], keep = k->gated ? k->mu[t] - a * u : k->mu[t];
    float own = keep * (t > 0 ? k->own[(t - 1) * k->mp + i] : 1.0f) - (k->gated ? 0.0f : a * u);
    double square = 0.0;   // the squares may leave the range of f32: a forget gate near 0
    for (size_t j = 0; j < k->d; j += VECTOR_FLOATS) {
        size_t rest = k->d - j;
        vfloat x = v_fma(v_set(a), v_load_n(k->h + t * k->d + j, rest), v_set(own) * v_load_n(b + j, rest));
        for (size_t l = 0; l < t; l++) {
            x = v_fma(v_set(keep * scale * before[l * k->mp + i]), v_load_n(k->h + l * k->d + j, rest), x);
        }
        for (size_t l = 0; l < VECTOR_FLOATS; l++) {
            square += (double)x[l] * (double)x[l];
        }
    }
    return (float)__builtin_sqrt(square);
}

// Replaces 1 / n of every lost slot of `width` vectors from slot i0 on. 0: nothing left of the slot and nothing written, it is zeros from here on.
// scales: of these slots, or NULL: 1.
static __attribute__((noinline)) void mend_norms(vfloat inverses[TOGETHER], const vint lost[TOGETHER], const Chunk *k, const float *before,
                                                 const float *scales, size_t t, size_t i0, size_t width)
{
    float inverse[TOGETHER * VECTOR_FLOATS];
    memcpy(inverse, inverses, width * sizeof *inverses);
    for (size_t l = 0; l < width * VECTOR_FLOATS; l++) {
        if (lost[l / VECTOR_FLOATS][l % VECTOR_FLOATS]) {
            float n = i0 + l < k->m ? norm_of_vector(k, before, scales == NULL ? 1.0f : scales[l], t, i0 + l) : 0.0f;
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

#endif
