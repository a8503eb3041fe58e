#include <math.h>
#include <string.h>

#include "tests/reference/reference.h"

static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

static double silu(double x) { return x * sigmoid(x); }

static double silu_slope(double x) { return sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x))); }

static double gelu(double x) { return 0.5 * x * (1.0 + tanh(sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x))); }

static double gelu_slope(double x)
{
    double t = tanh(sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * x * x);
}

static double dot(const double *x, const double *y, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        sum += x[i] * y[i];
    }
    return sum;
}

static void softmax(double *out, const double *x, size_t n)
{
    double most = x[0], sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, x[i]);
    }
    for (size_t i = 0; i < n; i++) {
        out[i] = exp(x[i] - most);
        sum += out[i];
    }
    for (size_t i = 0; i < n; i++) {
        out[i] /= sum;
    }
}

// 1 / sqrt(weight · Σ x² + eps), with weight 1 for L2 and 1/n for RMS
static double norm_factor(const double *x, size_t n, ReferenceNorm norm, double eps)
{
    if (norm == REFERENCE_NONE) {
        return 1.0;
    }
    double weight = norm == REFERENCE_L2 ? 1.0 : 1.0 / (double)n;
    return 1.0 / sqrt(weight * dot(x, x, n) + eps);
}

// dx += gradient of norm_factor(x) · x given dy
static void norm_backward(double *dx, const double *dy, const double *x, size_t n, ReferenceNorm norm, double eps)
{
    double weight = norm == REFERENCE_NONE ? 0.0 : norm == REFERENCE_L2 ? 1.0 : 1.0 / (double)n;
    double r = norm_factor(x, n, norm, eps);
    double projection = dot(x, dy, n);
    for (size_t i = 0; i < n; i++) {
        dx[i] += r * dy[i] - r * r * r * weight * projection * x[i];
    }
}

void reference_linear_forward(double *out, const double *x, const double *w, size_t n, size_t n_in, size_t n_out)
{
    for (size_t t = 0; t < n; t++) {
        for (size_t o = 0; o < n_out; o++) {
            out[t * n_out + o] = dot(x + t * n_in, w + o * n_in, n_in);
        }
    }
}

void reference_linear_backward(double *dx, double *dw, const double *dout, const double *x, const double *w, size_t n, size_t n_in, size_t n_out)
{
    for (size_t t = 0; t < n; t++) {
        for (size_t o = 0; o < n_out; o++) {
            for (size_t i = 0; i < n_in; i++) {
                dx[t * n_in + i] += dout[t * n_out + o] * w[o * n_in + i];
                dw[o * n_in + i] += dout[t * n_out + o] * x[t * n_in + i];
            }
        }
    }
}

void reference_rmsnorm_forward(double *out, const double *x, const double *w, double eps, size_t n, size_t dim)
{
    for (size_t t = 0; t < n; t++) {
        double r = norm_factor(x + t * dim, dim, REFERENCE_RMS, eps);
        for (size_t i = 0; i < dim; i++) {
            out[t * dim + i] = r * x[t * dim + i] * w[i];
        }
    }
}

void reference_rmsnorm_backward(double *dx, double *dw, const double *dout, const double *x, const double *w, double eps, size_t n, size_t dim)
{
    Pool pool = {0};
    double *dy = pool_doubles(&pool, dim);
    for (size_t t = 0; t < n; t++) {
        double r = norm_factor(x + t * dim, dim, REFERENCE_RMS, eps);
        for (size_t i = 0; i < dim; i++) {
            dy[i] = dout[t * dim + i] * w[i];
            dw[i] += dout[t * dim + i] * r * x[t * dim + i];
        }
        norm_backward(dx + t * dim, dy, x + t * dim, dim, REFERENCE_RMS, eps);
    }
    pool_free(&pool);
}

// pre [B·T, channels] = conv(x) + bias
static void conv_plain(double *pre, const double *x, const double *weight, const double *bias, const ReferenceConvShape *shape)
{
    size_t channels = shape->n_head * shape->head_size;
    for (size_t b = 0; b < shape->batch; b++) {
        for (size_t t = 0; t < shape->length; t++) {
            for (size_t c = 0; c < channels; c++) {
                double sum = bias[c];
                for (size_t lag = 0; lag < shape->width && lag <= t; lag++) {
                    sum += weight[c * shape->width + shape->width - 1 - lag] * x[(b * shape->length + t - lag) * channels + c];
                }
                pre[(b * shape->length + t) * channels + c] = sum;
            }
        }
    }
}

