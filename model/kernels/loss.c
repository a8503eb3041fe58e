// The two ends of the model: embedding and cross-entropy.
#include <math.h>

#include "model/kernels/functions.h"

void ISA_NAME(embedding_forward)(float *out, const float *table, const int32_t *ids, size_t n, size_t dim)
{
#pragma omp parallel for schedule(static) if (n * dim > PARALLEL_WORK)
    for (size_t t = 0; t < n; t++) {
        memcpy(out + t * dim, table + (size_t)ids[t] * dim, dim * sizeof(float));
    }
}

void ISA_NAME(embedding_backward)(float *dtable, const float *dout, const int32_t *ids, size_t n, size_t dim)
{
    // Two tokens may share a row of the table: threads share out columns, each adds all tokens in order.
    const size_t columns = 64;
#pragma omp parallel for schedule(static) if (n * dim > PARALLEL_WORK)
    for (size_t j0 = 0; j0 < dim; j0 += columns) {
        size_t end = j0 + columns < dim ? j0 + columns : dim;
        for (size_t t = 0; t < n; t++) {
            float *row = dtable + (size_t)ids[t] * dim;
            for (size_t j = j0; j < end; j += VECTOR_FLOATS) {
                v_store_n(row + j, v_load_n(row + j, end - j) + v_load_n(dout + t * dim + j, end - j), end - j);
            }
        }
    }
}

// One row: the loss of `target`; with scale not 0, logits become scale·(softmax − onehot).
static float cross_entropy_row(float *logits, int32_t target, float scale, size_t vocab)
{
    if (target < 0) {
        if (scale != 0.0f) {
            memset(logits, 0, vocab * sizeof(float));
        }
        return 0.0f;
    }
    float largest = -INFINITY;
    for (size_t j = 0; j < vocab; j++) {
        largest = logits[j] > largest ? logits[j] : largest;
    }
    // e^(x − max) sums in blocks of 256 vectors held in double, so that a large vocabulary loses nothing.
    double total = 0.0;
    vfloat shift = v_set(largest);
    size_t j = 0;
    while (j + VECTOR_FLOATS <= vocab) {
        vfloat sum = {0};
        for (size_t end = j + 256 * VECTOR_FLOATS; j < end && j + VECTOR_FLOATS <= vocab; j += VECTOR_FLOATS) {
            sum += v_exp(v_load(logits + j) - shift);
        }
        total += (double)v_sum(sum);
    }
    for (; j < vocab; j++) {
        total += exp((double)logits[j] - (double)largest);
    }
    float loss = (float)(log(total) + (double)largest - (double)logits[target]);
    if (scale != 0.0f) {
        vfloat factor = v_set((float)((double)scale / total));
        for (j = 0; j < vocab; j += VECTOR_FLOATS) {
            v_store_n(logits + j, v_exp(v_load_n(logits + j, vocab - j) - shift) * factor, vocab - j);
        }
        logits[target] -= scale;
    }
    return loss;
}

void ISA_NAME(cross_entropy)(float *losses, float *logits, const int32_t *targets, float scale, size_t n, size_t vocab)
{
#pragma omp parallel for schedule(static) if (n * vocab > PARALLEL_WORK)
    for (size_t t = 0; t < n; t++) {
        losses[t] = cross_entropy_row(logits + t * vocab, targets[t], scale, vocab);
    }
}
