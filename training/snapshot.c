#include "training/snapshot.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/json.h"

#define FINGERPRINT_TOKENS 65536

#define SNAPSHOT_FORMAT 1
#define MAX_COUNT INT64_C(9007199254740992)   // 2^53: what a JSON number holds exactly

// ---- writing ----

static bool add_number(cJSON *object, const char *key, double value) { return cJSON_AddNumberToObject(object, key, value) != NULL; }

// Words of 64 bits go as hexadecimal text, because JSON numbers hold 53.
static bool add_random_state(cJSON *object, const Rng *rng)
{
    cJSON *array = cJSON_AddArrayToObject(object, "random_state");
    for (size_t i = 0; i < 4; i++) {
        char text[24];
        snprintf(text, sizeof text, "%016" PRIx64, rng->state[i]);
        cJSON *word = cJSON_CreateString(text);
        if (array == NULL || word == NULL || !cJSON_AddItemToArray(array, word)) {
            cJSON_Delete(word);
            return false;
        }
    }
    return true;
}

static bool add_watch(cJSON *object, const LossWatch *watch)
{
    cJSON *json = cJSON_AddObjectToObject(object, "loss_watch");
    return json != NULL && add_number(json, "mean", watch->mean) && add_number(json, "least", watch->least) &&
           add_number(json, "above", (double)watch->above);
}

static bool add_parts(cJSON *json, const DataIdentity *data)
{
    cJSON *parts = data->parts != NULL ? cJSON_AddArrayToObject(json, "parts") : NULL;
    for (size_t i = 0; i < data->n_arguments && parts != NULL; i++) {
        cJSON *part = cJSON_CreateNumber(data->parts[i]);
        if (part == NULL || !cJSON_AddItemToArray(parts, part)) {
            cJSON_Delete(part);
            return false;
        }
    }
    return data->parts == NULL || parts != NULL;
}

static bool add_data(cJSON *object, const DataIdentity *data)
{
    cJSON *json = cJSON_AddObjectToObject(object, "data");
    cJSON *arguments = json != NULL ? cJSON_AddArrayToObject(json, "arguments") : NULL;
    if (arguments == NULL) {
        return false;
    }
    for (size_t i = 0; i < data->n_arguments; i++) {
        cJSON *argument = cJSON_CreateString(data->arguments[i]);
        if (argument == NULL || !cJSON_AddItemToArray(arguments, argument)) {
            cJSON_Delete(argument);
            return false;
        }
    }
    char fingerprint[24];
    snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, data->fingerprint);
    return add_parts(json, data) && cJSON_AddBoolToObject(json, "prepared", data->prepared) != NULL &&
           cJSON_AddStringToObject(json, "fingerprint", fingerprint) != NULL && add_number(json, "tokens", (double)data->tokens) &&
           add_number(json, "windows", (double)data->windows) && add_number(json, "tokenizer_hash", data->tokenizer_hash);
}

struct cJSON *snapshot_to_json(const Trainer *trainer, const TrainSettings *settings, const DataIdentity *data)
{
    cJSON *json = cJSON_CreateObject();
    cJSON *saved = settings_to_json(settings);
    bool done = json != NULL && saved != NULL && add_number(json, "format", SNAPSHOT_FORMAT) && add_number(json, "step", (double)trainer->step) &&
                add_number(json, "tokens", (double)trainer->tokens_seen) && add_number(json, "window", (double)trainer->window) &&
                add_number(json, "updates", (double)trainer->optimizer.updates) &&
                add_number(json, "skipped_in_row", (double)trainer->skipped_in_row) &&
                add_number(json, "grad_norm_average", trainer->norm_average) && add_watch(json, &trainer->watch) &&
                add_random_state(json, &trainer->rng) && add_data(json, data);
    if (!done || !cJSON_AddItemToObject(json, "settings", saved)) {
        cJSON_Delete(saved);
        cJSON_Delete(json);
        return NULL;
    }
    return json;
}

// ---- reading ----

static int read_random_state(Rng *rng, const cJSON *json, Error *error)
{
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(json, "random_state");
    for (int i = 0; i < 4; i++) {
        const cJSON *word = cJSON_GetArrayItem(array, i);
        const char *text = cJSON_GetStringValue(word);
        char *end = NULL;
        errno = 0;
        uint64_t value = text != NULL ? strtoull(text, &end, 16) : 0;
        if (text == NULL || end == text || *end != 0 || errno != 0) {
            return error_set(error, "\"random_state\" must be four words of hexadecimal digits");
        }
        rng->state[i] = value;
    }
    return 0;
}