void reference_conv_forward(double *out, const double *x, const double *weight, const double *bias, const ReferenceConvShape *shape)
{
    Pool pool = {0};
    size_t n_vectors = shape->batch * shape->length * shape->n_head, size = shape->head_size;
    double *pre = pool_doubles(&pool, n_vectors * size), *y = pool_doubles(&pool, size);
    conv_plain(pre, x, weight, bias, shape);
    for (size_t i = 0; i < n_vectors; i++) {
        if (shape->norm == REFERENCE_SOFTMAX) {
            softmax(out + i * size, pre + i * size, size);
            continue;
        }
        for (size_t j = 0; j < size; j++) {
            y[j] = silu(pre[i * size + j]);
        }
        double r = norm_factor(y, size, shape->norm, shape->eps);
        for (size_t j = 0; j < size; j++) {
            out[i * size + j] = r * y[j];
        }
    }
    pool_free(&pool);
}

void reference_conv_backward(double *dx, double *dweight, double *dbias, const double *dout, const double *x, const double *weight, const double *bias,
                             const ReferenceConvShape *shape)
{
    Pool pool = {0};
    size_t channels = shape->n_head * shape->head_size, rows = shape->batch * shape->length, size = shape->head_size;
    double *pre = pool_doubles(&pool, rows * channels), *dpre = pool_doubles(&pool, rows * channels);
    double *y = pool_doubles(&pool, size), *dy = pool_doubles(&pool, size);
    conv_plain(pre, x, weight, bias, shape);
    for (size_t i = 0; i < rows * shape->n_head; i++) {
        if (shape->norm == REFERENCE_SOFTMAX) {
            softmax(y, pre + i * size, size);
            double along = dot(y, dout + i * size, size);
            for (size_t j = 0; j < size; j++) {
                dpre[i * size + j] = y[j] * (dout[i * size + j] - along);
            }
            continue;
        }
        for (size_t j = 0; j < size; j++) {
            y[j] = silu(pre[i * size + j]);
            dy[j] = 0.0;
        }
        norm_backward(dy, dout + i * size, y, size, shape->norm, shape->eps);
        for (size_t j = 0; j < size; j++) {
            dpre[i * size + j] = dy[j] * silu_slope(pre[i * size + j]);
        }
    }
    for (size_t row = 0; row < rows; row++) {
        for (size_t c = 0; c < channels; c++) {
            double d = dpre[row * channels + c];
            dbias[c] += d;
            for (size_t lag = 0; lag < shape->width && lag <= row % shape->length; lag++) {
                size_t tap = c * shape->width + shape->width - 1 - lag, source = (row - lag) * channels + c;
                dweight[tap] += d * x[source];
                dx[source] += d * weight[tap];
            }
        }
    }
    pool_free(&pool);
}

void reference_gate_forward(double *out, const double *o, const double *z, const double *w, double eps, size_t n, size_t n_head, size_t d_head)
{
    for (size_t i = 0; i < n * n_head; i++) {
        const double *head_w = w + i % n_head * d_head;
        double r = norm_factor(o + i * d_head, d_head, REFERENCE_RMS, eps);
        for (size_t j = 0; j < d_head; j++) {
            out[i * d_head + j] = r * o[i * d_head + j] * head_w[j] * gelu(z[i * d_head + j]);
        }
    }
}

void reference_gate_backward(double *do_, double *dz, double *dw, const double *dout, const double *o, const double *z, const double *w, double eps, size_t n,
                             size_t n_head, size_t d_head)
{
    Pool pool = {0};
    double *dy = pool_doubles(&pool, d_head);
    for (size_t i = 0; i < n * n_head; i++) {
        size_t head = i % n_head * d_head;
        double r = norm_factor(o + i * d_head, d_head, REFERENCE_RMS, eps);
        for (size_t j = 0; j < d_head; j++) {
            double d = dout[i * d_head + j], y = r * o[i * d_head + j], gate = gelu(z[i * d_head + j]);
            dw[head + j] += d * y * gate;
            dz[i * d_head + j] += d * y * w[head + j] * gelu_slope(z[i * d_head + j]);
            dy[j] = d * w[head + j] * gate;
        }
        norm_backward(do_ + i * d_head, dy, o + i * d_head, d_head, REFERENCE_RMS, eps);
    }
    pool_free(&pool);
}

void reference_swiglu_forward(double *out, const double *a, const double *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = silu(a[i]) * b[i];
    }
}

