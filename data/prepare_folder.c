#include "data/prepare_folder.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/lock.h"
#include "data/batch.h"

#define MAX_JSON ((size_t)1 << 20)

static const char unfinished_name[] = "prepare.unfinished";   // stands in the folder while it is being prepared

static int out_of_memory(Error *error) { return error_set(error, "out of memory while preparing"); }

static int hash_inputs(const PathList *files, uint64_t *hash, Error *error)
{
    XXH3_state_t *state = XXH3_createState();
    if (state == NULL || XXH3_64bits_reset(state) == XXH_ERROR) {
        XXH3_freeState(state);
        return out_of_memory(error);
    }
    for (size_t i = 0; i < files->count; i++) {
        struct stat status;
        if (stat(files->items[i], &status) != 0) {
            XXH3_freeState(state);
            return error_set(error, "cannot read %s: %s", files->items[i], strerror(errno));
        }
        int64_t numbers[] = {(int64_t)status.st_size, (int64_t)status.st_mtim.tv_sec, (int64_t)status.st_mtim.tv_nsec};
        const char *name = path_base(files->items[i]);
        XXH3_64bits_update(state, name, strlen(name) + 1);
        XXH3_64bits_update(state, numbers, sizeof numbers);
    }
    *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return 0;
}

// cJSON numbers are doubles: a hash is written as text.
static bool add_hash(cJSON *object, const char *key, uint64_t hash)
{
    char text[20];
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    return cJSON_AddStringToObject(object, key, text) != NULL;
}

cJSON *prepare_request(const PathList *files, const PrepareOptions *options, Error *error)
{
    uint64_t inputs = 0, tokenizer = 0, learned = 0;
    const PathList *learn = options->tokenizer_path == NULL ? options->tokenizer_files : NULL;
    if (hash_inputs(files, &inputs, error) != 0 || (learn != NULL && hash_inputs(learn, &learned, error) != 0) ||
        (options->tokenizer_path != NULL && file_hash(options->tokenizer_path, &tokenizer, error) != 0)) {
        return NULL;
    }
    cJSON *request = cJSON_CreateObject();
    bool good = request != NULL && cJSON_AddNumberToObject(request, "files", (double)files->count) != NULL &&
        add_hash(request, "inputs", inputs);
    if (good && options->tokenizer_path != NULL) {
        good = add_hash(request, "tokenizer", tokenizer);
    } else if (good) {
        good = cJSON_AddNumberToObject(request, "vocab_size", (double)options->vocab_size) != NULL;
    }
    good = good && (learn == NULL || add_hash(request, "tokenizer_inputs", learned)) &&
           cJSON_AddNumberToObject(request, "val_fraction", options->val_fraction) != NULL &&
           cJSON_AddNumberToObject(request, "shard_tokens", (double)options->shard_tokens) != NULL &&
           cJSON_AddBoolToObject(request, "strict", options->corpus.strict) != NULL &&
           (options->corpus.text_key == NULL || cJSON_AddStringToObject(request, "text_key", options->corpus.text_key) != NULL) &&
           (options->corpus.where == NULL || cJSON_AddStringToObject(request, "where", options->corpus.where) != NULL) &&
           (!options->corpus.dedup || cJSON_AddBoolToObject(request, "dedup", true) != NULL);
    if (!good) {
        out_of_memory(error);
        cJSON_Delete(request);
        return NULL;
    }
    return request;
}

// True for "train_000012.bin" and "train_000012.bin.tmp" (and val_): names that this program gives.
static bool is_own_shard(const char *name, bool temporary_too)
{
    const char *rest = strncmp(name, "train_", 6) == 0 ? name + 6 : strncmp(name, "val_", 4) == 0 ? name + 4 : "";
    size_t digits = strspn(rest, "0123456789");
    return digits >= 6 && (strcmp(rest + digits, ".bin") == 0 || (temporary_too && strcmp(rest + digits, ".bin.tmp") == 0));
}

