// Gates and activations: the output gate rms(o) ⊙ w ⊙ gelu(z), SwiGLU, the sigmoid of write intensity and forget gate, and what some mixers have instead:
// Mamba-2's step and decay of one number, gated linear attention's decay of each slot.
#include <math.h>

#include "model/kernels/bf16.h"
#include "model/kernels/functions.h"

// gelu in the tanh form: z·(1 + tanh(u))/2 with u = √(2/π)·(z + 0.044715 z³), and its derivative.
static inline vfloat gelu(vfloat z, vfloat *derivative)
{
    const vfloat a = v_set(0.7978845608f), b = v_set(0.7978845608f * 0.044715f), half = v_set(0.5f), one = v_set(1.0f);
    vfloat z2 = z * z;
    vfloat t = v_tanh(z * (a + b * z2));
    vfloat value = half * z * (one + t);
    *derivative = half * (one + t) + half * z * (one - t * t) * (a + v_set(3.0f) * b * z2);
    return value;
}

void ISA_NAME(gate_forward)(Rows out, const float *o, const float *z, size_t z_stride, const float *w, float eps, size_t n, size_t n_head, size_t d_head)
{
#pragma omp parallel for schedule(static) if (n * n_head * d_head > PARALLEL_WORK)
    for (size_t t = 0; t < n; t++) {
        for (size_t h = 0; h < n_head; h++) {
            const float *oh = o + (t * n_head + h) * d_head, *zh = z + t * z_stride + h * d_head, *wh = w + h * d_head;
            Rows outh = rows_from(out, (t * n_head + h) * d_head);
            vfloat scale = v_set(v_inverse_rms(oh, eps, d_head)), unused;
            for (size_t j = 0; j < d_head; j += VECTOR_FLOATS) {
                size_t rest = d_head - j;
                v_store_rows(outh, j, v_load_n(oh + j, rest) * scale * v_load_n(wh + j, rest) * gelu(v_load_n(zh + j, rest), &unused), rest);
            }
        }
    }
}

static inline void gate_backward_head(float *do_, float *dz, float *dw, const float *dout, const float *o, const float *z, const float *w, float eps, size_t dim)
{
    float r = v_inverse_rms(o, eps, dim);
    vfloat scale = v_set(r), dots = {0};
    for (size_t j = 0; j < dim; j += VECTOR_FLOATS) {
        size_t rest = dim - j;
        vfloat derivative, oj = v_load_n(o + j, rest), dj = v_load_n(dout + j, rest), wj = v_load_n(w + j, rest);
        vfloat gate = gelu(v_load_n(z + j, rest), &derivative);
        vfloat normed = oj * scale;
        v_store_n(dz + j, dj * normed * wj * derivative, rest);
        v_store_n(dw + j, v_load_n(dw + j, rest) + dj * normed * gate, rest);
        vfloat dnormed = dj * wj * gate;
        dots += dnormed * oj;
        v_store_n(do_ + j, dnormed, rest);   // finished below, once the sum over the head is known
    }
    vfloat along = v_set(v_sum(dots) / (float)dim * r * r);
    for (size_t j = 0; j < dim; j += VECTOR_FLOATS) {
        size_t rest = dim - j;
        v_store_n(do_ + j, (v_load_n(do_ + j, rest) - v_load_n(o + j, rest) * along) * scale, rest);
    }
}

void ISA_NAME(gate_backward)(float *do_, float *dz, float *dw, const float *dout, const float *o, const float *z, size_t z_stride, const float *w,
                             float eps, size_t n, size_t n_head, size_t d_head)
{
    size_t dim = n_head * d_head;
#pragma omp parallel for ordered schedule(static, 1) if (n * dim > PARALLEL_WORK)
    for (size_t t0 = 0; t0 < n; t0 += REDUCE_ROWS) {
        float partial[dim];
        memset(partial, 0, dim * sizeof(float));
        for (size_t t = t0; t < n && t < t0 + REDUCE_ROWS; t++) {
            for (size_t h = 0; h < n_head; h++) {
                size_t at = t * dim + h * d_head, at_z = t * z_stride + h * d_head;
                gate_backward_head(do_ + at, dz + at_z, partial + h * d_head, dout + at, o + at, z + at_z, w + h * d_head, eps, d_head);
            }
        }
#pragma omp ordered
        for (size_t j = 0; j < dim; j++) {
            dw[j] += partial[j];
        }
    }
}

void ISA_NAME(swiglu_forward)(Rows out, Rows h, size_t n, size_t hidden)
{
#pragma omp parallel for schedule(static) if (n * hidden > PARALLEL_WORK)
    for (size_t t = 0; t < n; t++) {
        Rows a = rows_from(h, t * 2 * hidden), b = rows_from(a, hidden);
        for (size_t j = 0; j < hidden; j += VECTOR_FLOATS) {
            vfloat x = v_load_rows(a, j, hidden - j);
            v_store_rows(out, t * hidden + j, x * v_sigmoid(x) * v_load_rows(b, j, hidden - j), hidden - j);
        }
    }
}

