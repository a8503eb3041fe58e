#include "training/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "training/ranks.h"
#include "training/sample.h"

#define SPEED_DECAY 0.9   // of the moving mean of a step's time

// A line of its own beside the progress line.
#define MESSAGE(run, ...) (progress_break(&(run)->progress), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr))

// ---- checkpoints ----

// Ranks make the same steps each for itself: the first one's weights are those of the run only if they are the others', too. Returns 0, or
// -1 with `error` set.
static int check_ranks(const Run *run, Error *error)
{
    const Model *model = &run->trainer->model;
    uint64_t hash = ranks_count(run->trainer->ranks) > 1 ? XXH3_64bits(model->params, model->table.total * sizeof *model->params) : 0;
    return ranks_same(run->trainer->ranks, hash, "other weights", error) ? error_prefix(error, "step %" PRId64, run->trainer->step) : 0;
}

// Only the first rank writes; the others take it as done.
static int save(Run *run, Error *error)
{
    Trainer *trainer = run->trainer;
    if (!ranks_first(trainer->ranks)) {
        run->saved_step = trainer->step;
        return 0;
    }
    if (trainer_check_weights(trainer, error)) {
        return error_prefix(error, "step %" PRId64 " is not saved", trainer->step);
    }
    cJSON *json = snapshot_to_json(trainer, run->settings, run->data);
    if (json == NULL) {
        return error_set(error, "out of memory for trainer.json");
    }
    NamedArena moments[OPTIMIZER_ARENAS];
    optimizer_arenas(moments, &trainer->optimizer, &trainer->model.table);
    CheckpointSource source = {.model = &trainer->model, .tokenizer_path = run->tokenizer_path, .moments = moments, .n_moments = OPTIMIZER_ARENAS,
                               .trainer = json};
    int failed = train_log_sync(&run->log, error) || checkpoint_save(&source, run->settings->out, trainer->step, error);
    cJSON_Delete(json);
    if (failed) {
        return -1;
    }
    run->saved_step = trainer->step;
    Error note;
    if (checkpoint_prune(run->settings->out, (size_t)run->settings->keep, &note)) {
        MESSAGE(run, "warning: old checkpoints were not removed: %s", note.text);
    }
    return 0;
}

static void save_or_warn(Run *run)
{
    Error error;
    if (save(run, &error)) {
        MESSAGE(run, "warning: %s; the run goes on and saves again at step %" PRId64, error.text, run->trainer->step + run->settings->save_every);
    }
}

// Adds to an error which checkpoint there is to go back to.
static int name_checkpoint(const Run *run, Error *error)
{
    Error what = *error;
    if (run->saved_step < 0) {
        return error_set(error, "%.400s; there is no checkpoint yet", what.text);
    }
    return error_set(error, "%.400s; the last good checkpoint is %.200s/step_%08" PRId64, what.text, run->settings->out, run->saved_step);
}

// ---- what is told ----

static void show_progress(Run *run, const StepResult *result, bool force)
{
    const Trainer *trainer = run->trainer;
    double tokens_per_second = (double)run->settings->batch_tokens / run->seconds_a_step;
    char speed[32], left[32], share[32] = "";
    format_count(speed, tokens_per_second);
    format_duration(left, run->seconds_a_step * (double)(trainer->schedule.steps - trainer->step));
    if (run->peak > 0.0) {
        snprintf(share, sizeof share, "  %.0f%% of peak", 100.0 * run->flops_per_token * tokens_per_second / run->peak);
    }
    progress_show(&run->progress, force, "step %" PRId64 "/%" PRId64 "  loss %.4f  %s tokens/s%s  lr %.2e  norm %.3g  %s left", trainer->step,
                  trainer->schedule.steps, result->loss, speed, share, result->lr, result->grad_norm, left);
}

static void tell_events(Run *run, const StepResult *result)
{
    if (result->skipped) {
        MESSAGE(run, "warning: step %" PRId64 " skipped: loss %g, gradient norm %g, first in the %s", run->trainer->step, result->loss,
                result->grad_norm, result->where);
    } else if (result->spike) {
        MESSAGE(run, "warning: step %" PRId64 ": gradient norm %.3g is more than ten times its mean%s", run->trainer->step, result->grad_norm,
                result->clipped ? ", clipped" : " (--clip is off)");
    }
    const Trainer *trainer = run->trainer;
    if (result->rising) {
        MESSAGE(run, "warning: step %" PRId64 ": the loss has been rising: its mean, %.4g, has been over %.0f %% above its least, %.4g, for %d steps; "
                "a lower --lr may help", trainer->step, trainer->watch.mean, 100.0 * (LOSS_WATCH_FACTOR - 1.0), trainer->watch.least, LOSS_WATCH_STEPS);
    }
    if (trainer->step == 1 && !result->skipped && result->targets > 0 && loss_is_unlikely(result->loss, trainer->model.config.vocab_size)) {
        MESSAGE(run, "warning: the loss of the first step is %.4g, where random weights give about ln(vocabulary) = %.4g: the data or the start values "
                "are unusual", result->loss, log((double)trainer->model.config.vocab_size));
    }
}

