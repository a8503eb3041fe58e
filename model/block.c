#include "model/block.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "model/key_scale.h"
#include "model/mixers/start_read.h"

static size_t offset_of(const TensorTable *table, size_t layer, const char *part)
{
    char name[sizeof table->items->name];
    snprintf(name, sizeof name, "layers.%zu.%s", layer, part);
    const Tensor *tensor = tensor_find(table, name);
    return tensor != NULL ? tensor->offset : 0;
}

BlockOffsets block_offsets(const TensorTable *params, const BlockShape *shape, size_t layer)
{
    return (BlockOffsets){
        .shape = *shape,
        .norm = offset_of(params, layer, "norm.weight"),
        .projection = offset_of(params, layer, "mixer.q.weight"),
        .conv_weight = offset_of(params, layer, "mixer.q_conv.weight"),
        .conv_bias = offset_of(params, layer, "mixer.q_conv.bias"),
        .key_scale = offset_of(params, layer, "mixer.k_scale"),
        .g_bias = offset_of(params, layer, "mixer.g.bias"),
        .mu_bias = offset_of(params, layer, "mixer.mu.bias"),
        .rate = offset_of(params, layer, "mixer.A"),
        .state0 = offset_of(params, layer, "mixer.state0"),
        .ln_weight = offset_of(params, layer, "mixer.ln.weight"),
        .ln_bias = offset_of(params, layer, "mixer.ln.bias"),
        .out_norm = offset_of(params, layer, "mixer.out_norm.weight"),
        .o = offset_of(params, layer, "mixer.o.weight"),
        .mlp_norm = offset_of(params, layer, "mlp_norm.weight"),
        .w13 = offset_of(params, layer, "mlp.w1.weight"),
        .w2 = offset_of(params, layer, "mlp.w2.weight"),
        .decay_down = offset_of(params, layer, "mixer.alpha_down.weight"),
        .decay_up = offset_of(params, layer, "mixer.alpha_up.weight"),
        .decay_bias = offset_of(params, layer, "mixer.alpha_up.bias"),
    };
}

LinearKernels linear_kernels(const Kernels *kernels, bool bf16)
{
    if (bf16) {
        return (LinearKernels){kernels->linear_forward_bf16, kernels->linear_backward_input_bf16, kernels->linear_backward_weight_bf16};
    }
    return (LinearKernels){kernels->linear_forward, kernels->linear_backward_input, kernels->linear_backward_weight};
}

Weights block_weights(size_t at, const BlockContext *c) { return (Weights){c->params + at, panel_set_find(c->panels, at)}; }

void block_linear(float *out, Rows x, size_t at, size_t n, size_t n_in, size_t n_out, const BlockContext *c)
{
    if (c->packed == NULL) {
        c->linear.forward(out, x, block_weights(at, c), n, n_in, n_out);
        return;
    }
    const PackedMatrix *w = packed_find(c->packed, at);
    assert(w != NULL && w->n_in == n_in && w->n_out == n_out && !x.bf16);
    c->kernels->packed_forward(out, x.data, w, n);
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
        .starts = c->starts,
        .plain_codes = c->config->plain_codes,
        .plain_values = c->config->plain_values,
        .unit_values = c->config->unit_values,
        .softmax_codes = c->config->softmax_codes,
    };
}

static KeyScale key_scale(const BlockOffsets *at, const BlockContext *c)
{
    return (KeyScale){.scales = c->params + at->key_scale, .rows = c->batch * c->length, .n_head = at->shape.heads, .n_slot = (size_t)c->config->n_slot,
                       .stride = at->shape.channels};
}

static MixerShape mixer_shape(const BlockContext *c)
{
    return (MixerShape){c->batch, c->length, (size_t)c->config->n_head, (size_t)c->config->n_slot, (size_t)c->config->d_head, c->position, c->starts};
}

// In a bare block the mixer reads the projections themselves.
static MixerTensors mixer_tensors(const BlockSaved *saved, const BlockOffsets *at, const BlockContext *c)
{
    const BlockShape *shape = &at->shape;
    MixerNeeds needs = shape->needs;
    const float *qkv = needs.bare ? saved->projection : saved->qkv;
    return (MixerTensors){
        .q = qkv,
        .k = qkv + shape->query,
        .v = qkv + 2 * shape->query,
        .qkv_stride = needs.bare ? shape->projection : shape->channels,
        .g = needs.gate ? saved->g : NULL,
        .mu = needs.forget ? saved->mu : NULL,
        .state0 = needs.start ? c->params + at->state0 : NULL,
        .alpha = needs.slot_decay ? saved->alpha : NULL,
        .alpha_stride = shape->decay,
        .ln_weight = needs.norm ? c->params + at->ln_weight : NULL,
        .ln_bias = needs.norm ? c->params + at->ln_bias : NULL,
        .chunk = needs.chunk ? shape->chunk : 1,
        .window = shape->window < c->longest ? shape->window : c->longest,   // no more than that is there to be seen: the same bits from a shorter ring
        .form = shape->form,
    };
}

