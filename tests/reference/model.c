// The whole model in double: embedding, blocks, final norm, head; every activation is kept, then walked backwards.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/reference/reference.h"

typedef struct Layer {
    double *x;              // [n, D] what enters the block
    double *y;              // [n, D] its norm
    double *pre[3];         // projections for q, k [n, H·m] and v [n, H·d], before the convolution
    double *qkv[3];         // after it
    double *z;              // [n, H·d]
    double *g, *mu;         // [n, H]; mu NULL without the forget gate
    double *o, *gated;      // [n, H·d] what the mixer gives, and after the output gate
    double *middle;         // [n, D] between mixer and MLP
    double *y2;             // [n, D]
    double *h1, *h3, *hidden;   // [n, F]
} Layer;

typedef struct Run {
    Pool pool;
    const ModelConfig *config;
    const TensorTable *table;
    const double *params;
    double *dparams;        // NULL: no backward
    const int32_t *tokens;
    size_t batch, length, n;        // n = B·T
    size_t width, n_head, m, d, hidden;
    double eps;
    Layer *layers;
    double *last, *last_norm;   // [n, D] after the last block, and its norm
} Run;

static size_t place(const Run *run, const char *name)
{
    const Tensor *tensor = tensor_find(run->table, name);
    if (tensor == NULL) {
        fprintf(stderr, "error: the table of parameters has no %s\n", name);
        exit(1);
    }
    return tensor->offset;
}

static size_t layer_place(const Run *run, size_t layer, const char *suffix)
{
    char name[96];
    snprintf(name, sizeof name, "layers.%zu.%s", layer, suffix);
    return place(run, name);
}

static const double *weight(const Run *run, size_t layer, const char *suffix) { return run->params + layer_place(run, layer, suffix); }

static double *gradient(const Run *run, size_t layer, const char *suffix) { return run->dparams + layer_place(run, layer, suffix); }

static void add(double *y, const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] += x[i];
    }
}

static const char *const projection_names[3] = {"mixer.q.weight", "mixer.k.weight", "mixer.v.weight"};
static const char *const conv_weight_names[3] = {"mixer.q_conv.weight", "mixer.k_conv.weight", "mixer.v_conv.weight"};
static const char *const conv_bias_names[3] = {"mixer.q_conv.bias", "mixer.k_conv.bias", "mixer.v_conv.bias"};

// Size of a head in q, k (0, 1) and v (2).
static size_t head_size(const Run *run, size_t which) { return which < 2 ? run->m : run->d; }

static ReferenceConvShape conv_shape(const Run *run, size_t which)
{
    return (ReferenceConvShape){.batch = run->batch, .length = run->length, .n_head = run->n_head, .head_size = head_size(run, which),
                                .width = (size_t)run->config->conv_width, .norm = which < 2 ? REFERENCE_L2 : REFERENCE_RMS, .eps = run->eps};
}

// Copies head `head` of sequence `b` between rows of heads [n, H, size] and an array of its own [T, size].
static void gather_head(double *out, const double *rows, size_t b, size_t head, size_t size, const Run *run)
{
    for (size_t t = 0; t < run->length; t++) {
        memcpy(out + t * size, rows + ((b * run->length + t) * run->n_head + head) * size, size * sizeof *out);
    }
}

static void scatter_head(double *rows, const double *in, size_t b, size_t head, size_t size, const Run *run)
{
    for (size_t t = 0; t < run->length; t++) {
        memcpy(rows + ((b * run->length + t) * run->n_head + head) * size, in + t * size, size * sizeof *in);
    }
}

// One head's inputs, gathered into arrays of `pool`.
static ReferenceTensors head_tensors(Pool *pool, const Run *run, size_t layer, size_t b, size_t head)
{
    const Layer *l = &run->layers[layer];
    size_t length = run->length, m = run->m, d = run->d;
    double *q = pool_doubles(pool, length * m), *k = pool_doubles(pool, length * m), *v = pool_doubles(pool, length * d);
    double *g = pool_doubles(pool, length), *mu = NULL;
    gather_head(q, l->qkv[0], b, head, m, run);
    gather_head(k, l->qkv[1], b, head, m, run);
    gather_head(v, l->qkv[2], b, head, d, run);
    gather_head(g, l->g, b, head, 1, run);
    if (l->mu != NULL) {
        mu = pool_doubles(pool, length);
        gather_head(mu, l->mu, b, head, 1, run);
    }
    return (ReferenceTensors){.q = q, .k = k, .v = v, .g = g, .mu = mu, .state0 = weight(run, layer, "mixer.state0") + head * m * d};
}