// How far the run is in each source, in an array to free; NULL for one source, or when out of memory.
static LogSource *source_places(const Run *run)
{
    const Loader *loader = run->trainer->train;
    size_t n = loader_sources(loader);
    LogSource *sources = run->data->parts != NULL ? calloc(n, sizeof *sources) : NULL;
    for (size_t i = 0; i < n && sources != NULL; i++) {
        sources[i] = (LogSource){.name = run->data->arguments[i], .share = loader_share(loader, i),
                                 .epochs = (double)loader_dealt(loader, i, run->trainer->window) / (double)loader_source_windows(loader, i)};
    }
    return sources;
}

static void write_log(Run *run, const StepResult *result, double seconds, double val_loss)
{
    if (!ranks_first(run->trainer->ranks)) {
        return;
    }
    LogRecord record = {.step = run->trainer->step, .tokens = run->trainer->tokens_seen, .loss = result->loss, .lr = result->lr,
                        .grad_norm = result->grad_norm, .tokens_per_second = (double)run->settings->batch_tokens / seconds, .val_loss = val_loss,
                        .clipped = result->clipped, .spike = result->spike, .rising = result->rising, .skipped = result->skipped ? result->where : NULL,
                        .sources = source_places(run)};
    record.n_sources = record.sources != NULL ? run->data->n_arguments : 0;
    Error error;
    bool failed = train_log_write(&run->log, &record, &error) != 0;
    if (failed && !run->log_fails) {
        MESSAGE(run, "warning: %s; steps are missing in the log until it can be written again", error.text);
    }
    run->log_fails = failed;
    free((void *)(uintptr_t)record.sources);
}

static void write_sample(Run *run)
{
    Error error;
    uint64_t seed = rng_next(&run->trainer->rng);
    if (!ranks_first(run->trainer->ranks)) {
        return;
    }
    MESSAGE(run, "sample at step %" PRId64 ":", run->trainer->step);
    if (sample_text(stderr, &run->trainer->model, run->tokenizer, seed, &error)) {
        MESSAGE(run, "warning: no sample: %s", error.text);
    }
}

// ---- the loop ----

static bool due(int64_t step, int64_t every, int64_t steps) { return every > 0 && (step % every == 0 || step == steps); }

// Validates if it is time. Returns 0 with *val_loss NaN if it is not, TRAINER_STOPPED, or -1 with `error` set.
static int validate(Run *run, double *val_loss, Error *error)
{
    Trainer *trainer = run->trainer;
    *val_loss = NAN;
    if (trainer->val == NULL || !due(trainer->step, run->settings->eval_every, trainer->schedule.steps)) {
        return 0;
    }
    int status = trainer_evaluate(trainer, val_loss, error);
    if (status == 0) {
        MESSAGE(run, "step %" PRId64 ": validation loss %.4f, perplexity %.4g", trainer->step, *val_loss, exp(*val_loss));
    }
    return status;
}

// One step with everything around it. Returns 0, TRAINER_STOPPED, or -1 with `error` set.
static int run_step(Run *run, Error *error)
{
    Trainer *trainer = run->trainer;
    const TrainSettings *settings = run->settings;
    StepResult result;
    double start = seconds_now(), val_loss = NAN;
    int status = trainer_step(trainer, &result, error);
    double seconds = seconds_now() - start;
    if (status == TRAINER_STOPPED) {
        return TRAINER_STOPPED;
    }
    if (status != 0 && !result.skipped) {
        return name_checkpoint(run, error);
    }
    run->seconds_a_step = run->seconds_a_step > 0.0 ? SPEED_DECAY * run->seconds_a_step + (1.0 - SPEED_DECAY) * seconds : seconds;
    tell_events(run, &result);
    if (status == 0) {
        status = validate(run, &val_loss, error);
    }
    write_log(run, &result, seconds, val_loss);
    show_progress(run, &result, trainer->step == trainer->schedule.steps);
    if (status != 0) {
        return status == TRAINER_STOPPED ? status : name_checkpoint(run, error);
    }
    if (run->tokenizer != NULL && due(trainer->step, settings->sample_every, trainer->schedule.steps)) {
        write_sample(run);
    }
    if (settings->save_every > 0 && trainer->step % settings->save_every == 0 && trainer->step < trainer->schedule.steps) {
        if (check_ranks(run, error)) {
            return name_checkpoint(run, error);
        }
        save_or_warn(run);
    }
    return 0;
}

// The last checkpoint, unless it is there. Returns `status`, or -1 with `error` set.
static int finish(Run *run, int status, Error *error)
{
    Trainer *trainer = run->trainer;
    if (check_ranks(run, error)) {
        return name_checkpoint(run, error);
    }
    int failed = run->saved_step != trainer->step && save(run, error) ? name_checkpoint(run, error) : 0;
    return ranks_agree(trainer->ranks, failed, error) != 0 ? -1 : status;
}

int run_loop(Run *run, Error *error)
{
    Trainer *trainer = run->trainer;
    progress_init(&run->progress);
    run->seconds_a_step = 0.0;
    run->log_fails = false;
    run->log = (TrainLog){.fd = -1};
    int status = ranks_first(trainer->ranks) ? train_log_open(&run->log, run->settings->out, trainer->step, error) : 0;
    if (ranks_agree(trainer->ranks, status, error)) {
        return -1;
    }
    while (status == 0 && trainer->step < trainer->schedule.steps) {
        status = run_step(run, error);
    }
    if (status >= 0) {
        status = finish(run, status, error);
    }
    progress_break(&run->progress);
    train_log_close(&run->log);
    return status;
}