void reference_swiglu_backward(double *da, double *db, const double *dout, const double *a, const double *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        da[i] += dout[i] * b[i] * silu_slope(a[i]);
        db[i] += dout[i] * silu(a[i]);
    }
}

void reference_sigmoid_forward(double *out, const double *x, const double *bias, size_t n, size_t count)
{
    for (size_t i = 0; i < n * count; i++) {
        out[i] = sigmoid(x[i] + bias[i % count]);
    }
}

void reference_sigmoid_backward(double *dx, double *dbias, const double *dout, const double *out, size_t n, size_t count)
{
    for (size_t i = 0; i < n * count; i++) {
        double d = dout[i] * out[i] * (1.0 - out[i]);
        dx[i] += d;
        dbias[i % count] += d;
    }
}

void reference_softplus_forward(double *g, double *mu, const double *x, const double *bias, const double *rate, size_t n, size_t count)
{
    for (size_t i = 0; i < n * count; i++) {
        double a = x[i] + bias[i % count];
        g[i] = fmax(a, 0.0) + log1p(exp(-fabs(a)));
        mu[i] = exp(-g[i] * exp(rate[i % count]));
    }
}

void reference_softplus_backward(double *dx, double *dbias, double *drate, const double *dg, const double *dmu, const double *x, const double *bias,
                                 const double *rate, size_t n, size_t count)
{
    for (size_t i = 0; i < n * count; i++) {
        double a = x[i] + bias[i % count], r = exp(rate[i % count]), g = fmax(a, 0.0) + log1p(exp(-fabs(a))), mu = exp(-g * r);
        double d = (dg[i] - dmu[i] * mu * r) * sigmoid(a);
        dx[i] += d;
        dbias[i % count] += d;
        drate[i % count] -= dmu[i] * mu * g * r;
    }
}

void reference_slot_decay_forward(double *out, const double *x, const double *bias, size_t n, size_t count)
{
    for (size_t i = 0; i < n * count; i++) {
        out[i] = pow(sigmoid(x[i] + bias[i % count]), 1.0 / 16.0);
    }
}

void reference_slot_decay_backward(double *dx, double *dbias, const double *dout, const double *out, size_t n, size_t count)
{
    for (size_t i = 0; i < n * count; i++) {
        double d = dout[i] * out[i] * (1.0 - pow(out[i], 16.0)) / 16.0;
        dx[i] += d;
        dbias[i % count] += d;
    }
}

void reference_embedding_forward(double *out, const double *table, const int32_t *ids, size_t n, size_t dim)
{
    for (size_t t = 0; t < n; t++) {
        memcpy(out + t * dim, table + (size_t)ids[t] * dim, dim * sizeof *out);
    }
}

void reference_embedding_backward(double *dtable, const double *dout, const int32_t *ids, size_t n, size_t dim)
{
    for (size_t t = 0; t < n; t++) {
        for (size_t i = 0; i < dim; i++) {
            dtable[(size_t)ids[t] * dim + i] += dout[t * dim + i];
        }
    }
}

double reference_cross_entropy(double *losses, double *dlogits, const double *logits, const int32_t *targets, double scale, size_t n, size_t vocab)
{
    double total = 0.0;
    for (size_t t = 0; t < n; t++) {
        const double *x = logits + t * vocab;
        double largest = x[0], sum = 0.0;
        for (size_t i = 0; i < vocab; i++) {
            largest = x[i] > largest ? x[i] : largest;
        }
        for (size_t i = 0; i < vocab; i++) {
            sum += exp(x[i] - largest);
        }
        bool counts = targets[t] >= 0;
        double loss = counts ? log(sum) + largest - x[targets[t]] : 0.0;
        total += loss;
        if (losses != NULL) {
            losses[t] = loss;
        }
        for (size_t i = 0; counts && dlogits != NULL && i < vocab; i++) {
            dlogits[t * vocab + i] += scale * (exp(x[i] - largest) / sum - ((size_t)targets[t] == i ? 1.0 : 0.0));
        }
    }
    return total;
}

void reference_adamw(double *params, double *m, double *v, const double *grad, size_t n, double grad_scale, double lr, double beta1, double beta2, double eps,
                     double decay, double step)
{
    for (size_t i = 0; i < n; i++) {
        double g = grad[i] * grad_scale;
        m[i] = beta1 * m[i] + (1.0 - beta1) * g;
        v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
        double m_hat = m[i] / (1.0 - pow(beta1, step)), v_hat = v[i] / (1.0 - pow(beta2, step));
        params[i] -= lr * (m_hat / (sqrt(v_hat) + eps) + decay * params[i]);
    }
}
