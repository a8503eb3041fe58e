// The delta rule (Yang et al. 2024; docs/memories.md 8): S = S + g (v − S k) kᵀ, o = S q.
#include "model/mixers/scan.h"

INLINE float write(float *h, const float *p, const ScanToken *token, size_t d)
{
    add_scaled(h, token->v, -1.0f, p, d);
    return token->g;
}

static const ScanRule rule = {
    .decay = SCAN_KEEP,
    .products = true,
    .reads = true,
    .write = write,
};

SCAN_MIXER(delta, rule, .gate = true)
