#include "model/mixers/start_read.h"

#include "model/kernels/functions.h"
#include "model/mixers/products.h"

#define BLOCK_ROWS 128   // of o and dq that one task takes
#define BLOCK_SLOTS 16   // of dstate0

// scratch = S_0
static void make_start(const StartRead *read)
{
    size_t slots = read->n_head * read->n_slot;
    memcpy(read->scratch, read->state0, slots * read->d_head * sizeof(float));
    if (read->unit) {
        slots_normalise(read->scratch, slots, read->d_head);
    }
}

void ISA_NAME(start_read_forward)(float *o, const StartRead *read)
{
    size_t m = read->n_slot, d = read->d_head, width = read->n_head * d;
    make_start(read);
#pragma omp parallel for collapse(2) schedule(static) if (read->rows * read->n_head * m * d > PARALLEL_WORK)
    for (size_t first = 0; first < read->rows; first += BLOCK_ROWS) {
        for (size_t head = 0; head < read->n_head; head++) {
            float *out = o + first * width + head * d;
            Term term = {read->q + first * read->q_stride + head * m, read->q_stride, 1, read->scratch + head * m * d, d, m, PART_WHOLE};
            multiply(&(Result){out, width, out, width, NULL, -1.0f, NULL}, &term, 1, min_size(read->rows - first, BLOCK_ROWS), d);
        }
    }
}

// dq [rows, m] of one head's block: −do_ S_0ᵀ is added; start_t is S_0ᵀ [d, padded m].
static void query_backward(float *dq, const float *do_, const float *start_t, const StartRead *read, size_t rows)
{
    size_t m = read->n_slot, d = read->d_head;
    Term term = {do_, read->n_head * d, 1, start_t, padded(m), d, PART_WHOLE};
    multiply(&(Result){dq, read->q_stride, dq, read->q_stride, NULL, -1.0f, NULL}, &term, 1, rows, m);
}

// The gradient into some slots of one head's state0 is added: −qᵀ do_, through the norm. dstart: room for it.
static void slots_backward(float *dstate0, float *dstart, const float *do_, const StartRead *read, size_t head, size_t first, size_t slots)
{
    size_t m = read->n_slot, d = read->d_head, at = (head * m + first) * d;
    Term term = {read->q + head * m + first, 1, read->q_stride, do_ + head * d, read->n_head * d, read->rows, PART_WHOLE};
    multiply(&(Result){dstart + at, d, NULL, 0, NULL, -1.0f, NULL}, &term, 1, slots, d);
    if (read->unit) {
        slots_normalise_backward(dstart + at, read->state0 + at, slots, d);
    }
    add_scaled(dstate0 + at, dstate0 + at, 1.0f, dstart + at, slots * d);
}

void ISA_NAME(start_read_backward)(float *dq, float *dstate0, const float *do_, const StartRead *read)
{
    size_t m = read->n_slot, d = read->d_head, width = read->n_head * d, size = read->n_head * m * d;
    float *dstart = read->scratch + size, *start_t = dstart + size;
    make_start(read);
    for (size_t head = 0; head < read->n_head; head++) {
        transpose(start_t + head * d * padded(m), padded(m), read->scratch + head * m * d, d, m, d);
    }
#pragma omp parallel if (read->rows * read->n_head * m * d > PARALLEL_WORK)
    {
#pragma omp for collapse(2) schedule(static) nowait
        for (size_t first = 0; first < read->rows; first += BLOCK_ROWS) {
            for (size_t head = 0; head < read->n_head; head++) {
                query_backward(dq + first * read->q_stride + head * m, do_ + first * width + head * d, start_t + head * d * padded(m), read,
                               min_size(read->rows - first, BLOCK_ROWS));
            }
        }
#pragma omp for collapse(2) schedule(static)
        for (size_t head = 0; head < read->n_head; head++) {
            for (size_t first = 0; first < read->n_slot; first += BLOCK_SLOTS) {
                slots_backward(dstate0, dstart, do_, read, head, first, min_size(m - first, BLOCK_SLOTS));
            }
        }
    }
}
