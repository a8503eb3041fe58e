#include "model/model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/progress.h"
#include "model/block.h"
#include "model/workspace.h"

// Finds the parameters in their table.
static void locate(Model *model)
{
    for (size_t layer = 0; layer < (size_t)model->config.n_layer; layer++) {
        BlockShape shape = block_shape(&model->config, model->kernels->mixers, layer);
        model->blocks[layer] = block_offsets(&model->table, &shape, layer);
    }
    model->embed = tensor_find(&model->table, "embed.weight")->offset;
    model->norm = tensor_find(&model->table, "norm.weight")->offset;
    model->head = model->config.tie_embeddings ? model->embed : tensor_find(&model->table, "head.weight")->offset;
}

int model_create(Model *model, const ModelConfig *config, const Kernels *kernels, Error *error)
{
    *model = (Model){.config = *config, .kernels = kernels};
    if (config_validate(config, error) != 0) {
        return -1;
    }
    if (params_table(&model->table, config, error) != 0 || state_layout_create(&model->state, config, SIZE_MAX, error) != 0) {
        model_free(model);
        return -1;
    }
    model->params = memory_large(model->table.total * sizeof(float));
    model->blocks = calloc((size_t)config->n_layer, sizeof *model->blocks);
    if (model->params == NULL || model->blocks == NULL) {
        char size[32];
        format_bytes(size, (double)model->table.total * sizeof(float));
        model_free(model);
        return error_set(error, "no memory for the model's parameters (%s): choose a smaller preset or smaller sizes", size);
    }
    locate(model);
    return 0;
}

void model_free(Model *model)
{
    free(model->params);
    free(model->blocks);
    packed_free(model->packed);
    panel_set_free(model->panels);
    tensor_table_free(&model->table);
    state_layout_free(&model->state);
    *model = (Model){0};
}

#define BLOCK_MATRICES 4

// The matrices of a block that products read, in the order of the arena. Returns how many.
static size_t list_block(MatrixPlace places[BLOCK_MATRICES], const BlockOffsets *at)
{
    BlockShape shape = at->shape;
    places[0] = (MatrixPlace){at->projection, shape.projection, shape.width};
    places[1] = (MatrixPlace){at->o, shape.width, shape.value};
    places[2] = (MatrixPlace){at->w13, 2 * shape.hidden, shape.width};
    places[3] = (MatrixPlace){at->w2, shape.width, shape.hidden};
    return shape.hidden > 0 ? 4 : 2;
}

// Those of the whole model, with an embedding that is not the head, too, or without; in an array to free. NULL with `error` set when there is no memory.
static MatrixPlace *list_matrices(size_t *count, const Model *model, bool embedding, Error *error)
{
    const ModelConfig *config = &model->config;
    size_t width = (size_t)config->d_model, vocab = (size_t)config->vocab_size;
    MatrixPlace *places = calloc((size_t)config->n_layer * BLOCK_MATRICES + 2, sizeof *places);
    *count = 0;
    if (places == NULL) {
        error_set(error, "no memory for the list of the model's matrices");
        return NULL;
    }
    if (embedding || config->tie_embeddings) {
        places[(*count)++] = (MatrixPlace){model->embed, vocab, width};
    }
    for (size_t layer = 0; layer < (size_t)config->n_layer; layer++) {
        *count += list_block(places + *count, &model->blocks[layer]);
    }
    if (!config->tie_embeddings) {
        places[(*count)++] = (MatrixPlace){model->head, vocab, width};
    }
    return places;
}

int model_use_bf16(Model *model, Error *error)
{
    assert(model->packed == NULL && !model->bf16);
    if (model->kernels->make_panels != NULL) {
        size_t count;
        MatrixPlace *places = list_matrices(&count, model, false, error);
        model->panels = places == NULL ? NULL : panel_set_create(places, count, error);
        free(places);
        if (model->panels == NULL) {
            return -1;
        }
    }
    model->bf16 = true;
    model_update_bf16(model);
    return 0;
}

