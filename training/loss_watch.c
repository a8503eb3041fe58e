#include "training/loss_watch.h"

#include <math.h>

#define DECAY 0.98   // of the moving mean

bool loss_watch_add(LossWatch *watch, double loss)
{
    bool first = watch->mean == 0.0;
    watch->mean = first ? loss : DECAY * watch->mean + (1.0 - DECAY) * loss;
    if (first || watch->mean < watch->least) {
        watch->least = watch->mean;
        watch->above = 0;
    }
    if (watch->above < 0) {
        return false;
    }
    watch->above = watch->mean > LOSS_WATCH_FACTOR * watch->least ? watch->above + 1 : 0;
    if (watch->above < LOSS_WATCH_STEPS) {
        return false;
    }
    watch->above = -1;
    return true;
}

bool loss_is_unlikely(double loss, int64_t vocab_size) { return !(fabs(loss - log((double)vocab_size)) <= LOSS_WATCH_TOLERANCE); }