// Columns of a row of projections behind the convolution's: z, then g, then mu.
static size_t gate_column(const BlockShape *shape) { return shape->channels + shape->value; }

// What relative reading needs of a layer.
static StartRead start_read(const MixerTensors *in, const MixerShape *shape, const BlockScratch *scratch)
{
    return (StartRead){.state0 = in->state0, .unit = !in->form.no_normalisation, .scratch = scratch->start, .q = in->q, .q_stride = in->qkv_stride,
                       .rows = shape->batch * shape->length, .n_head = shape->n_head, .n_slot = shape->n_slot, .d_head = shape->d_head};
}

static void scale(float *x, float factor, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] *= factor;
    }
}

// From the projections, and for alpha from scratch->normed: what the mixer reads beside q, k and v.
static void gates_forward(const BlockSaved *saved, const BlockScratch *scratch, const BlockOffsets *at, const BlockContext *c)
{
    const Kernels *k = c->kernels;
    const BlockShape *shape = &at->shape;
    size_t n = c->batch * c->length, stride = shape->projection, heads = shape->heads;
    const float *gates = saved->projection + gate_column(shape);
    if (shape->needs.shared_gate) {
        k->softplus_forward(saved->g, saved->mu, gates, stride, c->params + at->g_bias, c->params + at->rate, n, heads);
    } else if (shape->needs.gate) {
        k->sigmoid_forward(saved->g, gates, stride, c->params + at->g_bias, n, shape->gate);
        if (shape->gate_range != 1.0f) {
            scale(saved->g, shape->gate_range, n * shape->gate);
        }
    }
    if (shape->needs.forget && !shape->needs.shared_gate) {
        k->sigmoid_forward(saved->mu, gates + shape->gate, stride, c->params + at->mu_bias, n, heads);
    }
    if (shape->needs.slot_decay) {
        c->linear.forward(saved->low, scratch->normed, block_weights(at->decay_down, c), n, shape->width, shape->rank);
        c->linear.forward(saved->alpha, rows_f32(saved->low), block_weights(at->decay_up, c), n, shape->rank, shape->decay);
        k->slot_decay_forward(saved->alpha, saved->alpha, c->params + at->decay_bias, n, shape->decay);
    }
}

static void mixer_half_forward(const BlockSaved *saved, const BlockScratch *scratch, BlockStates states, const BlockOffsets *at, const BlockContext *c)
{
    const Kernels *k = c->kernels;
    const BlockShape *shape = &at->shape;
    size_t n = c->batch * c->length;
    float eps = (float)c->config->norm_eps;
    MixerShape mixer = mixer_shape(c);
    MixerTensors in = mixer_tensors(saved, at, c);
    Rows gated = rows_f32(saved->o);
    k->rmsnorm_forward(scratch->normed, saved->x, c->params + at->norm, eps, n, shape->width);
    block_linear(saved->projection, scratch->normed, at->projection, n, shape->width, shape->projection, c);
    if (!shape->needs.bare) {
        ConvShape conv = conv_shape(c, shape);
        k->conv_forward(saved->qkv, states.tail, states.stride, saved->projection, c->params + at->conv_weight, c->params + at->conv_bias, &conv);
        if (shape->scaled) {
            KeyScale keys = key_scale(at, c);
            key_scale_forward(saved->qkv + shape->query, &keys);
        }
    }
    gates_forward(saved, scratch, at, c);
    shape->mixer->forward(saved->o, saved->mixer, scratch->mixer, states.memory, states.stride, &in, &mixer);
    if (shape->relative) {
        StartRead read = start_read(&in, &mixer, scratch);
        k->start_read_forward(saved->o, &read);
    }
    if (!shape->needs.bare) {
        k->gate_forward(scratch->inner, saved->o, saved->projection + shape->channels, shape->projection, c->params + at->out_norm, eps, n, shape->heads,
                        (size_t)c->config->d_head);
        gated = scratch->inner;
    }
    block_linear(saved->x_mid, gated, at->o, n, shape->value, shape->width, c);
    k->add(saved->x_mid, saved->x, n * shape->width);
}

