#include "model/block_shape.h"

// Width of the layer before alpha (docs/memories.md 8; Yang et al. 2023).
#define DECAY_RANK 16

static LatticeForm lattice_form(const ModelConfig *config)
{
    bool encode = strcmp(config->objective, "encode") == 0, similarity = strcmp(config->objective, "similarity") == 0;
    return (LatticeForm){
        .objective = encode ? LATTICE_ENCODE : similarity ? LATTICE_SIMILARITY : LATTICE_DECODE,
        .gated = strcmp(config->chunk_form, "gated") == 0,
        .chunk_norm = strcmp(config->chunk_norm, "chunk") == 0,
        .no_projection = config->no_projection,
        .no_normalisation = config->no_normalisation,
        .l1 = (float)config->l1,
        .slot_gate = config->slot_gate,
    };
}

BlockShape block_shape(const ModelConfig *config, const Mixer *const *mixers, size_t layer)
{
    LayerMixer chosen = config_layer_mixer(config, mixers, layer);
    MixerNeeds needs = chosen.mixer->needs;
    needs.forget = needs.forget || (needs.may_forget && config->forget_gate);
    size_t heads = (size_t)config->n_head, query = heads * (size_t)config->n_slot, value = heads * (size_t)config->d_head;
    BlockShape shape = {
        .mixer = chosen.mixer,
        .needs = needs,
        .form = lattice_form(config),
        .relative = config->relative_read && chosen.lattice,
        .gate_range = config->wide_gate && !needs.shared_gate ? 2.0f : 1.0f,
        .scaled = config->scaled_keys && needs.gate && !needs.shared_gate,
        .chunk = (size_t)config->chunk,
        .window = chosen.window,
        .width = (size_t)config->d_model,
        .query = query,
        .value = value,
        .channels = 2 * query + value,
        .heads = heads,
        .hidden = (size_t)config->mlp_hidden,
        .conv = needs.bare ? 0 : 2 * query + value,
        .gate = !needs.gate ? 0 : config->slot_gate && chosen.lattice ? query : heads,
        .forget = needs.forget ? heads : 0,
        .decay = needs.slot_decay ? query : 0,
        .rank = needs.slot_decay ? DECAY_RANK : 0,
    };
    shape.projection = shape.channels + (needs.bare ? 0 : value) + shape.gate + (needs.shared_gate ? 0 : shape.forget);
    return shape;
}
