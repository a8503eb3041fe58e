#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "tests/reference/golden.h"

#define MAX_SIZE 1048576
#define MAX_STATES (1 << 26)   // numbers in all states of a head, which the reference keeps

static const cJSON *get_object(const cJSON *json, const char *key, Error *error)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    if (!cJSON_IsObject(item)) {
        error_set(error, "no object \"%s\"", key);
        return NULL;
    }
    return item;
}

static int get_size(const cJSON *json, const char *key, size_t *value, Error *error)
{
    int64_t number;
    if (json_get_int(json, key, 1, MAX_SIZE, &number, error) < 0) {
        return -1;
    }
    *value = (size_t)number;
    return 0;
}

// The numbers of array `key` in `json`, which must have exactly this shape; NULL with `error` set otherwise.
static double *get_array(Pool *pool, const cJSON *json, const char *key, size_t n_dims, const size_t *dims, Error *error)
{
    const cJSON *array = get_object(json, key, error);
    if (array == NULL) {
        return NULL;
    }
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(array, "shape"), *data = cJSON_GetObjectItemCaseSensitive(array, "data"), *item;
    if (!cJSON_IsArray(shape) || !cJSON_IsArray(data)) {
        error_set(error, "array \"%s\" lacks \"shape\" or \"data\"", key);
        return NULL;
    }
    size_t i = 0, count = 1;
    cJSON_ArrayForEach(item, shape) {
        if (i == n_dims || !cJSON_IsNumber(item) || item->valuedouble != (double)dims[i]) {
            error_set(error, "array \"%s\" has a wrong shape in dimension %zu", key, i);
            return NULL;
        }
        count = count > SIZE_MAX / dims[i] ? SIZE_MAX : count * dims[i];
        i++;
    }
    size_t there = (size_t)cJSON_GetArraySize(data);
    if (i != n_dims || there != count) {
        error_set(error, "array \"%s\" has %zu dimensions (expected %zu) and %zu numbers (expected %zu)", key, i, n_dims, there, count);
        return NULL;
    }
    double *numbers = pool_doubles(pool, count);
    i = 0;
    cJSON_ArrayForEach(item, data) {
        if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble)) {
            error_set(error, "array \"%s\": element %zu is not a finite number", key, i);
            return NULL;
        }
        numbers[i++] = item->valuedouble;
    }
    return numbers;
}

// The same for a state [N, d, m], turned into [N, m, d].
static double *get_state(Pool *pool, const cJSON *json, const char *key, const MixerCase *input, Error *error)
{
    size_t n = input->n_head, d = input->d_head, m = input->n_slot;
    double *stored = get_array(pool, json, key, 3, (size_t[]){n, d, m}, error);
    if (stored == NULL) {
        return NULL;
    }
    double *state = pool_doubles(pool, n * m * d);
    for (size_t head = 0; head < n; head++) {
        for (size_t i = 0; i < m; i++) {
            for (size_t j = 0; j < d; j++) {
                state[(head * m + i) * d + j] = stored[(head * d + j) * m + i];
            }
        }
    }
    return state;
}

// Whether the case has mu: as meta says, else as the inputs do; it must suit the mixer.
static int read_forget_gate(bool *forget_gate, const cJSON *meta, const cJSON *inputs, const ReferenceNeeds *needs, Error *error)
{
    *forget_gate = cJSON_HasObjectItem(inputs, "mu");
    if (cJSON_HasObjectItem(meta, "forget_gate") && json_get_bool(meta, "forget_gate", forget_gate, error) < 0) {
        return -1;
    }
    if (*forget_gate ? !needs->forget : !needs->no_forget) {
        return error_set(error, "this mixer does not run %s \"mu\"", *forget_gate ? "with" : "without");
    }
    return 0;
}

static int read_meta(MixerCase *input, const cJSON *meta, Error *error)
{
    if (json_get_string(meta, "mixer", &input->form.mixer, error) < 0) {
        return -1;
    }
    input->batch = 1;
    input->form.chunk = 1;
    if (cJSON_HasObjectItem(meta, "chunk") && get_size(meta, "chunk", &input->form.chunk, error) < 0) {
        return -1;
    }
    if (cJSON_HasObjectItem(meta, "window") && get_size(meta, "window", &input->form.window, error) < 0) {
        return -1;
    }
    input->form.objective = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, "objective"));
    input->form.chunk_form = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, "form"));
    input->form.chunk_norm = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, "normalize"));
    char missing[128];
    if (reference_mixer_unsupported(&input->form, missing) != NULL) {
        return error_set(error, "not supported: %s", missing);
    }
    if (get_size(meta, "N", &input->n_head, error) < 0 || get_size(meta, "T", &input->length, error) < 0 ||
        get_size(meta, "m", &input->n_slot, error) < 0 || get_size(meta, "d", &input->d_head, error) < 0) {
        return -1;
    }
    ReferenceNeeds needs = reference_needs(&input->form);
    if (input->n_slot * input->d_head > MAX_STATES / input->length) {
        return error_set(error, "T·m·d is above %d: too large for the reference", MAX_STATES);
    }
    if (needs.square && input->n_slot != input->d_head) {
        return error_set(error, "mixer %s needs m = d, not m = %zu and d = %zu", input->form.mixer, input->n_slot, input->d_head);
    }
    input->shared_norm = needs.norm;
    return 0;
}

