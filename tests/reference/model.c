// The whole model in double: embedding, blocks, final norm, head; every activation is kept, then walked backwards.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/reference/reference.h"

typedef struct Layer {
    ReferenceForm form;
    ReferenceNeeds needs;
    bool forget;            // mu is read
    double *x;              // [n, D] what enters the block
    double *y;              // [n, D] its norm
    double *pre[3];         // projections for q, k [n, H·m] and v [n, H·d], before the convolution
    double *keys;           // k after it, before its factors; NULL where it has none
    double *qkv[3];         // after it
    double *z;              // [n, H·d]; NULL in a bare block, where qkv is pre and gated is o
    double *gates;          // [n, H] what softplus reads; NULL where g and mu are sigmoids
    double *g, *mu;         // [n, H · per_head], [n, H]; NULL where there is none
    size_t per_head;        // numbers of g a head
    double *low, *alpha;    // [n, rank], [n, H·m]; NULL where there is none
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

static void scale(double *x, double factor, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] *= factor;
    }
}

static const char *const projection_names[3] = {"mixer.q.weight", "mixer.k.weight", "mixer.v.weight"};
static const char *const conv_weight_names[3] = {"mixer.q_conv.weight", "mixer.k_conv.weight", "mixer.v_conv.weight"};
static const char *const conv_bias_names[3] = {"mixer.q_conv.bias", "mixer.k_conv.bias", "mixer.v_conv.bias"};

// Size of a head in q, k (0, 1) and v (2).
static size_t head_size(const Run *run, size_t which) { return which < 2 ? run->m : run->d; }

static ReferenceConvShape conv_shape(const Run *run, size_t which)
{
    bool plain = which < 2 ? run->config->plain_codes : run->config->plain_values, softmax = which < 2 && run->config->softmax_codes;
    bool unit = which < 2 || run->config->unit_values;
    return (ReferenceConvShape){.batch = run->batch, .length = run->length, .n_head = run->n_head, .head_size = head_size(run, which),
                                .width = (size_t)run->config->conv_width,
                                .norm = softmax ? REFERENCE_SOFTMAX : plain ? REFERENCE_NONE : unit ? REFERENCE_L2 : REFERENCE_RMS, .eps = run->eps};
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

// [T, size] of one head out of rows [n, H, size], or NULL.
static double *gathered(Pool *pool, const double *rows, size_t b, size_t head, size_t size, const Run *run)
{
    double *out = rows != NULL ? pool_doubles(pool, run->length * size) : NULL;
    if (rows != NULL) {
        gather_head(out, rows, b, head, size, run);
    }
    return out;
}

// A head's part of a parameter [H, size] that the layer has, or NULL.
static const double *head_weight(const Run *run, size_t layer, const char *suffix, bool wanted, size_t head, size_t size)
{
    return wanted ? weight(run, layer, suffix) + head * size : NULL;
}

static double *head_gradient(const Run *run, size_t layer, const char *suffix, bool wanted, size_t head, size_t size)
{
    return wanted ? gradient(run, layer, suffix) + head * size : NULL;
}

// One head's inputs, gathered into arrays of `pool`.
static ReferenceTensors head_tensors(Pool *pool, const Run *run, size_t layer, size_t b, size_t head)
{
    const Layer *l = &run->layers[layer];
    size_t m = run->m, d = run->d;
    return (ReferenceTensors){
        .q = gathered(pool, l->qkv[0], b, head, m, run),
        .k = gathered(pool, l->qkv[1], b, head, m, run),
        .v = gathered(pool, l->qkv[2], b, head, d, run),
        .g = gathered(pool, l->g, b, head, l->per_head, run),
        .mu = gathered(pool, l->mu, b, head, 1, run),
        .alpha = gathered(pool, l->alpha, b, head, m, run),
        .state0 = head_weight(run, layer, "mixer.state0", l->needs.start, head, m * d),
        .ln_weight = head_weight(run, layer, "mixer.ln.weight", l->needs.norm, head, d),
        .ln_bias = head_weight(run, layer, "mixer.ln.bias", l->needs.norm, head, d),
    };
}

static void mix(const Run *run, size_t layer)
{
    ReferenceMixerShape shape = {run->length, run->m, run->d};
    for (size_t b = 0; b < run->batch; b++) {
        for (size_t head = 0; head < run->n_head; head++) {
            Pool pool = {0};
            ReferenceTensors in = head_tensors(&pool, run, layer, b, head);
            double *o = pool_doubles(&pool, run->length * run->d);
            reference_mixer_forward(o, NULL, &in, &run->layers[layer].form, &shape);
            scatter_head(run->layers[layer].o, o, b, head, run->d, run);
            pool_free(&pool);
        }
    }
}

// Gradients of what the mixer reads, as rows of all heads; NULL as in the layer.
typedef struct MixGradients {
    double *qkv[3], *g, *mu, *alpha;
} MixGradients;

static void scatter_if(double *rows, const double *in, size_t b, size_t head, size_t size, const Run *run)
{
    if (rows != NULL) {
        scatter_head(rows, in, b, head, size, run);
    }
}

// From do_ [n, H·d]: sets the rows, adds to the gradients of state0 and of the norm.
static void mix_backward(const MixGradients *rows, const double *do_, const Run *run, size_t layer)
{
    const Layer *l = &run->layers[layer];
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
                .g = in.g != NULL ? pool_doubles(&pool, length * l->per_head) : NULL,
                .mu = in.mu != NULL ? pool_doubles(&pool, length) : NULL,
                .alpha = in.alpha != NULL ? pool_doubles(&pool, length * m) : NULL,
                .state0 = head_gradient(run, layer, "mixer.state0", l->needs.start, head, m * d),
                .ln_weight = head_gradient(run, layer, "mixer.ln.weight", l->needs.norm, head, d),
                .ln_bias = head_gradient(run, layer, "mixer.ln.bias", l->needs.norm, head, d),
            };
            double *d_out = gathered(&pool, do_, b, head, d, run);
            reference_mixer_backward(&grad, d_out, NULL, &in, &l->form, &shape);
            scatter_head(rows->qkv[0], grad.q, b, head, m, run);
            scatter_head(rows->qkv[1], grad.k, b, head, m, run);
            scatter_head(rows->qkv[2], grad.v, b, head, d, run);
            scatter_if(rows->g, grad.g, b, head, l->per_head, run);
            scatter_if(rows->mu, grad.mu, b, head, 1, run);
            scatter_if(rows->alpha, grad.alpha, b, head, m, run);
            pool_free(&pool);
        }
    }
}

