// A mixer: the layer that mixes tokens through a memory. Each is one file and one row in mixers.c.
#ifndef MODEL_MIXERS_MIXER_H
#define MODEL_MIXERS_MIXER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "model/config.h"

typedef struct MixerShape {
    size_t batch, length;            // B, T
    size_t n_head, n_slot, d_head;   // H, m, d
    size_t position;                 // tokens seen before the first row
    const uint8_t *starts;           // [B·T] where documents begin (documents.h), each of which runs as a sequence of its own; only without states. NULL: nowhere
} MixerShape;

typedef enum LatticeObjective {
    LATTICE_DECODE,
    LATTICE_ENCODE,
    LATTICE_SIMILARITY,
} LatticeObjective;

// Which Lattice (docs/memories.md 2 and 4). All zero: decode; in chunks the frozen form, normalised after every token; no ablation.
typedef struct LatticeForm {
    LatticeObjective objective;
    bool gated;              // chunk form
    bool chunk_norm;         // slots are normalised once, after a chunk's last token
    bool no_projection;      // h itself is written
    bool no_normalisation;   // plain gradient steps from state0 as it is, without projection
    float l1;                // slots are soft-thresholded by g·l1 before the normalisation
    bool slot_gate;          // g has a number for each slot
} LatticeForm;

// One call's tensors. Rows are tokens [B·T]; q, k and v are columns of one buffer. Pointers that a mixer does not use are NULL.
typedef struct MixerTensors {
    const float *q, *k, *v;          // [B·T, H, m], [B·T, H, m], [B·T, H, d] with row stride qkv_stride
    size_t qkv_stride;
    const float *g, *mu;             // [B·T, H] in (0, 1), with form.slot_gate g is [B·T, H, m]; mu NULL: no forget gate
    const float *state0;             // [H, m, d] learned start, not normalised
    const float *alpha;              // [B·T, H, m] with row stride alpha_stride: decay of each slot in (0, 1]
    size_t alpha_stride;
    const float *ln_weight, *ln_bias;   // [H, d] layer norm of a head
    size_t chunk;                    // tokens whose writes start from one state, counted from the sequence's first; 0 and 1: every token reads the one before
    size_t window;                   // attention: tokens that a token sees, itself included; 0 = all before it. With states it must be given.
    LatticeForm form;                // Lattice
} MixerTensors;

typedef struct MixerGradients {
    float *q, *k, *v;                // set; row stride qkv_stride
    float *g, *mu;                   // set; as the tensors
    float *state0;                   // [H, m, d], accumulated
    float *alpha;                    // set; row stride alpha_stride
    float *ln_weight, *ln_bias;      // [H, d], accumulated
} MixerGradients;

// What a mixer reads beside q, k and v: parameters, blocks and the checks of a configuration follow from it.
typedef struct MixerNeeds {
    bool gate;          // g
    bool forget;        // mu, in every configuration
    bool may_forget;    // mu where the configuration has a forget gate
    bool shared_gate;   // g and mu come from one number a a head: g = softplus(a), mu = exp(−g·exp(A)) with a learned A; else each is a sigmoid
    bool slot_decay;    // alpha
    bool start;         // state0
    bool norm;          // ln_weight, ln_bias
    bool square;        // m = d
    bool chunk;         // chunk
    bool form;          // form
    bool bare;          // q, k and v as projected, o as it is: no convolution, no activation, no norm of a head, no output gate
} MixerNeeds;

typedef struct Mixer {
    const char *name;
    // Floats of one sequence's state.
    size_t (*state_floats)(const ModelConfig *config);
    // Floats that a forward for training keeps for its backward, over the whole batch and however it is cut into documents.
    size_t (*saved_floats)(const MixerShape *shape);
    // Floats of scratch memory that one call of forward (backward false) or backward needs; shared by the layers, nothing in it is kept.
    size_t (*scratch_floats)(const MixerShape *shape, bool backward);
    // Sets a state to the start of a sequence.
    void (*state_init)(float *state, const float *state0, const MixerShape *shape);
    // o [B·T, H, d]. Either states [B], each state_stride floats apart, are read and updated (saved NULL; with length 1 this is the step of decoding),
    // or states is NULL, every sequence (every document of it) starts anew, and saved receives what backward needs.
    void (*forward)(float *o, float *saved, float *scratch, float *states, size_t state_stride, const MixerTensors *in, const MixerShape *shape);
    // From do_ [B·T, H, d], of a forward with states NULL and the same saved.
    // dstates [B], each state_stride floats apart: gradient into the states after the last token; NULL: zero (training on whole sequences). None into the
    // states after the other documents' last tokens. State0 gets the gradients of all documents' starts.
    void (*backward)(const MixerGradients *grad, const float *do_, const float *dstates, size_t state_stride, const float *saved, float *scratch,
                     const MixerTensors *in, const MixerShape *shape);
    MixerNeeds needs;
    // The name that configurations know where it is another row's: this row runs the forms that the other cannot. NULL: its own.
    const char *serves;
    // Set where the state grows with what a token may look back on (state_floats is NULL then): floats of one sequence's state for this window.
    size_t (*window_state_floats)(const MixerShape *shape, size_t window);
} Mixer;

// The mixer of that name in a NULL-terminated table, or NULL.
static inline const Mixer *mixer_find(const Mixer *const *table, const char *name)
{
    while (*table != NULL && strcmp((*table)->name, name) != 0) {
        table++;
    }
    return *table;
}

#endif
