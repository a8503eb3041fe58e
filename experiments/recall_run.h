// Trains a small model on multi-query recall (recall.h) and tells how much of a fixed test set it answers.
#ifndef EXPERIMENTS_RECALL_RUN_H
#define EXPERIMENTS_RECALL_RUN_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/config.h"
#include "training/optimizer.h"

// What decides the outcome, to the bit and for any number of threads.
typedef struct RecallRun {
    ModelConfig config;
    size_t pairs, length;        // of a sequence
    size_t grow_from;            // training begins with sequences of at least so many pairs, as much shorter, which double when mostly answered; 0: whole
    size_t batch, n_test;        // sequences of a step, and of the test set
    int64_t steps;               // at most
    OptimizerKind optimizer;
    double lr;                   // cosine to 0 after a warm-up of a twentieth of the steps
    double until;                // the run ends when so much of the test set is answered; above 1: never before its steps are done
    uint64_t seed;               // of weights and training sequences; the test set is the same for every seed
} RecallRun;

typedef struct RecallResult {
    int64_t steps;               // done
    double accuracy;             // share of the test set's queries whose value got the highest logit
    double loss;                 // nats a query, over the test set
    double seconds;              // of the processor
    size_t pairs;                // in a sequence of the size that growth has come to
    size_t parameters, state;    // floats of the model, and of what all layers remember of a sequence (without the convolutions' tails)
} RecallResult;

// Returns 0, or -1 with `error` set: configuration or task are not possible, or there is no memory. A run whose loss or gradient stops being finite ends there,
// with what the weights before that step answer. Shows progress on standard error.
int recall_run(RecallResult *result, const RecallRun *run, Error *error);

#endif
