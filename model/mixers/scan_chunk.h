// Chunks of the memories of linear writes (scan.h) by matrix products: the memory S_b [m, d] is read at a chunk's start and written at its end, and never
// exists in between. Of the rules that write h = v or, where they read, h = v − mu p (the delta rule), with c = g.
//
// One decay for a head. With R_tj = Π mu_l over j < l ≤ t, D_t = Π mu_l over l ≤ t and E_j = R_Cj, all at most 1 and none divided by:
//
//     W_tj = R_tj g_j (q_t·k_j)  (j ≤ t)        o_t = D_t S_bᵀ q_t + Σ_j W_tj h_j        the end: D_C S_b + Σ_j E_j g_j k_j h_jᵀ
//     L_tj = R_tj g_j (k_t·k_j)  (j < t)        (I + L) H = V − D K S_b   (delta)        else H = V
//
// Backward, with dS the gradient into the end, X ∘ Y the product of elements and the primes' part above the diagonal taken as zero:
//
//     dH = Wᵀ dO + (E g) K dS        Z = (I + L)⁻ᵀ dH (delta; else dH)        dV = Z        dW = dO Hᵀ        dL = −Z Hᵀ
//     dQ = D (dO S_bᵀ) + (dW ∘ R g) K        dK = (E g) H dSᵀ + (dW ∘ R g)ᵀ Q − D Z S_bᵀ + (dL ∘ R g) K + (dL ∘ R g)ᵀ K
//     dS_b = D_C dS + Qᵀ (D dO) − Kᵀ (D Z)
//     dg_j = Σ_t R_tj y_tj + E_j (k_j·dS h_j)        y = dW ∘ (Q Kᵀ) + dL ∘ (K Kᵀ)
//     dmu_l = Σ R_(l−1)j x_tj R_tl over j < l ≤ t, x = y g, in which S_b stands as token −1 and the end as token C
//
// A chunked rule reads at the chunk's start only: H = its write of V and K S_b, and there is no L. Its own backward then stands for dV and −Z = d(K S_b); what
// turns y into the output goes before all. Its chunks are the head's, of which a whole number, SCAN_LEAST tokens or longer, makes a group.
//
// One decay for each slot: R, D and E are vectors over slots, and W_tj = Σ_i q_ti k_tji with k_tj = k_j ∘ R_tj, which a chunk of SCAN_SLOT_CHUNK tokens holds
// for each pair (exactly: relative to a token in the middle, decays would have to be divided by).
#ifndef MODEL_MIXERS_SCAN_CHUNK_H
#define MODEL_MIXERS_SCAN_CHUNK_H

#include "model/mixers/ahead.h"
#include "model/mixers/scan.h"

// Tokens of a chunk: SCAN_GROUP is a multiple of each.
#define SCAN_CHUNK 32
#define SCAN_SLOT_CHUNK 16

// One chunk of a head. [C, mp]: a row a token, with a number for each slot; [C, dp]: one for each place of a slot; [C, cp]: one for each token. Rows are whole
// vectors, with zeros behind the last number.
typedef struct ScanChunk {
    size_t count;              // C
    size_t m, d, mp, dp, cp;   // mp, dp, cp: m, d and C rounded up to whole vectors
    Ahead *ahead;              // what its products ask for
    const float *start;        // S_b [m, d]
    float *own_start;          // room for it
    float *q, *k;              // [C, mp]
    float *q_t, *k_t;          // [mp, cp]
    float *h;                  // [C, dp]
    float *read, *write;       // D q; what a token leaves at the end, E g k [C, mp]
    float *keep;               // D_C [mp], of every slot
    float *w, *l;              // Wᵀ, Lᵀ: row j, element t [C, cp]

    // One decay for a head.
    float *g, *mu;             // [cp]
    float *ratio;              // Rᵀ, zero where t < j [C, cp]
    float *qk, *kk;            // k_j·q_t, k_j·k_t: only whole vectors that hold a t ≥ j [C, cp]
    float *decay, *rest;       // D, E g [cp]
    float *ks;                 // K S_b [C, dp]

    // One for each slot.
    float *alpha, *own;        // [C, mp]; own: D
    float *pairs;              // k_tj [mp] for each j ≤ t of each t, or (all false) for each j of the last t
    float *sums;               // room for one vector for each pair
    bool all;
} ScanChunk;

// The gradients of one chunk.
typedef struct ScanChunkGradient {
    float *do_, *dh;             // dO; dH, then Z [C, dp]
    float *do_t, *dh_t;          // [dp, cp]
    float *start_t, *ds_t;       // S_bᵀ, dSᵀ [dp, mp]
    float *kept;                 // s_i·ds_i [mp], S_b's and dS's
    float *dot;                  // dO S_bᵀ [C, mp]
    float *dw, *dl;              // dWᵀ, dLᵀ as ratio: whole vectors that hold a t ≥ j; become dW ∘ R g and dL ∘ R g [C, cp]

    float *kds;                  // K dS [C, dp]
    float *left, *met;           // k_j·dS h_j, the gradient into E g; that into D [cp]
    float *dg, *dmu;             // [cp]
    float *sums;                 // room for two vectors for each token
    float *k_rows;               // room for the gradient of k [C, mp]
    float *beside_q, *beside_k;  // of a chunked rule: what its output and its write add to the gradients of q and k [C, mp]

    float *dwrite;               // H dSᵀ, the gradient into write [C, mp]
    float *dq, *dk, *dalpha;     // gradients' rows, of the first token
    size_t row, alpha_row;
} ScanChunkGradient;

// From q, k, q_t, k_t, qk, kk, g and mu: ratio, w, decay, rest, read, write, keep; l where the rule reads.
void ISA_NAME(scan_weights)(ScanChunk *c, bool reads);

// From dw, dl, left, met and kept: dg and dmu; dw and dl are turned.
void ISA_NAME(scan_weights_backward)(ScanChunkGradient *g, const ScanChunk *c, bool reads);

// From q, k and alpha: own, pairs, w, read, write, keep.
void ISA_NAME(scan_slot_weights)(ScanChunk *c);

// From dot, dw, dwrite and kept (all of which it may change): the rows dq, dk and dalpha.
void ISA_NAME(scan_slot_weights_backward)(ScanChunkGradient *g, const ScanChunk *c);

// k_t0 of a chunk; k_tj follow.
static inline float *scan_pairs(const ScanChunk *c, size_t t) { return c->pairs + (c->all ? t * (t + 1) / 2 * c->mp : 0); }

#endif