static void mix(const Run *run, size_t layer)
{
    ReferenceForm form = reference_form(run->config);
    ReferenceMixerShape shape = {run->length, run->m, run->d};
    for (size_t b = 0; b < run->batch; b++) {
        for (size_t head = 0; head < run->n_head; head++) {
            Pool pool = {0};
            ReferenceTensors in = head_tensors(&pool, run, layer, b, head);
            double *o = pool_doubles(&pool, run->length * run->d);
            reference_mixer_forward(o, NULL, &in, &form, &shape);
            scatter_head(run->layers[layer].o, o, b, head, run->d, run);
            pool_free(&pool);
        }
    }
}

// From do_ [n, H·d]: sets dqkv[3], dg and dmu (as qkv, g and mu), adds to the gradient of state0.
static void mix_backward(double *const dqkv[3], double *dg, double *dmu, const double *do_, const Run *run, size_t layer)
{
    ReferenceForm form = reference_form(run->config);
    ReferenceMixerShape shape = {run->length, run->m, run->d};
    size_t length = run->length, m = run->m, d = run->d;
    for (size_t b = 0; b < run->batch; b++) {
        for (size_t head = 0; head < run->n_head; head++) {
            Pool pool = {0};
            ReferenceTensors in = head_tensors(&pool, run, layer, b, head);
            ReferenceGradients grad = {
                .q = pool_doubles(&pool, length * m),
                .k = pool_doubles(&pool, length * m),
                .v = pool_doubles(&pool, length * d),
                .g = pool_doubles(&pool, length),
                .mu = dmu != NULL ? pool_doubles(&pool, length) : NULL,
                .state0 = gradient(run, layer, "mixer.state0") + head * m * d,
            };
            double *d_out = pool_doubles(&pool, length * d);
            gather_head(d_out, do_, b, head, d, run);
            reference_mixer_backward(&grad, d_out, NULL, &in, &form, &shape);
            scatter_head(dqkv[0], grad.q, b, head, m, run);
            scatter_head(dqkv[1], grad.k, b, head, m, run);
            scatter_head(dqkv[2], grad.v, b, head, d, run);
            scatter_head(dg, grad.g, b, head, 1, run);
            if (dmu != NULL) {
                scatter_head(dmu, grad.mu, b, head, 1, run);
            }
            pool_free(&pool);
        }
    }
}

// A gate sigmoid(W y + b), one number a head, named "mixer.g" or "mixer.mu".
static double *gate(Run *run, size_t layer, const char *weight_name, const char *bias_name)
{
    double *x = pool_doubles(&run->pool, run->n * run->n_head), *out = pool_doubles(&run->pool, run->n * run->n_head);
    reference_linear_forward(x, run->layers[layer].y, weight(run, layer, weight_name), run->n, run->width, run->n_head);
    reference_sigmoid_forward(out, x, weight(run, layer, bias_name), run->n, run->n_head);
    return out;
}

static void gate_backward(double *dy, const double *dout, const double *out, Run *run, size_t layer, const char *weight_name, const char *bias_name)
{
    double *dx = pool_doubles(&run->pool, run->n * run->n_head);
    reference_sigmoid_backward(dx, gradient(run, layer, bias_name), dout, out, run->n, run->n_head);
    reference_linear_backward(dy, gradient(run, layer, weight_name), dx, run->layers[layer].y, weight(run, layer, weight_name), run->n, run->width,
                              run->n_head);
}

// The mixer's half of a block: l->middle = x + Wo(...)
static void mixer_forward(Run *run, size_t layer)
{
    Layer *l = &run->layers[layer];
    size_t n = run->n, value_size = run->n_head * run->d;
    l->y = pool_doubles(&run->pool, n * run->width);
    reference_rmsnorm_forward(l->y, l->x, weight(run, layer, "norm.weight"), run->eps, n, run->width);
    for (size_t i = 0; i < 3; i++) {
        size_t channels = run->n_head * head_size(run, i);
        ReferenceConvShape shape = conv_shape(run, i);
        l->pre[i] = pool_doubles(&run->pool, n * channels);
        l->qkv[i] = pool_doubles(&run->pool, n * channels);
        reference_linear_forward(l->pre[i], l->y, weight(run, layer, projection_names[i]), n, run->width, channels);
        reference_conv_forward(l->qkv[i], l->pre[i], weight(run, layer, conv_weight_names[i]), weight(run, layer, conv_bias_names[i]), &shape);
    }
    l->z = pool_doubles(&run->pool, n * value_size);
    reference_linear_forward(l->z, l->y, weight(run, layer, "mixer.z.weight"), n, run->width, value_size);
    l->g = gate(run, layer, "mixer.g.weight", "mixer.g.bias");
    l->mu = run->config->forget_gate ? gate(run, layer, "mixer.mu.weight", "mixer.mu.bias") : NULL;
    l->o = pool_doubles(&run->pool, n * value_size);
    mix(run, layer);
    l->gated = pool_doubles(&run->pool, n * value_size);
    reference_gate_forward(l->gated, l->o, l->z, weight(run, layer, "mixer.out_norm.weight"), run->eps, n, run->n_head, run->d);
    l->middle = pool_doubles(&run->pool, n * run->width);
    reference_linear_forward(l->middle, l->gated, weight(run, layer, "mixer.o.weight"), n, value_size, run->width);
    add(l->middle, l->x, n * run->width);
}