void model_update_bf16(Model *model)
{
    if (model->panels != NULL) {
        panel_set_make(model->panels, model->params, model->kernels);
    }
}

size_t model_bf16_bytes(const ModelConfig *config)
{
    const Kernels *kernels = kernels_available()[0];
    MatrixPlace places[BLOCK_MATRICES] = {{0, (size_t)config->vocab_size, (size_t)config->d_model}};
    size_t bytes = panel_set_bytes(places, 1);
    for (size_t layer = 0; layer < (size_t)config->n_layer; layer++) {
        BlockOffsets at = {.shape = block_shape(config, kernels->mixers, layer)};
        bytes += panel_set_bytes(places, list_block(places, &at));
    }
    return kernels->make_panels == NULL ? 0 : bytes;
}

// Moves what is not packed into an arena of its own. Packed matrices keep their offsets: these are what they are found by.
static int drop_packed(Model *model, const PackedWeights *packed, Error *error)
{
    TensorTable *table = &model->table;
    size_t total = 0;
    for (size_t i = 0; i < table->count; i++) {
        total += packed_holds(packed, table->items[i].offset) ? 0 : table->items[i].count;
    }
    float *kept = malloc((total > 0 ? total : 1) * sizeof *kept);
    if (kept == NULL) {
        return error_set(error, "no memory for the model's parameters");
    }
    total = 0;
    for (size_t i = 0; i < table->count; i++) {
        Tensor *tensor = &table->items[i];
        if (!packed_holds(packed, tensor->offset)) {
            memcpy(kept + total, model->params + tensor->offset, tensor->count * sizeof *kept);
            tensor->offset = total;
            total += tensor->count;
        }
    }
    free(model->params);
    model->params = kept;
    locate(model);
    return 0;
}

int model_pack(Model *model, WeightType type, Error *error)
{
    assert(model->packed == NULL && !model->bf16);
    if (type == WEIGHTS_F32) {
        return 0;
    }
    size_t count;
    MatrixPlace *places = list_matrices(&count, model, true, error);
    PackedWeights *packed = places == NULL ? NULL : packed_create(model->params, places, count, &model->table, type, error);
    free(places);
    if (packed == NULL || drop_packed(model, packed, error) != 0) {
        packed_free(packed);
        return -1;
    }
    model->packed = packed;
    return 0;
}

size_t model_step_bytes(const Model *model)
{
    size_t weights = 0, bytes = model->packed == NULL ? 0 : packed_total(model->packed, &weights), unread = 0;
    bytes += (model->table.total - weights) * sizeof(float);
    if (!model->config.tie_embeddings) {   // of the embedding one row
        unread = model->packed == NULL ? (size_t)model->config.vocab_size * (size_t)model->config.d_model * sizeof(float)
                                       : packed_bytes(packed_find(model->packed, model->embed));
    }
    return bytes - unread;
}

void model_init(Model *model, uint64_t seed, size_t train_length) { params_init(model->params, &model->table, &model->config, seed, train_length); }

// A layer's part of states; *place is its first tensor in the layout's table and goes on to the next layer's.
static BlockStates layer_states(float *states, const StateLayout *layout, const Tensor **place, const BlockShape *shape)
{
    BlockStates own = {.stride = layout->table.total};
    if (!shape->needs.bare) {
        own.tail = states + (*place)++->offset;
    }
    own.memory = states + (*place)++->offset;
    return own;
}

void model_state_init(const Model *model, const StateLayout *layout, float *state)
{
    const ModelConfig *config = &model->config;
    MixerShape shape = {1, 1, (size_t)config->n_head, (size_t)config->n_slot, (size_t)config->d_head, 0, NULL};
    const Tensor *place = layout->table.items;
    memset(state, 0, layout->table.total * sizeof(float));
    for (size_t layer = 0; layer < (size_t)config->n_layer; layer++) {
        const BlockOffsets *at = &model->blocks[layer];
        BlockStates own = layer_states(state, layout, &place, &at->shape);
        at->shape.mixer->state_init(own.memory, at->shape.needs.start ? model->params + at->state0 : NULL, &shape);
    }
}

