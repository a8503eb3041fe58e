// The values of --data: sources with weights.
#ifndef TRAINING_MIX_H
#define TRAINING_MIX_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/file.h"

// Takes the weights off texts such as "books:0.7", which become "books". A text that names something as it stands has no weight, and a
// weight may follow a path with colons in it. Either all have one or none: then weights[i] = 0. Refused are weights that are no number
// above 0 and a path that is given twice. Returns 0, or -1 with `error` set.
int mix_parse(double *weights, PathList *data, Error *error);

// Turns weights above 0 into whole numbers in the same ratio, whose sum is at most LOADER_MAX_PARTS: exactly where they are decimal
// numbers of a few digits (0.7 and 0.3 become 7 and 3), else to a billionth of the sum; at least 1 each.
void mix_parts(uint32_t *parts, const double *weights, size_t count);

#endif
