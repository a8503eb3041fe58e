#include "model/block.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

BlockShape block_shape(const ModelConfig *config)
{
    size_t heads = (size_t)config->n_head, query = heads * (size_t)config->n_slot, value = heads * (size_t)config->d_head;
    return (BlockShape){
        .width = (size_t)config->d_model,
        .query = query,
        .value = value,
        .channels = 2 * query + value,
        .projection = 2 * query + 2 * value + heads * (config->forget_gate ? 2 : 1),
        .heads = heads,
        .hidden = (size_t)config->mlp_hidden,
        .forget_gate = config->forget_gate,
    };
}

static size_t offset_of(const TensorTable *table, size_t layer, const char *part)
{
    char name[sizeof table->items->name];
    snprintf(name, sizeof name, "layers.%zu.%s", layer, part);
    const Tensor *tensor = tensor_find(table, name);
    assert(tensor != NULL);
    return tensor->offset;
}

BlockOffsets block_offsets(const TensorTable *params, const TensorTable *state, const ModelConfig *config, size_t layer)
{
    BlockOffsets at = {
        .norm = offset_of(params, layer, "norm.weight"),
        .projection = offset_of(params, layer, "mixer.q.weight"),
        .conv_weight = offset_of(params, layer, "mixer.q_conv.weight"),
        .conv_bias = offset_of(params, layer, "mixer.q_conv.bias"),
        .g_bias = offset_of(params, layer, "mixer.g.bias"),
        .state0 = offset_of(params, layer, "mixer.state0"),
        .out_norm = offset_of(params, layer, "mixer.out_norm.weight"),
        .o = offset_of(params, layer, "mixer.o.weight"),
        .tail = offset_of(state, layer, "mixer.conv_tail"),
        .memory = offset_of(state, layer, "mixer.state"),
    };
    if (config->forget_gate) {
        at.mu_bias = offset_of(params, layer, "mixer.mu.bias");
    }
    if (config->mlp_hidden > 0) {
        at.mlp_norm = offset_of(params, layer, "mlp_norm.weight");
        at.w13 = offset_of(params, layer, "mlp.w1.weight");
        at.w2 = offset_of(params, layer, "mlp.w2.weight");
    }
    return at;
}

LinearKernels linear_kernels(const Kernels *kernels, bool bf16)
{
    if (bf16) {
        return (LinearKernels){kernels->linear_forward_bf16, kernels->linear_backward_input_bf16, kernels->linear_backward_weight_bf16};
    }
    return (LinearKernels){kernels->linear_forward, kernels->linear_backward_input, kernels->linear_backward_weight};
}

void block_linear(float *out, const float *x, size_t at, size_t n, size_t n_in, size_t n_out, const BlockContext *c)
{
    if (c->packed == NULL) {
        c->linear.forward(out, x, c->params + at, n, n_in, n_out);
        return;
    }
    const PackedMatrix *w = packed_find(c->packed, at);
    assert(w != NULL && w->n_in == n_in && w->n_out == n_out);
    c->kernels->packed_forward(out, x, w, n);
}

static ConvShape conv_shape(const BlockContext *c, const BlockShape *shape)
{
    return (ConvShape){
        .batch = c->batch,
        .length = c->length,
        .n_head = shape->heads,
        .n_slot = (size_t)c->config->n_slot,
        .d_head = (size_t)c->config->d_head,
        .width = (size_t)c->config->conv_width,
        .proj_stride = shape->projection,
        .eps = (float)c->config->norm_eps,
    };
}

static MixerShape mixer_shape(const BlockContext *c)
{
    return (MixerShape){c->batch, c->length, (size_t)c->config->n_head, (size_t)c->config->n_slot, (size_t)c->config->d_head, c->position};
}

static MixerTensors mixer_tensors(const BlockSaved *saved, const BlockOffsets *at, const BlockContext *c, const BlockShape *shape)
{
    return (MixerTensors){
        .q = saved->qkv,
        .k = saved->qkv + shape->query,
        .v = saved->qkv + 2 * shape->query,
        .qkv_stride = shape->channels,
        .g = saved->g,
        .mu = shape->forget_gate ? saved->mu : NULL,
        .state0 = c->params + at->state0,
    };
}

// Columns of a row of projections behind the convolution's: z, then g, then mu.
static size_t gate_column(const BlockShape *shape) { return shape->channels + shape->value; }

static void mixer_half_forward(const BlockSaved *saved, const BlockScratch *scratch, float *states, size_t state_stride, const BlockOffsets *at,
                               const BlockContext *c, const BlockShape *shape)
{
    const Kernels *k = c->kernels;
    size_t n = c->batch * c->length, gates = gate_column(shape);
    float eps = (float)c->config->norm_eps;
    ConvShape conv = conv_shape(c, shape);
    MixerShape mixer = mixer_shape(c);
    MixerTensors in = mixer_tensors(saved, at, c, shape);
    k->rmsnorm_forward(scratch->normed, saved->x, c->params + at->norm, eps, n, shape->width);
    block_linear(saved->projection, scratch->normed, at->projection, n, shape->width, shape->projection, c);
    k->conv_forward(saved->qkv, states == NULL ? NULL : states + at->tail, state_stride, saved->projection, c->params + at->conv_weight,
                    c->params + at->conv_bias, &conv);
    k->sigmoid_forward(saved->g, saved->projection + gates, shape->projection, c->params + at->g_bias, n, shape->heads);
    if (shape->forget_gate) {
        k->sigmoid_forward(saved->mu, saved->projection + gates + shape->heads, shape->projection, c->params + at->mu_bias, n, shape->heads);
    }
    c->mixer->forward(saved->o, saved->mixer, scratch->mixer, states == NULL ? NULL : states + at->memory, state_stride, &in, &mixer);
    k->gate_forward(scratch->inner, saved->o, saved->projection + shape->channels, shape->projection, c->params + at->out_norm, eps, n, shape->heads,
                    (size_t)c->config->d_head);
    block_linear(saved->x_mid, scratch->inner, at->o, n, shape->value, shape->width, c);
    k->add(saved->x_mid, saved->x, n * shape->width);
}