static int remove_own_shards(const char *folder, const PathList *names, Error *error)
{
    for (size_t i = 0; i < names->count; i++) {
        if (!is_own_shard(names->items[i], true)) {
            continue;
        }
        char *path = path_join(folder, names->items[i]);
        if (path == NULL) {
            return out_of_memory(error);
        }
        int removed = unlink(path), reason = errno;
        if (removed != 0) {
            error_set(error, "cannot remove %s, left by an interrupted run: %s", path, strerror(reason));
        }
        free(path);
        if (removed != 0) {
            return -1;
        }
    }
    return 0;
}

static bool holds(const PathList *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++) {
        if (strcmp(names->items[i], name) == 0) {
            return true;
        }
    }
    return false;
}

// A tokenizer that lies in the folder may stay only if it is the one to be used.
static int check_tokenizer(const char *folder, const PrepareOptions *options, Error *error)
{
    char *path = path_join(folder, "tokenizer.json");
    if (path == NULL) {
        return out_of_memory(error);
    }
    uint64_t there, asked;
    int result = 0;
    if (options->tokenizer_path == NULL) {
        result = error_set(error, "%s exists: give it with --tokenizer to use it, or choose another --out folder", path);
    } else if (file_hash(path, &there, error) != 0 || file_hash(options->tokenizer_path, &asked, error) != 0) {
        result = -1;
    } else if (there != asked) {
        result = error_set(error, "%s is another tokenizer than %s: choose another --out folder", path, options->tokenizer_path);
    }
    free(path);
    return result;
}

// ---- the state of an unfinished run ----

static bool add_state_of(cJSON *json, const char *key, const PrepareCounts *counts, const ShardPosition *at)
{
    cJSON *object = cJSON_AddObjectToObject(json, key);
    return object != NULL && cJSON_AddNumberToObject(object, "documents", (double)counts->documents) != NULL &&
           cJSON_AddNumberToObject(object, "bytes", (double)counts->bytes) != NULL &&
           cJSON_AddNumberToObject(object, "shards", (double)at->shards) != NULL &&
           cJSON_AddNumberToObject(object, "tokens", (double)at->tokens) != NULL;
}

static int hash_tokenizer(const char *folder, uint64_t *hash, Error *error)
{
    char *path = path_join(folder, "tokenizer.json");
    int result = path == NULL ? out_of_memory(error) : file_hash(path, hash, error);
    free(path);
    return result;
}

static bool add_state(cJSON *json, const cJSON *request, const PrepareState *state, uint64_t tokenizer)
{
    cJSON *copy = cJSON_Duplicate(request, true);
    if (copy != NULL && !cJSON_AddItemToObject(json, "request", copy)) {
        cJSON_Delete(copy);
        copy = NULL;
    }
    if (copy == NULL || !state->resumable) {
        return copy != NULL;
    }
    return add_hash(json, "tokenizer_file", tokenizer) && add_hash(json, "split_limit", state->split.limit) &&
           cJSON_AddBoolToObject(json, "split_tail", state->split.tail) != NULL &&
           cJSON_AddNumberToObject(json, "split_fraction", state->split.fraction) != NULL &&
           cJSON_AddNumberToObject(json, "pieces", (double)state->pieces) != NULL && cJSON_AddNumberToObject(json, "cuts", BATCH_CUTS) != NULL &&
           add_state_of(json, "train", &state->train, &state->train_at) &&
           add_state_of(json, "validation", &state->validation, &state->validation_at);
}

int prepare_folder_note(const char *folder, const cJSON *request, const PrepareState *state, Error *error)
{
    uint64_t tokenizer = 0;
    if (state->resumable && hash_tokenizer(folder, &tokenizer, error) != 0) {
        return -1;
    }
    cJSON *json = cJSON_CreateObject();
    char *path = path_join(folder, unfinished_name);
    int result = json == NULL || path == NULL || !add_state(json, request, state, tokenizer) ? out_of_memory(error)
                                                                                            : json_write_file(path, json, true, error);
    free(path);
    cJSON_Delete(json);
    return result;
}

