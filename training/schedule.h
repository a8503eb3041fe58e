// The learning rate at each step: linear warm-up, then a curve down to the least rate.
#ifndef TRAINING_SCHEDULE_H
#define TRAINING_SCHEDULE_H

#include <stdint.h>

#include "base/error.h"

typedef enum ScheduleKind {
    SCHEDULE_COSINE,     // half a cosine from lr to min_lr
    SCHEDULE_WSD,        // warm-up, stable, decay: lr, then a straight line down to min_lr over the last fifth of the steps
    SCHEDULE_CONSTANT,   // lr
} ScheduleKind;

typedef struct Schedule {
    ScheduleKind kind;
    double lr, min_lr;
    int64_t warmup;   // steps; the first has lr / warmup, the last of them lr
    int64_t steps;    // of the whole run
} Schedule;

// "cosine", "wsd" or "constant". Returns 0, or -1 with `error` set: it lists the names there are.
int schedule_kind(ScheduleKind *kind, const char *name, Error *error);

// The rate of step 0 … steps−1; from step `steps` on it stays at the end of the curve. A pure function of its arguments, so a resumed run
// follows the same curve.
double schedule_rate(const Schedule *schedule, int64_t step);

#endif
