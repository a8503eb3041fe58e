#include "training/trainer.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define SPIKE_FACTOR 10.0      // a norm this many times its mean is a spike
#define SPIKE_AFTER 20         // steps before the mean means something
#define NORM_DECAY 0.95        // of the moving mean
#define SAMPLE_STREAM 3        // of the seed

// ---- life ----

static WorkspaceUse workspace_use(const TrainerOptions *options) { return options->recompute ? WORKSPACE_RECOMPUTE : WORKSPACE_TRAINING; }

static bool stopped(const Trainer *trainer) { return trainer->stop != NULL && *trainer->stop != 0; }

static size_t shares_of(const TrainerOptions *options) { return options->shares > 0 ? options->shares : (size_t)ranks_count(options->ranks); }

static bool several_rounds(const TrainerOptions *options) { return shares_of(options) > (size_t)ranks_count(options->ranks); }

// The first micro-batch of a share; that of share `shares` is the end.
static size_t share_start(const Trainer *trainer, size_t share) { return trainer->n_micro * share / trainer->shares; }

// How many micro-batches of a step are this rank's.
static size_t own_micro(const Trainer *trainer)
{
    size_t count = 0;
    for (size_t s = (size_t)ranks_own(trainer->ranks); s < trainer->shares; s += (size_t)ranks_count(trainer->ranks)) {
        count += share_start(trainer, s + 1) - share_start(trainer, s);
    }
    return count;
}

int trainer_create(Trainer *trainer, Model *model, const TrainerOptions *options, Error *error)
{
    *trainer = (Trainer){.model = *model, .schedule = options->schedule, .micro_batch = options->micro_batch, .n_micro = options->n_micro,
                         .seq_len = options->seq_len, .clip = options->clip, .ranks = options->ranks, .shares = shares_of(options)};
    assert(trainer->shares <= trainer->n_micro && trainer->shares >= (size_t)ranks_count(trainer->ranks));
    // From here on the trainer's copy is the model: the optimizer and the workspace see that one.
    *model = (Model){0};
    rng_seed(&trainer->rng, options->seed, SAMPLE_STREAM);
    size_t total = trainer->model.table.total;
    size_t batch = own_micro(trainer) * options->micro_batch * options->seq_len;
    bool rounds = several_rounds(options);
    if (optimizer_create(&trainer->optimizer, options->optimizer, &trainer->model.table, options->weight_decay, error) ||
        (options->bf16 && model_use_bf16(&trainer->model, error))) {
        trainer_free(trainer);
        return -1;
    }
    trainer->workspace = workspace_create(&trainer->model, options->micro_batch, options->seq_len, workspace_use(options), error);
    if (trainer->workspace == NULL) {
        trainer_free(trainer);
        return -1;
    }
    trainer->gradients = memory_large(total * sizeof(float));
    trainer->share_gradients = rounds ? memory_large(total * sizeof(float)) : NULL;
    trainer->tokens = calloc(batch, sizeof(int32_t));
    trainer->targets = calloc(batch, sizeof(int32_t));
    if (options->reset_at_document) {
        trainer->end_of_text = options->end_of_text;
        trainer->starts = calloc(batch, sizeof *trainer->starts);
    }
    if (trainer->gradients == NULL || (rounds && trainer->share_gradients == NULL) || trainer->tokens == NULL || trainer->targets == NULL ||
        (options->reset_at_document && trainer->starts == NULL)) {
        trainer_free(trainer);
        return error_set(error, "out of memory for gradients and a batch of %zu tokens: lower --batch-tokens or take a smaller --preset", batch);
    }
    return 0;
}

void trainer_free(Trainer *trainer)
{
    if (trainer->workspace != NULL) {
        workspace_free(trainer->workspace);
    }
    optimizer_free(&trainer->optimizer);
    free(trainer->gradients);
    free(trainer->share_gradients);
    free(trainer->tokens);
    free(trainer->targets);
    free(trainer->starts);
    model_free(&trainer->model);
    *trainer = (Trainer){0};
}

double trainer_bytes(const ModelConfig *config, const TensorTable *table, const TrainerOptions *options)
{
    double arenas = (several_rounds(options) ? 3.0 : 2.0) * (double)table->total * sizeof(float) + optimizer_bytes(options->optimizer, table);
    double token = 2.0 * sizeof(int32_t) + (options->reset_at_document ? sizeof(uint8_t) : 0.0);
    double batch = token * (double)options->micro_batch * (double)options->n_micro * (double)options->seq_len;
    double weights = options->bf16 ? (double)model_bf16_bytes(config) : 0.0;
    return arenas + weights + batch + (double)workspace_bytes(config, options->micro_batch, options->seq_len, workspace_use(options), options->bf16);
}

// ---- a step ----

