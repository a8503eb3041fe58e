// The widths of one layer's block: what a configuration and the layer's mixer make of it.
#ifndef MODEL_BLOCK_SHAPE_H
#define MODEL_BLOCK_SHAPE_H

#include <stdbool.h>
#include <stddef.h>

#include "model/config.h"
#include "model/mixers/mixer.h"

// What follows from a configuration for one layer. Columns that a layer does not have count 0.
typedef struct BlockShape {
    const Mixer *mixer;
    MixerNeeds needs;    // forget says whether mu is read in this configuration
    LatticeForm form;
    bool relative;       // the output is read relative to the start state (start_read.h)
    float gate_range;    // g = gate_range · sigmoid
    bool scaled;         // k is multiplied by learned numbers (key_scale.h)
    size_t chunk, window;
    size_t width;        // D
    size_t query;        // H·m: columns of q, and of k
    size_t value;        // H·d: columns of v and o, and of z
    size_t channels;     // columns of q, k and v together
    size_t projection;   // columns of q, k, v, and where the mixer has them z, g and mu
    size_t heads, hidden;
    size_t conv;         // columns after the convolution: channels, or 0 in a bare block
    size_t gate, forget; // columns of g, H or with a gate for each slot H·m, and of mu, H
    size_t decay, rank;  // columns of alpha, H·m, and of the narrow layer before it
} BlockShape;

// `mixers`: a table of mixers (kernels.h). The configuration must be valid.
BlockShape block_shape(const ModelConfig *config, const Mixer *const *mixers, size_t layer);

#endif
