#include "model/config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

// One row a key: JSON, flags and checks all come from here. Sizes have bounds, strings a list of choices.
typedef struct ConfigKey {
    const char *name, *flag;
    ArgKind kind;
    size_t offset;
    double min, max;
    const char *const *choices;
    const char *value;
    const char *help;
} ConfigKey;

static const char *const mixers[] = {"lattice", NULL};
static const char *const objectives[] = {"decode", "encode", "similarity", NULL};
static const char *const chunk_forms[] = {"frozen", "gated", NULL};
static const char *const chunk_norms[] = {"token", "chunk", NULL};

#define AT(field) offsetof(ModelConfig, field)
static const ConfigKey config_keys[] = {
    {"vocab_size", "vocab-size", ARG_SIZE, AT(vocab_size), 2, 1 << 24, NULL, "N", "ids in the vocabulary"},
    {"d_model", "d-model", ARG_SIZE, AT(d_model), 1, 65536, NULL, "N", "width of the residual stream"},
    {"n_layer", "n-layer", ARG_SIZE, AT(n_layer), 1, 1024, NULL, "N", "blocks"},
    {"n_head", "n-head", ARG_SIZE, AT(n_head), 1, 1024, NULL, "N", "heads (memories) in a mixer"},
    {"d_head", "d-head", ARG_SIZE, AT(d_head), 1, 1024, NULL, "N", "numbers in a slot; d-model / n-head when one of those is given"},
    {"n_slot", "n-slot", ARG_SIZE, AT(n_slot), 1, 1024, NULL, "N", "slots in a head's memory; d-head when that is derived"},
    {"conv_width", "conv-width", ARG_SIZE, AT(conv_width), 1, 16, NULL, "N", "taps of the causal convolutions"},
    {"mlp_hidden", "mlp-hidden", ARG_SIZE, AT(mlp_hidden), 0, 1 << 20, NULL, "N", "hidden width of the MLP, 0 for none"},
    {"norm_eps", "norm-eps", ARG_REAL, AT(norm_eps), 1e-30, 0.999999, NULL, "X", "added under the square roots of norms"},
    {"tie_embeddings", "tie-embeddings", ARG_SWITCH, AT(tie_embeddings), 0, 0, NULL, NULL, "use the embedding as output head"},
    {"mixer", "mixer", ARG_STRING, AT(mixer), 0, 0, mixers, "NAME", "what mixes tokens: lattice"},
    {"objective", "objective", ARG_STRING, AT(objective), 0, 0, objectives, "NAME", "what is learned: decode"},
    {"chunk", "chunk", ARG_SIZE, AT(chunk), 1, 65536, NULL, "N", "tokens in a chunk of the mixer; 1 is exact"},
    {"chunk_form", "chunk-form", ARG_STRING, AT(chunk_form), 0, 0, chunk_forms, "NAME", "frozen or gated, for chunks above 1"},
    {"chunk_norm", "chunk-norm", ARG_STRING, AT(chunk_norm), 0, 0, chunk_norms, "NAME", "token or chunk, for chunks above 1"},
    {"forget_gate", "forget-gate", ARG_SWITCH, AT(forget_gate), 0, 0, NULL, NULL, "let the memory forget by a learned gate"},
};
#undef AT
enum { N_KEYS = sizeof config_keys / sizeof config_keys[0] };

typedef struct Preset {
    const char *name;
    int64_t d_model, n_layer, n_head, mlp_hidden, vocab_size;
} Preset;

static const Preset presets[] = {
    {"nano", 128, 4, 2, 352, 2048},
    {"9m", 256, 8, 4, 704, 8192},
    {"40m", 512, 10, 8, 1408, 16384},
    {"110m", 768, 12, 12, 1792, 32000},
};

static void *field(ModelConfig *config, const ConfigKey *key) { return (char *)config + key->offset; }
static const void *const_field(const ModelConfig *config, const ConfigKey *key) { return (const char *)config + key->offset; }

