#include "model/workspace.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/progress.h"
#include "model/mixers/start_read.h"

// Floats of logits held at once: enough rows for the matrix product to run at speed, whatever the vocabulary.
#define LOGIT_FLOATS ((size_t)1 << 25)
#define LOGIT_ROWS_MIN 64

// Hands out parts of one piece of memory; with memory NULL it only counts.
typedef struct Planner {
    char *memory;
    size_t used;       // bytes
    bool overflow;
} Planner;

static void *take_bytes(Planner *planner, size_t rows, size_t columns, size_t size)
{
    size_t count, bytes;
    if (__builtin_mul_overflow(rows, columns, &count) || __builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2 ||
        __builtin_add_overflow(planner->used, (bytes + 63) & ~(size_t)63, &planner->used)) {
        planner->overflow = true;
        return NULL;
    }
    return planner->memory == NULL ? NULL : planner->memory + planner->used - ((bytes + 63) & ~(size_t)63);
}

static float *take(Planner *planner, size_t rows, size_t columns) { return take_bytes(planner, rows, columns, sizeof(float)); }

static Rows take_rows(Planner *planner, size_t rows, size_t columns, bool bf16)
{
    return (Rows){take_bytes(planner, rows, columns, bf16 ? sizeof(uint16_t) : sizeof(float)), bf16};
}

// Parts of the plan that are never alive at once and begin at the same place.
typedef struct Overlay {
    size_t start, end;
} Overlay;

static Overlay overlay_begin(const Planner *p) { return (Overlay){p->used, p->used}; }

static void overlay_next(Overlay *overlay, Planner *p)
{
    overlay->end = p->used > overlay->end ? p->used : overlay->end;
    p->used = overlay->start;
}

static void overlay_end(const Overlay *overlay, Planner *p) { p->used = p->used > overlay->end ? p->used : overlay->end; }

static void plan_block(BlockSaved *saved, Planner *p, size_t n, const BlockShape *shape, size_t mixer_floats, const Workspace *w)
{
    saved->projection = take(p, n, shape->projection);
    saved->qkv = take(p, n, shape->conv);
    saved->g = take(p, n, shape->gate);
    saved->mu = take(p, n, shape->forget);
    saved->low = take(p, n, shape->rank);
    saved->alpha = take(p, n, shape->decay);
    saved->o = take(p, n, shape->value);
    saved->mixer = w->use != WORKSPACE_INFERENCE ? take(p, 1, mixer_floats) : NULL;
    saved->x_mid = take(p, n, shape->width);
    saved->h13 = take_rows(p, n, 2 * shape->hidden, w->bf16);
}

// Lifetimes in block.c: a linear layer's input (normed, inner) is dead when the gradient into it (dnormed, dinner) is written, the mixer runs when inner
// is, and dqkv lives only from the mixer's backward to the convolution's. h13 is dead when the forward, or what the backward repeats of it, ends.
static void plan_scratch(BlockScratch *scratch, Planner *p, size_t n, size_t sums, const BlockShape *shape, size_t mixer_floats, const Workspace *w)
{
    bool training = w->use != WORKSPACE_INFERENCE;
    Overlay rows = overlay_begin(p);
    scratch->dnormed = take(p, n, shape->width);
    scratch->normed = (Rows){scratch->dnormed, w->bf16};
    overlay_next(&rows, p);
    scratch->dqkv = take(p, n, training ? shape->conv : 0);
    overlay_end(&rows, p);

    Overlay inner = overlay_begin(p);
    scratch->dinner = take(p, n, shape->value > shape->hidden ? shape->value : shape->hidden);
    scratch->inner = (Rows){scratch->dinner, w->bf16};
    overlay_next(&inner, p);
    scratch->mixer = take(p, 1, mixer_floats);
    overlay_end(&inner, p);
    scratch->start = take(p, shape->relative ? 1 : 0,
                          start_read_scratch_floats(shape->heads, shape->query / shape->heads, shape->value / shape->heads, training));

    Overlay passes = overlay_begin(p);
    scratch->h13 = take(p, n, w->bf16 ? 2 * shape->hidden : 0);
    overlay_next(&passes, p);
    if (training) {
        scratch->do_ = take(p, n, shape->value);
        scratch->conv_sums = take(p, sums, shape->conv);
        scratch->dprojection = take(p, n, shape->projection);
        scratch->dg = take(p, n, shape->gate);
        scratch->dmu = take(p, n, shape->forget);
        scratch->dlow = take(p, n, shape->rank);
        scratch->dalpha = take(p, n, shape->decay);
    }
    overlay_end(&passes, p);
}