// One array of a mixer's file; with `state` [N, m, d] of ours, [N, d, m] of the file.
typedef struct GoldenArray {
    double **array;
    const cJSON *object;
    const char *key;
    bool wanted, state;
    size_t n_dims;
    const size_t *dims;
} GoldenArray;

// The file's one norm [d], for each of N heads; of a gradient only the first head's place is filled.
static double *spread_norm(Pool *pool, const double *norm, const MixerCase *input, bool is_gradient)
{
    double *out = pool_doubles(pool, input->n_head * input->d_head);
    for (size_t i = 0; i < input->n_head * input->d_head && (!is_gradient || i < input->d_head); i++) {
        out[i] = norm[i % input->d_head];
    }
    return out;
}

static int read_arrays(GoldenMixer *golden, Pool *pool, const cJSON *json, const cJSON *inputs, const cJSON *grads, bool forget_gate, Error *error)
{
    MixerCase *in = &golden->input;
    MixerResult *out = &golden->expected;
    ReferenceNeeds needs = reference_needs(&in->form);
    const char *start = strcmp(in->form.mixer, "ttt") == 0 ? "W0" : "S0";
    const size_t slots[3] = {in->n_head, in->length, in->n_slot}, values[3] = {in->n_head, in->length, in->d_head};
    const GoldenArray arrays[] = {
        {&in->q, inputs, "q", true, false, 3, slots},
        {&in->k, inputs, "k", true, false, 3, slots},
        {&in->v, inputs, "v", true, false, 3, values},
        {&in->g, inputs, "g", needs.gate, false, 2, slots},
        {&in->mu, inputs, "mu", forget_gate, false, 2, slots},
        {&in->alpha, inputs, "alpha", needs.slot_decay, false, 3, slots},
        {&in->ln_weight, inputs, "ln_w", needs.norm, false, 1, &in->d_head},
        {&in->ln_bias, inputs, "ln_b", needs.norm, false, 1, &in->d_head},
        {&in->state0, inputs, start, needs.start, true, 0, NULL},
        {&in->do_, json, "do", true, false, 3, values},
        {&in->dstate, json, "dstate", needs.state, true, 0, NULL},
        {&out->o, json, "o", true, false, 3, values},
        {&out->state, json, "state", needs.state, true, 0, NULL},
        {&out->d_q, grads, "q", true, false, 3, slots},
        {&out->d_k, grads, "k", true, false, 3, slots},
        {&out->d_v, grads, "v", true, false, 3, values},
        {&out->d_g, grads, "g", needs.gate, false, 2, slots},
        {&out->d_mu, grads, "mu", forget_gate, false, 2, slots},
        {&out->d_alpha, grads, "alpha", needs.slot_decay, false, 3, slots},
        {&out->d_ln_weight, grads, "ln_w", needs.norm, false, 1, &in->d_head},
        {&out->d_ln_bias, grads, "ln_b", needs.norm, false, 1, &in->d_head},
        {&out->d_state0, grads, start, needs.start, true, 0, NULL},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        const GoldenArray *a = &arrays[i];
        if (a->wanted) {
            *a->array = a->state ? get_state(pool, a->object, a->key, in, error) : get_array(pool, a->object, a->key, a->n_dims, a->dims, error);
            if (*a->array == NULL) {
                return -1;
            }
        }
    }
    if (needs.norm) {
        in->ln_weight = spread_norm(pool, in->ln_weight, in, false);
        in->ln_bias = spread_norm(pool, in->ln_bias, in, false);
        out->d_ln_weight = spread_norm(pool, out->d_ln_weight, in, true);
        out->d_ln_bias = spread_norm(pool, out->d_ln_bias, in, true);
    }
    return 0;
}

