#include "model/params.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "model/block_shape.h"
#include "model/kernels/kernels.h"

// Builds a table entry by entry; the first failure sticks and is reported once.
typedef struct TableBuilder {
    TensorTable *table;
    size_t capacity;
    bool failed;
} TableBuilder;

static void add(TableBuilder *builder, bool is_matrix, size_t n_dims, const size_t *shape, const char *format, ...) __attribute__((format(printf, 5, 6)));

static void add(TableBuilder *builder, bool is_matrix, size_t n_dims, const size_t *shape, const char *format, ...)
{
    TensorTable *table = builder->table;
    if (builder->failed) {
        return;
    }
    if (table->count == builder->capacity) {
        size_t capacity = builder->capacity * 2 + 32;
        Tensor *items = realloc(table->items, capacity * sizeof *items);
        if (items == NULL) {
            builder->failed = true;
            return;
        }
        table->items = items;
        builder->capacity = capacity;
    }
    Tensor *tensor = &table->items[table->count];
    *tensor = (Tensor){.n_dims = n_dims, .offset = table->total, .count = 1, .is_matrix = is_matrix};
    for (size_t i = 0; i < n_dims; i++) {
        tensor->shape[i] = shape[i];
        builder->failed |= __builtin_mul_overflow(tensor->count, shape[i], &tensor->count);
    }
    va_list args;
    va_start(args, format);
    vsnprintf(tensor->name, sizeof tensor->name, format, args);
    va_end(args);
    builder->failed |= __builtin_add_overflow(table->total, tensor->count, &table->total) || table->total > SIZE_MAX / 64;
    table->count++;
}

#define SHAPE1(a) 1, (size_t[]){a}
#define SHAPE2(a, b) 2, (size_t[]){a, b}
#define SHAPE3(a, b, c) 3, (size_t[]){a, b, c}

// A layer's shape under the best kernels; sizes and needs of a mixer are the same under all.
static BlockShape shape_of(const ModelConfig *config, size_t layer) { return block_shape(config, kernels_available()[0]->mixers, layer); }

static const char parts[3] = {'q', 'k', 'v'};

// The matrices that read the block's input, z, g and mu where the mixer has them; then the convolutions.
static void add_projections(TableBuilder *builder, const BlockShape *shape, size_t taps, size_t layer)
{
    const size_t channels[3] = {shape->query, shape->query, shape->value};
    for (int i = 0; i < 3; i++) {
        add(builder, true, SHAPE2(channels[i], shape->width), "layers.%zu.mixer.%c.weight", layer, parts[i]);
    }
    if (!shape->needs.bare) {
        add(builder, true, SHAPE2(shape->value, shape->width), "layers.%zu.mixer.z.weight", layer);
    }
    if (shape->needs.gate) {
        add(builder, true, SHAPE2(shape->gate, shape->width), "layers.%zu.mixer.g.weight", layer);
    }
    if (shape->needs.forget && !shape->needs.shared_gate) {
        add(builder, true, SHAPE2(shape->heads, shape->width), "layers.%zu.mixer.mu.weight", layer);
    }
    for (int i = 0; i < 3 && !shape->needs.bare; i++) {
        add(builder, false, SHAPE2(channels[i], taps), "layers.%zu.mixer.%c_conv.weight", layer, parts[i]);
    }
    for (int i = 0; i < 3 && !shape->needs.bare; i++) {
        add(builder, false, SHAPE1(channels[i]), "layers.%zu.mixer.%c_conv.bias", layer, parts[i]);
    }
}

// What the mixer reads beside: gates, decays, factors of keys, start state, norm.
static void add_needs(TableBuilder *builder, const BlockShape *shape, size_t layer)
{
    size_t heads = shape->heads, m = shape->query / heads, d = shape->value / heads;
    if (shape->needs.gate) {
        add(builder, false, SHAPE1(shape->gate), "layers.%zu.mixer.g.bias", layer);
    }
    if (shape->needs.shared_gate) {
        add(builder, false, SHAPE1(heads), "layers.%zu.mixer.A", layer);
    } else if (shape->needs.forget) {
        add(builder, false, SHAPE1(heads), "layers.%zu.mixer.mu.bias", layer);
    }
    if (shape->needs.slot_decay) {
        add(builder, true, SHAPE2(shape->rank, shape->width), "layers.%zu.mixer.alpha_down.weight", layer);
        add(builder, true, SHAPE2(shape->decay, shape->rank), "layers.%zu.mixer.alpha_up.weight", layer);
        add(builder, false, SHAPE1(shape->decay), "layers.%zu.mixer.alpha_up.bias", layer);
    }
    if (shape->scaled) {
        add(builder, false, SHAPE1(heads), "layers.%zu.mixer.k_scale", layer);
    }
    if (shape->needs.start) {
        add(builder, false, SHAPE3(heads, m, d), "layers.%zu.mixer.state0", layer);
    }
    if (shape->needs.norm) {
        add(builder, false, SHAPE2(heads, d), "layers.%zu.mixer.ln.weight", layer);
        add(builder, false, SHAPE2(heads, d), "layers.%zu.mixer.ln.bias", layer);
    }
}