static size_t kind_bytes(ArgKind kind)
{
    return kind == ARG_SIZE ? sizeof(int64_t) : kind == ARG_REAL ? sizeof(double) : kind == ARG_SWITCH ? sizeof(bool) : sizeof(char *);
}

// The choices as text: "frozen, gated".
static void list_choices(char *text, size_t size, const char *const *choices)
{
    text[0] = 0;
    for (size_t i = 0, used = 0; choices[i] != NULL && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%s", i > 0 ? ", " : "", choices[i]);
    }
}

// The choice equal to the text, in static storage; NULL with `error` set.
static const char *find_choice(const ConfigKey *key, const char *text, Error *error)
{
    for (size_t i = 0; key->choices[i] != NULL && text != NULL; i++) {
        if (strcmp(text, key->choices[i]) == 0) {
            return key->choices[i];
        }
    }
    char list[128];
    list_choices(list, sizeof list, key->choices);
    error_set(error, "%s \"%s\" does not exist in this build: choose from %s", key->name, text != NULL ? text : "", list);
    return NULL;
}

int config_preset(ModelConfig *config, const char *name, Error *error)
{
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        const Preset *preset = &presets[i];
        if (strcmp(name, preset->name) == 0) {
            *config = (ModelConfig){
                .vocab_size = preset->vocab_size, .d_model = preset->d_model, .n_layer = preset->n_layer, .n_head = preset->n_head,
                .d_head = 64, .n_slot = 64, .conv_width = 4, .mlp_hidden = preset->mlp_hidden, .norm_eps = 1e-6, .tie_embeddings = true,
                .mixer = mixers[0], .objective = objectives[0], .chunk = 1, .chunk_form = chunk_forms[0], .chunk_norm = chunk_norms[0],
                .forget_gate = false,
            };
            return 0;
        }
    }
    return error_set(error, "there is no preset \"%s\": choose from nano, 9m, 40m, 110m", name);
}

static int check_key(const ConfigKey *key, const ModelConfig *config, Error *error)
{
    const void *place = const_field(config, key);
    if (key->kind == ARG_SIZE) {
        int64_t value = *(const int64_t *)place, min = (int64_t)key->min, max = (int64_t)key->max;
        if (value < min || value > max) {
            return error_set(error, "%s is %" PRId64 ": it must be from %" PRId64 " to %" PRId64, key->name, value, min, max);
        }
    } else if (key->kind == ARG_REAL) {
        double value = *(const double *)place;
        if (!(value >= key->min && value <= key->max)) {
            return error_set(error, "%s is %g: it must be from %g to %g", key->name, value, key->min, key->max);
        }
    } else if (key->kind == ARG_STRING) {
        return find_choice(key, *(const char *const *)place, error) != NULL ? 0 : -1;
    }
    return 0;
}

int config_validate(const ModelConfig *config, Error *error)
{
    for (size_t i = 0; i < N_KEYS; i++) {
        if (check_key(&config_keys[i], config, error)) {
            return -1;
        }
    }
    if (strcmp(config->objective, "decode") != 0) {
        return error_set(error, "objective \"%s\" cannot be run by this build: use \"decode\"", config->objective);
    }
    if (config->chunk != 1) {
        return error_set(error, "chunk %" PRId64 " cannot be run by this build: use chunk 1 (the exact form)", config->chunk);
    }
    return 0;
}

struct cJSON *config_to_json(const ModelConfig *config)
{
    cJSON *json = cJSON_CreateObject();
    bool good = cJSON_AddStringToObject(json, "model_type", "lattice") != NULL;
    for (size_t i = 0; i < N_KEYS && good; i++) {
        const ConfigKey *key = &config_keys[i];
        const void *place = const_field(config, key);
        switch (key->kind) {
        case ARG_SIZE: good = cJSON_AddNumberToObject(json, key->name, (double)*(const int64_t *)place) != NULL; break;
        case ARG_REAL: good = cJSON_AddNumberToObject(json, key->name, *(const double *)place) != NULL; break;
        case ARG_SWITCH: good = cJSON_AddBoolToObject(json, key->name, *(const bool *)place) != NULL; break;
        case ARG_STRING: good = cJSON_AddStringToObject(json, key->name, *(const char *const *)place) != NULL; break;
        }
    }
    if (!good) {
        cJSON_Delete(json);
        return NULL;
    }
    return json;
}

