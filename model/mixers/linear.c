// Linear attention (Katharopoulos et al. 2020; docs/memories.md 8): S = S + v kᵀ, o = S q. The smallest mixer: what a new one of this family needs.
#include "model/mixers/scan.h"

static const ScanRule rule = {
    .decay = SCAN_KEEP,
    .products = true,
};

SCAN_MIXER(linear, rule, .gate = false)
