#include "training/schedule.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const char *const names[] = {"cosine", "wsd", "constant"};

int schedule_kind(ScheduleKind *kind, const char *name, Error *error)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            *kind = (ScheduleKind)i;
            return 0;
        }
    }
    return error_set(error, "--schedule '%s' is unknown: there are cosine, wsd and constant", name);
}

// How much of the way from `begin` to `end` lies behind `step`, in 0 … 1.
static double share(int64_t step, int64_t begin, int64_t end)
{
    if (step >= end) {
        return 1.0;
    }
    return step <= begin ? 0.0 : (double)(step - begin) / (double)(end - begin);
}

double schedule_rate(const Schedule *schedule, int64_t step)
{
    double span = schedule->lr - schedule->min_lr;
    if (step < schedule->warmup) {
        return schedule->lr * (double)(step + 1) / (double)schedule->warmup;
    }
    int64_t decay = schedule->steps - (schedule->steps + 4) / 5;
    switch (schedule->kind) {
    case SCHEDULE_COSINE:
        return schedule->min_lr + 0.5 * span * (1.0 + cos(acos(-1.0) * share(step, schedule->warmup, schedule->steps)));
    case SCHEDULE_WSD:
        return schedule->lr - span * share(step, decay > schedule->warmup ? decay : schedule->warmup, schedule->steps);
    case SCHEDULE_CONSTANT:
        break;
    }
    return schedule->lr;
}
