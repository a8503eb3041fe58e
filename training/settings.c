#include "training/settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "data/corpus.h"
#include "training/mix.h"
#include "training/optimizer.h"
#include "training/schedule.h"

#define MAX_CONFIG_BYTES (1 << 20)

static const char usage[] = "(DATA... | --data SOURCE[:WEIGHT] ...) --out DIR [flags]";
static const char description[] =
    "Trains a language model. DATA are documents (files, folders, quoted globs), a folder that ./prepare made, or token\n"
    "shards (.bin, with --tokenizer FILE). Documents are prepared into DIR/data first; there are\n"
    CORPUS_FORMS ".\n"
    "\n"
    "  ./train book.txt --out run                          a small model, all else by default\n"
    "  ./train corpus/ --out run --preset 9m --epochs 2    a larger one\n"
    "  ./train --data web:0.7 --data books:0.3 --out run   seven of ten tokens from web, three from books\n"
    "  ./train --out run --resume                          goes on after an interruption\n"
    "\n"
    "Checkpoints stand in DIR/step_XXXXXXXX, the figures of every step in DIR/log.jsonl. Ctrl-C saves and stops.\n"
    "The defaults shown below for the model's shape (--vocab-size and on) are those of the preset nano.";

// ---- the table of flags ----

static void add(TrainSettings *settings, SettingRole role, ArgSpec spec)
{
    settings->specs[settings->n_specs] = spec;
    settings->roles[settings->n_specs++] = role;
}

static void add_switch(TrainSettings *s, SettingRole role, const char *name, bool *target, const char *help)
{
    add(s, role, (ArgSpec){.name = name, .kind = ARG_SWITCH, .target = target, .help = help});
}

static void add_string(TrainSettings *s, SettingRole role, const char *name, const char **target, const char *value, const char *help)
{
    add(s, role, (ArgSpec){.name = name, .kind = ARG_STRING, .target = target, .value = value, .help = help});
}

static void add_real(TrainSettings *s, SettingRole role, const char *name, double *target, double min, double max, const char *help)
{
    add(s, role, (ArgSpec){.name = name, .kind = ARG_REAL, .target = target, .value = "X", .help = help, .min = min, .max = max});
}

static void add_size(TrainSettings *s, SettingRole role, const char *name, int64_t *target, double min, double max, const char *help)
{
    add(s, role, (ArgSpec){.name = name, .kind = ARG_SIZE, .target = target, .value = "N", .help = help, .min = min, .max = max});
}

// Lengths and batches are powers of two by custom: 8k is 8,192.
static void add_length(TrainSettings *s, SettingRole role, const char *name, int64_t *target, double min, double max, const char *help)
{
    add_size(s, role, name, target, min, max, help);
    s->specs[s->n_specs - 1].binary = true;
}

static void add_data_flags(TrainSettings *s)
{
    add_string(s, SETTING_HERE, "data", &s->data_text, "SOURCE[:WEIGHT]",
               "instead of DATA, once for each source: a prepared folder, documents or shards, all for one tokenizer. A source gets its weight "
               "over the sum of all as share of the tokens, and begins again when it is through; without weights the shares follow the sizes");
    s->specs[s->n_specs - 1].list = &s->mix;
    add_string(s, SETTING_HERE, "out", &s->out, "DIR", "folder of the run: checkpoints, log.jsonl, prepared data");
    add_string(s, SETTING_HERE, "preset", &s->preset, "NAME", "shape of the model: nano (when none is given), 9m, 40m or 110m");
    add_string(s, SETTING_HERE, "config", &s->config_file, "FILE", "shape of the model from a config.json instead; switches that it leaves out are off");
    add_string(s, SETTING_HERE, "tokenizer", &s->tokenizer, "FILE", "tokenizer.json to use instead of training one");
    add_string(s, SETTING_FREE, "val", &s->val, "DATA", "validation data; unless given, the validation split of DATA");
    add_real(s, SETTING_HERE, "val-fraction", &s->val_fraction, 0.0, 0.9, "share of the documents that becomes the validation split");
    add_string(s, SETTING_FREE, "text-key", &s->text_key, "KEY", "JSON key or column of the text; unless given: text, then content");
    add_string(s, SETTING_HERE, "where", &s->where, "COND", "only documents with such a number, as 'int_score>=3' (>= > <= < == !=)");
    add_switch(s, SETTING_HERE, "dedup", &s->dedup, "of equal documents only the first is taken");
    add_switch(s, SETTING_HERE, "strict", &s->strict, "a bad record, or a file of unknown kind in a folder of documents, is an error instead of being skipped");
}

