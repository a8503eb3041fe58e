// Lattice's output normalisation (appendix A of the paper; docs/memories.md 2): with z = S k and ẑ = z/‖z‖, S = mu S + (g/‖z‖) (v − ẑ (ẑ·v)) kᵀ, o = S q.
#include "model/mixers/scan.h"

// 1/‖z‖; 0 for a memory that gives nothing for this key: then nothing is written.
INLINE float inverse_length(const float *z, size_t d)
{
    float square = dot(z, z, d);
    return square == 0.0f ? 0.0f : 1.0f / __builtin_sqrtf(square);
}

INLINE float write(float *h, const float *p, const ScanToken *token, size_t d)
{
    float inverse = inverse_length(p, d);
    add_scaled(h, token->v, -dot(p, token->v, d) * inverse * inverse, p, d);
    return token->g * inverse;
}

// With a = ẑ·v and r = ẑ·dh: dv = dh − r ẑ, and dz = (−a dh − r v + (2 a r − c dc) ẑ) / ‖z‖, as ẑ turns with z and c falls with its length.
INLINE void write_backward(float *dp, ScanGradients *grad, const float *dh, float dc, const float *p, const ScanToken *token, size_t d)
{
    float inverse = inverse_length(p, d), a = dot(p, token->v, d) * inverse, r = dot(p, dh, d) * inverse;
    float along = (2.0f * a * r - token->g * inverse * dc) * inverse;
    for (size_t j = 0; j < d; j += VECTOR_FLOATS) {
        vfloat z = v_load_n(p + j, d - j), out = v_load_n(dh + j, d - j), v = v_load_n(token->v + j, d - j);
        v_store_n(grad->v + j, out - v_set(r * inverse) * z, d - j);
        v_store_n(dp + j, (v_set(along) * z - v_set(a) * out - v_set(r) * v) * v_set(inverse), d - j);
    }
    grad->g = dc * inverse;
}

static const ScanRule rule = {
    .decay = SCAN_HEAD,
    .reads = true,
    .write = write,
    .write_backward = write_backward,
};

SCAN_MIXER(output_norm, rule, .gate = true, .may_forget = true, .start = true)
