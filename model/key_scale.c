#include "model/key_scale.h"

void key_scale_forward(float *keys, const KeyScale *scale)
{
    size_t heads = scale->n_head, m = scale->n_slot;
#pragma omp parallel for schedule(static) if (scale->rows * heads * m > 65536)
    for (size_t row = 0; row < scale->rows; row++) {
        for (size_t head = 0; head < heads; head++) {
            float *key = keys + row * scale->stride + head * m, factor = scale->scales[head];
            for (size_t i = 0; i < m; i++) {
                key[i] *= factor;
            }
        }
    }
}

// Threads share out heads, so that each factor's sum has one order.
void key_scale_backward(float *dkeys, float *dscales, const float *keys, const KeyScale *scale)
{
    size_t m = scale->n_slot;
#pragma omp parallel for schedule(static) if (scale->rows * scale->n_head * m > 65536)
    for (size_t head = 0; head < scale->n_head; head++) {
        double sum = 0.0;
        for (size_t row = 0; row < scale->rows; row++) {
            const float *key = keys + row * scale->stride + head * m;
            float *dkey = dkeys + row * scale->stride + head * m, along = 0.0f;
            for (size_t i = 0; i < m; i++) {
                along += dkey[i] * key[i];
                dkey[i] *= scale->scales[head];
            }
            sum += (double)along;
        }
        dscales[head] += (float)sum;
    }
}
