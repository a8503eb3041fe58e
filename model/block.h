// One block: norm, projections, short convolution, mixer, output gate, output projection; then norm and SwiGLU. Forward and backward.
#ifndef MODEL_BLOCK_H
#define MODEL_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/block_shape.h"
#include "model/config.h"
#include "model/kernels/kernels.h"
#include "model/mixers/mixer.h"
#include "model/packed.h"
#include "model/panels.h"
#include "model/params.h"

// Where a layer's parameters begin in the arena; 0 for those that it has not. Matrices that stand together are
// used as one: projection [projection, D], w13 [2F, D], conv_weight [channels, taps], conv_bias [channels].
typedef struct BlockOffsets {
    BlockShape shape;
    size_t norm, projection, conv_weight, conv_bias, key_scale, g_bias, mu_bias, rate, state0, ln_weight, ln_bias, out_norm, o, mlp_norm, w13, w2;
    size_t decay_down, decay_up, decay_bias;
} BlockOffsets;

BlockOffsets block_offsets(const TensorTable *params, const BlockShape *shape, size_t layer);

// What the forward leaves for the backward; N = B·T rows. x [N, D] is the block's input.
typedef struct BlockSaved {
    float *x;
    float *projection;   // [N, projection]
    float *qkv;          // [N, conv] after convolution, SiLU and norm
    float *g, *mu;       // [N, gate], [N, forget]
    float *low, *alpha;  // [N, rank], [N, decay]
    float *o;            // [N, H·d]
    float *mixer;        // what the mixer keeps; NULL in inference
    float *x_mid;        // [N, D] after the mixer's half
    Rows h13;            // [N, 2F], in training in bf16 rounded to it
} BlockSaved;

// Memory that the layers share, as wide as the widest. The d… are for the backward only. What is never alive at once may be the same memory: normed,
// dnormed and dqkv; inner, dinner and mixer; h13 and what only the backward needs (workspace.c plans it).
typedef struct BlockScratch {
    Rows normed;         // [N, D]; what only products read is bf16 in training in bf16
    Rows inner;          // [N, max(H·d, F)]
    float *h13;          // [N, 2F] where saved->h13 is bf16: before it is rounded
    float *mixer;        // what the mixer asks for
    float *dnormed;      // [N, D]
    float *dinner;       // [N, max(H·d, F)]
    float *do_;          // [N, H·d]
    float *dprojection;  // [N, projection]
    float *dqkv;         // [N, conv]
    float *conv_sums;    // [B, conv_width + 1, conv]
    float *dg, *dmu;     // [N, gate], [N, forget]
    float *dlow, *dalpha;   // [N, rank], [N, decay]
    float *start;        // start_read_scratch_floats, where a layer reads relative to its start
} BlockScratch;

// The three products of a linear layer, in the precision of the run (kernels.h).
typedef struct LinearKernels {
    void (*forward)(float *out, Rows x, Weights w, size_t n, size_t n_in, size_t n_out);
    void (*backward_input)(float *dx, Rows dout, Weights w, size_t n, size_t n_in, size_t n_out, bool accumulate);
    void (*backward_weight)(float *dw, Rows dout, Rows x, size_t n, size_t n_in, size_t n_out);
} LinearKernels;

LinearKernels linear_kernels(const Kernels *kernels, bool bf16);

// Everything fixed during a call.
typedef struct BlockContext {
    const ModelConfig *config;
    const Kernels *kernels;
    LinearKernels linear;
    const float *params;       // the arena
    const PackedWeights *packed;   // the matrices in inference, or NULL: they stand in the arena
    const PanelSet *panels;        // what bf16 products read beside the arena, or NULL
    size_t batch, length, position;
    const uint8_t *starts;     // [B·T] where documents begin (kernels/documents.h), or NULL; only without states
    size_t longest;            // tokens of a sequence that states have room for; without states SIZE_MAX
} BlockContext;

// A layer's part of the first sequence's state, `stride` floats from one sequence to the next; NULL: the layer has none, or nothing is carried.
typedef struct BlockStates {
    float *tail, *memory;
    size_t stride;
} BlockStates;

// The matrix at offset `at` of the arena, which is not packed, as products read it.
Weights block_weights(size_t at, const BlockContext *context);

// out [n, n_out] = x [n, n_in] · Wᵀ with the matrix W [n_out, n_in] at offset `at` of the arena.
void block_linear(float *out, Rows x, size_t at, size_t n, size_t n_in, size_t n_out, const BlockContext *context);

// x_out [N, D] from saved->x; states are updated. x_out may be saved->x; NULL: only what block_backward needs is computed again.
void block_forward(float *x_out, const BlockSaved *saved, const BlockScratch *scratch, BlockStates states, const BlockOffsets *at, const BlockContext *context);

// dx [N, D] holds the gradient of the block's output and receives that of its input; dparams (the arena) accumulates. saved->h13, g and qkv are overwritten.
void block_backward(float *dx, float *dparams, const BlockSaved *saved, const BlockScratch *scratch, const BlockOffsets *at, const BlockContext *context);

#endif