// dx [n, D] holds the gradient of l->middle and becomes that of l->x.
static void mixer_backward(double *dx, Run *run, size_t layer)
{
    Layer *l = &run->layers[layer];
    size_t n = run->n, value_size = run->n_head * run->d;
    double *dgated = pool_doubles(&run->pool, n * value_size), *do_ = pool_doubles(&run->pool, n * value_size);
    double *dz = pool_doubles(&run->pool, n * value_size), *dy = pool_doubles(&run->pool, n * run->width);
    double *dg = pool_doubles(&run->pool, n * run->n_head), *dmu = l->mu != NULL ? pool_doubles(&run->pool, n * run->n_head) : NULL;
    double *dqkv[3];
    reference_linear_backward(dgated, gradient(run, layer, "mixer.o.weight"), dx, l->gated, weight(run, layer, "mixer.o.weight"), n, value_size, run->width);
    reference_gate_backward(do_, dz, gradient(run, layer, "mixer.out_norm.weight"), dgated, l->o, l->z, weight(run, layer, "mixer.out_norm.weight"), run->eps,
                            n, run->n_head, run->d);
    for (size_t i = 0; i < 3; i++) {
        dqkv[i] = pool_doubles(&run->pool, n * run->n_head * head_size(run, i));
    }
    mix_backward(dqkv, dg, dmu, do_, run, layer);
    for (size_t i = 0; i < 3; i++) {
        size_t channels = run->n_head * head_size(run, i);
        ReferenceConvShape shape = conv_shape(run, i);
        double *dpre = pool_doubles(&run->pool, n * channels);
        reference_conv_backward(dpre, gradient(run, layer, conv_weight_names[i]), gradient(run, layer, conv_bias_names[i]), dqkv[i], l->pre[i],
                                weight(run, layer, conv_weight_names[i]), weight(run, layer, conv_bias_names[i]), &shape);
        reference_linear_backward(dy, gradient(run, layer, projection_names[i]), dpre, l->y, weight(run, layer, projection_names[i]), n, run->width, channels);
    }
    reference_linear_backward(dy, gradient(run, layer, "mixer.z.weight"), dz, l->y, weight(run, layer, "mixer.z.weight"), n, run->width, value_size);
    gate_backward(dy, dg, l->g, run, layer, "mixer.g.weight", "mixer.g.bias");
    if (dmu != NULL) {
        gate_backward(dy, dmu, l->mu, run, layer, "mixer.mu.weight", "mixer.mu.bias");
    }
    reference_rmsnorm_backward(dx, gradient(run, layer, "norm.weight"), dy, l->x, weight(run, layer, "norm.weight"), run->eps, n, run->width);
}

// out [n, D] = middle + W2( silu(W1 y') ⊙ W3 y' )
static void mlp_forward(double *out, Run *run, size_t layer)
{
    Layer *l = &run->layers[layer];
    size_t n = run->n, width = run->width, hidden = run->hidden;
    l->y2 = pool_doubles(&run->pool, n * width);
    l->h1 = pool_doubles(&run->pool, n * hidden);
    l->h3 = pool_doubles(&run->pool, n * hidden);
    l->hidden = pool_doubles(&run->pool, n * hidden);
    reference_rmsnorm_forward(l->y2, l->middle, weight(run, layer, "mlp_norm.weight"), run->eps, n, width);
    reference_linear_forward(l->h1, l->y2, weight(run, layer, "mlp.w1.weight"), n, width, hidden);
    reference_linear_forward(l->h3, l->y2, weight(run, layer, "mlp.w3.weight"), n, width, hidden);
    reference_swiglu_forward(l->hidden, l->h1, l->h3, n * hidden);
    reference_linear_forward(out, l->hidden, weight(run, layer, "mlp.w2.weight"), n, hidden, width);
    add(out, l->middle, n * width);
}