// The order within a layer is the order of the arena, and part of the contract with block.c: q, k, v, z, g, mu weights stand together as one matrix,
// as do the convolutions' weights, their biases, the gates' biases, and w1 with w3.
static void add_layer(TableBuilder *builder, const ModelConfig *config, size_t layer)
{
    BlockShape shape = shape_of(config, layer);
    add(builder, false, SHAPE1(shape.width), "layers.%zu.norm.weight", layer);
    add_projections(builder, &shape, (size_t)config->conv_width, layer);
    add_needs(builder, &shape, layer);
    if (!shape.needs.bare) {
        add(builder, false, SHAPE1(shape.value), "layers.%zu.mixer.out_norm.weight", layer);
    }
    add(builder, true, SHAPE2(shape.width, shape.value), "layers.%zu.mixer.o.weight", layer);
    if (shape.hidden > 0) {
        add(builder, false, SHAPE1(shape.width), "layers.%zu.mlp_norm.weight", layer);
        add(builder, true, SHAPE2(shape.hidden, shape.width), "layers.%zu.mlp.w1.weight", layer);
        add(builder, true, SHAPE2(shape.hidden, shape.width), "layers.%zu.mlp.w3.weight", layer);
        add(builder, true, SHAPE2(shape.width, shape.hidden), "layers.%zu.mlp.w2.weight", layer);
    }
}

static int finish(TableBuilder *builder, Error *error)
{
    if (builder->failed) {
        tensor_table_free(builder->table);
        return error_set(error, "the model's table of parameters does not fit into memory: choose smaller sizes");
    }
    return 0;
}

int params_table(TensorTable *table, const ModelConfig *config, Error *error)
{
    *table = (TensorTable){0};
    TableBuilder builder = {.table = table};
    add(&builder, true, SHAPE2((size_t)config->vocab_size, (size_t)config->d_model), "embed.weight");
    for (size_t layer = 0; layer < (size_t)config->n_layer; layer++) {
        add_layer(&builder, config, layer);
    }
    add(&builder, false, SHAPE1((size_t)config->d_model), "norm.weight");
    if (!config->tie_embeddings) {
        add(&builder, true, SHAPE2((size_t)config->vocab_size, (size_t)config->d_model), "head.weight");
    }
    return finish(&builder, error);
}

int params_state_table(TensorTable *table, const ModelConfig *config, size_t longest, Error *error)
{
    *table = (TensorTable){0};
    TableBuilder builder = {.table = table};
    size_t heads = (size_t)config->n_head, m = (size_t)config->n_slot, d = (size_t)config->d_head;
    MixerShape one = {1, 1, heads, m, d, 0, NULL};
    for (size_t layer = 0; layer < (size_t)config->n_layer; layer++) {
        BlockShape shape = shape_of(config, layer);
        if (!shape.needs.bare) {
            add(&builder, false, SHAPE2((size_t)config->conv_width - 1, shape.channels), "layers.%zu.mixer.conv_tail", layer);
        }
        if (shape.mixer->state_floats != NULL) {
            add(&builder, false, SHAPE3(shape.mixer->state_floats(config) / (m * d), m, d), "layers.%zu.mixer.state", layer);
        } else {
            size_t window = shape.window < longest ? shape.window : longest;
            add(&builder, false, SHAPE2(heads, shape.mixer->window_state_floats(&one, window) / heads), "layers.%zu.mixer.state", layer);
        }
    }
    return finish(&builder, error);
}

void tensor_table_free(TensorTable *table)
{
    free(table->items);
    *table = (TensorTable){0};
}

const Tensor *tensor_find(const TensorTable *table, const char *name)
{
    for (size_t i = 0; i < table->count; i++) {
        if (strcmp(table->items[i].name, name) == 0) {
            return &table->items[i];
        }
    }
    return NULL;
}

