#include "training/optimizer.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const char *const optimizer_moment_names[OPTIMIZER_MOMENTS] = {"m.", "v."};

int optimizer_create(Optimizer *optimizer, size_t total, double weight_decay, Error *error)
{
    *optimizer = (Optimizer){.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = weight_decay};
    optimizer->m = calloc(total, sizeof(float));
    optimizer->v = calloc(total, sizeof(float));
    if (optimizer->m == NULL || optimizer->v == NULL) {
        optimizer_free(optimizer);
        return error_set(error, "out of memory for the optimizer's moments (2 × %zu floats): a smaller --preset helps", total);
    }
    return 0;
}

void optimizer_free(Optimizer *optimizer)
{
    free(optimizer->m);
    free(optimizer->v);
    optimizer->m = optimizer->v = NULL;
}

void optimizer_step(Optimizer *optimizer, Model *model, const float *gradients, double grad_scale, double lr)
{
    optimizer->updates++;
    double correction1 = 1.0 - pow(optimizer->beta1, (double)optimizer->updates);
    double correction2 = 1.0 - pow(optimizer->beta2, (double)optimizer->updates);
    for (size_t i = 0; i < model->table.count; i++) {
        const Tensor *tensor = &model->table.items[i];
        size_t at = tensor->offset;
        model->kernels->adamw(model->params + at, optimizer->m + at, optimizer->v + at, gradients + at, tensor->count, (float)grad_scale, (float)lr,
                              (float)optimizer->beta1, (float)optimizer->beta2, (float)optimizer->eps,
                              tensor->is_matrix ? (float)optimizer->weight_decay : 0.0f, (float)correction1, (float)correction2);
    }
}

double arena_sum_squares(const Model *model, const float *arena)
{
    double sum = 0.0;
    for (size_t i = 0; i < model->table.count; i++) {
        const Tensor *tensor = &model->table.items[i];
        sum += model->kernels->sum_squares(arena + tensor->offset, tensor->count);
    }
    return sum;
}

// Distance from the loss: 0 for what stands behind the layers, 1 for layers, 2 for the embedding.
static int distance_from_loss(const Tensor *tensor)
{
    if (strncmp(tensor->name, "layers.", 7) == 0) {
        return 1;
    }
    return strncmp(tensor->name, "embed.", 6) == 0 ? 2 : 0;
}

// The sum of squares is quick but also overflows for large finite numbers: then each number is looked at.
static bool is_finite(const Model *model, const float *x, size_t count)
{
    if (isfinite(model->kernels->sum_squares(x, count))) {
        return true;
    }
    size_t i = 0;
    while (i < count && isfinite(x[i])) {
        i++;
    }
    return i == count;
}

const Tensor *arena_not_finite(const Model *model, const float *arena)
{
    for (int distance = 0; distance <= 2; distance++) {
        for (size_t i = model->table.count; i-- > 0;) {
            const Tensor *tensor = &model->table.items[i];
            if (distance_from_loss(tensor) == distance && !is_finite(model, arena + tensor->offset, tensor->count)) {
                return tensor;
            }
        }
    }
    return NULL;
}
