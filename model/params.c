#include "model/params.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

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

// The order within a layer is the order of the arena, and part of the contract with block.c: q, k, v, z, g, mu weights stand together as one matrix,
// as do the convolutions' weights, their biases, the gates' biases, and w1 with w3.
static void add_layer(TableBuilder *builder, const ModelConfig *config, size_t layer)
{
    size_t width = (size_t)config->d_model, heads = (size_t)config->n_head, m = (size_t)config->n_slot, d = (size_t)config->d_head;
    size_t taps = (size_t)config->conv_width, hidden = (size_t)config->mlp_hidden;
    static const char part[3] = {'q', 'k', 'v'};
    const size_t channels[3] = {heads * m, heads * m, heads * d};
    add(builder, false, SHAPE1(width), "layers.%zu.norm.weight", layer);
    for (int i = 0; i < 3; i++) {
        add(builder, true, SHAPE2(channels[i], width), "layers.%zu.mixer.%c.weight", layer, part[i]);
    }
    add(builder, true, SHAPE2(heads * d, width), "layers.%zu.mixer.z.weight", layer);
    add(builder, true, SHAPE2(heads, width), "layers.%zu.mixer.g.weight", layer);
    if (config->forget_gate) {
        add(builder, true, SHAPE2(heads, width), "layers.%zu.mixer.mu.weight", layer);
    }
    for (int i = 0; i < 3; i++) {
        add(builder, false, SHAPE2(channels[i], taps), "layers.%zu.mixer.%c_conv.weight", layer, part[i]);
    }
    for (int i = 0; i < 3; i++) {
        add(builder, false, SHAPE1(channels[i]), "layers.%zu.mixer.%c_conv.bias", layer, part[i]);
    }
    add(builder, false, SHAPE1(heads), "layers.%zu.mixer.g.bias", layer);
    if (config->forget_gate) {
        add(builder, false, SHAPE1(heads), "layers.%zu.mixer.mu.bias", layer);
    }
    add(builder, false, SHAPE3(heads, m, d), "layers.%zu.mixer.state0", layer);
    add(builder, false, SHAPE1(heads * d), "layers.%zu.mixer.out_norm.weight", layer);
    add(builder, true, SHAPE2(width, heads * d), "layers.%zu.mixer.o.weight", layer);
    if (hidden > 0) {
        add(builder, false, SHAPE1(width), "layers.%zu.mlp_norm.weight", layer);
        add(builder, true, SHAPE2(hidden, width), "layers.%zu.mlp.w1.weight", layer);
        add(builder, true, SHAPE2(hidden, width), "layers.%zu.mlp.w3.weight", layer);
        add(builder, true, SHAPE2(width, hidden), "layers.%zu.mlp.w2.weight", layer);
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

int params_state_table(TensorTable *table, const ModelConfig *config, Error *error)
{
    *table = (TensorTable){0};
    TableBuilder builder = {.table = table};
    size_t heads = (size_t)config->n_head, m = (size_t)config->n_slot, d = (size_t)config->d_head;
    for (size_t layer = 0; layer < (size_t)config->n_layer; layer++) {
        add(&builder, false, SHAPE2((size_t)config->conv_width - 1, heads * (2 * m + d)), "layers.%zu.mixer.conv_tail", layer);
        add(&builder, false, SHAPE3(heads, m, d), "layers.%zu.mixer.state", layer);
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

void params_init(float *params, const TensorTable *table, const ModelConfig *config, uint64_t seed, size_t train_length)
{
    double m = (double)config->n_slot, d = (double)config->d_head;
    double intensity = sqrt(m / (2.0 * (double)train_length * d));
    intensity = intensity < 0.5 ? intensity : 0.5;   // short training lengths: the rotation budget allows more than a gate can give
    for (size_t i = 0; i < table->count; i++) {
        const Tensor *tensor = &table->items[i];
        float *out = params + tensor->offset;
        Rng rng;
        rng_seed(&rng, seed, i + 1);   // a stream a tensor: the others stay as they are when one changes its size
        if (ends_with(tensor->name, "state0")) {
            fill_normal(out, tensor->count, 1.0 / sqrt(d), 0.02, &rng);
        } else if (ends_with(tensor->name, "_conv.weight")) {
            fill_normal(out, tensor->count, 0.0, 0.5, &rng);
        } else if (ends_with(tensor->name, "mixer.g.bias")) {
            fill(out, tensor->count, log(intensity / (1.0 - intensity)));
        } else if (ends_with(tensor->name, "mixer.mu.bias")) {
            fill(out, tensor->count, 4.0);
        } else if (ends_with(tensor->name, "norm.weight")) {
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