// What lives between the last block's forward and its backward.
static void plan_head(Workspace *w, Planner *p, size_t n, size_t width, size_t vocab, bool training)
{
    size_t rows = LOGIT_FLOATS / vocab;
    rows = rows < LOGIT_ROWS_MIN ? LOGIT_ROWS_MIN : rows;
    size_t parts = (n + rows - 1) / rows;
    w->hidden = take_rows(p, n, width, w->bf16);
    w->dhidden = training ? take(p, n, width) : NULL;
    w->logit_rows = parts == 0 ? 0 : (n + parts - 1) / parts;
    w->logits = take(p, w->logit_rows, vocab);
    w->row_losses = take(p, 1, w->logit_rows);
    w->picked = take_bytes(p, 1, w->logit_rows, sizeof(size_t));
    w->picked_targets = take_bytes(p, 1, w->logit_rows, sizeof(int32_t));
    w->picked_hidden = take_rows(p, w->logit_rows, width, w->bf16);
    w->picked_dhidden = training ? take(p, w->logit_rows, width) : NULL;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

// What memory that layers share must hold: of each kind of column, and of what mixers ask for, the most that a layer has.
typedef struct SharedShape {
    BlockShape block;
    size_t saved, scratch;   // floats of the mixers
} SharedShape;

static SharedShape shared_shape(const ModelConfig *config, const Mixer *const *mixers, const MixerShape *mixer_shape, bool training)
{
    SharedShape most = {.block = block_shape(config, mixers, 0)};
    for (size_t layer = 0; layer < (size_t)config->n_layer; layer++) {
        BlockShape shape = block_shape(config, mixers, layer);
        most.block.projection = larger(most.block.projection, shape.projection);
        most.block.conv = larger(most.block.conv, shape.conv);
        most.block.gate = larger(most.block.gate, shape.gate);
        most.block.forget = larger(most.block.forget, shape.forget);
        most.block.decay = larger(most.block.decay, shape.decay);
        most.block.rank = larger(most.block.rank, shape.rank);
        most.block.relative |= shape.relative;
        most.scratch = larger(most.scratch, shape.mixer->scratch_floats(mixer_shape, false));
        if (training) {
            most.scratch = larger(most.scratch, shape.mixer->scratch_floats(mixer_shape, true));
            most.saved = larger(most.saved, shape.mixer->saved_floats(mixer_shape));
        }
    }
    return most;
}

// Lays the whole workspace out; `w->blocks` may be NULL when only counting.
static void plan(Workspace *w, Planner *p, const ModelConfig *config, const Mixer *const *mixers)
{
    size_t n = 0, layers = (size_t)config->n_layer;
    bool training = w->use != WORKSPACE_INFERENCE;
    p->overflow |= __builtin_mul_overflow(w->max_batch, w->max_length, &n);
    MixerShape mixer_shape = {w->max_batch, w->max_length, (size_t)config->n_head, (size_t)config->n_slot, (size_t)config->d_head, 0, NULL};
    SharedShape shared = shared_shape(config, mixers, &mixer_shape, training);
    size_t width = shared.block.width;
    BlockSaved block = {0};
    for (size_t layer = 0; layer < layers; layer++) {
        if (training || layer == 0) {
            block.x = take(p, n, width);
        }
        if (w->use == WORKSPACE_TRAINING) {
            BlockShape own = block_shape(config, mixers, layer);
            plan_block(&block, p, n, &own, own.mixer->saved_floats(&mixer_shape), w);
        } else if (layer == 0) {
            plan_block(&block, p, n, &shared.block, shared.saved, w);
        }
        if (w->blocks != NULL) {
            w->blocks[layer] = block;
        }
    }
    // In inference the last output may take the place of the block's input.
    w->x_out = training ? take(p, n, width) : block.x;
    Overlay phases = overlay_begin(p);
    plan_scratch(&w->scratch, p, n, w->max_batch * ((size_t)config->conv_width + 1), &shared.block, shared.scratch, w);
    overlay_next(&phases, p);
    plan_head(w, p, n, width, (size_t)config->vocab_size, training);
    overlay_end(&phases, p);
    if (training) {
        w->dx = take(p, n, width);
    } else {
        TensorTable state;
        size_t total = 0;
        if (params_state_table(&state, config, w->max_length, NULL) == 0) {
            total = state.total;
            tensor_table_free(&state);
        }
        w->states = take(p, w->max_batch, total);
    }
}

size_t workspace_bytes(const ModelConfig *config, size_t batch, size_t length, WorkspaceUse use, bool bf16)
{
    Workspace w = {.max_batch = batch, .max_length = length, .use = use, .bf16 = bf16};
    Planner planner = {0};
    plan(&w, &planner, config, kernels_available()[0]->mixers);
    return planner.overflow ? SIZE_MAX : planner.used;
}

Workspace *workspace_create(const Model *model, size_t batch, size_t length, WorkspaceUse use, Error *error)
{
    size_t bytes = workspace_bytes(&model->config, batch, length, use, model->bf16);
    Workspace *w = calloc(1, sizeof *w);
    if (w != NULL && bytes != SIZE_MAX) {
        *w = (Workspace){.max_batch = batch, .max_length = length, .use = use, .bf16 = model->bf16};
        w->blocks = calloc((size_t)model->config.n_layer, sizeof *w->blocks);
        if (use == WORKSPACE_INFERENCE && state_layout_create(&w->own, &model->config, length, error) != 0) {
            workspace_free(w);
            return NULL;
        }
        w->memory = memory_large(bytes);
    }
    if (w == NULL || w->blocks == NULL || w->memory == NULL) {
        workspace_free(w);
        char size[32];
        error_set(error, "no memory for a workspace of %zu sequences of %zu tokens (%s): lower the batch or the length", batch, length,
                  format_bytes(size, (double)bytes));
        return NULL;
    }
    Planner planner = {.memory = w->memory};
    plan(w, &planner, &model->config, model->kernels->mixers);
    return w;
}

void workspace_free(Workspace *w)
{
    if (w != NULL) {
        free(w->blocks);
        free(w->memory);
        state_layout_free(&w->own);
        free(w);
    }
}