// W x of a weight [n_out, n_in]
static double *project(Run *run, const double *x, size_t layer, const char *suffix, size_t n_in, size_t n_out)
{
    double *out = pool_doubles(&run->pool, run->n * n_out);
    reference_linear_forward(out, x, weight(run, layer, suffix), run->n, n_in, n_out);
    return out;
}

static void project_backward(double *dx, const double *dout, const double *x, Run *run, size_t layer, const char *suffix, size_t n_in, size_t n_out)
{
    reference_linear_backward(dx, gradient(run, layer, suffix), dout, x, weight(run, layer, suffix), run->n, n_in, n_out);
}

// A gate sigmoid(W y + b) of `count` numbers a token, named "mixer.g" or "mixer.mu".
static double *gate(Run *run, size_t layer, const char *weight_name, const char *bias_name, size_t count)
{
    double *x = project(run, run->layers[layer].y, layer, weight_name, run->width, count), *out = pool_doubles(&run->pool, run->n * count);
    reference_sigmoid_forward(out, x, weight(run, layer, bias_name), run->n, count);
    return out;
}

static void gate_backward(double *dy, const double *dout, const double *out, Run *run, size_t layer, const char *weight_name, const char *bias_name,
                          size_t count)
{
    double *dx = pool_doubles(&run->pool, run->n * count);
    reference_sigmoid_backward(dx, gradient(run, layer, bias_name), dout, out, run->n, count);
    project_backward(dy, dx, run->layers[layer].y, run, layer, weight_name, run->width, count);
}

// Width of the narrow layer before alpha: as the parameters say.
static size_t decay_rank(const Run *run, size_t layer)
{
    char name[96];
    snprintf(name, sizeof name, "layers.%zu.mixer.alpha_down.weight", layer);
    return tensor_find(run->table, name)->shape[0];
}