static bool get_hash(const cJSON *json, const char *key, uint64_t *hash)
{
    const char *text;
    char *end;
    if (json_get_string(json, key, &text, NULL) != 0 || strlen(text) != 16) {
        return false;
    }
    *hash = strtoull(text, &end, 16);
    return *end == 0;
}

static bool get_count(const cJSON *json, const char *key, uint64_t *value)
{
    int64_t number;
    if (json_get_int(json, key, 0, INT64_C(1) << 53, &number, NULL) != 0) {
        return false;
    }
    *value = (uint64_t)number;
    return true;
}

static bool get_state_of(const cJSON *json, const char *key, PrepareCounts *counts, ShardPosition *at)
{
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(json, key);
    return get_count(object, "documents", &counts->documents) && get_count(object, "bytes", &counts->bytes) &&
           get_count(object, "shards", &at->shards) && get_count(object, "tokens", &at->tokens);
}

static bool get_state(const cJSON *json, PrepareState *state)
{
    uint64_t cuts;
    return get_count(json, "cuts", &cuts) && cuts == BATCH_CUTS && get_hash(json, "split_limit", &state->split.limit) && json_get_bool(json, "split_tail", &state->split.tail, NULL) == 0 &&
           json_get_real(json, "split_fraction", &state->split.fraction, NULL) == 0 && get_count(json, "pieces", &state->pieces) &&
           get_state_of(json, "train", &state->train, &state->train_at) &&
           get_state_of(json, "validation", &state->validation, &state->validation_at);
}

// Reads what an unfinished run noted. Without use for this request, or damaged: not resumable. What cannot be read just now is an error,
// for the shards of a state that is not known are removed.
static int load_state(const char *folder, const cJSON *request, PrepareState *state, Error *error)
{
    char *path = path_join(folder, unfinished_name);
    if (path == NULL) {
        return out_of_memory(error);
    }
    errno = 0;
    cJSON *json = json_read_file(path, MAX_JSON, error);
    const cJSON *before = cJSON_GetObjectItemCaseSensitive(json, "request");
    uint64_t noted, there;
    int result = json == NULL && (file_shortage() || errno == EIO) ? -1 : 0;
    if (before != NULL && cJSON_Compare(before, request, true) && get_hash(json, "tokenizer_file", &noted) && get_state(json, state)) {
        errno = 0;
        state->resumable = hash_tokenizer(folder, &there, error) == 0 && there == noted;
        result = !state->resumable && (file_shortage() || errno == EIO) ? -1 : 0;
    }
    if (!state->resumable) {
        *state = (PrepareState){0};
    }
    cJSON_Delete(json);
    free(path);
    return result;
}

int prepare_folder_clear(const char *folder, Error *error)
{
    PathList names = {0};
    int result = folder_list(&names, folder, error) != 0 ? -1 : remove_own_shards(folder, &names, error);
    path_list_free(&names);
    return result;
}

int prepare_check_finished(const char *folder, Error *error)
{
    if (!folder_holds(folder, unfinished_name) || folder_holds(folder, "prepare.json")) {
        return 0;
    }
    return error_set(error, "%s: the preparation of this folder did not finish (there is %s, but no prepare.json): run the same ./prepare (or "
                     "./train) again, it goes on where it stopped", folder, unfinished_name);
}

// ---- opening the folder ----

// The state is of no use beside prepare.json. Should this fail, the folder still counts as complete.
static void remove_state(const char *folder)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", folder, unfinished_name);
    if (length > 0 && (size_t)length < sizeof path) {
        unlink(path);
    }
}