static void add_run_flags(TrainSettings *s)
{
    add_length(s, SETTING_FIXED, "seq-len", &s->seq_len, 1, 1 << 24, "tokens in a sequence");
    add_switch(s, SETTING_FIXED, "reset-at-document", &s->reset_at_document,
               "the model forgets at each <|endoftext|> inside a sequence, before reading it: documents do not see those before them");
    add_length(s, SETTING_FREE, "batch-tokens", &s->batch_tokens, 0, 1 << 30,
               "tokens in a step, in whole micro-batches; 0: by the size of the model");
    add_size(s, SETTING_FREE, "micro-batch", &s->micro_batch, 0, 1 << 20, "sequences in memory at once; 0: at most 4");
    add_size(s, SETTING_FREE, "shares", &s->shares, 0, 1 << 20,
             "parts of a step that are summed each by itself, then with the others; up to so many ranks give the same bits; 0: at most 8, at least one for each rank");
    add_size(s, SETTING_FREE, "steps", &s->steps, 0, SETTINGS_MAX_STEPS, "length of the run in steps; 0: see --epochs");
    add_size(s, SETTING_HERE, "tokens", &s->tokens, 0, 9e15, "length of the run in tokens; 0: see --epochs");
    add_real(s, SETTING_HERE, "epochs", &s->epochs, 0.0, 1e9,
             "length of the run in passes over the data (of all sources together); 0: one, or on little data up to four, until 20 tokens a parameter are reached");
    add_real(s, SETTING_FREE, "lr", &s->lr, 0.0, 100.0, "peak learning rate; 0: by the size of the model");
    add_real(s, SETTING_FREE, "min-lr", &s->min_lr, -1.0, 100.0, "learning rate at the end; -1: a tenth of --lr");
    add_size(s, SETTING_FREE, "warmup", &s->warmup, -1, SETTINGS_MAX_STEPS, "steps of linear warm-up; -1: a tenth of the run, at most 1000");
    add_string(s, SETTING_FREE, "schedule", &s->schedule, "NAME", "cosine, wsd (stable, then down over the last fifth) or constant");
    add_string(s, SETTING_FIXED, "optimizer", &s->optimizer, "NAME", "adamw, or muon: Muon for the large matrices of the blocks, AdamW for the rest");
    add_real(s, SETTING_FREE, "weight-decay", &s->weight_decay, 0.0, 100.0, "decay of matrices");
    add_real(s, SETTING_FREE, "clip", &s->clip, 0.0, 1e9, "largest norm of the gradient; 0: no limit");
    add_string(s, SETTING_FIXED, "dtype", &s->dtype, "TYPE", "f32, or bf16: matrix products with bf16 factors and f32 sums");
    add_switch(s, SETTING_FREE, "recompute", &s->recompute, "less memory for more work, the same bits: the backward runs each block's forward again");
    add_size(s, SETTING_FREE, "eval-every", &s->eval_every, -1, SETTINGS_MAX_STEPS,
             "steps between validations; 0: never, -1: by the size of the model");
    add_length(s, SETTING_FREE, "eval-tokens", &s->eval_tokens, 0, 9e15, "tokens of a validation; 0: all there are");
    add_size(s, SETTING_FREE, "save-every", &s->save_every, -1, SETTINGS_MAX_STEPS,
             "steps between checkpoints; 0: only at the end, -1: by the size of the model");
    add_size(s, SETTING_FREE, "keep", &s->keep, 0, 1e9, "newest checkpoints that stay; 0: all");
    add_size(s, SETTING_FREE, "sample-every", &s->sample_every, 0, SETTINGS_MAX_STEPS, "steps between samples of text; 0: never");
    add_switch(s, SETTING_HERE, "resume", &s->resume, "go on from the newest good checkpoint in DIR, with its settings");
    add_size(s, SETTING_FIXED, "seed", &s->seed, 0, 9e15, "decides start values and the order of the data");
    add_size(s, SETTING_HERE, "threads", &s->threads, 0, 1024, "0: one a core");
}

