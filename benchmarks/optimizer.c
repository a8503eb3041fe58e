#include "benchmarks/optimizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/model.h"
#include "training/muon.h"
#include "training/optimizer.h"
#include "training/settings.h"

#define ADAMW_BYTES 28.0   // a parameter: gradient, weight and both moments are read, all but the gradient written
#define LENGTH 1024        // tokens of the forward and backward that a step is made of

typedef struct OptimizerContext {
    Model model;
    Optimizer optimizer;
    float *grad;
    int32_t *tokens;        // [LENGTH], targets too
    Workspace *workspace;
    double norm;
} OptimizerContext;

static void run_step(void *context)
{
    OptimizerContext *c = context;
    optimizer_step(&c->optimizer, &c->model, c->grad, 1.0, 1e-4);
}

static void run_norm(void *context)
{
    OptimizerContext *c = context;
    c->norm += arena_sum_squares(&c->model, c->grad);
}

static void run_gradients(void *context)
{
    OptimizerContext *c = context;
    model_forward(&c->model, c->workspace, NULL, 0, c->tokens, 1, LENGTH);
    model_loss(NULL, c->grad, &c->model, c->workspace, c->tokens, 1.0f / LENGTH);
    model_backward(c->grad, &c->model, c->workspace, c->tokens);
}

// Seconds of all gradients of a step; leaves gradients behind.
static int time_gradients(double *seconds, OptimizerContext *c, Error *error)
{
    static TrainSettings settings;   // some kilobytes
    RunSize size = {.params = c->model.table.total, .windows = UINT64_C(1) << 40};
    settings_init(&settings);
    if (settings_resolve(&settings, &size, error)) {
        return -1;
    }
    c->workspace = workspace_create(&c->model, 1, LENGTH, WORKSPACE_TRAINING, error);
    if (c->workspace == NULL) {
        return -1;
    }
    *seconds = time_runs(1, run_gradients, c).median * (double)settings.batch_tokens / LENGTH;
    workspace_free(c->workspace);
    return 0;
}

// Multiply-adds of Muon's products, each two operations.
static double muon_flops(const TensorTable *table)
{
    double flops = 0.0;
    for (size_t i = 0; i < table->count; i++) {
        if (muon_takes(&table->items[i])) {
            double rows = (double)table->items[i].shape[0], cols = (double)table->items[i].shape[1], side = fmin(rows, cols);
            flops += 5.0 * 2.0 * side * side * (2.0 * fmax(rows, cols) + side);
        }
    }
    return flops;
}

// One kind: `amount` of work a step, against `ceiling` in units of work a second.
static int bench_kind(OptimizerContext *c, Report *report, OptimizerKind kind, const char *name, double amount, const char *unit, double ceiling,
                      double step_seconds, size_t runs, Error *error)
{
    char label[64];
    if (optimizer_create(&c->optimizer, kind, &c->model.table, 0.1, error)) {
        return -1;
    }
    Spread seconds = time_runs(runs, run_step, c);
    optimizer_free(&c->optimizer);
    snprintf(label, sizeof label, "optimizer %s", name);
    report_line(report, label, rate_of(seconds, amount / 1e9), unit, ceiling / 1e9, 0.0);
    snprintf(label, sizeof label, "optimizer %s in a step", name);
    report_line(report, label, seconds, "s/step", step_seconds, 0.0);
    return 0;
}

static int bench_kinds(OptimizerContext *c, Report *report, const Ceilings *ceilings, size_t runs, Error *error)
{
    double params = (double)c->model.table.total, flops = muon_flops(&c->model.table), step[2];
    if (time_gradients(&step[0], c, error) || model_use_bf16(&c->model, error) || time_gradients(&step[1], c, error)) {
        return -1;
    }
    report_line(report, "gradient norm", rate_of(time_runs(runs, run_norm, c), params * sizeof(float) / 1e9), "GB/s", ceilings->read / 1e9, 0.0);
    if (bench_kind(c, report, OPTIMIZER_ADAMW, "adamw", ADAMW_BYTES * params, "GB/s", ceilings->read, step[0], runs, error)) {
        return -1;
    }
    for (int bf16 = 0; bf16 < 2; bf16++) {
        c->model.bf16 = bf16 == 1;   // of Muon's products
        if (bench_kind(c, report, OPTIMIZER_MUON, bf16 == 1 ? "muon bf16" : "muon f32", flops, "GFLOP/s",
                       bf16 == 1 ? ceilings->peak_bf16 : ceilings->peak_f32, step[bf16], 1, error)) {
            return -1;
        }
    }
    return 0;
}

int bench_optimizer(Report *report, const Ceilings *ceilings, const Kernels *kernels, const ModelConfig *config, size_t runs, Error *error)
{
    OptimizerContext c = {0};
    if (model_create(&c.model, config, kernels, error)) {
        return -1;
    }
    model_init(&c.model, 1, LENGTH);
    c.grad = calloc(c.model.table.total, sizeof(float));
    c.tokens = calloc(LENGTH, sizeof(int32_t));
    int failed = c.grad == NULL || c.tokens == NULL ? error_set(error, "no memory for the benchmark: choose a smaller --preset") : 0;
    for (size_t i = 0; i < LENGTH && failed == 0; i++) {
        c.tokens[i] = (int32_t)(i * 7919 % (size_t)config->vocab_size);
    }
    failed = failed ? -1 : bench_kinds(&c, report, ceilings, runs, error);
    free(c.grad);
    free(c.tokens);
    model_free(&c.model);
    return failed;
}