// Makes a folder without prepare.json ready.
static int begin(const char *folder, const PathList *names, const cJSON *request, const PrepareOptions *options, PrepareState *state,
                 Error *error)
{
    if (holds(names, unfinished_name)) {
        if (load_state(folder, request, state, error) != 0) {
            return -1;
        }
        return state->resumable ? 0 : remove_own_shards(folder, names, error);
    }
    for (size_t i = 0; i < names->count; i++) {
        if (is_own_shard(names->items[i], false)) {
            return error_set(error,
                             "%s holds the shard %s but no prepare.json, so it is unknown what it was made from: choose another --out folder "
                             "or remove its shards", folder, names->items[i]);
        }
    }
    if (holds(names, "tokenizer.json") && check_tokenizer(folder, options, error) != 0) {
        return -1;
    }
    return prepare_folder_note(folder, request, state, error);
}

// Appends the keys under which two requests differ to `text`.
static void name_differences(char *text, size_t size, const cJSON *first, const cJSON *second)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, first) {
        const cJSON *other = cJSON_GetObjectItemCaseSensitive(second, item->string);
        if ((other == NULL || !cJSON_Compare(item, other, true)) && strstr(text, item->string) == NULL) {
            size_t used = strlen(text);
            snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", item->string);
        }
    }
}

// The shards of a split must still be those that prepare.json counted.
static int check_split(const char *folder, const char *prefix, const cJSON *json, const char *key, Error *error)
{
    const cJSON *counts = cJSON_GetObjectItemCaseSensitive(json, key);
    int64_t tokens, shards;
    PathList list = {0};
    uint64_t found = 0;
    if (json_get_int(counts, "tokens", 0, INT64_C(1) << 53, &tokens, error) != 0 ||
        json_get_int(counts, "shards", 0, INT64_C(1) << 53, &shards, error) != 0) {
        return error_prefix(error, "prepare.json: %s", key);
    }
    int result = prepare_list_shards(&list, folder, prefix, error);
    for (size_t i = 0; i < list.count && result == 0; i++) {
        Shard shard;
        result = shard_open(&shard, list.items[i], error);
        if (result == 0) {
            found += shard.count;
            shard_close(&shard);
        }
    }
    if (result == 0 && ((int64_t)list.count != shards || found != (uint64_t)tokens)) {
        result = error_set(error, "prepare.json promises %" PRId64 " %s shards with %" PRId64 " tokens, found %zu with %" PRIu64, shards,
                           prefix, tokens,
                           list.count, found);
    }
    path_list_free(&list);
    return result;
}

// A folder with prepare.json: complete and made by this request, or refused.
static int check_complete(const char *folder, const char *json_path, const cJSON *request, Error *error)
{
    cJSON *json = json_read_file(json_path, MAX_JSON, error);
    if (json == NULL) {
        return error_prefix(error, "cannot tell what %s was prepared from; remove it or choose another --out folder", folder);
    }
    const cJSON *before = cJSON_GetObjectItemCaseSensitive(json, "request");
    char *tokenizer = path_join(folder, "tokenizer.json");
    int result = 0;
    if (tokenizer == NULL) {
        result = out_of_memory(error);
    } else if (before == NULL || !cJSON_Compare(before, request, true)) {
        char differences[256] = "";
        name_differences(differences, sizeof differences, request, before);
        name_differences(differences, sizeof differences, before, request);
        result = error_set(error,
                           "%s was already prepared from other inputs or options (%s): choose another --out folder, or remove this one "
                           "to prepare it again", folder, differences);
    } else if (!file_exists(tokenizer)) {
        result = error_set(error, "%s is missing: remove %s and prepare it again", tokenizer, folder);
    } else if (check_split(folder, "train", json, "train", error) != 0 || check_split(folder, "val", json, "validation", error) != 0) {
        result = error_prefix(error, "%s is damaged, remove it and prepare it again", folder);
    }
    free(tokenizer);
    cJSON_Delete(json);
    return result;
}

