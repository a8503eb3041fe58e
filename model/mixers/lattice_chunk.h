// Chunks of Lattice by matrix products (docs/memories.md 4): the memory is read at a chunk's start and written at its end, and never exists in between.
//
// Let b_i be slot i at the chunk's start and h_t, c_t the objective's pair, all taken there; u_ti = b_i·h_t, a_ti = g_t c_ti. Every form is one recurrence,
//
//     s~_t = keep_t s_{t−1} + a_t h_t + pull_t b        frozen: keep = mu, pull = −a u        gated: keep = mu − a u, pull = 0        s_t = s~_t / n_t
//
// of each slot on its own, so that s_t = A_t b + Σ_{j≤t} P_tj h_j, with rho = keep / n and p = a / n:
//
//     A_t = rho_t A_{t−1} + pull_t / n_t        P_tj = rho_t P_{t−1,j} (j < t)        P_tt = p_t
//
// and n_t follows from y_t = s_{t−1}·h_t = A_{t−1} u_t + Σ_{j<t} P_{t−1,j} G_tj, G = H Hᵀ, and z_t = s_{t−1}·b, which has a recurrence of its own. Then
//
//     o_t = Σ_i (q_ti A_ti) b_i + Σ_j W_tj h_j,  W_tj = Σ_i q_ti P_tij        the end: s_i = A_i b_i + Σ_j P_ij h_j, its length made exactly 1
//
// Products are over all tokens of the chunk; the scalars of the recurrence are vectors over slots. The objectives differ only in what fills h and c.
#ifndef MODEL_MIXERS_LATTICE_CHUNK_H
#define MODEL_MIXERS_LATTICE_CHUNK_H

#include "model/mixers/ahead.h"
#include "model/mixers/lattice_head.h"
#include "model/mixers/slots.h"

// The longest chunk that goes by matrix products: the recurrence's work for a token grows with the chunk, and its memory with the chunk's square.
#define CHUNK_MOST 64

// The longest chunk whose products the backward finds, instead of making them again: of longer ones they would be most of what is kept.
#define PRODUCTS_KEPT 16

// Whether this head's chunks go by matrix products. The ablations do not: a threshold acts on each number of a slot, and the others serve experiments only.
static inline bool has_chunk_form(const Head *head)
{
    const LatticeForm *form = &head->form;
    return head->chunk > 1 && head->chunk <= CHUNK_MOST && !form->no_projection && !form->no_normalisation && !form->slot_gate && !(form->l1 > 0.0f);
}

// Chunks between two kept states of a training forward: as many as make at least KEPT_TOKENS tokens.
static inline size_t kept_chunks(const Head *head) { return (KEPT_TOKENS + head->chunk - 1) / head->chunk; }

// Scratch floats of one head, for any chunk that has_chunk_form allows.
size_t ISA_NAME(chunk_scratch_floats)(size_t m, size_t d, bool backward);

// What a training forward keeps of one token of a head beside memories: h and u, and of chunks up to PRODUCTS_KEPT its rows of G and W.
size_t ISA_NAME(chunk_input_floats)(size_t m, size_t d);

// Runs tokens [first, first + count) of a head, at most one chunk and beginning with one, from the memory s [m, d]: o [count rows from o on, d] at o_row.
// to [m, d], which may be s: the memory as the last token reads it, normalised if the chunk ends there. inputs, or NULL: gets chunk_input_floats for each token,
// from the head's first. kept, or NULL: gets the memory as it stands in `to`. What is stored in o, inputs and kept goes around the caches: v_stream_end has to
// follow the last call. follows: the call before was for the chunk before, from the same scratch.
void ISA_NAME(chunk_forward)(float *o, size_t o_row, float *inputs, float *kept, float *to, const float *s, float *scratch, const Head *head, size_t first,
                             size_t count, bool follows);

// The whole head, chunk by chunk from its end: sets the rows of grad; ds [m, d], the gradient into the memory after the last token, becomes that into the
// normalised memory before the first, which is the start. kept: the memories before every kept_chunks-th chunk [m, d] but the first. inputs as
// chunk_forward left them; a last chunk of one token needs none.
void ISA_NAME(chunk_backward)(const HeadGradients *grad, float *ds, float *scratch, const float *kept, const float *inputs, const float *state0,
                              const Head *head, const float *do_, size_t do_row);