void block_forward(float *x_out, const BlockSaved *saved, const BlockScratch *scratch, BlockStates states, const BlockOffsets *at, const BlockContext *c)
{
    const Kernels *k = c->kernels;
    const BlockShape *shape = &at->shape;
    size_t n = c->batch * c->length;
    mixer_half_forward(saved, scratch, states, at, c);
    if (shape->hidden == 0) {
        if (x_out != NULL) {
            memcpy(x_out, saved->x_mid, n * shape->width * sizeof(float));
        }
        return;
    }
    float *h13 = saved->h13.bf16 ? scratch->h13 : saved->h13.data;
    k->rmsnorm_forward(scratch->normed, saved->x_mid, c->params + at->mlp_norm, (float)c->config->norm_eps, n, shape->width);
    block_linear(h13, scratch->normed, at->w13, n, shape->width, 2 * shape->hidden, c);
    if (saved->h13.bf16) {
        k->round_bf16(saved->h13.data, h13, n * 2 * shape->hidden);
    }
    if (x_out == NULL) {
        return;
    }
    k->swiglu_forward(scratch->inner, saved->h13, n, shape->hidden);
    block_linear(x_out, scratch->inner, at->w2, n, shape->hidden, shape->width, c);
    k->add(x_out, saved->x_mid, n * shape->width);
}

static void mlp_half_backward(float *dx, float *dparams, const BlockSaved *saved, const BlockScratch *scratch, const BlockOffsets *at, const BlockContext *c,
                              const BlockShape *shape)
{
    const Kernels *k = c->kernels;
    size_t n = c->batch * c->length, hidden = shape->hidden, width = shape->width;
    float eps = (float)c->config->norm_eps;
    k->swiglu_forward(scratch->inner, saved->h13, n, hidden);
    c->linear.backward_weight(dparams + at->w2, rows_f32(dx), scratch->inner, n, hidden, width);
    c->linear.backward_input(scratch->dinner, rows_f32(dx), block_weights(at->w2, c), n, hidden, width, false);
    k->swiglu_backward(saved->h13, scratch->dinner, saved->h13, n, hidden);
    k->rmsnorm_forward(scratch->normed, saved->x_mid, c->params + at->mlp_norm, eps, n, width);
    c->linear.backward_weight(dparams + at->w13, saved->h13, scratch->normed, n, width, 2 * hidden);
    c->linear.backward_input(scratch->dnormed, saved->h13, block_weights(at->w13, c), n, width, 2 * hidden, false);
    k->rmsnorm_backward(dx, dparams + at->mlp_norm, scratch->dnormed, saved->x_mid, c->params + at->mlp_norm, eps, n, width);
}

// From dx, the gradient of the mixer's half: scratch->do_ into the mixer's output, and the columns of z in scratch->dprojection.
static void output_backward(const float *dx, float *dparams, const BlockSaved *saved, const BlockScratch *scratch, const BlockOffsets *at,
                            const BlockContext *c)
{
    const Kernels *k = c->kernels;
    const BlockShape *shape = &at->shape;
    size_t n = c->batch * c->length, d_head = (size_t)c->config->d_head;
    if (shape->needs.bare) {
        c->linear.backward_weight(dparams + at->o, rows_f32(dx), rows_f32(saved->o), n, shape->value, shape->width);
        c->linear.backward_input(scratch->do_, rows_f32(dx), block_weights(at->o, c), n, shape->value, shape->width, false);
        return;
    }
    float eps = (float)c->config->norm_eps;
    const float *z = saved->projection + shape->channels;
    k->gate_forward(scratch->inner, saved->o, z, shape->projection, c->params + at->out_norm, eps, n, shape->heads, d_head);
    c->linear.backward_weight(dparams + at->o, rows_f32(dx), scratch->inner, n, shape->value, shape->width);
    c->linear.backward_input(scratch->dinner, rows_f32(dx), block_weights(at->o, c), n, shape->value, shape->width, false);
    k->gate_backward(scratch->do_, scratch->dprojection + shape->channels, dparams + at->out_norm, scratch->dinner, saved->o, z, shape->projection,
                     c->params + at->out_norm, eps, n, shape->heads, d_head);
}

// From scratch->do_ to the gradients of everything that the mixer reads.
static void mixer_backward(float *dparams, const BlockSaved *saved, const BlockScratch *scratch, const BlockOffsets *at, const BlockContext *c)
{
    const BlockShape *shape = &at->shape;
    MixerNeeds needs = shape->needs;
    MixerShape mixer = mixer_shape(c);
    MixerTensors in = mixer_tensors(saved, at, c);
    float *dqkv = needs.bare ? scratch->dprojection : scratch->dqkv;
    MixerGradients grad = {
        .q = dqkv,
        .k = dqkv + shape->query,
        .v = dqkv + 2 * shape->query,
        .g = needs.gate ? scratch->dg : NULL,
        .mu = needs.forget ? scratch->dmu : NULL,
        .state0 = needs.start ? dparams + at->state0 : NULL,
        .alpha = needs.slot_decay ? scratch->dalpha : NULL,
        .ln_weight = needs.norm ? dparams + at->ln_weight : NULL,
        .ln_bias = needs.norm ? dparams + at->ln_bias : NULL,
    };
    shape->mixer->backward(&grad, scratch->do_, NULL, 0, saved->mixer, scratch->mixer, &in, &mixer);
    if (shape->relative) {
        StartRead read = start_read(&in, &mixer, scratch);
        c->kernels->start_read_backward(grad.q, grad.state0, scratch->do_, &read);
    }
}

