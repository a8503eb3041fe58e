#include "training/optimizer.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "training/muon.h"

static const char *const names[] = {"adamw", "muon"};

int optimizer_kind(OptimizerKind *kind, const char *name, Error *error)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            *kind = (OptimizerKind)i;
            return 0;
        }
    }
    return error_set(error, "optimizer '%s' is unknown: there are adamw and muon", name);
}

// ---- state ----

static bool is_muon(OptimizerKind kind, const Tensor *tensor) { return kind == OPTIMIZER_MUON && muon_takes(tensor); }

// The table of the tensors that have a second moment.
static int second_moment_table(TensorTable *v_table, OptimizerKind kind, const TensorTable *table, Error *error)
{
    *v_table = (TensorTable){.items = calloc(table->count + 1, sizeof *table->items)};
    if (v_table->items == NULL) {
        return error_set(error, "out of memory for the optimizer");
    }
    for (size_t i = 0; i < table->count; i++) {
        if (!is_muon(kind, &table->items[i])) {
            Tensor *tensor = &v_table->items[v_table->count++];
            *tensor = table->items[i];
            tensor->offset = v_table->total;
            v_table->total += tensor->count;
        }
    }
    return 0;
}

int optimizer_create(Optimizer *optimizer, OptimizerKind kind, const TensorTable *table, double weight_decay, Error *error)
{
    *optimizer = (Optimizer){.kind = kind, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .momentum = 0.95, .weight_decay = weight_decay};
    if (second_moment_table(&optimizer->v_table, kind, table, error)) {
        return -1;
    }
    size_t scratch = kind == OPTIMIZER_MUON ? muon_scratch_floats(table) : 0;
    optimizer->m = calloc(table->total, sizeof(float));
    optimizer->v = calloc(optimizer->v_table.total, sizeof(float));
    optimizer->scratch = malloc((scratch + 1) * sizeof(float));
    if (optimizer->m == NULL || optimizer->v == NULL || optimizer->scratch == NULL) {
        size_t floats = table->total + optimizer->v_table.total + scratch;
        optimizer_free(optimizer);
        return error_set(error, "out of memory for the optimizer's state (%zu floats): a smaller --preset helps", floats);
    }
    return 0;
}

void optimizer_free(Optimizer *optimizer)
{
    free(optimizer->m);
    free(optimizer->v);
    free(optimizer->scratch);
    tensor_table_free(&optimizer->v_table);
    optimizer->m = optimizer->v = optimizer->scratch = NULL;
}

double optimizer_bytes(OptimizerKind kind, const TensorTable *table)
{
    double floats = (double)table->total + (kind == OPTIMIZER_MUON ? (double)muon_scratch_floats(table) : 0.0);
    for (size_t i = 0; i < table->count; i++) {
        floats += is_muon(kind, &table->items[i]) ? 0.0 : (double)table->items[i].count;
    }
    return floats * sizeof(float);
}

void optimizer_arenas(NamedArena arenas[OPTIMIZER_ARENAS], const Optimizer *optimizer, const TensorTable *table)
{
    arenas[0] = (NamedArena){"m.", table, optimizer->m};
    arenas[1] = (NamedArena){"v.", &optimizer->v_table, optimizer->v};
}

// ---- a step ----

void optimizer_step(Optimizer *optimizer, Model *model, const float *gradients, double grad_scale, double lr)
{
    const Kernels *kernels = model->kernels;
    optimizer->updates++;
    double correction1 = 1.0 - pow(optimizer->beta1, (double)optimizer->updates);
    double correction2 = 1.0 - pow(optimizer->beta2, (double)optimizer->updates);
    float *v = optimizer->v;
    for (size_t i = 0; i < model->table.count; i++) {
        const Tensor *tensor = &model->table.items[i];
        float *params = model->params + tensor->offset, *m = optimizer->m + tensor->offset;
        const float *grad = gradients + tensor->offset;
        double decay = tensor->is_matrix ? optimizer->weight_decay : 0.0;
        if (is_muon(optimizer->kind, tensor)) {
            MuonRates rates = {.grad_scale = grad_scale, .lr = lr, .decay = decay, .momentum = optimizer->momentum};
            muon_step(params, m, grad, optimizer->scratch, tensor->shape[0], tensor->shape[1], &rates, kernels, model->bf16 && kernels->fast_bf16);
            continue;
        }
        kernels->adamw(params, m, v, grad, tensor->count, (float)grad_scale, (float)lr, (float)optimizer->beta1, (float)optimizer->beta2,
                       (float)optimizer->eps, (float)decay, (float)correction1, (float)correction2);
        v += tensor->count;   // v lies in the order of the tensors
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