// Checkpoints of the first version have none: the watch then begins anew.
static int read_watch(LossWatch *watch, const cJSON *json, Error *error)
{
    const cJSON *saved = cJSON_GetObjectItemCaseSensitive(json, "loss_watch");
    *watch = (LossWatch){0};
    if (saved == NULL) {
        return 0;
    }
    return json_get_real(saved, "mean", &watch->mean, error) || json_get_real(saved, "least", &watch->least, error) ||
                   json_get_int(saved, "above", -1, LOSS_WATCH_STEPS, &watch->above, error)
               ? error_prefix(error, "loss_watch") : 0;
}

static int read_counters(Trainer *trainer, const cJSON *json, Error *error)
{
    int64_t format, step, window, tokens, updates, skipped;
    double average;
    if (json_get_int(json, "format", SNAPSHOT_FORMAT, SNAPSHOT_FORMAT, &format, error) || json_get_int(json, "step", 0, MAX_COUNT, &step, error) ||
        json_get_int(json, "window", 0, MAX_COUNT, &window, error) || json_get_int(json, "tokens", 0, MAX_COUNT, &tokens, error) ||
        json_get_int(json, "updates", 0, step, &updates, error) ||
        json_get_int(json, "skipped_in_row", 0, TRAINER_MAX_SKIPPED, &skipped, error) ||
        json_get_real(json, "grad_norm_average", &average, error)) {
        return -1;
    }
    trainer->step = step;
    trainer->window = (uint64_t)window;
    trainer->tokens_seen = (uint64_t)tokens;
    trainer->optimizer.updates = updates;
    trainer->skipped_in_row = skipped;
    trainer->norm_average = average;
    return 0;
}

int snapshot_restore(Trainer *trainer, const struct cJSON *json, Error *error)
{
    if (read_counters(trainer, json, error) || read_random_state(&trainer->rng, json, error) || read_watch(&trainer->watch, json, error)) {
        return error_prefix(error, "trainer.json");
    }
    return 0;
}

int snapshot_step(int64_t *step, const struct cJSON *json, Error *error)
{
    return json_get_int(json, "step", 0, MAX_COUNT, step, error) ? error_prefix(error, "trainer.json") : 0;
}

static const cJSON *data_of(const cJSON *json) { return cJSON_GetObjectItemCaseSensitive(json, "data"); }

// Goes on with the fingerprint over one source.
static int add_print(uint64_t *fingerprint, const Loader *loader, size_t source, int32_t *tokens, size_t length, Error *error)
{
    uint64_t windows = loader_source_windows(loader, source), samples = length < FINGERPRINT_TOKENS ? FINGERPRINT_TOKENS / length : 1;
    samples = samples < windows ? samples : windows;
    for (uint64_t i = 0; i < samples; i++) {
        uint64_t window = i * (windows / samples) + i * (windows % samples) / samples;
        if (loader_source_window(loader, tokens, tokens + length, source, window, error)) {
            return -1;
        }
        *fingerprint = XXH3_64bits_withSeed(tokens, length * sizeof *tokens, *fingerprint);
    }
    return 0;
}

int snapshot_fingerprint(uint64_t *fingerprint, const Loader *loader, size_t length, Error *error)
{
    int32_t *tokens = calloc(2 * length, sizeof *tokens);
    if (tokens == NULL) {
        return error_set(error, "out of memory for a window of %zu tokens: lower --seq-len", length);
    }
    int failed = 0;
    *fingerprint = 0;
    for (size_t source = 0; source < loader_sources(loader) && failed == 0; source++) {
        failed = add_print(fingerprint, loader, source, tokens, length, error);
    }
    free(tokens);
    return failed;
}

int snapshot_parts(uint32_t **parts, size_t count, const struct cJSON *json, Error *error)
{
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(data_of(json), "parts"), *item;
    *parts = NULL;
    if (array == NULL) {
        return 0;
    }
    uint32_t *read = calloc(count + 1, sizeof *read);
    if (read == NULL) {
        return error_set(error, "out of memory");
    }
    size_t n = 0;
    double sum = 0.0;
    cJSON_ArrayForEach(item, array) {
        double part = cJSON_IsNumber(item) ? item->valuedouble : 0.0;
        sum += part;
        if (n == count || !(part >= 1.0 && sum <= LOADER_MAX_PARTS) || part != (double)(uint32_t)part) {
            n = SIZE_MAX;
            break;
        }
        read[n++] = (uint32_t)part;
    }
    if (n != count) {
        free(read);
        return error_set(error, "trainer.json: the \"parts\" of the data are damaged: take an older checkpoint");
    }
    *parts = read;
    return 0;
}

