// AdamW over all parameters of a model: two moments a parameter, weight decay on matrices only.
#ifndef TRAINING_OPTIMIZER_H
#define TRAINING_OPTIMIZER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/model.h"

#define OPTIMIZER_MOMENTS 2

typedef struct Optimizer {
    float *m, *v;           // [model.table.total] moving means of the gradient and of its square
    int64_t updates;        // steps applied so far; skipped ones do not count
    double beta1, beta2, eps;
    double weight_decay;    // of tensors with is_matrix
} Optimizer;

// The prefixes of m and v in optimizer.safetensors.
extern const char *const optimizer_moment_names[OPTIMIZER_MOMENTS];

// Zero moments for `total` parameters; beta 0.9 and 0.95, eps 1e-8. Returns 0, or -1 with `error` set and nothing to free.
int optimizer_create(Optimizer *optimizer, size_t total, double weight_decay, Error *error);
void optimizer_free(Optimizer *optimizer);

// One update of model->params from gradients [table.total], which count `grad_scale`-fold (clipping). Decay is decoupled: lr ·
// weight_decay · p.
void optimizer_step(Optimizer *optimizer, Model *model, const float *gradients, double grad_scale, double lr);

// Sum of the squares of an arena [table.total], tensor by tensor in a fixed order. Not finite if an element is not, or is beyond 1e19.
double arena_sum_squares(const Model *model, const float *arena);

// The tensor with a NaN or an infinity in it that is nearest to the loss (head and last norm, then the layers from the last to the
// first, then the embedding): in gradients the one where it began. NULL when all are finite.
const Tensor *arena_not_finite(const Model *model, const float *arena);

#endif