void block_forward(float *x_out, const BlockSaved *saved, const BlockScratch *scratch, float *states, size_t state_stride, const BlockOffsets *at,
                   const BlockContext *c)
{
    const Kernels *k = c->kernels;
    BlockShape shape = block_shape(c->config);
    size_t n = c->batch * c->length;
    mixer_half_forward(saved, scratch, states, state_stride, at, c, &shape);
    if (shape.hidden == 0) {
        if (x_out != NULL) {
            memcpy(x_out, saved->x_mid, n * shape.width * sizeof(float));
        }
        return;
    }
    k->rmsnorm_forward(scratch->normed, saved->x_mid, c->params + at->mlp_norm, (float)c->config->norm_eps, n, shape.width);
    block_linear(saved->h13, scratch->normed, at->w13, n, shape.width, 2 * shape.hidden, c);
    if (x_out == NULL) {
        return;
    }
    k->swiglu_forward(scratch->inner, saved->h13, n, shape.hidden);
    block_linear(x_out, scratch->inner, at->w2, n, shape.hidden, shape.width, c);
    k->add(x_out, saved->x_mid, n * shape.width);
}

static void mlp_half_backward(float *dx, float *dparams, const BlockSaved *saved, const BlockScratch *scratch, const BlockOffsets *at, const BlockContext *c,
                              const BlockShape *shape)
{
    const Kernels *k = c->kernels;
    size_t n = c->batch * c->length, hidden = shape->hidden, width = shape->width;
    float eps = (float)c->config->norm_eps;
    k->swiglu_forward(scratch->inner, saved->h13, n, hidden);
    c->linear.backward_weight(dparams + at->w2, dx, scratch->inner, n, hidden, width);
    c->linear.backward_input(scratch->dinner, dx, c->params + at->w2, n, hidden, width, false);
    k->swiglu_backward(saved->h13, scratch->dinner, saved->h13, n, hidden);
    k->rmsnorm_forward(scratch->normed, saved->x_mid, c->params + at->mlp_norm, eps, n, width);
    c->linear.backward_weight(dparams + at->w13, saved->h13, scratch->normed, n, width, 2 * hidden);
    c->linear.backward_input(scratch->dnormed, saved->h13, c->params + at->w13, n, width, 2 * hidden, false);
    k->rmsnorm_backward(dx, dparams + at->mlp_norm, scratch->dnormed, saved->x_mid, c->params + at->mlp_norm, eps, n, width);
}

void block_backward(float *dx, float *dparams, const BlockSaved *saved, const BlockScratch *scratch, const BlockOffsets *at, const BlockContext *c)
{
    const Kernels *k = c->kernels;
    BlockShape shape = block_shape(c->config);
    size_t n = c->batch * c->length, gates = gate_column(&shape), d_head = (size_t)c->config->d_head;
    float eps = (float)c->config->norm_eps;
    ConvShape conv = conv_shape(c, &shape);
    MixerShape mixer = mixer_shape(c);
    MixerTensors in = mixer_tensors(saved, at, c, &shape);
    if (shape.hidden > 0) {
        mlp_half_backward(dx, dparams, saved, scratch, at, c, &shape);
    }
    const float *z = saved->projection + shape.channels;
    float *dz = scratch->dprojection + shape.channels;
    k->gate_forward(scratch->inner, saved->o, z, shape.projection, c->params + at->out_norm, eps, n, shape.heads, d_head);
    c->linear.backward_weight(dparams + at->o, dx, scratch->inner, n, shape.value, shape.width);
    c->linear.backward_input(scratch->dinner, dx, c->params + at->o, n, shape.value, shape.width, false);
    k->gate_backward(scratch->do_, dz, dparams + at->out_norm, scratch->dinner, saved->o, z, shape.projection, c->params + at->out_norm, eps, n, shape.heads,
                     d_head);

    MixerGradients grad = {
        .q = scratch->dqkv,
        .k = scratch->dqkv + shape.query,
        .v = scratch->dqkv + 2 * shape.query,
        .g = scratch->dg,
        .mu = shape.forget_gate ? scratch->dmu : NULL,
        .state0 = dparams + at->state0,
    };
    c->mixer->backward(&grad, scratch->do_, NULL, 0, saved->mixer, scratch->mixer, &in, &mixer);
    k->sigmoid_backward(scratch->dprojection + gates, shape.projection, dparams + at->g_bias, scratch->dg, saved->g, n, shape.heads);
    if (shape.forget_gate) {
        k->sigmoid_backward(scratch->dprojection + gates + shape.heads, shape.projection, dparams + at->mu_bias, scratch->dmu, saved->mu, n, shape.heads);
    }
    k->conv_backward(scratch->dprojection, dparams + at->conv_weight, dparams + at->conv_bias, scratch->dpre, scratch->dqkv, saved->projection,
                     c->params + at->conv_weight, c->params + at->conv_bias, &conv);

    k->rmsnorm_forward(scratch->normed, saved->x, c->params + at->norm, eps, n, shape.width);
    c->linear.backward_weight(dparams + at->projection, scratch->dprojection, scratch->normed, n, shape.width, shape.projection);
    c->linear.backward_input(scratch->dnormed, scratch->dprojection, c->params + at->projection, n, shape.width, shape.projection, false);
    k->rmsnorm_backward(dx, dparams + at->norm, scratch->dnormed, saved->x, c->params + at->norm, eps, n, shape.width);
}
