// Mamba-2's scalar state-space form (Dao, Gu 2024; docs/memories.md 8): S = mu S + g v kᵀ, o = S q; q and k play C and B.
#include "model/mixers/scan.h"

static const ScanRule rule = {
    .decay = SCAN_HEAD,
    .products = true,
};

SCAN_MIXER(mamba2, rule, .gate = true, .forget = true, .shared_gate = true)