// dx [n, D] holds the gradient of the block's output and becomes that of l->middle.
static void mlp_backward(double *dx, Run *run, size_t layer)
{
    Layer *l = &run->layers[layer];
    size_t n = run->n, width = run->width, hidden = run->hidden;
    double *dhidden = pool_doubles(&run->pool, n * hidden), *dh1 = pool_doubles(&run->pool, n * hidden), *dh3 = pool_doubles(&run->pool, n * hidden);
    double *dy = pool_doubles(&run->pool, n * width);
    reference_linear_backward(dhidden, gradient(run, layer, "mlp.w2.weight"), dx, l->hidden, weight(run, layer, "mlp.w2.weight"), n, hidden, width);
    reference_swiglu_backward(dh1, dh3, dhidden, l->h1, l->h3, n * hidden);
    reference_linear_backward(dy, gradient(run, layer, "mlp.w1.weight"), dh1, l->y2, weight(run, layer, "mlp.w1.weight"), n, width, hidden);
    reference_linear_backward(dy, gradient(run, layer, "mlp.w3.weight"), dh3, l->y2, weight(run, layer, "mlp.w3.weight"), n, width, hidden);
    reference_rmsnorm_backward(dx, gradient(run, layer, "mlp_norm.weight"), dy, l->middle, weight(run, layer, "mlp_norm.weight"), run->eps, n, width);
}

static void run_forward(Run *run, double *logits)
{
    size_t n_layer = (size_t)run->config->n_layer, n = run->n;
    const double *embedding = run->params + place(run, "embed.weight");
    double *x = pool_doubles(&run->pool, n * run->width);
    reference_embedding_forward(x, embedding, run->tokens, n, run->width);
    for (size_t layer = 0; layer < n_layer; layer++) {
        run->layers[layer].x = x;
        mixer_forward(run, layer);
        x = run->layers[layer].middle;
        if (run->hidden > 0) {
            x = pool_doubles(&run->pool, n * run->width);
            mlp_forward(x, run, layer);
        }
    }
    run->last = x;
    run->last_norm = pool_doubles(&run->pool, n * run->width);
    reference_rmsnorm_forward(run->last_norm, x, run->params + place(run, "norm.weight"), run->eps, n, run->width);
    const double *head = run->config->tie_embeddings ? embedding : run->params + place(run, "head.weight");
    reference_linear_forward(logits, run->last_norm, head, n, run->width, (size_t)run->config->vocab_size);
}

static void run_backward(Run *run, const double *dlogits)
{
    size_t n = run->n, embedding = place(run, "embed.weight"), norm = place(run, "norm.weight");
    size_t head = run->config->tie_embeddings ? embedding : place(run, "head.weight");
    double *dnorm = pool_doubles(&run->pool, n * run->width), *dx = pool_doubles(&run->pool, n * run->width);
    reference_linear_backward(dnorm, run->dparams + head, dlogits, run->last_norm, run->params + head, n, run->width, (size_t)run->config->vocab_size);
    reference_rmsnorm_backward(dx, run->dparams + norm, dnorm, run->last, run->params + norm, run->eps, n, run->width);
    for (size_t layer = (size_t)run->config->n_layer; layer-- > 0;) {
        if (run->hidden > 0) {
            mlp_backward(dx, run, layer);
        }
        mixer_backward(dx, run, layer);
    }
    reference_embedding_backward(run->dparams + embedding, dx, run->tokens, n, run->width);
}

double reference_model(double *logits, double *dparams, const ModelConfig *config, const TensorTable *table, const double *params, const int32_t *tokens,
                       const int32_t *targets, double scale, size_t batch, size_t length)
{
    Run run = {.config = config, .table = table, .params = params, .dparams = dparams, .tokens = tokens, .batch = batch, .length = length,
               .n = batch * length, .width = (size_t)config->d_model, .n_head = (size_t)config->n_head, .m = (size_t)config->n_slot,
               .d = (size_t)config->d_head, .hidden = (size_t)config->mlp_hidden, .eps = config->norm_eps};
    size_t vocab = (size_t)config->vocab_size;
    run.layers = calloc((size_t)config->n_layer, sizeof *run.layers);
    if (run.layers == NULL) {
        fputs("error: out of memory in a test\n", stderr);
        exit(1);
    }
    double *own_logits = pool_doubles(&run.pool, run.n * vocab), *dlogits = pool_doubles(&run.pool, run.n * vocab);
    run_forward(&run, own_logits);
    double loss = reference_cross_entropy(NULL, dlogits, own_logits, targets, scale, run.n, vocab);
    if (logits != NULL) {
        memcpy(logits, own_logits, run.n * vocab * sizeof *logits);
    }
    if (dparams != NULL) {
        run_backward(&run, dlogits);
    }
    free(run.layers);
    pool_free(&run.pool);
    return loss;
}