// The forward of windows [first, first + batch) of those that were read, cut into documents where the run does that.
static void forward(Trainer *trainer, size_t first, size_t batch)
{
    size_t at = first * trainer->seq_len;
    const int32_t *tokens = trainer->tokens + at;
    uint8_t *starts = trainer->starts != NULL ? trainer->starts + at : NULL;
    if (starts != NULL) {
        loader_document_starts(starts, tokens, batch * trainer->seq_len, trainer->end_of_text);
    }
    model_forward_documents(&trainer->model, trainer->workspace, starts, tokens, batch, trainer->seq_len);
}

// Reads the windows of one micro-batch, counted from the start of the step, to the place `at` among this rank's. Returns how many targets
// count in them, or -1 with `error` set.
static int64_t load_micro(Trainer *trainer, size_t micro, size_t at, Error *error)
{
    int64_t counted = 0;
    for (size_t i = 0; i < trainer->micro_batch; i++) {
        size_t row = (at * trainer->micro_batch + i) * trainer->seq_len;
        int32_t *tokens = trainer->tokens + row, *targets = trainer->targets + row;
        if (loader_window(trainer->train, tokens, targets, trainer->window + micro * trainer->micro_batch + i, error)) {
            return -1;
        }
        for (size_t t = 0; t < trainer->seq_len; t++) {
            counted += targets[t] >= 0;
        }
    }
    return counted;
}

// Reads the windows of this rank's shares of one step. Returns as load_micro does.
static int64_t load_shares(Trainer *trainer, Error *error)
{
    size_t at = 0;
    int64_t counted = 0;
    for (size_t s = (size_t)ranks_own(trainer->ranks); s < trainer->shares; s += (size_t)ranks_count(trainer->ranks)) {
        for (size_t micro = share_start(trainer, s); micro < share_start(trainer, s + 1); micro++) {
            int64_t more = load_micro(trainer, micro, at++, error);
            if (more < 0) {
                return -1;
            }
            counted += more;
        }
    }
    return counted;
}

// Reads the windows of one step, each rank its own. Returns how many targets count in all of them, or -1 with `error` set.
static int64_t load_batch(Trainer *trainer, Error *error)
{
    int64_t own = load_shares(trainer, error);
    if (ranks_agree(trainer->ranks, own < 0 ? -1 : 0, error) != 0) {
        return -1;
    }
    double part = (double)own, counted = 0.0;
    ranks_add(trainer->ranks, &counted, &part, 1);
    return (int64_t)counted;
}

// Gradients of `count` micro-batches from the place `at` among this rank's on, each target weighted by `scale`. Returns 0 or TRAINER_STOPPED;
// *sum is the sum of the losses, and not finite as soon as one micro-batch's is (the rest is then left out).
static int accumulate_share(Trainer *trainer, float *gradients, double *sum, size_t at, size_t count, float scale)
{
    const Model *model = &trainer->model;
    size_t micro_tokens = trainer->micro_batch * trainer->seq_len;
    memset(gradients, 0, model->table.total * sizeof(float));
    for (size_t i = at; i < at + count && isfinite(*sum); i++) {
        if (stopped(trainer)) {
            return TRAINER_STOPPED;
        }
        const int32_t *tokens = trainer->tokens + i * micro_tokens;
        forward(trainer, i * trainer->micro_batch, trainer->micro_batch);
        *sum += model_loss(NULL, gradients, model, trainer->workspace, trainer->targets + i * micro_tokens, scale);
        model_backward(gradients, model, trainer->workspace, tokens);
    }
    return 0;
}

// Gradients and losses of all shares, added in their order: in each round every rank works on one. Returns 0 or TRAINER_STOPPED; a stop of
// one rank stops all.
static int accumulate(Trainer *trainer, double *sum, float scale)
{
    size_t ranks = (size_t)ranks_count(trainer->ranks), at = 0;
    *sum = 0.0;
    for (size_t first = 0; first < trainer->shares && isfinite(*sum); first += ranks) {
        size_t among = trainer->shares - first < ranks ? trainer->shares - first : ranks, own = first + (size_t)ranks_own(trainer->ranks);
        size_t count = own < trainer->shares ? share_start(trainer, own + 1) - share_start(trainer, own) : 0;
        float *gradients = first == 0 ? trainer->gradients : trainer->share_gradients;
        double part = 0.0;
        int status = accumulate_share(trainer, gradients, &part, at, count, scale);
        if (ranks_agree(trainer->ranks, status, NULL) != 0) {
            return TRAINER_STOPPED;
        }
        ranks_add(trainer->ranks, sum, &part, 1);
        ranks_add_floats(trainer->ranks, trainer->gradients, gradients, trainer->model.table.total, (int)among, first > 0);
        at += count;
    }
    return 0;
}

int trainer_check_weights(const Trainer *trainer, Error *error)
{
    const Tensor *tensor = arena_not_finite(&trainer->model, trainer->model.params);
    return tensor == NULL ? 0 : error_set(error, "weight %s holds a NaN or an infinity", tensor->name);
}

