// Shares the heads and sequences of a scan (scan.h) out to threads, and adds up over sequences in a fixed order.
#include "model/mixers/scan.h"

static size_t head_floats(const MixerShape *shape) { return shape->n_slot * shape->d_head; }

// Memories of a head that go from token to token: the state, and the chunk's start where the rule reads that.
static size_t memories(const ScanRule *rule) { return rule->chunked ? 2 : 1; }

// Of one head: the memories, or in the backward the sums that task_of names, and what the ways through the tokens need.
static size_t scratch_head_floats(const MixerShape *shape, bool backward, const ScanRule *rule)
{
    size_t sums = backward ? 3 * head_floats(shape) + 2 * shape->d_head : memories(rule) * head_floats(shape);
    size_t products = rule->products && (backward || !rule->chunked) ? ISA_NAME(scan_chunk_floats)(shape->n_slot, shape->d_head, backward, rule) : 0;
    size_t tokens = backward && (rule->chunked || !rule->products) ? SCAN_GROUP * (head_floats(shape) + 2 * shape->d_head + 1) : 0;
    return sums + (tokens > products ? tokens : products);
}

size_t ISA_NAME(scan_saved_floats)(const MixerShape *shape, const ScanRule *rule)
{
    return shape->batch * shape->n_head * kept_states(shape->length) * memories(rule) * head_floats(shape);
}

size_t ISA_NAME(scan_scratch_floats)(const MixerShape *shape, bool backward, const ScanRule *rule)
{
    return shape->batch * shape->n_head * scratch_head_floats(shape, backward, rule);
}

size_t ISA_NAME(scan_state_floats)(const ModelConfig *config, const ScanRule *rule)
{
    size_t count = config->chunk > 1 ? memories(rule) : 1;
    return count * (size_t)config->n_head * (size_t)config->n_slot * (size_t)config->d_head;
}