// ---- between lattice_chunk.c, lattice_factors.c and lattice_recurrence.c ----

// One chunk of a head. [C, mp]: a row a token, with a number for each slot, zeros behind the last. [C, cp]: a row a token, with a number for each token.
typedef struct Chunk {
    size_t count;                // C
    size_t m, d, mp, cp;         // mp, cp: m and C rounded up to whole vectors
    bool gated, normalise;       // the form; normalised after every token
    bool all;                    // P of every token is kept, for the backward; else only the last token's
    float *g, *mu;               // [C]
    Ahead *ahead;                // what its products ask for
    const float *start;          // b [m, d]
    float *own_start;            // room for b, where it stands nowhere else
    float *squares;              // ‖b‖² [mp]: 1, or 0 of a slot of zeros; 1 behind the last slot
    const float *h, *u;          // [C, d], [C, mp]
    float *inputs;               // room for both, and behind them for G and W
    float *turned;               // room for a transpose of tokens: [d, cp], [mp, cp]
    const float *gram, *weights; // G, W [C, cp]
    float *new_weights;          // where W goes, unless the forward kept it
    const float *q, *c;          // [C, …], whole vectors can be read of a row: the head's own rows, or copies
    size_t q_row, c_row;
    float *own_q, *own_c;        // room for copies [C, mp]
    float *own, *mixed;          // A (by factors: D), q A [C, mp]
    float *rho, *p, *inverse;    // rho, p, 1 / n [C, mp]; these five only with `all`
    float *y, *z;                // before the token [C, mp]; y: y − u z in the frozen form
    float *written;              // P: [mp] for each j ≤ t of each t, or for each j of the last t
    const float *last;           // P of the last token [C, mp]
    float *own_end;              // A of the last token [mp]; where the end is normalised, the forward may leave out a factor of it and of `last`
    bool factored;               // the recurrence went by factors (lattice_factors.c), which are these and `decay`:
    float *decay, *factors;      // R, f [C, mp]
    float *reads, *along;        // q R, w [C, mp]; w only with `all`
    float *sums;                 // room for one vector for each pair j ≤ t
} Chunk;

// The gradients of one chunk.
typedef struct ChunkGradient {
    float *dg, *dmu;             // [cp]
    float *down;                 // into A [mp]: in, of the last token, b·ds
    float *dp;                   // into P [C, mp]: in, of the last token, h_j·ds
    float *f;                    // do_t·h_j [C, cp]
    float *dq;                   // in: b·do [C, mp]; out
    float *du, *dc;              // [C, mp]; dc stands where dp stood
    float *own_du;               // room for du
    const float *last, *mixed;   // out: P of the last token and q A [C, mp]; du, they and dc may stand in the place of what the chunk held
    float *dgram;                // into G: symmetric, its diagonal twice the gradient [C, cp]
    float *gathered, *read;      // room for the factors' [mp], [C, mp]
    float *turned, *out_t;       // transposes of tokens: h, factors or dH [d, cp], [mp, cp], and dO [d, cp]
    float *end;                  // room for the chunk's end [m, d]
    float *minus_dh, *out;       // [C, d]; out: dO, of which the rows lie apart
} ChunkGradient;

// Vectors of slots that go through the tokens together: enough to hide the latency of one chain of sums.
#define TOGETHER 4

// P_t0 of a chunk; P_tj follow.
static inline float *written_by(const Chunk *k, size_t t) { return k->written + (k->all ? t * (t + 1) / 2 * k->mp : 0); }

// From b, h, G, u, c and q: everything from A to W.
void ISA_NAME(chunk_recurrence)(Chunk *k);

// The same by factors. false: they would leave the range of f32.
bool ISA_NAME(chunk_factors)(Chunk *k);

// Backward of chunk_recurrence (k->all), in: down, dp, f, dq; f is lost.
void ISA_NAME(chunk_recurrence_backward)(ChunkGradient *g, const Chunk *k);

void ISA_NAME(chunk_factors_backward)(ChunkGradient *g, const Chunk *k);

#endif
