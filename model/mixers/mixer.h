// A mixer: the layer that mixes tokens through a memory. Each is one file and one row in mixers.c.
#ifndef MODEL_MIXERS_MIXER_H
#define MODEL_MIXERS_MIXER_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "model/config.h"

typedef struct MixerShape {
    size_t batch, length;            // B, T
    size_t n_head, n_slot, d_head;   // H, m, d
    size_t position;                 // tokens seen before the first row
} MixerShape;

// One call's tensors. Rows are tokens [B·T]; q, k and v are columns of one buffer. Pointers that a mixer does not use are NULL.
typedef struct MixerTensors {
    const float *q, *k, *v;          // [B·T, H, m], [B·T, H, m], [B·T, H, d] with row stride qkv_stride
    size_t qkv_stride;
    const float *g, *mu;             // [B·T, H] in (0, 1); mu NULL: no forget gate
    const float *state0;             // [H, m, d] learned start, not normalised
} MixerTensors;

typedef struct MixerGradients {
    float *q, *k, *v;                // set; row stride qkv_stride
    float *g, *mu;                   // set
    float *state0;                   // [H, m, d], accumulated
} MixerGradients;

typedef struct Mixer {
    const char *name;
    // Floats of one sequence's state.
    size_t (*state_floats)(const ModelConfig *config);
    // Floats that a forward for training keeps for its backward, over the whole batch.
    size_t (*saved_floats)(const MixerShape *shape);
    // Floats of scratch memory that one call of forward (backward false) or backward needs; shared by the layers, nothing in it is kept.
    size_t (*scratch_floats)(const MixerShape *shape, bool backward);
    // Sets a state to the start of a sequence.
    void (*state_init)(float *state, const float *state0, const MixerShape *shape);
    // o [B·T, H, d]. Either states [B], each state_stride floats apart, are read and updated (saved NULL; with length 1 this is the step of decoding),
    // or states is NULL, every sequence starts anew, and saved receives what backward needs.
    void (*forward)(float *o, float *saved, float *scratch, float *states, size_t state_stride, const MixerTensors *in, const MixerShape *shape);
    // From do_ [B·T, H, d], of a forward with states NULL and the same saved.
    // dstates [B], each state_stride floats apart: gradient into the states after the last token; NULL: zero (training on whole sequences).
    void (*backward)(const MixerGradients *grad, const float *do_, const float *dstates, size_t state_stride, const float *saved, float *scratch,
                     const MixerTensors *in, const MixerShape *shape);
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