static void gates_forward(Run *run, size_t layer)
{
    Layer *l = &run->layers[layer];
    size_t n = run->n, heads = run->n_head, slots = heads * run->m;
    if (l->needs.shared_gate) {
        l->g = pool_doubles(&run->pool, n * heads);
        l->mu = pool_doubles(&run->pool, n * heads);
        l->gates = project(run, l->y, layer, "mixer.g.weight", run->width, heads);
        reference_softplus_forward(l->g, l->mu, l->gates, weight(run, layer, "mixer.g.bias"), weight(run, layer, "mixer.A"), n, heads);
        return;
    }
    l->g = l->needs.gate ? gate(run, layer, "mixer.g.weight", "mixer.g.bias", heads * l->per_head) : NULL;
    scale(l->g, run->config->wide_gate ? 2.0 : 1.0, l->g != NULL ? n * heads * l->per_head : 0);
    l->mu = l->forget ? gate(run, layer, "mixer.mu.weight", "mixer.mu.bias", heads) : NULL;
    if (l->needs.slot_decay) {
        size_t rank = decay_rank(run, layer);
        l->low = project(run, l->y, layer, "mixer.alpha_down.weight", run->width, rank);
        l->alpha = pool_doubles(&run->pool, n * slots);
        reference_slot_decay_forward(l->alpha, project(run, l->low, layer, "mixer.alpha_up.weight", rank, slots), weight(run, layer, "mixer.alpha_up.bias"),
                                     n, slots);
    }
}

static void gates_backward(double *dy, const MixGradients *rows, Run *run, size_t layer)
{
    Layer *l = &run->layers[layer];
    size_t n = run->n, heads = run->n_head, slots = heads * run->m;
    if (l->needs.shared_gate) {
        double *dx = pool_doubles(&run->pool, n * heads);
        reference_softplus_backward(dx, gradient(run, layer, "mixer.g.bias"), gradient(run, layer, "mixer.A"), rows->g, rows->mu, l->gates,
                                    weight(run, layer, "mixer.g.bias"), weight(run, layer, "mixer.A"), n, heads);
        project_backward(dy, dx, l->y, run, layer, "mixer.g.weight", run->width, heads);
        return;
    }
    if (l->needs.gate) {   // of 2 sigmoid(a) as of twice the sigmoid
        scale(l->g, run->config->wide_gate ? 0.5 : 1.0, n * heads * l->per_head);
        scale(rows->g, run->config->wide_gate ? 2.0 : 1.0, n * heads * l->per_head);
        gate_backward(dy, rows->g, l->g, run, layer, "mixer.g.weight", "mixer.g.bias", heads * l->per_head);
    }
    if (l->forget) {
        gate_backward(dy, rows->mu, l->mu, run, layer, "mixer.mu.weight", "mixer.mu.bias", heads);
    }
    if (l->needs.slot_decay) {
        size_t rank = decay_rank(run, layer);
        double *dx = pool_doubles(&run->pool, n * slots), *dlow = pool_doubles(&run->pool, n * rank);
        reference_slot_decay_backward(dx, gradient(run, layer, "mixer.alpha_up.bias"), rows->alpha, l->alpha, n, slots);
        project_backward(dlow, dx, l->low, run, layer, "mixer.alpha_up.weight", rank, slots);
        project_backward(dy, dlow, l->y, run, layer, "mixer.alpha_down.weight", run->width, rank);
    }
}