static const ConfigKey *find_key(const char *name)
{
    for (size_t i = 0; i < N_KEYS; i++) {
        if (strcmp(config_keys[i].name, name) == 0) {
            return &config_keys[i];
        }
    }
    return NULL;
}

static int read_key(ModelConfig *config, const ConfigKey *key, const cJSON *json, Error *error)
{
    const int64_t exact = (int64_t)1 << 53;
    void *place = field(config, key);
    const char *text = NULL;
    switch (key->kind) {
    case ARG_SIZE:
        return json_get_int(json, key->name, -exact, exact, (int64_t *)place, error);
    case ARG_REAL:
        return json_get_real(json, key->name, (double *)place, error);
    case ARG_SWITCH:
        return json_get_bool(json, key->name, (bool *)place, error);
    case ARG_STRING:
        if (json_get_string(json, key->name, &text, error) || (text = find_choice(key, text, error)) == NULL) {
            return -1;
        }
        *(const char **)place = text;
        return 0;
    }
    return -1;
}

int config_from_json(ModelConfig *config, const struct cJSON *json, Error *error)
{
    if (!cJSON_IsObject(json)) {
        return error_set(error, "the configuration must be a JSON object with keys such as \"d_model\"");
    }
    ModelConfig result = *config;
    for (const cJSON *item = json->child; item != NULL; item = item->next) {
        const ConfigKey *key = find_key(item->string);
        if (cJSON_GetObjectItemCaseSensitive(json, item->string) != item) {
            return error_set(error, "key \"%s\" stands twice in the configuration", item->string);
        }
        if (key != NULL) {
            if (read_key(&result, key, json, error)) {
                return -1;
            }
        } else if (strcmp(item->string, "model_type") != 0) {
            return error_set(error, "unknown key \"%s\" in the configuration: correct its spelling or remove it", item->string);
        } else if (!cJSON_IsString(item) || strcmp(item->valuestring, "lattice") != 0) {
            return error_set(error, "model_type must be \"lattice\": this is the configuration of another kind of model");
        }
    }
    *config = result;
    return 0;
}

size_t config_arg_specs(ArgSpec *specs, size_t max, ModelConfig *config)
{
    size_t count = 0;
    for (; count < N_KEYS && count < max; count++) {
        const ConfigKey *key = &config_keys[count];
        specs[count] = (ArgSpec){
            .name = key->flag, .kind = key->kind, .target = field(config, key), .value = key->value, .help = key->help,
            .min = key->min, .max = key->max,
        };
    }
    return count;
}

int config_apply_flags(ModelConfig *config, const ArgSpec *specs, size_t n_specs, Error *error)
{
    bool width_given = false, head_given = false, slot_given = false;
    for (size_t i = 0; i < n_specs && i < N_KEYS; i++) {
        const ConfigKey *key = &config_keys[i];
        if (!specs[i].given) {
            continue;
        }
        memcpy(field(config, key), specs[i].target, kind_bytes(key->kind));
        width_given = width_given || key->offset == offsetof(ModelConfig, d_model) || key->offset == offsetof(ModelConfig, n_head);
        head_given = head_given || key->offset == offsetof(ModelConfig, d_head);
        slot_given = slot_given || key->offset == offsetof(ModelConfig, n_slot);
    }
    if (width_given && !head_given) {
        if (config->n_head < 1 || config->d_model % config->n_head != 0) {
            return error_set(error, "d_model %" PRId64 " is not divisible by n_head %" PRId64 ": change one of them, or give --d-head",
                             config->d_model, config->n_head);
        }
        config->d_head = config->d_model / config->n_head;
        config->n_slot = slot_given ? config->n_slot : config->d_head;
    }
    return 0;
}
