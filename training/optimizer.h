// The optimizer over all parameters of a model: AdamW for everything, or Muon for the blocks' large matrices and AdamW for the rest. Weight decay
// is for matrices only.
#ifndef TRAINING_OPTIMIZER_H
#define TRAINING_OPTIMIZER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "model/model.h"

typedef enum OptimizerKind {
    OPTIMIZER_ADAMW,
    OPTIMIZER_MUON,
} OptimizerKind;

#define OPTIMIZER_ARENAS 2

typedef struct Optimizer {
    OptimizerKind kind;
    float *m;               // [model.table.total] moving mean of the gradient; Muon's momentum
    float *v;               // [v_table.total] moving mean of its square
    TensorTable v_table;    // AdamW's tensors, in the order of the model's table
    float *scratch;         // [scratch_threads][scratch_floats] Muon's
    size_t scratch_floats, scratch_threads;
    int64_t updates;        // steps applied so far; skipped ones do not count
    double beta1, beta2, eps;
    double momentum;        // Muon's β
    double weight_decay;    // of tensors with is_matrix
} Optimizer;

// "adamw" or "muon". Returns 0, or -1 with `error` set: it lists the names there are.
int optimizer_kind(OptimizerKind *kind, const char *name, Error *error);

// Zero state for the parameters of a table; beta 0.9 and 0.95, eps 1e-8, momentum 0.95. Returns 0, or -1 with `error` set and nothing to free.
int optimizer_create(Optimizer *optimizer, OptimizerKind kind, const TensorTable *table, double weight_decay, Error *error);
void optimizer_free(Optimizer *optimizer);

// Bytes that optimizer_create allocates for its arrays; Muon's scratch grows with the threads there are.
double optimizer_bytes(OptimizerKind kind, const TensorTable *table);

// The state as optimizer.safetensors holds it: m. of every tensor, v. of AdamW's. `table` is the model's.
void optimizer_arenas(NamedArena arenas[OPTIMIZER_ARENAS], const Optimizer *optimizer, const TensorTable *table);

// One update of model->params from gradients [table.total], which count `grad_scale`-fold (clipping). Decay is decoupled: lr ·
// weight_decay · p. In models of bf16 Muon's products are bf16's where the processor has them.
void optimizer_step(Optimizer *optimizer, Model *model, const float *gradients, double grad_scale, double lr);

// Sum of the squares of an arena [table.total], tensor by tensor in a fixed order. Not finite if an element is not, or is beyond 1e19.
double arena_sum_squares(const Model *model, const float *arena);

// The tensor with a NaN or an infinity in it that is nearest to the loss (head and last norm, then the layers from the last to the
// first, then the embedding): in gradients the one where it began. NULL when all are finite.
const Tensor *arena_not_finite(const Model *model, const float *arena);

#endif