int golden_read_mixer(GoldenMixer *golden, Pool *pool, const cJSON *json, Error *error)
{
    bool forget_gate;
    *golden = (GoldenMixer){0};
    const cJSON *meta = get_object(json, "meta", error);
    if (meta == NULL || read_meta(&golden->input, meta, error) < 0) {
        return -1;
    }
    ReferenceNeeds needs = reference_needs(&golden->input.form);
    const cJSON *inputs = get_object(json, "inputs", error), *grads = inputs != NULL ? get_object(json, "grads", error) : NULL;
    if (grads == NULL || read_forget_gate(&forget_gate, meta, inputs, &needs, error) < 0) {
        return -1;
    }
    return read_arrays(golden, pool, json, inputs, grads, forget_gate, error);
}

// Reads meta.config, which is a config.json without "model_type".
static int read_config(ModelConfig *config, const cJSON *meta, Error *error)
{
    const cJSON *stored = get_object(meta, "config", error);
    if (stored == NULL || config_preset(config, "nano", error) < 0) {
        return -1;
    }
    cJSON *copy = cJSON_Duplicate(stored, true);
    if (copy == NULL || (!cJSON_HasObjectItem(copy, "model_type") && cJSON_AddStringToObject(copy, "model_type", "lattice") == NULL)) {
        cJSON_Delete(copy);
        return error_set(error, "out of memory");
    }
    int result = config_from_json(config, copy, error);
    cJSON_Delete(copy);
    if (result < 0) {
        return -1;
    }
    // The table of parameters and the reference need what the programs need.
    return config_validate(config, error);
}

static int read_tokens(GoldenModel *golden, Pool *pool, const cJSON *json, Error *error)
{
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(json, "tokens"), *row, *item;
    if (!cJSON_IsArray(rows) || (size_t)cJSON_GetArraySize(rows) != golden->batch) {
        return error_set(error, "\"tokens\" must be an array of B rows");
    }
    golden->tokens = pool_ints(pool, golden->batch * golden->length);
    golden->targets = pool_ints(pool, golden->batch * golden->length);
    size_t b = 0;
    cJSON_ArrayForEach(row, rows) {
        if (!cJSON_IsArray(row) || (size_t)cJSON_GetArraySize(row) != golden->length + 1) {
            return error_set(error, "row %zu of \"tokens\" must have T + 1 tokens", b);
        }
        size_t t = 0;
        cJSON_ArrayForEach(item, row) {
            if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble < (double)golden->config.vocab_size)) {
                return error_set(error, "row %zu of \"tokens\": token %zu lies outside the vocabulary", b, t);
            }
            if (t < golden->length) {
                golden->tokens[b * golden->length + t] = (int32_t)item->valuedouble;
            }
            if (t > 0) {
                golden->targets[b * golden->length + t - 1] = (int32_t)item->valuedouble;
            }
            t++;
        }
        b++;
    }
    return 0;
}

// The arena whose tensors stand by name under `key`; NULL with `error` set when one is missing, extra or misshapen.
static double *read_arena(Pool *pool, const TensorTable *table, const cJSON *json, const char *key, Error *error)
{
    const cJSON *arrays = get_object(json, key, error);
    if (arrays == NULL) {
        return NULL;
    }
    if ((size_t)cJSON_GetArraySize(arrays) != table->count) {
        error_set(error, "\"%s\" has %d tensors, the configuration %zu", key, cJSON_GetArraySize(arrays), table->count);
        return NULL;
    }
    double *arena = pool_doubles(pool, table->total);
    for (size_t i = 0; i < table->count; i++) {
        const Tensor *tensor = &table->items[i];
        double *numbers = get_array(pool, arrays, tensor->name, tensor->n_dims, tensor->shape, error);
        if (numbers == NULL) {
            error_prefix(error, "%s", key);
            return NULL;
        }
        memcpy(arena + tensor->offset, numbers, tensor->count * sizeof *arena);
    }
    return arena;
}

int golden_read_model(GoldenModel *golden, Pool *pool, const cJSON *json, Error *error)
{
    *golden = (GoldenModel){0};
    const cJSON *meta = get_object(json, "meta", error);
    if (meta == NULL || read_config(&golden->config, meta, error) < 0 || get_size(meta, "B", &golden->batch, error) < 0 ||
        get_size(meta, "T", &golden->length, error) < 0 || json_get_real(json, "loss", &golden->loss, error) < 0 ||
        read_tokens(golden, pool, json, error) < 0 || params_table(&golden->table, &golden->config, error) < 0) {
        return -1;
    }
    size_t dims[3] = {golden->batch, golden->length, (size_t)golden->config.vocab_size};
    golden->params = read_arena(pool, &golden->table, json, "params", error);
    golden->grads = golden->params != NULL ? read_arena(pool, &golden->table, json, "grads", error) : NULL;
    golden->logits = golden->grads != NULL ? get_array(pool, json, "logits", 3, dims, error) : NULL;
    if (golden->logits == NULL) {
        tensor_table_free(&golden->table);
        return -1;
    }
    return 0;
}
