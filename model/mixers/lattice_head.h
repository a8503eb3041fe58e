// What the two ways through the forms of Lattice share: lattice_forms.c goes token by token, lattice_chunk.c by matrix products.
#ifndef MODEL_MIXERS_LATTICE_HEAD_H
#define MODEL_MIXERS_LATTICE_HEAD_H

#include "model/mixers/mixer.h"

// One head of one sequence.
typedef struct Head {
    const float *q, *k, *v, *g, *mu;   // first token's row; mu NULL: 1
    size_t row, gate_row;              // strides from token to token
    size_t position, length, chunk;
    size_t m, d;
    LatticeForm form;
} Head;

// Where one head's gradients go, first token's row; strides as the head's. mu may be NULL.
typedef struct HeadGradients {
    float *q, *k, *v, *g, *mu;
} HeadGradients;

static inline bool normalises_tokens(const Head *head) { return !head->form.no_normalisation && (head->chunk == 1 || !head->form.chunk_norm); }
static inline bool normalises_chunks(const Head *head) { return !head->form.no_normalisation && !normalises_tokens(head); }
static inline float head_mu(const Head *head, size_t t) { return head->mu == NULL ? 1.0f : head->mu[t * head->gate_row]; }

#endif
