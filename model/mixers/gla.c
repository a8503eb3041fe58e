// Gated linear attention (Yang et al. 2023; docs/memories.md 8): S = S diag(alpha) + v kᵀ, o = S q, with a decay for each slot.
#include "model/mixers/scan.h"

static const ScanRule rule = {
    .decay = SCAN_SLOTS,
    .products = true,
};

SCAN_MIXER(gla, rule, .slot_decay = true)