void ISA_NAME(swiglu_backward)(Rows dh, const float *dout, Rows h, size_t n, size_t hidden)
{
#pragma omp parallel for schedule(static) if (n * hidden > PARALLEL_WORK)
    for (size_t t = 0; t < n; t++) {
        Rows a = rows_from(h, t * 2 * hidden), b = rows_from(a, hidden), da = rows_from(dh, t * 2 * hidden), db = rows_from(da, hidden);
        for (size_t j = 0; j < hidden; j += VECTOR_FLOATS) {
            size_t rest = hidden - j;
            vfloat x = v_load_rows(a, j, rest), y = v_load_rows(b, j, rest), d = v_load_n(dout + t * hidden + j, rest);
            vfloat s = v_sigmoid(x), silu = x * s;
            v_store_rows(da, j, d * y * (s + silu * (v_set(1.0f) - s)), rest);
            v_store_rows(db, j, d * silu, rest);
        }
    }
}

void ISA_NAME(sigmoid_forward)(float *out, const float *x, size_t x_stride, const float *bias, size_t n, size_t count)
{
#pragma omp parallel for schedule(static) if (n * count > PARALLEL_WORK)
    for (size_t t = 0; t < n; t++) {
        for (size_t j = 0; j < count; j += VECTOR_FLOATS) {
            vfloat value = v_sigmoid(v_load_n(x + t * x_stride + j, count - j) + v_load_n(bias + j, count - j));
            v_store_n(out + t * count + j, value, count - j);
        }
    }
}

void ISA_NAME(sigmoid_backward)(float *dx, size_t x_stride, float *dbias, const float *dout, const float *out, size_t n, size_t count)
{
    for (size_t j = 0; j < count; j += VECTOR_FLOATS) {
        size_t rest = count - j;
        vfloat total = v_load_n(dbias + j, rest);
        for (size_t t = 0; t < n; t++) {
            vfloat s = v_load_n(out + t * count + j, rest);
            vfloat d = v_load_n(dout + t * count + j, rest) * s * (v_set(1.0f) - s);
            v_store_n(dx + t * x_stride + j, d, rest);
            total += d;
        }
        v_store_n(dbias + j, total, rest);
    }
}

// One element costs as much as a hundred multiply-adds, but there are few: one a head and token.
#define SOFTPLUS_WORK (PARALLEL_WORK / 100)

void ISA_NAME(softplus_forward)(float *g, float *mu, const float *x, size_t x_stride, const float *bias, const float *rate, size_t n, size_t count)
{
#pragma omp parallel for schedule(static) if (n * count > SOFTPLUS_WORK)
    for (size_t t = 0; t < n; t++) {
        for (size_t j = 0; j < count; j++) {
            float a = x[t * x_stride + j] + bias[j];
            float step = (a > 0.0f ? a : 0.0f) + log1pf(expf(-fabsf(a)));   // as it stands, log(1 + e^a) overflows
            g[t * count + j] = step;
            mu[t * count + j] = expf(-step * expf(rate[j]));
        }
    }
}

// With r = exp(rate): dg += −dmu mu r, drate = −dmu mu g r, and softplus has the slope sigmoid.
void ISA_NAME(softplus_backward)(float *dx, float *dbias, float *drate, const float *dg, const float *dmu, const float *g, const float *mu, const float *x,
                                 size_t x_stride, const float *bias, const float *rate, size_t n, size_t count)
{
#pragma omp parallel for schedule(static) if (n * count > SOFTPLUS_WORK)
    for (size_t j = 0; j < count; j++) {
        float r = expf(rate[j]);
        double bias_sum = 0.0, rate_sum = 0.0;
        for (size_t t = 0; t < n; t++) {
            size_t at = t * count + j, at_x = t * x_stride + j;
            float decay = -dmu[at] * mu[at] * r, slope = 1.0f / (1.0f + expf(-(x[at_x] + bias[j])));
            dx[at_x] = (dg[at] + decay) * slope;
            bias_sum += (double)dx[at_x];
            rate_sum += (double)(decay * g[at]);
        }
        dbias[j] += (float)bias_sum;
        drate[j] += (float)rate_sum;
    }
}

void ISA_NAME(slot_decay_forward)(float *out, const float *x, const float *bias, size_t n, size_t count)
{
#pragma omp parallel for schedule(static) if (n * count > PARALLEL_WORK)
    for (size_t t = 0; t < n; t++) {
        for (size_t j = 0; j < count; j += VECTOR_FLOATS) {
            vfloat s = v_sigmoid(v_load_n(x + t * count + j, count - j) + v_load_n(bias + j, count - j));
            v_store_n(out + t * count + j, v_sqrt(v_sqrt(v_sqrt(v_sqrt(s)))), count - j);   // the 16th root
        }
    }
}

// d out / d x = out (1 − out^16) / 16
void ISA_NAME(slot_decay_backward)(float *dx, float *dbias, const float *dout, const float *out, size_t n, size_t count)
{
#pragma omp parallel for schedule(static) if (n * count > PARALLEL_WORK)
    for (size_t j = 0; j < count; j += VECTOR_FLOATS) {
        size_t rest = count - j;
        vfloat total = v_load_n(dbias + j, rest), one = v_set(1.0f), share = v_set(1.0f / 16.0f);
        for (size_t t = 0; t < n; t++) {
            vfloat y = v_load_n(out + t * count + j, rest), y2 = y * y, y4 = y2 * y2, y8 = y4 * y4;
            vfloat d = v_load_n(dout + t * count + j, rest) * share * y * (one - y8 * y8);
            v_store_n(dx + t * count + j, d, rest);
            total += d;
        }
        v_store_n(dbias + j, total, rest);
    }
}
