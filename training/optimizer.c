#include "training/optimizer.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/memory.h"
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
    return error_set(error, "--optimizer '%s' is unknown: there are adamw and muon", name);
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

static size_t thread_count(void)
{
#ifdef _OPENMP
    return (size_t)omp_get_max_threads();
#else
    return 1;
#endif
}

static size_t thread_index(void)
{
#ifdef _OPENMP
    return (size_t)omp_get_thread_num();
#else
    return 0;
#endif
}

int optimizer_create(Optimizer *optimizer, OptimizerKind kind, const TensorTable *table, double weight_decay, Error *error)
{
    *optimizer = (Optimizer){.kind = kind, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .momentum = 0.95, .weight_decay = weight_decay};
    if (second_moment_table(&optimizer->v_table, kind, table, error)) {
        return -1;
    }
    optimizer->scratch_floats = kind == OPTIMIZER_MUON ? muon_scratch_floats(table) : 0;
    optimizer->scratch_threads = thread_count();
    size_t scratch = optimizer->scratch_floats * optimizer->scratch_threads;
    optimizer->m = memory_large(table->total * sizeof(float));
    optimizer->v = memory_large(optimizer->v_table.total * sizeof(float));
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
    double floats = (double)table->total + (kind == OPTIMIZER_MUON ? (double)(muon_scratch_floats(table) * thread_count()) : 0.0);
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

// How gradients become steps this time.
typedef struct Rates {
    double grad_scale, lr;
} Rates;

static double decay_of(const Optimizer *optimizer, const Tensor *tensor) { return tensor->is_matrix ? optimizer->weight_decay : 0.0; }

static void adamw_steps(Optimizer *optimizer, Model *model, const float *gradients, const Rates *rates)
{
    float correction1 = (float)(1.0 - pow(optimizer->beta1, (double)optimizer->updates));
    float correction2 = (float)(1.0 - pow(optimizer->beta2, (double)optimizer->updates));
    float *v = optimizer->v;   // lies in the order of the tensors
    for (size_t i = 0; i < model->table.count; i++) {
        const Tensor *tensor = &model->table.items[i];
        size_t at = tensor->offset;
        if (!is_muon(optimizer->kind, tensor)) {
            model->kernels->adamw(model->params + at, optimizer->m + at, v, gradients + at, tensor->count, (float)rates->grad_scale, (float)rates->lr,
                                  (float)optimizer->beta1, (float)optimizer->beta2, (float)optimizer->eps, (float)decay_of(optimizer, tensor),
                                  correction1, correction2);
            v += tensor->count;
        }
    }
}

// Each thread works on matrices of its own: the products of small models are too short to be shared out.
static void muon_steps(Optimizer *optimizer, Model *model, const float *gradients, const Rates *rates)
{
    size_t threads = thread_count() < optimizer->scratch_threads ? thread_count() : optimizer->scratch_threads;
    bool bf16 = model->bf16 && model->kernels->fast_bf16;
    (void)threads;   // without OpenMP
#pragma omp parallel for schedule(dynamic) num_threads((int)threads)
    for (size_t i = 0; i < model->table.count; i++) {
        const Tensor *tensor = &model->table.items[i];
        size_t at = tensor->offset;
        if (is_muon(optimizer->kind, tensor)) {
            MuonRates muon = {.grad_scale = rates->grad_scale, .lr = rates->lr, .decay = decay_of(optimizer, tensor), .momentum = optimizer->momentum};
            muon_step(model->params + at, optimizer->m + at, gradients + at, optimizer->scratch + thread_index() * optimizer->scratch_floats,
                      tensor->shape[0], tensor->shape[1], &muon, model->kernels, bf16);
        }
    }
}

void optimizer_step(Optimizer *optimizer, Model *model, const float *gradients, double grad_scale, double lr)
{
    Rates rates = {grad_scale, lr};
    optimizer->updates++;
    adamw_steps(optimizer, model, gradients, &rates);
    if (optimizer->kind == OPTIMIZER_MUON) {
        muon_steps(optimizer, model, gradients, &rates);
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