void ISA_NAME(scan_state_init)(float *state, const float *state0, const MixerShape *shape)
{
    size_t size = shape->n_head * head_floats(shape);
    if (state0 != NULL) {
        memcpy(state, state0, size * sizeof(float));
    } else {
        memset(state, 0, size * sizeof(float));
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

// The document of a head that begins at row `first`, as a sequence of its own.
static ScanHead head_document(const ScanHead *whole, size_t first, size_t length)
{
    ScanHead head = *whole;
    head.q += first * head.row;
    head.k += first * head.row;
    head.v += first * head.row;
    head.g = at(head.g, first * head.gate_row);
    head.mu = at(head.mu, first * head.gate_row);
    head.alpha = at(head.alpha, first * head.alpha_row);
    head.position = 0;
    head.length = length;
    return head;
}

void ISA_NAME(scan_forward)(float *o, float *saved, float *scratch, float *states, size_t state_stride, const MixerTensors *in, const MixerShape *shape,
                            const ScanRule *rule, ScanForwardHead forward_head)
{
    size_t width = shape->n_head * shape->d_head, size = head_floats(shape), length = shape->length, kept = memories(rule) * size;
    size_t own_floats = scratch_head_floats(shape, false, rule);
    MixerShape one = {.n_head = 1, .n_slot = shape->n_slot, .d_head = shape->d_head};
#pragma omp parallel for schedule(dynamic) if (shape->batch * shape->length * shape->n_head * size > 65536)
    for (size_t index = 0; index < shape->batch * shape->n_head; index++) {
        size_t b = index / shape->n_head, h = index % shape->n_head;
        ScanHead head = head_of(in, shape, b, h);
        float *out = o + b * length * width + h * shape->d_head, *s = scratch + index * own_floats, *rest = s + kept;
        if (states != NULL) {
            s = states + b * state_stride + h * size;
            float *base = rule->chunked && in->chunk > 1 ? s + shape->n_head * size : NULL;
            forward_head(&(ScanTask){.o = out, .o_row = width, .s = s, .base = base, .scratch = rest}, &head);
            continue;
        }
        const uint8_t *starts = sequence_starts(shape->starts, b, length);
        float *own = saved == NULL ? NULL : saved + index * kept_states(length) * kept;
        for (size_t first = 0, end; first < length; first = end) {
            end = document_end(starts, first, length);
            ScanHead document = head_document(&head, first, end - first);
            ScanTask task = {.o = out + first * width, .o_row = width, .s = s, .base = rule->chunked ? s + size : NULL, .scratch = rest};
            task.kept = own == NULL ? NULL : own + kept_before(first) * kept;
            ISA_NAME(scan_state_init)(s, at(in->state0, h * size), &one);
            forward_head(&task, &document);
        }
    }
}

// The task's memory out of one head's scratch: the sum of the gradients into starts first, then the norm's two sums, so that they are found again afterwards.
static ScanBackwardTask task_of(float *own, const MixerShape *shape)
{
    size_t size = head_floats(shape), d = shape->d_head;
    ScanBackwardTask task = {.ln_weight = own + size, .ln_bias = own + size + d};
    task.ds = task.ln_bias + d;
    task.dbase = task.ds + size;
    task.scratch = task.states = task.dbase + size;
    task.hs = task.states + SCAN_GROUP * size;
    task.ps = task.hs + SCAN_GROUP * d;
    task.cs = task.ps + SCAN_GROUP * d;
    memset(own, 0, (3 * size + 2 * d) * sizeof(float));
    return task;
}

static void add(float *out, const float *x, size_t n)
{
    for (size_t i = 0; out != NULL && i < n; i++) {
        out[i] += x[i];
    }
}

// The part of a whole sequence's task that belongs to the document from row `first` on.
static ScanBackwardTask task_document(const ScanBackwardTask *whole, const ScanHead *head, size_t first, size_t kept)
{
    ScanBackwardTask task = *whole;
    task.kept = at(task.kept, kept_before(first) * kept);
    task.do_ += first * task.do_row;
    task.q += first * head->row;
    task.k += first * head->row;
    task.v += first * head->row;
    task.g = at_gradient(task.g, first * head->gate_row);
    task.mu = at_gradient(task.mu, first * head->gate_row);
    task.alpha = at_gradient(task.alpha, first * head->alpha_row);
    return task;
}

void ISA_NAME(scan_backward)(const MixerGradients *grad, const float *do_, const float *dstates, size_t state_stride, const float *saved, float *scratch,
                             const MixerTensors *in, const MixerShape *shape, const ScanRule *rule, ScanBackwardHead backward_head)
{
    size_t m = shape->n_slot, d = shape->d_head, width = shape->n_head * d, size = head_floats(shape), memory = scratch_head_floats(shape, true, rule);
    size_t length = shape->length, kept = memories(rule) * size;
#pragma omp parallel for schedule(dynamic)
    for (size_t index = 0; index < shape->batch * shape->n_head; index++) {
        size_t b = index / shape->n_head, h = index % shape->n_head, row = b * length, gate = row * shape->n_head + h;
        float *own = scratch + index * memory;
        ScanHead head = head_of(in, shape, b, h);
        ScanBackwardTask task = task_of(own, shape);
        if (dstates != NULL) {
            memcpy(task.ds, dstates + b * state_stride + h * size, size * sizeof(float));
        }
        task.kept = at(saved, index * kept_states(length) * kept);
        task.start = at(in->state0, h * size);
        task.do_ = do_ + row * width + h * d;
        task.do_row = width;
        task.q = grad->q + row * in->qkv_stride + h * m;
        task.k = grad->k + row * in->qkv_stride + h * m;
        task.v = grad->v + row * in->qkv_stride + h * d;
        task.g = at_gradient(grad->g, gate);
        task.mu = at_gradient(grad->mu, gate);
        task.alpha = at_gradient(grad->alpha, row * in->alpha_stride + h * m);
        const uint8_t *starts = sequence_starts(shape->starts, b, length);
        for (size_t end = length, first; end > 0; end = first) {
            first = document_begin(starts, end);
            ScanBackwardTask part = task_document(&task, &head, first, kept);
            ScanHead document = head_document(&head, first, end - first);
            backward_head(&part, &document);
            add(own, task.ds, size);
            memset(task.ds, 0, size * sizeof(float));
        }
    }
    for (size_t index = 0; index < shape->batch * shape->n_head; index++) {
        size_t h = index % shape->n_head;
        const float *own = scratch + index * memory;
        add(at_gradient(grad->state0, h * size), own, size);
        add(at_gradient(grad->ln_weight, h * d), own + size, d);
        add(at_gradient(grad->ln_bias, h * d), own + size + d, d);
    }
}
