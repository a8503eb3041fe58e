// Watches the loss of a run: whether the first one is that of a model that knows nothing, and whether the loss rises for long.
#ifndef TRAINING_LOSS_WATCH_H
#define TRAINING_LOSS_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#define LOSS_WATCH_STEPS 100       // steps above that count as long
#define LOSS_WATCH_FACTOR 1.1      // of the least mean: what counts as above
#define LOSS_WATCH_TOLERANCE 1.0   // nats between the first loss and ln(vocabulary)

typedef struct LossWatch {
    double mean;     // moving mean over some fifty steps; 0 before the first
    double least;    // least mean so far
    int64_t above;   // steps in a row with mean above LOSS_WATCH_FACTOR · least; −1: told, until there is a new least
} LossWatch;

// Takes in a finite loss. Returns true in the step in which the mean has been above for LOSS_WATCH_STEPS steps: once for each rise.
bool loss_watch_add(LossWatch *watch, double loss);

// Whether the loss of a first step is further than LOSS_WATCH_TOLERANCE from ln(vocab_size), where small random weights begin.
bool loss_is_unlikely(double loss, int64_t vocab_size);

#endif
