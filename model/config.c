#include "model/config.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "model/kernels/kernels.h"
#include "model/mixers/mixer.h"

#define MAX_WINDOW (1 << 24)

// One row a key: JSON, flags and checks all come from here. Sizes have bounds, strings a list of choices; the mixer's are the rows of mixers.c.
typedef struct ConfigKey {
    const char *name, *flag;
    ArgKind kind;
    size_t offset;
    double min, max;
    const char *const *choices;
    const char *value;
    const char *help;
    bool usual;   // 0 is its usual value, and not written
} ConfigKey;

static const char *const objectives[] = {"decode", "encode", "similarity", NULL};
static const char *const chunk_forms[] = {"frozen", "gated", NULL};
static const char *const chunk_norms[] = {"token", "chunk", NULL};

#define AT(field) offsetof(ModelConfig, field)
static const ConfigKey config_keys[] = {
    {"vocab_size", "vocab-size", ARG_SIZE, AT(vocab_size), 2, 1 << 24, NULL, "N", "ids in the vocabulary", false},
    {"d_model", "d-model", ARG_SIZE, AT(d_model), 1, 65536, NULL, "N", "width of the residual stream", false},
    {"n_layer", "n-layer", ARG_SIZE, AT(n_layer), 1, 1024, NULL, "N", "blocks", false},
    {"n_head", "n-head", ARG_SIZE, AT(n_head), 1, 1024, NULL, "N", "heads (memories) in a mixer", false},
    {"d_head", "d-head", ARG_SIZE, AT(d_head), 1, 1024, NULL, "N", "numbers in a slot; d-model / n-head when one of those is given", false},
    {"n_slot", "n-slot", ARG_SIZE, AT(n_slot), 1, 1024, NULL, "N", "slots in a head's memory; d-head when that is derived", false},
    {"conv_width", "conv-width", ARG_SIZE, AT(conv_width), 1, 16, NULL, "N", "taps of the causal convolutions", false},
    {"mlp_hidden", "mlp-hidden", ARG_SIZE, AT(mlp_hidden), 0, 1 << 20, NULL, "N", "hidden width of the MLP, 0 for none", false},
    {"norm_eps", "norm-eps", ARG_REAL, AT(norm_eps), 1e-30, 0.999999, NULL, "X", "added under the square roots of norms", false},
    {"tie_embeddings", "tie-embeddings", ARG_SWITCH, AT(tie_embeddings), 0, 0, NULL, NULL, "use the embedding as output head", false},
    {"mixer", "mixer", ARG_TEXT, AT(mixer), 0, CONFIG_MIXER_BYTES, NULL, "NAMES",
     "what mixes tokens (a list a,b,... goes round the layers)", false},
    {"objective", "objective", ARG_STRING, AT(objective), 0, 0, objectives, "NAME", "what Lattice learns of a token: decode, encode or similarity", false},
    {"chunk", "chunk", ARG_SIZE, AT(chunk), 1, 65536, NULL, "N", "tokens in a chunk (lattice, ttt); 1 is exact", false},
    {"chunk_form", "chunk-form", ARG_STRING, AT(chunk_form), 0, 0, chunk_forms, "NAME", "frozen or gated, for chunks above 1", false},
    {"chunk_norm", "chunk-norm", ARG_STRING, AT(chunk_norm), 0, 0, chunk_norms, "NAME", "token or chunk, for chunks above 1", false},
    {"forget_gate", "forget-gate", ARG_SWITCH, AT(forget_gate), 0, 0, NULL, NULL, "let the memory forget by a learned gate (lattice, output_norm)", false},
    {"no_projection", "no-projection", ARG_SWITCH, AT(no_projection), 0, 0, NULL, NULL, "ablation of Lattice: slots get all of h", true},
    {"no_normalisation", "no-normalisation", ARG_SWITCH, AT(no_normalisation), 0, 0, NULL, NULL, "ablation of Lattice: plain gradient steps", true},
    {"l1", "l1", ARG_REAL, AT(l1), 0, 1000, NULL, "X", "Lattice's slots are soft-thresholded by X times the write intensity", true},
    {"max_seq_len", "max-seq-len", ARG_SIZE, AT(max_seq_len), 0, MAX_WINDOW, NULL, "N",
     "tokens that attention sees, unless it is named attention:N; 0: the training length", true},
    {"random_start", "random-start", ARG_SWITCH, AT(random_start), 0, 0, NULL, NULL, "Lattice's slots start in random directions, not in one", true},
    {"relative_read", "relative-read", ARG_SWITCH, AT(relative_read), 0, 0, NULL, NULL, "read from Lattice's slots only what was written since the start", true},
    {"wide_gate", "wide-gate", ARG_SWITCH, AT(wide_gate), 0, 0, NULL, NULL, "let the write gate go up to 2", true},
    {"gate_shift", "gate-shift", ARG_REAL, AT(gate_shift), -20, 20, NULL, "X", "added to the start value of the write gate's bias", true},
    {"plain_codes", "plain-codes", ARG_SWITCH, AT(plain_codes), 0, 0, NULL, NULL, "do not normalise queries and keys", true},
    {"plain_values", "plain-values", ARG_SWITCH, AT(plain_values), 0, 0, NULL, NULL, "do not normalise values", true},
    {"unit_values", "unit-values", ARG_SWITCH, AT(unit_values), 0, 0, NULL, NULL, "bring values to length 1, not to RMS 1", true},
    {"softmax_codes", "softmax-codes", ARG_SWITCH, AT(softmax_codes), 0, 0, NULL, NULL, "queries and keys are a softmax, instead of SiLU and length 1", true},
    {"scaled_keys", "scaled-keys", ARG_SWITCH, AT(scaled_keys), 0, 0, NULL, NULL, "a learned factor for each head's keys", true},
    {"slot_gate", "slot-gate", ARG_SWITCH, AT(slot_gate), 0, 0, NULL, NULL, "Lattice has a write gate for each slot instead of one a head", true},
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
    switch (kind) {
    case ARG_SWITCH: return sizeof(bool);
    case ARG_SIZE:   return sizeof(int64_t);
    case ARG_REAL:   return sizeof(double);
    case ARG_STRING: return sizeof(char *);
    case ARG_TEXT:   return CONFIG_MIXER_BYTES;
    }
    return 0;
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

// ---- mixers ----

static const Mixer *const *best_mixers(void) { return kernels_available()[0]->mixers; }

// The row that configurations know by a name of `length` bytes, or NULL.
static const Mixer *find_row(const Mixer *const *table, const char *name, size_t length)
{
    while (*table != NULL && ((*table)->serves != NULL || strlen((*table)->name) != length || memcmp((*table)->name, name, length) != 0)) {
        table++;
    }
    return *table;
}

// The row that runs all forms of a row: another that serves its name, or itself.
static const Mixer *row_of_forms(const Mixer *const *table, const Mixer *row)
{
    while (*table != NULL && ((*table)->serves == NULL || strcmp((*table)->serves, row->name) != 0)) {
        table++;
    }
    return *table != NULL ? *table : row;
}

// The names that configurations know: "lattice, linear".
static void list_mixers(char *text, size_t size)
{
    text[0] = 0;
    size_t used = 0;
    for (const Mixer *const *row = best_mixers(); *row != NULL && used < size; row++) {
        if ((*row)->serves == NULL) {
            used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", (*row)->name);
        }
    }
}

static int unknown_mixer(const char *name, size_t length, Error *error)
{
    char list[256];
    list_mixers(list, sizeof list);
    return error_set(error, "mixer \"%.*s\" does not exist in this build: choose from %s", (int)length, name, list);
}

// The number behind "attention:".
static int read_window(size_t *window, const Mixer *mixer, const char *text, size_t length, Error *error)
{
    char number[24];
    int64_t value = 0;
    if (mixer->window_state_floats == NULL) {
        return error_set(error, "mixer \"%s\" takes no number: only attention has a window", mixer->name);
    }
    snprintf(number, sizeof number, "%.*s", (int)length, text);
    if (length >= sizeof number || args_size(number, 1024, &value, NULL) != 0 || value < 1 || value > MAX_WINDOW) {
        return error_set(error, "mixer \"%s:%s\": a window is a number of tokens from 1 to %d", mixer->name, number, MAX_WINDOW);
    }
    *window = (size_t)value;
    return 0;
}

// The first entry of a list of mixers; *length is set to its bytes.
static int read_entry(LayerMixer *entry, size_t *length, const char *text, const Mixer *const *table, Error *error)
{
    size_t name = strcspn(text, ",:");
    *length = strcspn(text, ",");
    *entry = (LayerMixer){.mixer = find_row(table, text, name)};
    if (entry->mixer == NULL) {
        return unknown_mixer(text, name, error);
    }
    return name == *length ? 0 : read_window(&entry->window, entry->mixer, text + name + 1, *length - name - 1, error);
}

static size_t count_entries(const char *text)
{
    size_t count = 1;
    for (; *text != 0; text++) {
        count += *text == ',';
    }
    return count;
}

static int set_mixer(ModelConfig *config, const char *text, Error *error)
{
    LayerMixer entry;
    size_t length = 0;
    if (strlen(text) >= sizeof config->mixer) {
        return error_set(error, "mixer has more than %zu bytes: name the mixers of a few layers, the others repeat them", sizeof config->mixer - 1);
    }
    for (const char *at = text; at == text || at[-1] == ','; at += length + 1) {
        if (read_entry(&entry, &length, at, best_mixers(), error)) {
            return -1;
        }
    }
    memmove(config->mixer, text, strlen(text) + 1);
    return 0;
}

static bool has_plain_form(const ModelConfig *config)
{
    return strcmp(config->objective, "decode") == 0 && config->chunk == 1 && !config->no_projection && !config->no_normalisation && config->l1 == 0.0 &&
           !config->slot_gate;
}

LayerMixer config_layer_mixer(const ModelConfig *config, const struct Mixer *const *table, size_t layer)
{
    LayerMixer entry = {0};
    size_t length;
    const char *text = config->mixer;
    for (size_t i = layer % count_entries(text); i > 0; i--) {
        text = strchr(text, ',') + 1;
    }
    read_entry(&entry, &length, text, table, NULL);
    entry.lattice = row_of_forms(table, entry.mixer)->needs.form;
    if (!has_plain_form(config)) {
        entry.mixer = row_of_forms(table, entry.mixer);
    }
    if (entry.mixer->window_state_floats != NULL && entry.window == 0) {
        entry.window = (size_t)config->max_seq_len;
    }
    return entry;
}

// What kinds of layers there are; all of them where an entry cannot be read, which other checks tell.
typedef struct Kinds {
    bool lattice, open_window;   // attention that is given no window
} Kinds;

static Kinds kinds_of(const ModelConfig *config)
{
    LayerMixer entry;
    size_t entry_length = 0;
    Kinds kinds = {false, false};
    for (const char *at = config->mixer; at == config->mixer || at[-1] == ','; at += entry_length + 1) {
        if (read_entry(&entry, &entry_length, at, best_mixers(), NULL) != 0) {
            return (Kinds){true, true};
        }
        kinds.lattice |= row_of_forms(best_mixers(), entry.mixer)->needs.form;
        kinds.open_window |= entry.mixer->window_state_floats != NULL && entry.window == 0;
    }
    return kinds;
}

void config_settle_length(ModelConfig *config, int64_t length)
{
    if (config->max_seq_len == 0 && kinds_of(config).open_window) {
        config->max_seq_len = length;
    }
}

// ---- presets and checks ----

int config_preset(ModelConfig *config, const char *name, Error *error)
{
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        const Preset *preset = &presets[i];
        if (strcmp(name, preset->name) == 0) {
            *config = (ModelConfig){
                .vocab_size = preset->vocab_size, .d_model = preset->d_model, .n_layer = preset->n_layer, .n_head = preset->n_head,
                .d_head = 64, .n_slot = 64, .conv_width = 4, .mlp_hidden = preset->mlp_hidden, .norm_eps = 1e-6, .tie_embeddings = true,
                .mixer = "lattice", .objective = objectives[0], .chunk = 1, .chunk_form = chunk_forms[0], .chunk_norm = chunk_norms[0],
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
    } else if (key->kind == ARG_TEXT) {
        ModelConfig scratch;
        return set_mixer(&scratch, place, error);
    }
    return 0;
}

// What becomes of q, k and v behind the convolution.
static int check_codes(const ModelConfig *config, const MixerNeeds *any, Error *error)
{
    const char *key = config->plain_codes     ? "plain_codes"
                      : config->softmax_codes ? "softmax_codes"
                      : config->plain_values  ? "plain_values"
                      : config->unit_values   ? "unit_values"
                                              : NULL;
    if (key != NULL && any->bare) {
        return error_set(error, "%s is set, but mixer \"%s\" normalises nothing: leave it out", key, config->mixer);
    }
    if (config->scaled_keys && !any->gate) {
        return error_set(error, "scaled_keys is set, but mixer \"%s\" answers in proportion to its keys, which the norm behind it takes away: leave it out",
                         config->mixer);
    }
    if (config->unit_values && !any->start) {
        return error_set(error, "unit_values is set, but mixer \"%s\" answers in proportion to its values, which the norm behind it takes away: leave it out",
                         config->mixer);
    }
    if (config->plain_values && config->unit_values) {
        return error_set(error, "plain_values and unit_values: values are plain or are not, leave one of them out");
    }
    if (config->plain_codes && (config->softmax_codes || config->scaled_keys)) {
        return error_set(error, "plain_codes and %s: codes are plain or are not, leave one of them out",
                         config->softmax_codes ? "softmax_codes" : "scaled_keys");
    }
    return 0;
}

// The keys that only some mixers read must be left alone where no layer has such a mixer: they would change nothing.
static int check_used(const ModelConfig *config, const MixerNeeds *any, Error *error)
{
    if (config->chunk > 1 && !any->chunk) {
        return error_set(error, "chunk is %" PRId64 ", but mixer \"%s\" has no chunks: leave it at 1", config->chunk, config->mixer);
    }
    if (config->forget_gate && !any->forget) {
        return error_set(error, "forget_gate is on, but mixer \"%s\" has none: leave it off", config->mixer);
    }
    const char *form = strcmp(config->objective, "decode") != 0    ? "objective"
                       : config->no_projection                     ? "no_projection"
                       : config->no_normalisation                  ? "no_normalisation"
                       : config->l1 > 0.0                          ? "l1"
                       : config->random_start                      ? "random_start"
                       : config->relative_read                     ? "relative_read"
                       : config->slot_gate                         ? "slot_gate"
                                                                   : NULL;
    if (form != NULL && !any->form) {
        return error_set(error, "%s is a key of Lattice, and mixer \"%s\" is none: leave it out", form, config->mixer);
    }
    if ((config->wide_gate || config->gate_shift != 0.0) && !any->gate) {
        return error_set(error, "%s is set, but mixer \"%s\" has no write gate that is a sigmoid: leave it out", config->wide_gate ? "wide_gate" : "gate_shift",
                         config->mixer);
    }
    return check_codes(config, any, error);
}

static int check_mixers(const ModelConfig *config, Error *error)
{
    const Mixer *const *table = best_mixers();
    MixerNeeds any = {.bare = true};
    size_t count = count_entries(config->mixer);
    if (count > (size_t)config->n_layer) {
        return error_set(error, "mixer names %zu layers, n_layer is %" PRId64 ": name as many or fewer", count, config->n_layer);
    }
    for (size_t i = 0; i < count; i++) {
        LayerMixer entry = config_layer_mixer(config, table, i);
        MixerNeeds needs = row_of_forms(table, entry.mixer)->needs;
        if (needs.square && config->n_slot != config->d_head) {
            return error_set(error, "mixer %s needs n_slot = d_head, not %" PRId64 " and %" PRId64 ": give --n-slot %" PRId64, entry.mixer->name, config->n_slot,
                             config->d_head, config->d_head);
        }
        if (entry.mixer->window_state_floats != NULL && entry.window == 0) {
            return error_set(error, "mixer %s needs a window: give max_seq_len, or attention:N", entry.mixer->name);
        }
        any.start |= needs.start;
        any.chunk |= needs.chunk;
        any.form |= needs.form;
        any.gate |= needs.gate && !needs.shared_gate;
        any.bare &= needs.bare;
        any.forget |= needs.forget || needs.may_forget;
    }
    return check_used(config, &any, error);
}

int config_validate(const ModelConfig *config, Error *error)
{
    for (size_t i = 0; i < N_KEYS; i++) {
        if (check_key(&config_keys[i], config, error)) {
            return -1;
        }
    }
    return check_mixers(config, error);
}

// ---- JSON and flags ----

// Whether a key has its usual value.
static bool is_usual(const ModelConfig *config, const ConfigKey *key)
{
    const void *place = const_field(config, key);
    if (!key->usual) {
        return false;
    }
    return key->kind == ARG_SWITCH ? !*(const bool *)place : key->kind == ARG_REAL ? *(const double *)place == 0.0 : *(const int64_t *)place == 0;
}

struct cJSON *config_to_json(const ModelConfig *config)
{
    cJSON *json = cJSON_CreateObject();
    bool good = cJSON_AddStringToObject(json, "model_type", "lattice") != NULL;
    for (size_t i = 0; i < N_KEYS && good; i++) {
        const ConfigKey *key = &config_keys[i];
        const void *place = const_field(config, key);
        if (is_usual(config, key)) {
            continue;
        }
        switch (key->kind) {
        case ARG_SIZE: good = cJSON_AddNumberToObject(json, key->name, (double)*(const int64_t *)place) != NULL; break;
        case ARG_REAL: good = cJSON_AddNumberToObject(json, key->name, *(const double *)place) != NULL; break;
        case ARG_SWITCH: good = cJSON_AddBoolToObject(json, key->name, *(const bool *)place) != NULL; break;
        case ARG_STRING: good = cJSON_AddStringToObject(json, key->name, *(const char *const *)place) != NULL; break;
        case ARG_TEXT: good = cJSON_AddStringToObject(json, key->name, (const char *)place) != NULL; break;
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
    case ARG_TEXT:
        return json_get_string(json, key->name, &text, error) != 0 ? -1 : set_mixer(config, text, error);
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

const char *config_missing_key(const struct cJSON *json)
{
    for (size_t i = 0; i < N_KEYS; i++) {
        if (!config_keys[i].usual && cJSON_GetObjectItemCaseSensitive(json, config_keys[i].name) == NULL) {
            return config_keys[i].name;
        }
    }
    return NULL;
}

size_t config_arg_specs(ArgSpec *specs, size_t max, ModelConfig *config)
{
    assert(max >= N_KEYS);
    for (size_t i = 0; i < N_KEYS; i++) {
        const ConfigKey *key = &config_keys[i];
        specs[i] = (ArgSpec){
            .name = key->flag, .kind = key->kind, .target = field(config, key), .value = key->value, .help = key->help,
            .min = key->min, .max = key->max, .binary = key->offset == offsetof(ModelConfig, max_seq_len),
            .choices = key->kind == ARG_TEXT ? list_mixers : NULL,   // the mixer's key is the only one of this kind
        };
    }
    return N_KEYS;
}

// A flag that no layer reads would change nothing. (In a file such a key may stand, beside all the others.)
static int check_flag_read(const ModelConfig *config, const ConfigKey *key, Error *error)
{
    Kinds kinds = kinds_of(config);
    if (key->offset == offsetof(ModelConfig, max_seq_len) && config->max_seq_len != 0 && !kinds.open_window) {
        return error_set(error, "max_seq_len is %" PRId64 ", but no layer of mixer \"%s\" is attention without a window: leave it out", config->max_seq_len,
                         config->mixer);
    }
    bool has_other_usual = key->offset == offsetof(ModelConfig, chunk_form) || key->offset == offsetof(ModelConfig, chunk_norm) ||
                           key->offset == offsetof(ModelConfig, relative_read);   // check_used cannot tell that it was given
    if (has_other_usual && !kinds.lattice) {
        return error_set(error, "%s is a key of Lattice, and mixer \"%s\" is none: leave it out", key->name, config->mixer);
    }
    return 0;
}

int config_apply_flags(ModelConfig *config, const ArgSpec *specs, size_t n_specs, Error *error)
{
    bool width_given = false, head_given = false, slot_given = false, mixer_given = false, read_given = false;
    for (size_t i = 0; i < n_specs && i < N_KEYS; i++) {
        const ConfigKey *key = &config_keys[i];
        if (!specs[i].given) {
            continue;
        }
        memcpy(field(config, key), specs[i].target, kind_bytes(key->kind));
        width_given = width_given || key->offset == offsetof(ModelConfig, d_model) || key->offset == offsetof(ModelConfig, n_head);
        head_given = head_given || key->offset == offsetof(ModelConfig, d_head);
        slot_given = slot_given || key->offset == offsetof(ModelConfig, n_slot);
        mixer_given = mixer_given || key->offset == offsetof(ModelConfig, mixer);
        read_given = read_given || key->offset == offsetof(ModelConfig, relative_read);
    }
    if (mixer_given && !read_given) {
        config->relative_read = config->relative_read && kinds_of(config).lattice;   // a file's Lattice had it, another mixer has none
    }
    for (size_t i = 0; i < n_specs && i < N_KEYS; i++) {
        if (specs[i].given && check_flag_read(config, &config_keys[i], error) != 0) {
            return -1;
        }
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

void config_settle_new(ModelConfig *config, const ArgSpec *specs, size_t n_specs)
{
    for (size_t i = 0; i < n_specs && i < N_KEYS; i++) {
        if (specs[i].given && config_keys[i].offset == offsetof(ModelConfig, relative_read)) {
            return;
        }
    }
    config->relative_read = kinds_of(config).lattice;
}
