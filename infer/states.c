#include "infer/states.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/progress.h"

static void refuse(const StateLayout *layout, size_t count, double needed, double available, Error *error)
{
    char length[48] = "", have[64] = "that is not there", a[32], b[32];
    if (layout->longest != SIZE_MAX) {
        snprintf(length, sizeof length, " of up to %zu tokens", layout->longest);
    }
    if (available > 0.0 && needed > available) {
        snprintf(have, sizeof have, "%s are available", format_bytes(b, available));
    }
    error_set(error, "out of memory: the states of %zu sequence%s%s and the room to work on them need %s and %s: take fewer at once, or shorter ones", count, count == 1 ? "" : "s", length,
              format_bytes(a, needed), have);
}

float *states_create(const StateLayout *layout, size_t count, size_t more, Error *error)
{
    double floats = (double)layout->table.total * (double)count, needed = floats * sizeof(float) + (double)more, available = memory_available();
    bool fits = floats < (double)(SIZE_MAX / 2 / sizeof(float)) && !(available > 0.0 && needed > available);
    float *states = fits ? calloc(layout->table.total * count > 0 ? layout->table.total * count : 1, sizeof *states) : NULL;
    if (states == NULL) {
        refuse(layout, count, needed, available, error);
    }
    return states;
}