size_t matrix_places_until(const MatrixPlace *places, size_t count, size_t offset)
{
    size_t low = 0, high = count;   // the answer lies between them
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (places[middle].offset <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), e = strlen(end);
    return n >= e && strcmp(name + n - e, end) == 0;
}

static void fill_normal(float *out, size_t count, double mean, double deviation, Rng *rng)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = (float)(mean + deviation * rng_normal(rng));
    }
}

static void fill(float *out, size_t count, double value)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = (float)value;
    }
}

// Steps of Mamba-2 at the start: softplus(bias) is spread evenly, on a logarithmic scale, over this range; and exp(A) evenly over the next (Dao, Gu 2024).
static const double step_range[2] = {1e-3, 1e-1}, rate_range[2] = {1.0, 16.0};

static void fill_steps(float *out, size_t count, Rng *rng)
{
    for (size_t i = 0; i < count; i++) {
        double step = step_range[0] * pow(step_range[1] / step_range[0], rng_uniform(rng));
        out[i] = (float)log(expm1(step));
    }
}

static void fill_rates(float *out, size_t count, Rng *rng)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = (float)log(rate_range[0] + (rate_range[1] - rate_range[0]) * rng_uniform(rng));
    }
}

// A parameter that belongs to what one mixer reads; false: it is none.
static bool init_needs(float *out, const Tensor *tensor, const ModelConfig *config, size_t train_length, Rng *rng)
{
    size_t layer;
    if (sscanf(tensor->name, "layers.%zu.", &layer) != 1) {
        return false;
    }
    MixerNeeds needs = shape_of(config, layer).needs;
    // A number of a code is about 1/√m, of a softmax 1/m; a value is √d long, or 1.
    double m = (double)config->n_slot, d = (double)config->d_head, code = config->softmax_codes ? 1.0 / m : 1.0 / sqrt(m);
    double value = config->unit_values ? 1.0 : sqrt(d);
    double intensity = 1.0 / (code * value * sqrt(2.0 * (double)train_length));
    intensity = intensity < 0.5 ? intensity : 0.5;   // short training lengths: the rotation budget allows more than a gate can give
    double range = config->wide_gate ? 2.0 : 1.0;
    if (ends_with(tensor->name, "mixer.state0") && config->random_start && !needs.norm) {
        fill_normal(out, tensor->count, 0.0, 1.0 / sqrt(d), rng);
    } else if (ends_with(tensor->name, "mixer.state0")) {
        fill_normal(out, tensor->count, needs.norm ? 0.0 : 1.0 / sqrt(d), 0.02, rng);   // a layer norm behind the memory takes any direction
    } else if (ends_with(tensor->name, "mixer.g.bias") && needs.shared_gate) {
        fill_steps(out, tensor->count, rng);
    } else if (ends_with(tensor->name, "mixer.g.bias")) {
        // A memory that starts empty has nothing to lose.
        fill(out, tensor->count, (needs.start ? log(intensity / (range - intensity)) : 0.0) + config->gate_shift);
    } else if (ends_with(tensor->name, "mixer.A")) {
        fill_rates(out, tensor->count, rng);
    } else if (ends_with(tensor->name, "mixer.mu.bias")) {
        fill(out, tensor->count, 4.0);
    } else if (ends_with(tensor->name, "mixer.ln.weight")) {
        fill(out, tensor->count, 1.0);
    } else {
        return false;
    }
    return true;
}

void params_init(float *params, const TensorTable *table, const ModelConfig *config, uint64_t seed, size_t train_length)
{
    for (size_t i = 0; i < table->count; i++) {
        const Tensor *tensor = &table->items[i];
        float *out = params + tensor->offset;
        Rng rng;
        rng_seed(&rng, seed, i + 1);   // a stream a tensor: the others stay as they are when one changes its size
        if (init_needs(out, tensor, config, train_length, &rng)) {
            continue;
        }
        if (ends_with(tensor->name, "_conv.weight")) {
            fill_normal(out, tensor->count, 0.0, 0.5, &rng);
        } else if (ends_with(tensor->name, "norm.weight") || ends_with(tensor->name, "_scale")) {
            fill(out, tensor->count, 1.0);
        } else if (ends_with(tensor->name, "bias")) {
            fill(out, tensor->count, 0.0);
        } else if (ends_with(tensor->name, "mixer.o.weight") || ends_with(tensor->name, "mlp.w2.weight")) {
            fill_normal(out, tensor->count, 0.0, 0.02 / sqrt(2.0 * (double)config->n_layer), &rng);
        } else {
            fill_normal(out, tensor->count, 0.0, 0.02, &rng);
        }
    }
}
