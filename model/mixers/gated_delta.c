// The gated delta rule (Yang et al. 2024b; docs/memories.md 8): S̄ = mu S, S = S̄ + g (v − S̄ k) kᵀ, o = S q.
#include "model/mixers/scan.h"

INLINE float write(float *h, const float *p, const ScanToken *token, size_t d)
{
    add_scaled(h, token->v, -token->mu, p, d);
    return token->g;
}

static const ScanRule rule = {
    .decay = SCAN_HEAD,
    .products = true,
    .reads = true,
    .write = write,
};

SCAN_MIXER(gated_delta, rule, .gate = true, .forget = true)
