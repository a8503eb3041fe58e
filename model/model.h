// The whole model: embedding, blocks, final norm, head. Knows nothing of files.
//
// One forward serves training, evaluation, prompts and decoding: it takes B sequences of T tokens, each optionally with a carried state.
// What the workspace is for decides what is kept of it.
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/config.h"
#include "model/kernels/kernels.h"
#include "model/packed.h"
#include "model/panels.h"
#include "model/params.h"
#include "model/state_layout.h"

typedef struct Model {
    ModelConfig config;
    const Kernels *kernels;
    bool bf16;            // after model_use_bf16
    PanelSet *panels;     // then the matrices in bf16, where the products of this build read them; else NULL
    TensorTable table;    // names and places of the parameters
    float *params;        // [table.total]; once packed only what is not packed, where the table says
    PackedWeights *packed;   // the matrices after model_pack, else NULL
    uint64_t hash;        // for whoever packs: checkpoint_model_hash of the f32 weights, which it can no longer compute then
    StateLayout state;    // one sequence's state, of any length

    // Found once by model_create, for the forward and backward.
    struct BlockOffsets *blocks;   // [n_layer]
    size_t embed, norm, head;      // offsets; the head is the embedding's when tied
} Model;

// Validates the configuration and allocates zeroed parameters. Returns 0, or -1 with `error` set and nothing to free.
int model_create(Model *model, const ModelConfig *config, const Kernels *kernels, Error *error);
void model_free(Model *model);

// For training in bf16: matrix products multiply bf16, of activations what only products read is kept in it, and so is the input of the MLP's gate; all else
// stays f32. Workspaces made before do not fit the model any more. Returns 0, or -1 with `error` set (no memory) and the model as before.
int model_use_bf16(Model *model, Error *error);
// After params have changed: the matrices in bf16 are made anew. In f32 nothing happens.
void model_update_bf16(Model *model);
// Bytes that model_use_bf16 allocates.
size_t model_bf16_bytes(const ModelConfig *config);

// For inference: converts the matrices to `type` once and frees them in f32, so that the model can no longer be trained or saved. Norms, biases,
// convolutions and start states stay f32. WEIGHTS_F32 changes nothing. Returns 0, or -1 with `error` set (packed_create) and the model as before.
int model_pack(Model *model, WeightType type, Error *error);

// Bytes of weights that one step of decoding reads.
size_t model_step_bytes(const Model *model);

// Random start values, see params_init.
void model_init(Model *model, uint64_t seed, size_t train_length);

// What a workspace is for.
typedef enum WorkspaceUse {
    WORKSPACE_INFERENCE,   // one block's memory serves them all
    WORKSPACE_TRAINING,    // every block keeps what its backward needs
    WORKSPACE_RECOMPUTE,   // training, but a block keeps only its input and the backward runs its forward again: the same bits for more work
} WorkspaceUse;

typedef struct Workspace Workspace;

// Plans and allocates memory for up to `batch` sequences of `length` tokens. Returns NULL with `error` set when there is none.
Workspace *workspace_create(const Model *model, size_t batch, size_t length, WorkspaceUse use, Error *error);
void workspace_free(Workspace *workspace);
// What workspace_create would allocate, in bytes.
size_t workspace_bytes(const ModelConfig *config, size_t batch, size_t length, WorkspaceUse use, bool bf16);

// One sequence's state has layout->table.total floats; this sets it to the start (zero tails, normalised state0). The layout is model->state, or another one
// of the model's configuration.
void model_state_init(const Model *model, const StateLayout *layout, float *state);

// From now on the states that model_forward is given with this workspace lie as the layout says, and no sequence gets longer than it is for. The bits of what
// comes out are the same. The layout is the caller's and must live on; until this is called it is model->state.
void workspace_lay_out_states(Workspace *workspace, const StateLayout *layout);

// Runs the blocks over tokens [batch, length].
// states [batch, layout's table.total]: where the sequences stand, updated in place; NULL: every sequence starts anew and the end is not kept.
// position: tokens that the states have seen so far (the same for the whole batch; 0 with states NULL).
// Every token must be in 0 … vocab_size−1 (asserted). Leaves the normalised last hidden layer in the workspace.
void model_forward(const Model *model, Workspace *workspace, float *states, size_t position, const int32_t *tokens, size_t batch, size_t length);

// The same for packed documents, in a training workspace and without states: starts [batch, length] holds a number other than 0 where a token is the first
// of a document. Such a token sees nothing of those before it: every mixer begins from its start, positions from 0, and convolutions see zeros to the left;
// model_backward goes by the same borders. starts must live until then. NULL: the sequences are whole.
void model_forward_documents(const Model *model, Workspace *workspace, const uint8_t *starts, const int32_t *tokens, size_t batch, size_t length);

// After model_forward and before model_backward: logits [n_rows, vocab_size] of the rows first_row … of the [batch·length] tokens.
void model_logits(float *logits, const Model *model, Workspace *workspace, size_t first_row, size_t n_rows);

// After model_forward: cross-entropy in nats of targets [batch, length]; a target of −1 does not count. Returns the sum over those that do.
// losses [batch, length], optional: the loss of each target, 0 where it does not count.
// dparams, optional (no inference workspace): gradients of `scale` times the sum are added for the head, and what model_backward needs is kept.
double model_loss(float *losses, float *dparams, const Model *model, Workspace *workspace, const int32_t *targets, float scale);

// After model_forward without states and model_loss with dparams: adds the gradient of every parameter to dparams [table.total].
void model_backward(float *dparams, const Model *model, Workspace *workspace, const int32_t *tokens);

#endif