void settings_init(TrainSettings *settings)
{
    *settings = (TrainSettings){.val_fraction = 0.01, .seq_len = 1024, .min_lr = -1.0, .warmup = -1, .schedule = "cosine", .optimizer = "adamw",
                                .dtype = "f32", .weight_decay = 0.1, .clip = 1.0, .eval_every = -1, .save_every = -1, .eval_tokens = 65536,
                                .keep = 3, .seed = 1};
    // A built-in preset: for the defaults that --help shows.
    config_preset(&settings->model, "nano", NULL);
    config_settle_new(&settings->model, NULL, 0);
    add_data_flags(settings);
    add_run_flags(settings);
    settings->first_model_spec = settings->n_specs;
    size_t n_model = config_arg_specs(settings->specs + settings->n_specs, SETTINGS_MAX_FLAGS - settings->n_specs, &settings->model);
    for (size_t i = 0; i < n_model; i++) {
        settings->roles[settings->n_specs++] = SETTING_MODEL;
    }
    settings->program = (ArgProgram){.name = "train", .usage = usage, .description = description, .specs = settings->specs,
                                     .n_specs = settings->n_specs, .min_positional = 0, .max_positional = SIZE_MAX};
}

void settings_free(TrainSettings *settings)
{
    cJSON_Delete(settings->restored);
    settings->restored = NULL;
    path_list_free(&settings->mix);
    free(settings->weights);
    settings->weights = NULL;
}

// ---- the command line ----

// The key of a flag in JSON: "seq_len" of --seq-len.
static void key_of(char key[64], const ArgSpec *spec)
{
    snprintf(key, 64, "%s", spec->name);
    for (char *c = key; *c != 0; c++) {
        *c = *c == '-' ? '_' : *c;
    }
}

static const ArgSpec *find(const TrainSettings *settings, const char *name)
{
    for (size_t i = 0; i < settings->n_specs; i++) {
        if (strcmp(settings->specs[i].name, name) == 0) {
            return &settings->specs[i];
        }
    }
    return NULL;
}

bool settings_given(const TrainSettings *settings, const char *name)
{
    const ArgSpec *spec = find(settings, name);
    return spec != NULL && spec->given;
}

// Names must exist: on the command line another one is wrong usage, like another flag. A checkpoint may also hold null.
static int check_names(const TrainSettings *settings, Error *error)
{
    ModelConfig scratch;
    if (settings->schedule == NULL || settings->dtype == NULL || settings->optimizer == NULL) {
        return error_set(error, "\"%s\" is missing", settings->schedule == NULL ? "schedule" : settings->dtype == NULL ? "dtype" : "optimizer");
    }
    if (settings->preset != NULL && config_preset(&scratch, settings->preset, error)) {
        return error_prefix(error, "--preset");
    }
    ScheduleKind kind;
    if (schedule_kind(&kind, settings->schedule, error)) {
        return -1;
    }
    if (strcmp(settings->dtype, "f32") != 0 && strcmp(settings->dtype, "bf16") != 0) {
        return error_set(error, "--dtype '%s' is unknown: there are f32 and bf16", settings->dtype);
    }
    OptimizerKind optimizer;
    return optimizer_kind(&optimizer, settings->optimizer, error);
}

// The same for the model's keys that are names (mixer, objective, ...): the reader of configurations knows them.
static int check_model_names(const TrainSettings *settings, Error *error)
{
    int failed = 0;
    for (size_t i = settings->first_model_spec; i < settings->n_specs && failed == 0; i++) {
        const ArgSpec *spec = &settings->specs[i];
        if ((spec->kind != ARG_STRING && spec->kind != ARG_TEXT) || !spec->given) {
            continue;
        }
        char key[64];
        const char *text = spec->kind == ARG_TEXT ? spec->target : *(const char *const *)spec->target;
        key_of(key, spec);
        ModelConfig scratch = settings->model;
        cJSON *json = cJSON_CreateObject();
        if (cJSON_AddStringToObject(json, key, text) == NULL) {
            failed = error_set(error, "out of memory");
        } else {
            failed = config_from_json(&scratch, json, error) ? error_prefix(error, "--%s", spec->name) : 0;
        }
        cJSON_Delete(json);
    }
    return failed;
}