void workspace_lay_out_states(Workspace *w, const StateLayout *layout) { w->layout = layout; }

static BlockContext context_of(const Model *model, const Workspace *w, size_t position)
{
    return (BlockContext){&model->config, model->kernels, linear_kernels(model->kernels, model->bf16), model->params, model->packed, model->panels, w->batch,
                          w->length, position, w->starts, SIZE_MAX};
}

static void embed(float *out, const Model *model, const int32_t *tokens, size_t n)
{
    if (model->packed == NULL) {
        model->kernels->embedding_forward(out, model->params + model->embed, tokens, n, (size_t)model->config.d_model);
    } else {
        packed_embedding(out, packed_find(model->packed, model->embed), tokens, n);
    }
}

// The forward of what stands in w->batch, w->length and w->starts.
static void run_blocks(const Model *model, Workspace *w, float *states, size_t position, const int32_t *tokens)
{
    const ModelConfig *config = &model->config;
    size_t n = w->batch * w->length, width = (size_t)config->d_model, layers = (size_t)config->n_layer;
    assert(w->batch <= w->max_batch && w->length <= w->max_length);
    assert(w->bf16 == model->bf16);
    assert(w->use == WORKSPACE_INFERENCE ? w->starts == NULL : states == NULL && model->packed == NULL);
    for (size_t i = 0; i < n; i++) {
        assert(tokens[i] >= 0 && tokens[i] < config->vocab_size);
    }
    const StateLayout *layout = w->layout != NULL ? w->layout : &model->state;
    if (w->use == WORKSPACE_INFERENCE && states == NULL) {
        states = w->states;
        position = 0;
        layout = &w->own;
        for (size_t b = 0; b < w->batch; b++) {
            model_state_init(model, layout, states + b * layout->table.total);
        }
    }
    assert(states == NULL || (position <= layout->longest && w->length <= layout->longest - position));
    BlockContext context = context_of(model, w, position);
    context.longest = states != NULL ? layout->longest : SIZE_MAX;
    const Tensor *place = layout->table.items;
    embed(w->blocks[0].x, model, tokens, n);
    for (size_t layer = 0; layer < layers; layer++) {
        float *out = layer + 1 < layers ? w->blocks[layer + 1].x : w->x_out;
        const BlockOffsets *at = &model->blocks[layer];
        BlockStates own = states != NULL ? layer_states(states, layout, &place, &at->shape) : (BlockStates){.tail = NULL};
        block_forward(out, &w->blocks[layer], &w->scratch, own, at, &context);
    }
    model->kernels->rmsnorm_forward(w->hidden, w->x_out, model->params + model->norm, (float)config->norm_eps, n, width);
}

void model_forward(const Model *model, Workspace *w, float *states, size_t position, const int32_t *tokens, size_t batch, size_t length)
{
    w->batch = batch;
    w->length = length;
    w->starts = NULL;
    run_blocks(model, w, states, position, tokens);
}

void model_forward_documents(const Model *model, Workspace *w, const uint8_t *starts, const int32_t *tokens, size_t batch, size_t length)
{
    w->batch = batch;
    w->length = length;
    w->starts = starts;
    run_blocks(model, w, NULL, 0, tokens);
}

void model_logits(float *logits, const Model *model, Workspace *w, size_t first_row, size_t n_rows)
{
    size_t width = (size_t)model->config.d_model;
    assert(first_row + n_rows <= w->batch * w->length);
    BlockContext context = context_of(model, w, 0);
    block_linear(logits, rows_from(w->hidden, first_row * width), model->head, n_rows, width, (size_t)model->config.vocab_size, &context);
}