// The mixer's half of a block: l->middle = x + Wo(...)
static void mixer_forward(Run *run, size_t layer)
{
    Layer *l = &run->layers[layer];
    size_t n = run->n, value_size = run->n_head * run->d;
    l->form = reference_form(run->config, layer);
    l->needs = reference_needs(&l->form);
    l->per_head = reference_gates(&l->form, run->m);
    l->forget = l->needs.forget && (run->config->forget_gate || !l->needs.no_forget);
    l->y = pool_doubles(&run->pool, n * run->width);
    reference_rmsnorm_forward(l->y, l->x, weight(run, layer, "norm.weight"), run->eps, n, run->width);
    for (size_t i = 0; i < 3; i++) {
        size_t channels = run->n_head * head_size(run, i);
        ReferenceConvShape shape = conv_shape(run, i);
        l->qkv[i] = l->pre[i] = project(run, l->y, layer, projection_names[i], run->width, channels);
        if (!l->needs.bare) {
            l->qkv[i] = pool_doubles(&run->pool, n * channels);
            reference_conv_forward(l->qkv[i], l->pre[i], weight(run, layer, conv_weight_names[i]), weight(run, layer, conv_bias_names[i]), &shape);
        }
    }
    if (run->config->scaled_keys && l->needs.gate && !l->needs.shared_gate) {
        size_t count = n * run->n_head * run->m;
        l->keys = l->qkv[1];
        l->qkv[1] = pool_doubles(&run->pool, count);
        for (size_t i = 0; i < count; i++) {
            l->qkv[1][i] = weight(run, layer, "mixer.k_scale")[i / run->m % run->n_head] * l->keys[i];
        }
    }
    gates_forward(run, layer);
    l->gated = l->o = pool_doubles(&run->pool, n * value_size);
    mix(run, layer);
    if (!l->needs.bare) {
        l->z = project(run, l->y, layer, "mixer.z.weight", run->width, value_size);
        l->gated = pool_doubles(&run->pool, n * value_size);
        reference_gate_forward(l->gated, l->o, l->z, weight(run, layer, "mixer.out_norm.weight"), run->eps, n, run->n_head, run->d);
    }
    l->middle = project(run, l->gated, layer, "mixer.o.weight", value_size, run->width);
    add(l->middle, l->x, n * run->width);
}

// dqkv[i] becomes the gradient of the projections, which goes to dy.
static void projections_backward(double *dy, double *const dqkv[3], Run *run, size_t layer)
{
    Layer *l = &run->layers[layer];
    for (size_t i = 0; l->keys != NULL && i < run->n * run->n_head * run->m; i++) {
        size_t head = i / run->m % run->n_head;
        gradient(run, layer, "mixer.k_scale")[head] += dqkv[1][i] * l->keys[i];
        dqkv[1][i] *= weight(run, layer, "mixer.k_scale")[head];
    }
    for (size_t i = 0; i < 3; i++) {
        size_t channels = run->n_head * head_size(run, i);
        ReferenceConvShape shape = conv_shape(run, i);
        double *dpre = l->needs.bare ? dqkv[i] : pool_doubles(&run->pool, run->n * channels);
        if (!l->needs.bare) {
            reference_conv_backward(dpre, gradient(run, layer, conv_weight_names[i]), gradient(run, layer, conv_bias_names[i]), dqkv[i], l->pre[i],
                                    weight(run, layer, conv_weight_names[i]), weight(run, layer, conv_bias_names[i]), &shape);
        }
        project_backward(dy, dpre, l->y, run, layer, projection_names[i], run->width, channels);
    }
}

// dx [n, D] holds the gradient of l->middle and becomes that of l->x.
static void mixer_backward(double *dx, Run *run, size_t layer)
{
    Layer *l = &run->layers[layer];
    size_t n = run->n, value_size = run->n_head * run->d, heads = n * run->n_head;
    double *dgated = pool_doubles(&run->pool, n * value_size), *do_ = dgated, *dy = pool_doubles(&run->pool, n * run->width);
    project_backward(dgated, dx, l->gated, run, layer, "mixer.o.weight", value_size, run->width);
    if (!l->needs.bare) {
        double *dz = pool_doubles(&run->pool, n * value_size);
        do_ = pool_doubles(&run->pool, n * value_size);
        reference_gate_backward(do_, dz, gradient(run, layer, "mixer.out_norm.weight"), dgated, l->o, l->z, weight(run, layer, "mixer.out_norm.weight"),
                                run->eps, n, run->n_head, run->d);
        project_backward(dy, dz, l->y, run, layer, "mixer.z.weight", run->width, value_size);
    }
    MixGradients rows = {
        .qkv = {pool_doubles(&run->pool, heads * run->m), pool_doubles(&run->pool, heads * run->m), pool_doubles(&run->pool, heads * run->d)},
        .g = l->g != NULL ? pool_doubles(&run->pool, heads * l->per_head) : NULL,
        .mu = l->mu != NULL ? pool_doubles(&run->pool, heads) : NULL,
        .alpha = l->alpha != NULL ? pool_doubles(&run->pool, heads * run->m) : NULL,
    };
    mix_backward(&rows, do_, run, layer);
    projections_backward(dy, rows.qkv, run, layer);
    gates_backward(dy, &rows, run, layer);
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