// Takes the sources of --data for DATA.
static void parse_mix(TrainSettings *settings)
{
    const ArgProgram *program = &settings->program;
    Error error;
    if (settings->n_data > 0) {
        args_usage_error(program, "'%s' stands beside --data: give every source with --data, or none", settings->data[0]);
    }
    settings->weights = calloc(settings->mix.count, sizeof *settings->weights);
    if (settings->weights == NULL) {
        args_usage_error(program, "out of memory");
    }
    if (mix_parse(settings->weights, &settings->mix, &error)) {
        args_usage_error(program, "--data %s", error.text);
    }
    settings->data = settings->mix.items;
    settings->n_data = settings->mix.count;
}

void settings_parse(TrainSettings *settings, int argc, char **argv)
{
    const ArgProgram *program = &settings->program;
    args_parse(program, argc, argv, &settings->n_data);
    settings->data = argv + 1;
    if (settings->mix.count > 0) {
        parse_mix(settings);
    }
    if (settings->out == NULL || settings->out[0] == 0) {
        args_usage_error(program, "--out DIR is missing: it names the folder of the run");
    }
    if (settings->n_data == 0 && !settings->resume) {
        args_usage_error(program, "DATA is missing: documents, a prepared folder or token shards to train on");
    }
    if (settings_given(settings, "steps") + settings_given(settings, "tokens") + settings_given(settings, "epochs") > 1) {
        args_usage_error(program, "--steps, --tokens and --epochs all give the length of the run: give one");
    }
    if (settings->preset != NULL && settings->config_file != NULL) {
        args_usage_error(program, "--preset and --config both give the shape of the model: give one");
    }
    Error error;
    if (check_names(settings, &error) || check_model_names(settings, &error)) {
        args_usage_error(program, "%s", error.text);
    }
}

bool settings_bf16(const TrainSettings *settings) { return strcmp(settings->dtype, "bf16") == 0; }

// ---- saved settings ----

static bool is_saved(SettingRole role) { return role == SETTING_FIXED || role == SETTING_FREE; }

struct cJSON *settings_to_json(const TrainSettings *settings)
{
    cJSON *json = args_to_json(&settings->program);
    for (size_t i = 0; i < settings->n_specs && json != NULL; i++) {
        if (!is_saved(settings->roles[i])) {
            char key[64];
            key_of(key, &settings->specs[i]);
            cJSON_DeleteItemFromObjectCaseSensitive(json, key);
        }
    }
    return json;
}

// A saved value, in the member that the kind of the flag names.
typedef struct SavedValue {
    bool flag;
    int64_t size;
    double real;
    const char *string;
} SavedValue;

static int read_value(SavedValue *value, const ArgSpec *spec, const cJSON *json, const char *key, Error *error)
{
    double limit = 9007199254740992.0;
    switch (spec->kind) {
    case ARG_SWITCH:   // one that came later than the checkpoint was off then
        return cJSON_HasObjectItem(json, key) ? json_get_bool(json, key, &value->flag, error) : 0;
    case ARG_SIZE:   // one that came later than the checkpoint, and that 0 leaves to the program, was left to it
        if (spec->min == 0.0 && !cJSON_HasObjectItem(json, key)) {
            return 0;
        }
        return json_get_int(json, key, -1, (int64_t)(spec->max > 0.0 ? spec->max : limit), &value->size, error);
    case ARG_REAL:
        if (json_get_real(json, key, &value->real, error)) {
            return -1;
        }
        return value->real >= -1.0 && value->real <= spec->max ? 0 : error_set(error, "\"%s\" is out of range", key);
    case ARG_STRING:
    case ARG_TEXT:
        value->string = NULL;
        return cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(json, key)) ? 0 : json_get_string(json, key, &value->string, error);
    }
    return -1;
}