// The rest of gates_forward's backward needs the block's normed input: it stands at the end of block_backward.
static void gates_backward(float *dparams, const BlockSaved *saved, const BlockScratch *scratch, const BlockOffsets *at, const BlockContext *c)
{
    const Kernels *k = c->kernels;
    const BlockShape *shape = &at->shape;
    size_t n = c->batch * c->length, stride = shape->projection, heads = shape->heads, gates = gate_column(shape);
    float *dgates = scratch->dprojection + gates;
    if (shape->needs.shared_gate) {
        k->softplus_backward(dgates, dparams + at->g_bias, dparams + at->rate, scratch->dg, scratch->dmu, saved->g, saved->mu, saved->projection + gates,
                             stride, c->params + at->g_bias, c->params + at->rate, n, heads);
    } else if (shape->needs.gate) {
        if (shape->gate_range != 1.0f) {   // back to the sigmoid; a power of two loses no bits
            scale(saved->g, 1.0f / shape->gate_range, n * shape->gate);
            scale(scratch->dg, shape->gate_range, n * shape->gate);
        }
        k->sigmoid_backward(dgates, stride, dparams + at->g_bias, scratch->dg, saved->g, n, shape->gate);
    }
    if (shape->needs.forget && !shape->needs.shared_gate) {
        k->sigmoid_backward(dgates + shape->gate, stride, dparams + at->mu_bias, scratch->dmu, saved->mu, n, heads);
    }
    if (shape->needs.slot_decay) {
        k->slot_decay_backward(scratch->dalpha, dparams + at->decay_bias, scratch->dalpha, saved->alpha, n, shape->decay);
        Rows dalpha = rows_f32(scratch->dalpha);
        c->linear.backward_weight(dparams + at->decay_up, dalpha, rows_f32(saved->low), n, shape->rank, shape->decay);
        c->linear.backward_input(scratch->dlow, dalpha, block_weights(at->decay_up, c), n, shape->rank, shape->decay, false);
    }
}

void block_backward(float *dx, float *dparams, const BlockSaved *saved, const BlockScratch *scratch, const BlockOffsets *at, const BlockContext *c)
{
    const Kernels *k = c->kernels;
    const BlockShape *shape = &at->shape;
    size_t n = c->batch * c->length, width = shape->width;
    float eps = (float)c->config->norm_eps;
    if (shape->hidden > 0) {
        mlp_half_backward(dx, dparams, saved, scratch, at, c, shape);
    }
    output_backward(dx, dparams, saved, scratch, at, c);
    mixer_backward(dparams, saved, scratch, at, c);
    gates_backward(dparams, saved, scratch, at, c);
    if (!shape->needs.bare) {
        ConvShape conv = conv_shape(c, shape);
        if (shape->scaled) {   // the keys without their factors: a factor may be 0
            KeyScale keys = key_scale(at, c);
            k->conv_forward(saved->qkv, NULL, 0, saved->projection, c->params + at->conv_weight, c->params + at->conv_bias, &conv);
            key_scale_backward(scratch->dqkv + shape->query, dparams + at->key_scale, saved->qkv + shape->query, &keys);
        }
        k->conv_backward(scratch->dprojection, dparams + at->conv_weight, dparams + at->conv_bias, scratch->conv_sums, scratch->dqkv, saved->projection,
                         c->params + at->conv_weight, c->params + at->conv_bias, &conv);
    }
    Rows dprojection = rows_f32(scratch->dprojection), dlow = rows_f32(scratch->dlow);
    k->rmsnorm_forward(scratch->normed, saved->x, c->params + at->norm, eps, n, width);
    c->linear.backward_weight(dparams + at->projection, dprojection, scratch->normed, n, width, shape->projection);
    if (shape->needs.slot_decay) {
        c->linear.backward_weight(dparams + at->decay_down, dlow, scratch->normed, n, width, shape->rank);
    }
    c->linear.backward_input(scratch->dnormed, dprojection, block_weights(at->projection, c), n, width, shape->projection, false);
    if (shape->needs.slot_decay) {
        c->linear.backward_input(scratch->dnormed, dlow, block_weights(at->decay_down, c), n, width, shape->rank, true);
    }
    k->rmsnorm_backward(dx, dparams + at->norm, scratch->dnormed, saved->x, c->params + at->norm, eps, n, width);
}