// From row *next of n on, the numbers and targets of up to logit_rows rows whose targets count; *next is left behind the last. Returns how many.
static size_t pick_rows(Workspace *w, size_t *next, const int32_t *targets, size_t n)
{
    size_t count = 0;
    for (; *next < n && count < w->logit_rows; ++*next) {
        if (targets[*next] >= 0) {
            w->picked[count] = *next;
            w->picked_targets[count++] = targets[*next];
        }
    }
    return count;
}

// The hidden rows that were picked: where they stand, or when others stand between them gathered.
static Rows picked_hidden(Workspace *w, bool together, size_t rows, size_t width)
{
    if (together) {
        return rows_from(w->hidden, w->picked[0] * width);
    }
    for (size_t i = 0; i < rows; i++) {
        memcpy(rows_from(w->picked_hidden, i * width).data, rows_from(w->hidden, w->picked[i] * width).data, rows_bytes(w->hidden, width));
    }
    return w->picked_hidden;
}

double model_loss(float *losses, float *dparams, const Model *model, Workspace *w, const int32_t *targets, float scale)
{
    BlockContext context = context_of(model, w, 0);
    size_t n = w->batch * w->length, width = (size_t)model->config.d_model, vocab = (size_t)model->config.vocab_size, row = 0;
    double total = 0.0;
    assert(dparams == NULL || w->use != WORKSPACE_INFERENCE);
    for (size_t i = 0; i < n; i++) {
        if (targets[i] < 0 && losses != NULL) {
            losses[i] = 0.0f;
        }
        if (targets[i] < 0 && dparams != NULL) {
            memset(w->dhidden + i * width, 0, width * sizeof(float));
        }
    }
    for (size_t rows; (rows = pick_rows(w, &row, targets, n)) > 0;) {
        bool together = w->picked[rows - 1] - w->picked[0] + 1 == rows;
        Rows hidden = picked_hidden(w, together, rows, width);
        block_linear(w->logits, hidden, model->head, rows, width, vocab, &context);
        model->kernels->cross_entropy(w->row_losses, w->logits, w->picked_targets, dparams == NULL ? 0.0f : scale, rows, vocab);
        for (size_t i = 0; i < rows; i++) {
            total += (double)w->row_losses[i];
            if (losses != NULL) {
                losses[w->picked[i]] = w->row_losses[i];
            }
        }
        if (dparams == NULL) {
            continue;
        }
        Rows dlogits = rows_f32(w->logits);
        float *dhidden = together ? w->dhidden + w->picked[0] * width : w->picked_dhidden;
        context.linear.backward_input(dhidden, dlogits, block_weights(model->head, &context), rows, width, vocab, false);
        context.linear.backward_weight(dparams + model->head, dlogits, hidden, rows, width, vocab);
        for (size_t i = 0; i < rows && !together; i++) {
            memcpy(w->dhidden + w->picked[i] * width, dhidden + i * width, width * sizeof(float));
        }
    }
    return total;
}

void model_backward(float *dparams, const Model *model, Workspace *w, const int32_t *tokens)
{
    const Kernels *k = model->kernels;
    size_t n = w->batch * w->length, width = (size_t)model->config.d_model, layers = (size_t)model->config.n_layer;
    assert(w->use != WORKSPACE_INFERENCE);
    BlockContext context = context_of(model, w, 0);
    memset(w->dx, 0, n * width * sizeof(float));
    k->rmsnorm_backward(w->dx, dparams + model->norm, w->dhidden, w->x_out, model->params + model->norm, (float)model->config.norm_eps, n, width);
    for (size_t layer = layers; layer-- > 0;) {
        // What the last block's forward left still stands where all blocks leave it.
        if (w->use == WORKSPACE_RECOMPUTE && layer + 1 < layers) {
            block_forward(NULL, &w->blocks[layer], &w->scratch, (BlockStates){.tail = NULL}, &model->blocks[layer], &context);
        }
        block_backward(w->dx, dparams, &w->blocks[layer], &w->scratch, &model->blocks[layer], &context);
    }
    k->embedding_backward(dparams + model->embed, w->dx, tokens, n, width);
}