static bool same_text(const char *a, const char *b) { return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0); }

static bool same_value(const SavedValue *a, const SavedValue *b)
{
    return a->flag == b->flag && a->size == b->size && a->real == b->real && same_text(a->string, b->string);
}

static void format_value(char text[128], const ArgSpec *spec, const SavedValue *value)
{
    switch (spec->kind) {
    case ARG_SWITCH: snprintf(text, 128, "%s", value->flag ? "on" : "off"); break;
    case ARG_SIZE:   snprintf(text, 128, "%" PRId64, value->size); break;
    case ARG_REAL:   snprintf(text, 128, "%g", value->real); break;
    case ARG_STRING:
    case ARG_TEXT:   snprintf(text, 128, "%s", value->string != NULL ? value->string : "none"); break;
    }
}

static SavedValue current_value(const ArgSpec *spec)
{
    SavedValue value = {0};
    switch (spec->kind) {
    case ARG_SWITCH: value.flag = *(const bool *)spec->target; break;
    case ARG_SIZE:   value.size = *(const int64_t *)spec->target; break;
    case ARG_REAL:   value.real = *(const double *)spec->target; break;
    case ARG_STRING: value.string = *(const char *const *)spec->target; break;
    case ARG_TEXT:   value.string = spec->target; break;
    }
    return value;
}

static void set_value(const ArgSpec *spec, const SavedValue *value)
{
    switch (spec->kind) {
    case ARG_SWITCH: *(bool *)spec->target = value->flag; break;
    case ARG_SIZE:   *(int64_t *)spec->target = value->size; break;
    case ARG_REAL:   *(double *)spec->target = value->real; break;
    case ARG_STRING: *(const char **)spec->target = value->string; break;
    case ARG_TEXT:   snprintf(spec->target, (size_t)spec->max, "%s", value->string != NULL ? value->string : ""); break;
    }
}

// Settles one flag between the saved value and the command line.
static int restore_value(const TrainSettings *settings, size_t i, const cJSON *json, Error *error)
{
    const ArgSpec *spec = &settings->specs[i];
    char key[64], old_text[128], new_text[128];
    key_of(key, spec);
    SavedValue saved = {0};
    if (read_value(&saved, spec, json, key, error)) {
        return error_prefix(error, "trainer.json, settings");
    }
    if (!spec->given) {
        set_value(spec, &saved);
        return 0;
    }
    SavedValue now = current_value(spec);
    if (same_value(&now, &saved)) {
        return 0;
    }
    format_value(old_text, spec, &saved);
    format_value(new_text, spec, &now);
    if (settings->roles[i] == SETTING_FIXED) {
        return error_set(error, "--%s cannot change on --resume (%s in the checkpoint, %s now): leave it out, or start a new run in another --out",
                         spec->name, old_text, new_text);
    }
    fprintf(stderr, "resume: --%s changes from %s to %s\n", spec->name, old_text, new_text);
    return 0;
}

int settings_restore(TrainSettings *settings, const struct cJSON *json, Error *error)
{
    const cJSON *saved = cJSON_GetObjectItemCaseSensitive(json, "settings");
    if (!cJSON_IsObject(saved)) {
        return error_set(error, "trainer.json: \"settings\" is missing or no object: take an older checkpoint");
    }
    cJSON_Delete(settings->restored);
    settings->restored = cJSON_Duplicate(saved, true);
    if (settings->restored == NULL) {
        return error_set(error, "out of memory");
    }
    for (size_t i = 0; i < settings->n_specs; i++) {
        if (is_saved(settings->roles[i]) && restore_value(settings, i, settings->restored, error)) {
            return -1;
        }
    }
    if (settings_given(settings, "tokens") || settings_given(settings, "epochs")) {
        settings->steps = 0;
    }
    if (settings_given(settings, "lr") && !settings_given(settings, "min-lr")) {
        settings->min_lr = -1.0;
    }
    return check_names(settings, error) ? error_prefix(error, "trainer.json, settings") : 0;
}

// ---- the model's shape ----

