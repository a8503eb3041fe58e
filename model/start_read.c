#include "model/start_read.h"

#include <math.h>

static float length_of(const float *slot, const StartRead *read)
{
    float square = 0.0f;
    for (size_t j = 0; j < read->d_head; j++) {
        square += slot[j] * slot[j];
    }
    return read->unit ? sqrtf(square) : 1.0f;
}

// scratch = −S_0: the products then only add.
static void negate_start(const StartRead *read)
{
    size_t d = read->d_head;
    for (size_t i = 0; i < read->n_head * read->n_slot; i++) {
        float length = length_of(read->state0 + i * d, read);
        for (size_t j = 0; j < d; j++) {
            read->scratch[i * d + j] = length == 0.0f ? 0.0f : -read->state0[i * d + j] / length;
        }
    }
}

void start_read_forward(float *o, const StartRead *read)
{
    size_t m = read->n_slot, d = read->d_head, width = read->n_head * d;
    negate_start(read);
    for (size_t head = 0; head < read->n_head; head++) {
        MatrixView q = {read->q + head * m, read->q_stride, 1}, start = {read->scratch + head * m * d, d, 1};
        read->kernels->gemm(o + head * d, width, q, start, read->rows, d, m, true);
    }
}

// dslot [d], the gradient into −s/‖s‖ (or −s), becomes that into s and is added to dstate0.
static void slot_backward(float *dstate0, const float *dslot, const float *negated, float length, const StartRead *read)
{
    float along = 0.0f;
    for (size_t j = 0; j < read->d_head && read->unit; j++) {
        along += negated[j] * dslot[j];
    }
    for (size_t j = 0; j < read->d_head && length != 0.0f; j++) {
        dstate0[j] -= (dslot[j] - along * negated[j]) / length;
    }
}

void start_read_backward(float *dq, float *dstate0, const float *do_, const StartRead *read)
{
    size_t m = read->n_slot, d = read->d_head, width = read->n_head * d;
    float *dstart = read->scratch + read->n_head * m * d;
    negate_start(read);
    for (size_t head = 0; head < read->n_head; head++) {
        const float *start = read->scratch + head * m * d;
        MatrixView out = {do_ + head * d, width, 1}, start_turned = {start, 1, d}, q_turned = {read->q + head * m, 1, read->q_stride};
        read->kernels->gemm(dq + head * m, read->q_stride, out, start_turned, read->rows, m, d, true);
        read->kernels->gemm(dstart + head * m * d, d, q_turned, out, m, d, read->rows, false);
    }
    for (size_t i = 0; i < read->n_head * m; i++) {
        slot_backward(dstate0 + i * d, dstart + i * d, read->scratch + i * d, length_of(read->state0 + i * d, read), read);
    }
}
