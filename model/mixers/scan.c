// Shares the heads and sequences of a scan (scan.h) out to threads, and adds up over sequences in a fixed order.
#include "model/mixers/scan.h"

static size_t head_floats(const MixerShape *shape) { return shape->n_slot * shape->d_head; }

// Memories of a head: the state, and the chunk's start where the rule reads that.
static size_t memories(const ScanRule *rule) { return rule->chunked ? 2 : 1; }

static size_t backward_head_floats(const MixerShape *shape)
{
    return (SCAN_GROUP + 2) * head_floats(shape) + SCAN_GROUP * (2 * shape->d_head + 1) + 2 * shape->d_head;
}

size_t ISA_NAME(scan_saved_floats)(const MixerShape *shape, const ScanRule *rule)
{
    return shape->batch * shape->n_head * ((shape->length + SCAN_GROUP - 1) / SCAN_GROUP) * memories(rule) * head_floats(shape);
}

size_t ISA_NAME(scan_scratch_floats)(const MixerShape *shape, bool backward, const ScanRule *rule)
{
    return shape->batch * shape->n_head * (backward ? backward_head_floats(shape) : memories(rule) * head_floats(shape));
}

size_t ISA_NAME(scan_state_floats)(const ModelConfig *config, const ScanRule *rule)
{
    return memories(rule) * (size_t)config->n_head * (size_t)config->n_slot * (size_t)config->d_head;
}

void ISA_NAME(scan_state_init)(float *state, const float *state0, const MixerShape *shape, const ScanRule *rule)
{
    size_t size = shape->n_head * head_floats(shape);
    for (size_t i = 0; i < memories(rule); i++) {
        if (state0 != NULL) {
            memcpy(state + i * size, state0, size * sizeof(float));
        } else {
            memset(state + i * size, 0, size * sizeof(float));
        }
    }
}

static const float *at(const float *x, size_t n) { return x != NULL ? x + n : NULL; }
static float *at_gradient(float *x, size_t n) { return x != NULL ? x + n : NULL; }

static ScanHead head_of(const MixerTensors *in, const MixerShape *shape, size_t b, size_t h)
{
    size_t first = b * shape->length, m = shape->n_slot, d = shape->d_head, gate = first * shape->n_head + h;
    return (ScanHead){
        .q = in->q + first * in->qkv_stride + h * m,
        .k = in->k + first * in->qkv_stride + h * m,
        .v = in->v + first * in->qkv_stride + h * d,
        .g = at(in->g, gate),
        .mu = at(in->mu, gate),
        .alpha = at(in->alpha, first * in->alpha_stride + h * m),
        .ln_weight = at(in->ln_weight, h * d),
        .ln_bias = at(in->ln_bias, h * d),
        .row = in->qkv_stride,
        .gate_row = shape->n_head,
        .alpha_row = in->alpha_stride,
        .position = shape->position,
        .length = shape->length,
        .chunk = in->chunk,
        .m = m,
        .d = d,
    };
}

void ISA_NAME(scan_forward)(float *o, float *saved, float *scratch, float *states, size_t state_stride, const MixerTensors *in, const MixerShape *shape,
                            const ScanRule *rule, ScanForwardHead forward_head)
{
    size_t width = shape->n_head * shape->d_head, size = head_floats(shape), groups = (shape->length + SCAN_GROUP - 1) / SCAN_GROUP;
#pragma omp parallel for schedule(dynamic) if (shape->batch * shape->length * shape->n_head * size > 65536)
    for (size_t index = 0; index < shape->batch * shape->n_head; index++) {
        size_t b = index / shape->n_head, h = index % shape->n_head;
        ScanHead head = head_of(in, shape, b, h);
        ScanTask task = {.o = o + b * shape->length * width + h * shape->d_head, .o_row = width};
        if (states != NULL) {
            task.s = states + b * state_stride + h * size;
            task.base = rule->chunked ? task.s + shape->n_head * size : NULL;
        } else {
            task.s = scratch + index * memories(rule) * size;
            task.base = rule->chunked ? task.s + size : NULL;
            MixerShape one = {.n_head = 1, .n_slot = shape->n_slot, .d_head = shape->d_head};
            ISA_NAME(scan_state_init)(task.s, at(in->state0, h * size), &one, rule);
        }
        if (saved != NULL) {
            task.kept = saved + index * groups * memories(rule) * size;
        }
        forward_head(&task, &head);
    }
}

// The task's memory out of one head's scratch: ds first, then the norm's two sums, so that both are found again afterwards.
static ScanBackwardTask task_of(float *own, const MixerShape *shape)
{
    size_t size = head_floats(shape), d = shape->d_head;
    ScanBackwardTask task = {.ds = own, .ln_weight = own + size, .ln_bias = own + size + d};
    task.dbase = task.ln_bias + d;
    task.states = task.dbase + size;
    task.hs = task.states + SCAN_GROUP * size;
    task.ps = task.hs + SCAN_GROUP * d;
    task.cs = task.ps + SCAN_GROUP * d;
    memset(task.ds, 0, (2 * size + 2 * d) * sizeof(float));
    return task;
}

static void add(float *out, const float *x, size_t n)
{
    for (size_t i = 0; out != NULL && i < n; i++) {
        out[i] += x[i];
    }
}

void ISA_NAME(scan_backward)(const MixerGradients *grad, const float *do_, const float *dstates, size_t state_stride, const float *saved, float *scratch,
                             const MixerTensors *in, const MixerShape *shape, const ScanRule *rule, ScanBackwardHead backward_head)
{
    size_t m = shape->n_slot, d = shape->d_head, width = shape->n_head * d, size = head_floats(shape), memory = backward_head_floats(shape);
    size_t groups = (shape->length + SCAN_GROUP - 1) / SCAN_GROUP;
#pragma omp parallel for schedule(dynamic)
    for (size_t index = 0; index < shape->batch * shape->n_head; index++) {
        size_t b = index / shape->n_head, h = index % shape->n_head, first = b * shape->length, gate = first * shape->n_head + h;
        ScanHead head = head_of(in, shape, b, h);
        ScanBackwardTask task = task_of(scratch + index * memory, shape);
        if (dstates != NULL) {
            memcpy(task.ds, dstates + b * state_stride + h * size, size * sizeof(float));
        }
        task.kept = saved + index * groups * memories(rule) * size;
        task.do_ = do_ + first * width + h * d;
        task.do_row = width;
        task.q = grad->q + first * in->qkv_stride + h * m;
        task.k = grad->k + first * in->qkv_stride + h * m;
        task.v = grad->v + first * in->qkv_stride + h * d;
        task.g = at_gradient(grad->g, gate);
        task.mu = at_gradient(grad->mu, gate);
        task.alpha = at_gradient(grad->alpha, first * in->alpha_stride + h * m);
        backward_head(&task, &head);
    }
    for (size_t index = 0; index < shape->batch * shape->n_head; index++) {
        size_t h = index % shape->n_head;
        const float *own = scratch + index * memory;
        add(at_gradient(grad->state0, h * size), own, size);
        add(at_gradient(grad->ln_weight, h * d), own + size, d);
        add(at_gradient(grad->ln_bias, h * d), own + size + d, d);
    }
}
