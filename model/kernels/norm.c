// RMSNorm over rows, forward and backward.
#include "model/kernels/bf16.h"
#include "model/kernels/functions.h"

void ISA_NAME(rmsnorm_forward)(Rows out, const float *x, const float *w, float eps, size_t n, size_t dim)
{
#pragma omp parallel for schedule(static) if (n * dim > PARALLEL_WORK)
    for (size_t t = 0; t < n; t++) {
        const float *row = x + t * dim;
        vfloat scale = v_set(v_inverse_rms(row, eps, dim));
        for (size_t j = 0; j < dim; j += VECTOR_FLOATS) {
            v_store_rows(out, t * dim + j, v_load_n(row + j, dim - j) * scale * v_load_n(w + j, dim - j), dim - j);
        }
    }
}

// One row: dx += (w ⊙ dout − x·mean(w ⊙ dout ⊙ x)·r²)·r with r = inverse rms; dw += dout ⊙ x·r.
static inline void rmsnorm_backward_row(float *dx, float *dw, const float *dout, const float *x, const float *w, float eps, size_t dim)
{
    float r = v_inverse_rms(x, eps, dim);
    vfloat dots = {0};
    for (size_t j = 0; j < dim; j += VECTOR_FLOATS) {
        dots += v_load_n(dout + j, dim - j) * v_load_n(w + j, dim - j) * v_load_n(x + j, dim - j);
    }
    vfloat scale = v_set(r), along = v_set(v_sum(dots) / (float)dim * r * r);
    for (size_t j = 0; j < dim; j += VECTOR_FLOATS) {
        vfloat xj = v_load_n(x + j, dim - j), dj = v_load_n(dout + j, dim - j);
        v_store_n(dx + j, v_load_n(dx + j, dim - j) + (dj * v_load_n(w + j, dim - j) - xj * along) * scale, dim - j);
        v_store_n(dw + j, v_load_n(dw + j, dim - j) + dj * xj * scale, dim - j);
    }
}

void ISA_NAME(rmsnorm_backward)(float *dx, float *dw, const float *dout, const float *x, const float *w, float eps, size_t n, size_t dim)
{
#pragma omp parallel for ordered schedule(static, 1) if (n * dim > PARALLEL_WORK)
    for (size_t t0 = 0; t0 < n; t0 += REDUCE_ROWS) {
        float partial[dim];
        memset(partial, 0, dim * sizeof(float));
        for (size_t t = t0; t < n && t < t0 + REDUCE_ROWS; t++) {
            rmsnorm_backward_row(dx + t * dim, partial, dout + t * dim, x + t * dim, w, eps, dim);
        }
#pragma omp ordered
        for (size_t j = 0; j < dim; j++) {
            dw[j] += partial[j];
        }
    }
}