int prepare_folder_open(const char *folder, const cJSON *request, const PrepareOptions *options, PrepareState *state, bool *done,
                        int *lock, Error *error)
{
    *done = false;
    *lock = -1;
    *state = (PrepareState){0};
    if (folder_make(folder, error) != 0) {
        return -1;
    }
    char *json_path = path_join(folder, "prepare.json");
    PathList names = {0};
    int result = json_path == NULL ? out_of_memory(error) : 0;
    // A complete folder is only read: it may be one that cannot be written to.
    if (result == 0 && !file_exists(json_path)) {
        *lock = folder_lock(folder, "prepares documents into", error);
        result = *lock >= 0 ? 0 : -1;
    }
    // Another process may have completed it just before the lock was taken.
    if (result == 0 && file_exists(json_path)) {
        result = check_complete(folder, json_path, request, error);
        *done = result == 0;
        if (*done) {
            remove_state(folder);
        }
    } else if (result == 0) {
        result = folder_list(&names, folder, error) != 0 ? -1 : begin(folder, &names, request, options, state, error);
    }
    path_list_free(&names);
    free(json_path);
    return result;
}

static bool add_counts(cJSON *json, const char *key, const PrepareCounts *counts)
{
    cJSON *object = cJSON_AddObjectToObject(json, key);
    return object != NULL && cJSON_AddNumberToObject(object, "documents", (double)counts->documents) != NULL &&
           cJSON_AddNumberToObject(object, "bytes", (double)counts->bytes) != NULL &&
           cJSON_AddNumberToObject(object, "tokens", (double)counts->tokens) != NULL &&
           cJSON_AddNumberToObject(object, "shards", (double)counts->shards) != NULL;
}

int prepare_folder_finish(const char *folder, const cJSON *request, const PrepareResult *result, Error *error)
{
    cJSON *json = cJSON_CreateObject(), *copy = cJSON_Duplicate(request, true);
    if (copy != NULL && !cJSON_AddItemToObject(json, "request", copy)) {
        cJSON_Delete(copy);
        copy = NULL;
    }
    bool good = copy != NULL && add_counts(json, "train", &result->train) && add_counts(json, "validation", &result->validation) &&
                cJSON_AddStringToObject(json, "split", result->tail ? "tail of each document" : "documents by hash") != NULL &&
                cJSON_AddNumberToObject(json, "skipped", (double)result->skipped) != NULL &&
                cJSON_AddNumberToObject(json, "filtered", (double)result->filtered) != NULL &&
                cJSON_AddNumberToObject(json, "duplicates", (double)result->duplicates) != NULL &&
                cJSON_AddNumberToObject(json, "vocab_size", (double)result->vocab_size) != NULL &&
                cJSON_AddNumberToObject(json, "tokenizer_hash", (double)result->tokenizer_hash) != NULL;
    char *path = path_join(folder, "prepare.json");
    int status = good && path != NULL ? json_write_file(path, json, true, error) : out_of_memory(error);
    if (status == 0) {
        remove_state(folder);
    }
    free(path);
    cJSON_Delete(json);
    return status;
}

// True when the file name, without ".bin", has `word` as one of its parts between _ - and dots.
static bool has_word(const char *name, const char *word)
{
    size_t length = strlen(name), size = strlen(word);
    if (length < 4 || strcmp(name + length - 4, ".bin") != 0) {
        return false;
    }
    for (size_t i = 0; i + size <= length - 4; i++) {
        bool starts = i == 0 || !isalnum((unsigned char)name[i - 1]), ends = !isalnum((unsigned char)name[i + size]);
        if (starts && ends && strncmp(name + i, word, size) == 0) {
            return true;
        }
    }
    return false;
}

int prepare_list_shards(PathList *list, const char *folder, const char *prefix, Error *error)
{
    if (!file_is_folder(folder)) {
        return has_word(path_base(folder), prefix) ? path_list_add(list, folder, error) : 0;
    }
    PathList names = {0};
    int result = folder_list(&names, folder, error);
    for (size_t i = 0; i < names.count && result == 0; i++) {
        if (has_word(names.items[i], prefix)) {
            char *path = path_join(folder, names.items[i]);
            result = path == NULL ? out_of_memory(error) : path_list_add(list, path, error);
            free(path);
        }
    }
    path_list_free(&names);
    return result;
}
