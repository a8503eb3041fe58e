// A workspace: all memory of a forward and, for training, its backward, planned once as one piece.
#ifndef MODEL_WORKSPACE_H
#define MODEL_WORKSPACE_H

#include "model/block.h"
#include "model/model.h"

struct Workspace {
    size_t max_batch, max_length;   // what it was planned for
    WorkspaceUse use;
    bool bf16;                      // of the model
    size_t batch, length;           // of the last forward
    const uint8_t *starts;          // of its documents, or NULL; the caller's
    char *memory;                   // the one piece
    BlockSaved *blocks;             // [n_layer]; in inference all share one block's memory, with recomputation all but x
    BlockScratch scratch;
    float *x_out;                   // [N, D] output of the last block
    float *dx;                      // [N, D] training only
    Rows hidden;                    // [N, D] after the final norm, bf16 in training in bf16; from here to picked_dhidden: shares memory with scratch, alive between forward and backward
    float *dhidden;                 // [N, D] training only
    float *logits;                  // [logit_rows, V]
    size_t logit_rows;
    float *row_losses;              // [logit_rows]
    // Where not every target counts: the rows that do, [logit_rows] at a time.
    size_t *picked;                 // which row of [N]
    int32_t *picked_targets;        // its target
    Rows picked_hidden;             // [logit_rows, D]
    float *picked_dhidden;          // [logit_rows, D] training only
    float *states;                  // [batch, own.table.total] inference only: for calls without carried states
    StateLayout own;                // of sequences of max_length tokens
    const StateLayout *layout;      // of the states that model_forward is given; NULL: model->state
};

#endif
