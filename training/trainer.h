// One training step: a batch of windows through the model, gradients summed over its micro-batches, guarded, clipped and applied.
//
// Everything that decides the bits of the next step stands in the Trainer: weights, moments, position in the data, schedule. snapshot.h saves and
// restores it.
#ifndef TRAINING_TRAINER_H
#define TRAINING_TRAINER_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/rng.h"
#include "data/loader.h"
#include "model/model.h"
#include "training/loss_watch.h"
#include "training/optimizer.h"
#include "training/ranks.h"
#include "training/schedule.h"

#define TRAINER_MAX_SKIPPED 10   // skipped steps in a row that end a run
#define TRAINER_STOPPED 1        // what trainer_step and trainer_evaluate return when *stop was set

typedef struct Trainer {
    Model model;
    Optimizer optimizer;
    Schedule schedule;
    Workspace *workspace;
    float *gradients;              // [model.table.total] of a step
    float *share_gradients;        // the same of one share; NULL: a step has no more shares than there are ranks
    int32_t *tokens, *targets;     // [micro-batches of this rank · micro_batch, seq_len] of one step
    uint8_t *starts;               // the same size: where documents begin; NULL: states run on from one to the next
    int32_t end_of_text;           // what they begin with
    size_t micro_batch, n_micro, seq_len;
    size_t shares;                 // of a step: s has the micro-batches from n_micro·s/shares on, and is worked on by rank s mod ranks
    const Ranks *ranks;            // not owned; NULL: this process alone
    double clip;                   // 0: no limit
    const Loader *train, *val;     // not owned; val NULL: no validation
    uint64_t eval_windows;         // windows of a validation, at most those of val
    const volatile sig_atomic_t *stop;   // not 0: give up between micro-batches; NULL: never

    int64_t step;                  // steps done, skipped ones included
    uint64_t window;               // next window of the data, counted from the start of the run
    uint64_t tokens_seen;          // targets that counted, over all steps
    int64_t skipped_in_row;
    double norm_average;           // moving mean of the gradient norm, to tell a spike
    LossWatch watch;               // to tell a loss that rises
    Rng rng;                       // for samples of text
} Trainer;

typedef struct TrainerOptions {
    size_t micro_batch, n_micro, seq_len;
    size_t shares;                 // a step's gradient is the sum of so many parts, each of one or more of the n_micro micro-batches. They decide
                                   // the bits; how many ranks (no more than shares) work on them does not. 0: a share for each rank
    const Ranks *ranks;            // that work on the steps; NULL: one process
    OptimizerKind optimizer;
    double weight_decay, clip;
    bool bf16;                     // model_use_bf16
    bool recompute;                // of blocks in the backward: WORKSPACE_RECOMPUTE
    bool reset_at_document;        // states start anew at each token end_of_text, before it is read (model_forward_documents)
    int32_t end_of_text;
    Schedule schedule;
    uint64_t seed;
} TrainerOptions;

// Allocates everything around a model and takes it over (trainer_free frees it); its weights stay as they are. Returns 0, or -1 with
// `error` set, and then the model is freed too.
int trainer_create(Trainer *trainer, Model *model, const TrainerOptions *options, Error *error);
void trainer_free(Trainer *trainer);

// Bytes that trainer_create and the model take together, for a model of this shape with the parameters of `table`.
double trainer_bytes(const ModelConfig *config, const TensorTable *table, const TrainerOptions *options);

typedef struct StepResult {
    double loss;            // mean over the targets that count; not finite: the step was skipped
    double lr, grad_norm;   // the norm before clipping
    uint64_t targets;       // that counted
    bool clipped, spike;    // spike: the norm was over ten times its moving mean
    bool rising;            // the loss has been rising for long; said once a rise (training/loss_watch.h)
    bool skipped;           // the weights are as before
    char where[128];        // when skipped: "gradient of NAME", the first tensor in which it appeared, or "loss" or "norm of the gradient"
} StepResult;

// One step from trainer->window on, with the other ranks if there are any: all return the same. A loss or gradient that is not finite skips
// the update. Returns 0; TRAINER_STOPPED with the trainer as before the step; or -1 with `error` set: the data cannot be read, a weight is not
// finite (named), or TRAINER_MAX_SKIPPED steps in a row were skipped.
int trainer_step(Trainer *trainer, StepResult *result, Error *error);

// Mean loss over the first eval_windows windows of val, shared out among the ranks. Returns 0, TRAINER_STOPPED, or -1 with `error` set.
int trainer_evaluate(Trainer *trainer, double *loss, Error *error);

// Returns 0, or -1 with `error` naming the first weight that holds a NaN or an infinity.
int trainer_check_weights(const Trainer *trainer, Error *error);

#endif
