// Reading relative to the start: a memory whose slots can never be empty answers (S − S_0) q, so that what nothing was written to says nothing.
// It is taken as the difference of two reads: where little has been written yet, the difference has fewer digits than they.
#ifndef MODEL_START_READ_H
#define MODEL_START_READ_H

#include <stdbool.h>
#include <stddef.h>

#include "model/kernels/kernels.h"

typedef struct StartRead {
    const float *state0;           // [H, m, d]
    bool unit;                     // S_0 is state0 with every slot brought to length 1; a slot of zeros stays
    float *scratch;                // [H, m, d], and as much again for the backward
    const float *q;                // [rows, H, m] with row stride q_stride
    size_t q_stride, rows, n_head, n_slot, d_head;
    const Kernels *kernels;
} StartRead;

// o [rows, H, d] −= S_0 q
void start_read_forward(float *o, const StartRead *read);

// From do_ [rows, H, d]: dq (row stride q_stride) and dstate0 [H, m, d] accumulate.
void start_read_backward(float *dq, float *dstate0, const float *do_, const StartRead *read);

#endif
