// The gated delta rule (Yang et al. 2024b; mixers.md): S̄ = mu S, S = S̄ + g (v − S̄ k) kᵀ, o = S q.
#include "model/mixers/scan.h"

INLINE float write(float *h, const float *p, const ScanToken *token, size_t d)
{
    add_scaled(h, token->v, -token->mu, p, d);
    return token->g;
}

INLINE void write_backward(float *dp, ScanGradients *grad, const float *dh, float dc, const float *p, const ScanToken *token, size_t d)
{
    (void)dc;
    scale_to(dp, dh, -token->mu, d);
    grad->mu -= dot(p, dh, d);
}

static const ScanRule rule = {
    .decay = SCAN_HEAD,
    .reads = true,
    .write = write,
    .write_backward = write_backward,
};

SCAN_MIXER(gated_delta, rule, .gate = true, .forget = true)