// A loss or gradient was not finite: finds out where, and whether there is a point in going on.
static int skip_step(Trainer *trainer, StepResult *result, Error *error)
{
    if (trainer_check_weights(trainer, error)) {
        return error_prefix(error, "step %" PRId64, trainer->step + 1);
    }
    const Tensor *tensor = arena_not_finite(&trainer->model, trainer->gradients);
    if (tensor != NULL) {
        snprintf(result->where, sizeof result->where, "gradient of %s", tensor->name);
    } else {
        snprintf(result->where, sizeof result->where, "%s", isfinite(result->loss) ? "norm of the gradient" : "loss");
    }
    result->skipped = true;
    if (++trainer->skipped_in_row >= TRAINER_MAX_SKIPPED) {
        return error_set(error, "step %" PRId64 ": %d steps in a row had a loss or gradient that is not finite, first in the %s; a lower --lr may help",
                         trainer->step + 1, TRAINER_MAX_SKIPPED, result->where);
    }
    return 0;
}

// Clips and applies the gradients.
static void apply_step(Trainer *trainer, StepResult *result)
{
    double scale = 1.0;
    double norm = result->grad_norm;
    if (trainer->clip > 0.0 && norm > trainer->clip) {
        result->clipped = true;
        scale = trainer->clip / norm;
    }
    result->spike = trainer->optimizer.updates >= SPIKE_AFTER && norm > SPIKE_FACTOR * trainer->norm_average;
    // A spike counts as no more than one, so that a second one behind it is still seen.
    double counted = result->spike ? SPIKE_FACTOR * trainer->norm_average : norm;
    trainer->norm_average = trainer->optimizer.updates == 0 ? norm : NORM_DECAY * trainer->norm_average + (1.0 - NORM_DECAY) * counted;
    optimizer_step(&trainer->optimizer, &trainer->model, trainer->gradients, scale, result->lr);
    model_update_bf16(&trainer->model);
    trainer->skipped_in_row = 0;
}

int trainer_step(Trainer *trainer, StepResult *result, Error *error)
{
    *result = (StepResult){.lr = schedule_rate(&trainer->schedule, trainer->step)};
    int64_t counted = load_batch(trainer, error);
    if (counted < 0) {
        return -1;
    }
    double divisor = counted > 0 ? (double)counted : 1.0, sum;
    if (accumulate(trainer, &sum, (float)(1.0 / divisor)) == TRAINER_STOPPED) {
        return TRAINER_STOPPED;
    }
    result->targets = (uint64_t)counted;
    result->loss = sum / divisor;
    result->grad_norm = sqrt(arena_sum_squares(&trainer->model, trainer->gradients));
    int failed = 0;
    if (isfinite(result->loss) && isfinite(result->grad_norm)) {
        result->rising = counted > 0 && loss_watch_add(&trainer->watch, result->loss);
        apply_step(trainer, result);
    } else {
        failed = skip_step(trainer, result, error);
    }
    trainer->step++;
    trainer->window += trainer->micro_batch * trainer->n_micro;
    trainer->tokens_seen += result->targets;
    return failed;
}

// Losses and counted targets of the windows [first, end), summed. Returns 0, TRAINER_STOPPED, or -1 with `error` set.
static int evaluate_share(Trainer *trainer, double *loss, double *counted, uint64_t first, uint64_t end, Error *error)
{
    *loss = *counted = 0.0;
    for (; first < end; first += trainer->micro_batch) {
        if (stopped(trainer)) {
            return TRAINER_STOPPED;
        }
        size_t batch = end - first < trainer->micro_batch ? (size_t)(end - first) : trainer->micro_batch;
        for (size_t i = 0; i < batch; i++) {
            size_t at = i * trainer->seq_len;
            if (loader_window_in_order(trainer->val, trainer->tokens + at, trainer->targets + at, first + i, error)) {
                return -1;
            }
        }
        for (size_t t = 0; t < batch * trainer->seq_len; t++) {
            *counted += trainer->targets[t] >= 0;
        }
        forward(trainer, 0, batch);
        *loss += model_loss(NULL, NULL, &trainer->model, trainer->workspace, trainer->targets, 0.0f);
    }
    return 0;
}

int trainer_evaluate(Trainer *trainer, double *loss, Error *error)
{
    double own[2], sums[2] = {0.0, 0.0};
    uint64_t first = ranks_from(trainer->ranks, trainer->eval_windows), end = ranks_to(trainer->ranks, trainer->eval_windows);
    int status = ranks_agree(trainer->ranks, evaluate_share(trainer, &own[0], &own[1], first, end, error), error);
    if (status != 0) {
        return status;
    }
    ranks_add(trainer->ranks, sums, own, 2);
    *loss = sums[1] > 0.0 ? sums[0] / sums[1] : 0.0;
    return 0;
}