// A file must spell out the shape: a model of another size than the one that is meant would train for hours unnoticed. The vocabulary
// is the tokenizer's, and the other keys have their usual values.
static int check_shape_keys(const cJSON *json, Error *error)
{
    static const char *const keys[] = {"d_model", "n_layer", "n_head", "d_head", "n_slot", "conv_width", "mlp_hidden"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (!cJSON_HasObjectItem(json, keys[i])) {
            return error_set(error, "the key \"%s\" is missing: a configuration must name every size of the model (or leave --config out and "
                             "change single sizes by flags)", keys[i]);
        }
    }
    return 0;
}

// Preset or file, whichever was asked for; else `config` stays as it is.
static int read_shape(ModelConfig *config, bool *vocab_is_asked, const TrainSettings *settings, Error *error)
{
    *vocab_is_asked = settings_given(settings, "vocab-size");
    if (settings->config_file == NULL) {
        return settings->preset != NULL ? config_preset(config, settings->preset, error) : 0;
    }
    cJSON *json = json_read_file(settings->config_file, MAX_CONFIG_BYTES, error);
    if (json == NULL) {
        return -1;
    }
    *vocab_is_asked = *vocab_is_asked || cJSON_HasObjectItem(json, "vocab_size");
    int failed = config_from_json(config, json, error) || check_shape_keys(json, error);
    cJSON_Delete(json);
    return failed ? error_prefix(error, "%s", settings->config_file) : 0;
}

int settings_model(ModelConfig *config, bool *vocab_is_asked, const TrainSettings *settings, Error *error)
{
    if (config_preset(config, "nano", error) || read_shape(config, vocab_is_asked, settings, error)) {
        return -1;
    }
    const ArgSpec *specs = settings->specs + settings->first_model_spec;
    size_t n_specs = settings->n_specs - settings->first_model_spec;
    if (config_apply_flags(config, specs, n_specs, error)) {
        return -1;
    }
    if (settings->config_file == NULL) {
        config_settle_new(config, specs, n_specs);
    }
    return 0;
}

// Refuses a key whose value differs between two shapes.
static int same_key(const ArgSpec *spec, const TrainSettings *settings, ModelConfig *checkpoint, ModelConfig *asked, Error *error)
{
    size_t at = (size_t)((const char *)spec->target - (const char *)&settings->model);
    ArgSpec before_spec = *spec, now_spec = *spec;
    before_spec.target = (char *)checkpoint + at;
    now_spec.target = (char *)asked + at;
    SavedValue before = current_value(&before_spec), now = current_value(&now_spec);
    if (same_value(&now, &before)) {
        return 0;
    }
    char old_text[128], new_text[128], key[64];
    format_value(old_text, spec, &before);
    format_value(new_text, spec, &now);
    key_of(key, spec);
    return error_set(error, "the model's shape cannot change on --resume: %s is %s in the checkpoint, %s now; leave it out, or start a new run in "
                     "another --out", key, old_text, new_text);
}

int settings_same_model(const TrainSettings *settings, const ModelConfig *checkpoint, Error *error)
{
    const ArgSpec *specs = settings->specs + settings->first_model_spec;
    size_t n_specs = settings->n_specs - settings->first_model_spec;
    bool whole_shape = settings->preset != NULL || settings->config_file != NULL, vocab_is_asked;
    ModelConfig before = *checkpoint, asked = *checkpoint;
    if (read_shape(&asked, &vocab_is_asked, settings, error) || config_apply_flags(&asked, specs, n_specs, error)) {
        return -1;
    }
    config_settle_length(&asked, checkpoint->max_seq_len);
    if (settings->config_file == NULL && !settings_given(settings, "relative-read")) {
        asked.relative_read = checkpoint->relative_read;   // no preset says
    }
    // The tokenizer decided the size of the vocabulary, unless somebody insisted.
    if (!vocab_is_asked) {
        asked.vocab_size = checkpoint->vocab_size;
    }
    for (size_t i = 0; i < n_specs; i++) {
        if ((whole_shape || specs[i].given) && same_key(&specs[i], settings, &before, &asked, error)) {
            return -1;
        }
    }
    return 0;
}