int snapshot_check_parts(const struct cJSON *json, const DataIdentity *data, Error *error)
{
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(data_of(json), "parts");
    size_t count = (size_t)cJSON_GetArraySize(array);
    uint32_t *saved;
    if (snapshot_parts(&saved, count, json, error)) {
        return -1;
    }
    bool same = (saved == NULL) == (data->parts == NULL) && (saved == NULL || count == data->n_arguments);
    for (size_t i = 0; i < data->n_arguments && same && saved != NULL; i++) {
        same = saved[i] == data->parts[i];
    }
    free(saved);
    return same ? 0 : error_set(error, "the sources or their weights are not those that the run began with: leave --data out to go on with the run, "
                                "or start a new one in another --out");
}

int snapshot_check_data(const struct cJSON *json, const DataIdentity *data, Error *error)
{
    const cJSON *saved = data_of(json);
    int64_t tokens, windows, hash;
    if (!cJSON_IsObject(saved)) {
        return error_set(error, "trainer.json: \"data\" is missing");
    }
    if (json_get_int(saved, "tokens", 0, MAX_COUNT, &tokens, error) || json_get_int(saved, "windows", 0, MAX_COUNT, &windows, error) ||
        json_get_int(saved, "tokenizer_hash", 0, UINT32_MAX, &hash, error)) {
        return error_prefix(error, "trainer.json, data");
    }
    if ((uint32_t)hash != data->tokenizer_hash) {
        return error_set(error, "the tokenizer is not the one that the run began with (hash %08" PRIx32 ", now %08" PRIx32 "): leave --tokenizer out",
                         (uint32_t)hash, data->tokenizer_hash);
    }
    if (snapshot_check_parts(json, data, error)) {
        return -1;
    }
    if ((uint64_t)tokens != data->tokens || (uint64_t)windows != data->windows) {
        return error_set(error, "the data is not the one that the run began with (%" PRId64 " tokens then, %" PRIu64 " now): give the same DATA, "
                         "or start a new run in another --out", tokens, data->tokens);
    }
    const char *saved_print = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(saved, "fingerprint"));
    char print[24];
    snprintf(print, sizeof print, "%016" PRIx64, data->fingerprint);
    // Checkpoints of the first version have none.
    if (saved_print != NULL && strcmp(saved_print, print) != 0) {
        return error_set(error, "the data is not the one that the run began with (as many tokens, but others): give the same DATA, or start a "
                         "new run in another --out");
    }
    return 0;
}

bool snapshot_prepared(const struct cJSON *json)
{
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(data_of(json), "prepared"));
}

char **snapshot_arguments(size_t *count, const struct cJSON *json, Error *error)
{
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(data_of(json), "arguments");
    array = cJSON_IsArray(array) ? array : NULL;   // an object has items as well
    int size = cJSON_GetArraySize(array);
    char **arguments = calloc((size_t)size + 1, sizeof *arguments);
    if (arguments == NULL) {
        error_set(error, "out of memory");
        return NULL;
    }
    *count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        char *text = cJSON_GetStringValue(item);
        if (text != NULL) {
            arguments[(*count)++] = text;
        }
    }
    if (*count == 0) {
        free(arguments);
        error_set(error, "trainer.json names no data: give DATA on the command line");
        return NULL;
    }
    return arguments;
}

int snapshot_check_arguments(const struct cJSON *json, char *const *arguments, size_t n_arguments, Error *error)
{
    size_t count;
    char **saved = snapshot_arguments(&count, json, error);
    if (saved == NULL) {
        return -1;
    }
    int failed = 0;
    for (size_t i = 0; i < n_arguments && failed == 0; i++) {
        if (i >= count || (strcmp(arguments[i], saved[i]) != 0 && !file_is_same(arguments[i], saved[i]))) {
            failed = error_set(error, "%s is not what the run was trained on (%s%s): leave DATA out to go on with the run, or start a new one in "
                               "another --out", arguments[i], saved[0], count > 1 ? " and others" : "");
        }
    }
    if (failed == 0 && n_arguments < count) {
        failed = error_set(error, "the run was trained on %s, too: leave DATA out to go on with the run, or start a new one in another --out",
                           saved[n_arguments]);
    }
    free(saved);
    return failed;
}
