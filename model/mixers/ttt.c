// Test-time training with a linear model (TTT-Linear, Sun et al. 2024; docs/memories.md 8). m = d. With z = W k at the chunk's start and dz the gradient of
// ½‖LN(z) − (v − k)‖² by z: W = W − g dz kᵀ and o = q + LN(W q). LN has a scale w and a bias b for each head.
//
// With hat = (z − mean) / sigma and e = w (w hat + b − v + k): dz = (e − mean(e) − hat mean(e hat)) / sigma.
#include "model/mixers/scan.h"

#define LAYER_NORM_EPS 1e-6f

static float mean(const float *x, size_t d)
{
    vfloat sum = {0};
    for (size_t j = 0; j < d; j += VECTOR_FLOATS) {
        sum += v_load_n(x + j, d - j);
    }
    return v_sum(sum) / (float)d;
}

// hat [d] = (z − mean) / sigma; returns 1 / sigma. hat may be z.
static float standardise(float *hat, const float *z, size_t d)
{
    float middle = mean(z, d);
    for (size_t j = 0; j < d; j += VECTOR_FLOATS) {
        v_store_n(hat + j, v_load_n(z + j, d - j) - v_set(middle), d - j);
    }
    float inverse = 1.0f / __builtin_sqrtf(dot(hat, hat, d) / (float)d + LAYER_NORM_EPS);
    scale_to(hat, hat, inverse, d);
    return inverse;
}

// dz [d] = gradient into z, given dhat [d] into hat. dz may be dhat.
static void standardise_backward(float *dz, const float *dhat, const float *hat, float inverse, size_t d)
{
    float middle = mean(dhat, d), along = dot(dhat, hat, d) / (float)d;
    for (size_t j = 0; j < d; j += VECTOR_FLOATS) {
        vfloat rest = v_fma(v_set(-along), v_load_n(hat + j, d - j), v_load_n(dhat + j, d - j) - v_set(middle));
        v_store_n(dz + j, rest * v_set(inverse), d - j);
    }
}

// miss [d] = w hat + b − v + k and e = w miss
static void inner_error(float *miss, float *e, const float *hat, const ScanToken *token, size_t d)
{
    for (size_t j = 0; j < d; j += VECTOR_FLOATS) {
        size_t rest = d - j;
        vfloat w = v_load_n(token->ln_weight + j, rest), x = v_fma(w, v_load_n(hat + j, rest), v_load_n(token->ln_bias + j, rest));
        x = x - v_load_n(token->v + j, rest) + v_load_n(token->k + j, rest);
        v_store_n(miss + j, x, rest);
        v_store_n(e + j, w * x, rest);
    }
}

static float write(float *h, const float *p, const ScanToken *token, size_t d)
{
    float hat[d], miss[d], e[d], inverse = standardise(hat, p, d);
    inner_error(miss, e, hat, token, d);
    standardise_backward(h, e, hat, inverse, d);
    scale_to(h, h, -1.0f, d);
    return token->g;
}

// Through the gradient of the inner loss. With G = −dh the gradient into dz: dz is linear in e, whose gradient de is dz's formula applied to G; it also
// depends on hat, −(mean(e hat) G + mean(G hat) e) / sigma, and on sigma, −G·dz / sigma.
static void write_backward(float *dp, ScanGradients *grad, const float *dh, float dc, const float *p, const ScanToken *token, size_t d)
{
    (void)dc;
    float hat[d], miss[d], e[d], dz[d], out[d], de[d], inverse = standardise(hat, p, d);
    inner_error(miss, e, hat, token, d);
    scale_to(out, dh, -1.0f, d);
    standardise_backward(dz, e, hat, inverse, d);
    standardise_backward(de, out, hat, inverse, d);
    float e_along = dot(e, hat, d) / (float)d, out_along = dot(out, hat, d) / (float)d, dsigma = -dot(out, dz, d) * inverse;
    for (size_t j = 0; j < d; j += VECTOR_FLOATS) {
        size_t rest = d - j;
        vfloat w = v_load_n(token->ln_weight + j, rest), x = v_load_n(hat + j, rest), dej = v_load_n(de + j, rest), dmiss = w * dej;
        v_store_n(grad->ln_weight + j, v_load_n(grad->ln_weight + j, rest) + dej * v_load_n(miss + j, rest) + dmiss * x, rest);
        v_store_n(grad->ln_bias + j, v_load_n(grad->ln_bias + j, rest) + dmiss, rest);
        v_store_n(grad->k + j, v_load_n(grad->k + j, rest) + dmiss, rest);
        v_store_n(grad->v + j, -dmiss, rest);
        vfloat turn = v_set(e_along) * v_load_n(out + j, rest) + v_set(out_along) * v_load_n(e + j, rest);
        v_store_n(dp + j, w * dmiss - turn * v_set(inverse), rest);
    }
    standardise_backward(dp, dp, hat, inverse, d);
    add_scaled(dp, dp, dsigma / (float)d, hat, d);
}

static void output(float *o, const ScanToken *token, size_t d)
{
    standardise(o, o, d);
    for (size_t j = 0; j < d; j += VECTOR_FLOATS) {
        size_t rest = d - j;
        vfloat x = v_fma(v_load_n(token->ln_weight + j, rest), v_load_n(o + j, rest), v_load_n(token->ln_bias + j, rest));
        v_store_n(o + j, v_load_n(token->q + j, rest) + x, rest);
    }
}

static void output_backward(float *dy, ScanGradients *grad, const float *do_, const float *y, const ScanToken *token, size_t d)
{
    float hat[d], inverse = standardise(hat, y, d);
    for (size_t j = 0; j < d; j += VECTOR_FLOATS) {
        size_t rest = d - j;
        vfloat out = v_load_n(do_ + j, rest);
        v_store_n(grad->q + j, v_load_n(grad->q + j, rest) + out, rest);
        v_store_n(grad->ln_weight + j, v_load_n(grad->ln_weight + j, rest) + out * v_load_n(hat + j, rest), rest);
        v_store_n(grad->ln_bias + j, v_load_n(grad->ln_bias + j, rest) + out, rest);
        v_store_n(dy + j, out * v_load_n(token->ln_weight + j, rest), rest);
    }
    standardise_backward(dy, dy, hat, inverse, d);
}

static const ScanRule rule = {
    .decay = SCAN_KEEP,
    .products = true,
    .reads = true,
    .chunked = true,
    .write = write,
    .write_backward = write_backward,
    .output = output,
    .output_backward = output_backward,
};

SCAN_MIXER(ttt, rule, .gate = true, .start = true, .norm = true, .square = true, .chunk = true)
