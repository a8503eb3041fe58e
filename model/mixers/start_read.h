// Reading relative to the start: a memory whose slots can never be empty answers (S − S_0) q, so that what nothing was written to says nothing.
// It is taken as the difference of two reads: where little has been written yet, the difference has fewer digits than they.
#ifndef MODEL_MIXERS_START_READ_H
#define MODEL_MIXERS_START_READ_H

#include <stdbool.h>
#include <stddef.h>

typedef struct StartRead {
    const float *state0;           // [H, m, d]
    bool unit;                     // S_0 is state0 with every slot brought to length 1; a slot of zeros stays
    float *scratch;                // start_read_scratch_floats
    const float *q;                // [rows, H, m] with row stride q_stride
    size_t q_stride, rows, n_head, n_slot, d_head;
} StartRead;

// S_0 and, for the backward, its gradient and S_0 with slots as columns, of every head.
static inline size_t start_read_scratch_floats(size_t n_head, size_t n_slot, size_t d_head, bool backward)
{
    return n_head * d_head * (backward ? 3 * n_slot + 15 : n_slot);   // columns come in whole vectors, of 16 at most
}

#endif
