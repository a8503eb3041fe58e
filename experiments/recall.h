// Multi-query associative recall (MQAR; Arora et al. 2023): sequences that tell pairs of a key and a value, then ask for each value by its key.
//
//     k1 v1 k2 v2 … kP vP | filler, and each key once more at a random even place
//
// Keys are ids of the lower half of the vocabulary, each in a sequence once before the bar; values are any of the upper half. Behind the bar stand
// (length − 2 pairs)/2 even places; key after key takes place i of those that are left with a chance in proportion to (i + 1)^−0.99. The rest is filler,
// any id but the sequence's keys. A query's target is its value; nothing else has one.
#ifndef EXPERIMENTS_RECALL_H
#define EXPERIMENTS_RECALL_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/rng.h"

typedef struct RecallPlace {
    double time;     // at which the place is taken: the first places go to the first keys
    size_t place;
} RecallPlace;

// The task and memory to make its sequences in.
typedef struct Recall {
    size_t pairs, length, vocab;
    size_t n_places;
    double *weights;        // [n_places] chance of each place, in proportion
    RecallPlace *places;    // [n_places]
    int32_t *keys;          // [vocab / 2] the sequence's keys first, then the others
} Recall;

// Returns 0, or -1 with `error` set and nothing to free: pairs is 0, the length is below 4 pairs or above 2^24, the vocabulary below 2 pairs or above 2^24, or
// there is no memory.
int recall_create(Recall *recall, size_t pairs, size_t length, size_t vocab, Error *error);
void recall_free(Recall *recall);

// Draws the next sequence: tokens and targets [length], a target of −1 where there is none. What is drawn depends on the generator alone.
void recall_sequence(int32_t *tokens, int32_t *targets, Recall *recall, Rng *rng);

#endif
