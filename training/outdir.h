// The folder of a run: what to do with checkpoints that are in the way.
#ifndef TRAINING_OUTDIR_H
#define TRAINING_OUTDIR_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

// How many checkpoints (step_ and digits) lie in `out`, good or not; 0 when the folder does not exist. Returns 0, or -1 with `error` set.
int outdir_checkpoints(size_t *count, const char *out, Error *error);

// Renames checkpoints of later steps than `step`, which a resume passed over as damaged, to damaged_step_XXXXXXXX, so that they
// neither pass as the newest nor are lost; says so on stderr. Returns 0, or -1 with `error` set.
int outdir_set_aside(const char *out, int64_t step, Error *error);

#endif
