// A head as the ways through Lattice see it: lattice.c runs the exact form, lattice_forms.c every form token by token, lattice_chunk.c chunks by matrix products.
#ifndef MODEL_MIXERS_LATTICE_HEAD_H
#define MODEL_MIXERS_LATTICE_HEAD_H

#include "model/mixers/documents.h"
#include "model/mixers/mixer.h"
#include "model/mixers/slots.h"

// One head of one sequence.
typedef struct Head {
    const float *q, *k, *v, *g, *mu;   // first token's row; mu NULL: 1
    size_t row, gate_row;              // strides from token to token; gate_row: of mu, and of g where it is one number a head
    size_t g_row, g_slot;              // g of token t and slot i: g[t·g_row + i·g_slot]; g_slot 0: one for all slots
    size_t position, length, chunk;
    size_t m, d;
    LatticeForm form;
} Head;

// The document of a head that begins at row `first`, as a sequence of its own.
static inline Head head_document(const Head *whole, size_t first, size_t length)
{
    Head head = *whole;
    head.q += first * head.row;
    head.k += first * head.row;
    head.v += first * head.row;
    head.g += first * head.g_row;
    head.mu = head.mu == NULL ? NULL : head.mu + first * head.gate_row;
    head.position = 0;
    head.length = length;
    return head;
}

// Where one head's gradients go, first token's row; strides as the head's. mu may be NULL.
typedef struct HeadGradients {
    float *q, *k, *v, *g, *mu;
} HeadGradients;

static inline Head head_of(const MixerTensors *in, const MixerShape *shape, size_t b, size_t h)
{
    size_t first = b * shape->length, m = shape->n_slot, d = shape->d_head, gates = in->form.slot_gate ? m : 1;
    return (Head){
        .q = in->q + first * in->qkv_stride + h * m,
        .k = in->k + first * in->qkv_stride + h * m,
        .v = in->v + first * in->qkv_stride + h * d,
        .g = in->g + (first * shape->n_head + h) * gates,
        .mu = in->mu == NULL ? NULL : in->mu + first * shape->n_head + h,
        .row = in->qkv_stride,
        .gate_row = shape->n_head,
        .g_row = shape->n_head * gates,
        .g_slot = in->form.slot_gate ? 1 : 0,
        .position = shape->position,
        .length = shape->length,
        .chunk = in->chunk > 1 ? in->chunk : 1,
        .m = m,
        .d = d,
        .form = in->form,
    };
}

static inline HeadGradients head_gradients_of(const MixerGradients *grad, const MixerTensors *in, const MixerShape *shape, size_t b, size_t h)
{
    size_t first = b * shape->length, row = first * in->qkv_stride, gate = first * shape->n_head + h;
    return (HeadGradients){
        .q = grad->q + row + h * shape->n_slot,
        .k = grad->k + row + h * shape->n_slot,
        .v = grad->v + row + h * shape->d_head,
        .g = grad->g + gate * (in->form.slot_gate ? shape->n_slot : 1),
        .mu = grad->mu == NULL ? NULL : grad->mu + gate,
    };
}

static inline HeadGradients head_gradients_document(const HeadGradients *whole, const Head *head, size_t first)
{
    return (HeadGradients){
        .q = whole->q + first * head->row,
        .k = whole->k + first * head->row,
        .v = whole->v + first * head->row,
        .g = whole->g + first * head->g_row,
        .mu = whole->mu == NULL ? NULL : whole->mu + first * head->gate_row,
    };
}

// Tokens from what is asked for to what is read, where a head goes token by token: its rows lie apart, which processors do not foresee.
#define TOKENS_AHEAD 8

// Asks for what token t reads. Before a sequence's first token (t wrapped around) and behind its last there is nothing.
INLINE void head_prefetch(const Head *head, size_t t)
{
    if (t < head->length) {
        prefetch_rows(head->q + t * head->row, head->row, head->m, 1);
        prefetch_rows(head->k + t * head->row, head->row, head->m, 1);
        prefetch_rows(head->v + t * head->row, head->row, head->d, 1);
    }
}

// The same for what the backward of token t reads and writes beside that.
INLINE void head_prefetch_backward(const HeadGradients *grad, const Head *head, const float *do_, size_t do_row, size_t t)
{
    if (t < head->length) {
        prefetch_rows(do_ + t * do_row, do_row, head->d, 1);
        prefetch_rows(grad->q + t * head->row, head->row, head->m, 1);
        prefetch_rows(grad->k + t * head->row, head->row, head->m, 1);
        prefetch_rows(grad->v + t * head->row, head->row, head->d, 1);
    }
}

static inline bool normalises_tokens(const Head *head) { return !head->form.no_normalisation && (head->chunk == 1 || !head->form.chunk_norm); }
static inline bool normalises_chunks(const Head *head) { return !head->form.no_normalisation && !normalises_tokens(head); }
static inline float head_mu(const Head *head, size_t t) { return head->mu == NULL ? 1.0f : head->mu[t * head->gate_row]; }

#endif
