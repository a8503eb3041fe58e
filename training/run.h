// The loop of a run: steps, validation, log, progress, samples and checkpoints, until the last step or a signal.
#ifndef TRAINING_RUN_H
#define TRAINING_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/progress.h"
#include "tokenizer/bpe.h"
#include "training/log.h"
#include "training/settings.h"
#include "training/snapshot.h"
#include "training/trainer.h"

typedef struct Run {
    Trainer *trainer;                 // none of the pointers is owned
    const TrainSettings *settings;    // resolved
    const DataIdentity *data;
    const Tokenizer *tokenizer;       // for samples; NULL: none are written
    const char *tokenizer_path;       // goes into checkpoints; NULL: none
    double flops_per_token;           // of a training step
    double peak;                      // FLOP/s of this machine; 0: unknown
    int64_t saved_step;               // of the newest good checkpoint, −1: there is none yet

    TrainLog log;                     // from here on: run_loop's own
    Progress progress;
    double seconds_a_step;            // moving mean
    bool log_fails;                   // the last record could not be written
} Run;

// Trains until settings->steps are done or *trainer->stop is set. Saves every save_every steps and at the end; a save that fails is a
// warning, except the last one. Returns 0 when all steps are done, TRAINER_STOPPED when it was stopped (saved), or -1 with `error`
// set, which names the newest good checkpoint.
int run_loop(Run *run, Error *error);

#endif
