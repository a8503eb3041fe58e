// The delta rule (Yang et al. 2024; mixers.md): S = S + g (v − S k) kᵀ, o = S q.
#include "model/mixers/scan.h"

INLINE float write(float *h, const float *p, const ScanToken *token, size_t d)
{
    add_scaled(h, token->v, -1.0f, p, d);
    return token->g;
}

INLINE void write_backward(float *dp, ScanGradients *grad, const float *dh, float dc, const float *p, const ScanToken *token, size_t d)
{
    (void)grad, (void)dc, (void)p, (void)token;
    scale_to(dp, dh, -1.0f, d);
}

static const ScanRule rule = {
    .decay = SCAN_KEEP,
    .reads = true,
    .write = write,
    .write_backward = write_backward,
};

SCAN_MIXER(delta, rule, .gate = true)
