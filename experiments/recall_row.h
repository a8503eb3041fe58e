// One run of multi-query recall, as a row of results (rows.h).
#ifndef EXPERIMENTS_RECALL_ROW_H
#define EXPERIMENTS_RECALL_ROW_H

#include "experiments/rows.h"

typedef struct RecallRow {
    // What was run.
    char mixer[ROW_TEXT_BYTES];   // describe_mixer
    int64_t pairs, length, vocab, d_model, d_head, n_slot, steps, batch;
    int64_t grow_from;            // pairs of the first training sequences at least; 0: all are whole
    char optimizer[ROW_TEXT_BYTES];
    int64_t test;                 // sequences of the test set
    double until;                 // the accuracy at which the run ends
    double lr;
    int64_t seed;
    // What came out.
    int64_t state, parameters, steps_run;
    double accuracy, loss, seconds;
} RecallRow;

extern const RowLayout recall_layout;

#endif
