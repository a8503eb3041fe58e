#include "checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

enum {
    MAX_CONFIG_BYTES = 1 << 20,
    MAX_TOKENIZER_BYTES = 256 << 20,
    NAME_BYTES = 128,
};

// ---- saving ----

static void tensor_name(char name[NAME_BYTES], const NamedArena *arena, const Tensor *tensor)
{
    snprintf(name, NAME_BYTES, "%s%s", arena->prefix, tensor->name);
}

static size_t count_tensors(const NamedArena *arenas, size_t n_arenas)
{
    size_t count = 0;
    for (size_t i = 0; i < n_arenas; i++) {
        count += arenas[i].table->count;
    }
    return count;
}

static int write_arenas(const char *path, const NamedArena *arenas, size_t n_arenas, Error *error)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    size_t count = count_tensors(arenas, n_arenas), at = 0;
    SafeTensorOut *tensors = calloc(count + 1, sizeof *tensors);
    char(*names)[NAME_BYTES] = calloc(count + 1, sizeof *names);
    int status = -1;
    if (tensors == NULL || names == NULL) {
        error_set(error, "cannot write %s: out of memory", path);
    } else {
        for (size_t i = 0; i < n_arenas; i++) {
            for (size_t j = 0; j < arenas[i].table->count; j++) {
                const Tensor *tensor = &arenas[i].table->items[j];
                tensor_name(names[at], &arenas[i], tensor);
                tensors[at] = (SafeTensorOut){names[at], tensor->n_dims, tensor->shape, arenas[i].values + tensor->offset};
                at++;
            }
        }
        status = safetensors_write(path, tensors, count, metadata, error);
    }
    free(tensors);
    free(names);
    return status;
}

static int write_model(const CheckpointSource *source, const char *path, Error *error)
{
    NamedArena arena = {"", &source->model->table, source->model->params};
    return write_arenas(path, &arena, 1, error);
}

static int write_config(const CheckpointSource *source, const char *path, Error *error)
{
    cJSON *json = config_to_json(&source->model->config);
    int status = json != NULL ? json_write_file(path, json, true, error) : error_set(error, "cannot write %s: out of memory", path);
    cJSON_Delete(json);
    return status;
}

static int write_tokenizer(const CheckpointSource *source, const char *path, Error *error)
{
    if (source->tokenizer_path == NULL) {
        return 0;
    }
    size_t size = 0;
    char *data = file_read(source->tokenizer_path, MAX_TOKENIZER_BYTES, &size, error);
    int status = data != NULL ? file_write_atomic(path, data, size, error) : -1;
    free(data);
    return status;
}

static int write_optimizer(const CheckpointSource *source, const char *path, Error *error)
{
    if (source->moments == NULL) {
        return 0;
    }
    return write_arenas(path, source->moments, source->n_moments, error);
}

typedef struct Part {
    const char *name;
    int (*write)(const CheckpointSource *source, const char *path, Error *error);
} Part;

static const Part parts[] = {
    {"model.safetensors", write_model},
    {"config.json", write_config},
    {"tokenizer.json", write_tokenizer},
    {"optimizer.safetensors", write_optimizer},
};

static int write_folder(const CheckpointSource *source, const char *folder, Error *error)
{
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char *path = path_join(folder, parts[i].name);
        int status = path != NULL ? parts[i].write(source, path, error) : error_set(error, "out of memory while saving %s", folder);
        free(path);
        if (status) {
            return -1;
        }
    }
    return manifest_write(folder, source->trainer, error) == 0 ? folder_sync(folder, error) : -1;
}

// Swaps two folders in one step. Returns 0, or -1 where the system or the file system cannot.
static int exchange(const char *a, const char *b)
{
#ifdef RENAME_EXCHANGE
    return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
#else
    (void)a;
    (void)b;
    return -1;
#endif
}

// Gives the complete temporary folder its name. A complete checkpoint stands under `final` or `aside` at every moment. What it replaces is
// removed only when the new name is on the disk; should removing fail, checkpoint_prune does it later.
static int put_in_place(const char *temporary, const char *final, const char *aside, const char *out, Error *error)
{
    if (!file_exists(final)) {
        if (rename(temporary, final) != 0) {
            return error_set(error, "cannot rename %s to %s: %s", temporary, final, strerror(errno));
        }
        return folder_sync(out, error);
    }
    if (exchange(temporary, final) == 0) {
        if (folder_sync(out, error)) {
            exchange(temporary, final);
            return -1;
        }
        folder_remove(temporary, NULL);
        return 0;
    }
    if (folder_remove(aside, error)) {
        return -1;
    }
    if (rename(final, aside) != 0) {
        return error_set(error, "cannot replace %s: %s", final, strerror(errno));
    }
    if (rename(temporary, final) != 0) {
        error_set(error, "cannot replace %s: %s", final, strerror(errno));
        rename(aside, final);
        return -1;
    }
    if (folder_sync(out, error)) {
        return -1;
    }
    folder_remove(aside, NULL);
    return 0;
}

int checkpoint_save(const CheckpointSource *source, const char *out, int64_t step, Error *error)
{
    char names[3][48];
    static const char *const suffixes[] = {"", ".tmp", ".old"};
    char *paths[3] = {NULL};
    bool memory = true;
    for (size_t i = 0; i < 3; i++) {
        snprintf(names[i], sizeof names[i], "step_%08" PRId64 "%s", step, suffixes[i]);
        paths[i] = path_join(out, names[i]);
        memory = memory && paths[i] != NULL;
    }
    int status = memory ? folder_make(out, error) : error_set(error, "out of memory while saving to %s", out);
    if (status == 0) {
        status = folder_remove(paths[1], error);
    }
    if (status == 0) {
        status = folder_make(paths[1], error);
        if (status == 0) {
            status = write_folder(source, paths[1], error) == 0 ? put_in_place(paths[1], paths[0], paths[2], out, error) : -1;
        }
        if (status) {
            error_prefix(error, "checkpoint %s was not saved", names[0]);
            folder_remove(paths[1], NULL);
        }
    }
    for (size_t i = 0; i < 3; i++) {
        free(paths[i]);
    }
    return status;
}

// ---- loading ----

// A checkpoint's configuration must spell out every key without a usual value: a default here could change the model's meaning later.
static int check_keys(const cJSON *json, Error *error)
{
    const char *missing = config_missing_key(json);
    return missing == NULL ? 0 : error_set(error, "\"%s\" is missing", missing);
}

static int load_config(ModelConfig *config, const char *folder, Error *error)
{
    char *path = path_join(folder, "config.json");
    if (path == NULL) {
        return error_set(error, "out of memory while reading %s", folder);
    }
    int status = -1;
    cJSON *json = json_read_file(path, MAX_CONFIG_BYTES, error);
    if (json != NULL) {
        *config = (ModelConfig){0};
        status = config_from_json(config, json, error) == 0 && check_keys(json, error) == 0 ? config_validate(config, error) : -1;
        if (status) {
            error_prefix(error, "%s", path);
        }
    }
    cJSON_Delete(json);
    free(path);
    return status;
}

// Names a tensor of the file that is not expected. There are more tensors in the file than expected ones, each of which is in it.
static int refuse_extra(const SafeFile *file, const NamedArena *arenas, size_t n_arenas, Error *error)
{
    bool *expected = calloc(file->count + 1, sizeof *expected);
    if (expected == NULL) {
        return error_set(error, "out of memory while checking %s", file->path);
    }
    for (size_t i = 0; i < n_arenas; i++) {
        for (size_t j = 0; j < arenas[i].table->count; j++) {
            char name[NAME_BYTES];
            tensor_name(name, &arenas[i], &arenas[i].table->items[j]);
            const SafeTensor *tensor = safetensors_find(file, name);
            if (tensor != NULL) {
                expected[tensor - file->items] = true;
            }
        }
    }
    size_t extra = 0;
    while (extra < file->count && expected[extra]) {
        extra++;
    }
    error_set(error, "%s: tensor %s does not belong to a model of this configuration", file->path,
              extra < file->count ? file->items[extra].name : "?");
    free(expected);
    return -1;
}

// Checks that the file holds exactly the arenas' tensors. Nothing large is allocated before this: the shapes that pass are those of a
// file whose size has been checked against them.
static int check_tensors(const SafeFile *file, const NamedArena *arenas, size_t n_arenas, Error *error)
{
    for (size_t i = 0; i < n_arenas; i++) {
        for (size_t j = 0; j < arenas[i].table->count; j++) {
            const Tensor *tensor = &arenas[i].table->items[j];
            char name[NAME_BYTES];
            tensor_name(name, &arenas[i], tensor);
            if (safetensors_check_f32(file, name, tensor->n_dims, tensor->shape, error)) {
                return -1;
            }
        }
    }
    return file->count == count_tensors(arenas, n_arenas) ? 0 : refuse_extra(file, arenas, n_arenas, error);
}

static int read_arena(const NamedArena *arena, const SafeFile *file, Error *error)
{
    for (size_t i = 0; i < arena->table->count; i++) {
        const Tensor *tensor = &arena->table->items[i];
        char name[NAME_BYTES];
        tensor_name(name, arena, tensor);
        if (safetensors_read_f32(arena->values + tensor->offset, file, name, tensor->n_dims, tensor->shape, error)) {
            return -1;
        }
    }
    return 0;
}

static int open_part(SafeFile *file, const char *folder, const char *name, Error *error)
{
    char *path = path_join(folder, name);
    int status = path != NULL ? safetensors_open(file, path, error) : error_set(error, "out of memory while reading %s", folder);
    free(path);
    return status;
}

int checkpoint_load_model(Model *model, const Kernels *kernels, const char *folder, Error *error)
{
    ModelConfig config;
    TensorTable table = {0};
    SafeFile file;
    if (load_config(&config, folder, error) || open_part(&file, folder, "model.safetensors", error)) {
        return -1;
    }
    int status = params_table(&table, &config, error);
    if (status == 0) {
        status = check_tensors(&file, &(NamedArena){"", &table, NULL}, 1, error);
        tensor_table_free(&table);
    }
    if (status == 0 && (status = model_create(model, &config, kernels, error)) == 0) {
        status = read_arena(&(NamedArena){"", &model->table, model->params}, &file, error);
        if (status) {
            model_free(model);
        }
    }
    safetensors_close(&file);
    return status;
}

int checkpoint_load_moments(const NamedArena *moments, size_t n_moments, const char *folder, Error *error)
{
    SafeFile file;
    if (open_part(&file, folder, "optimizer.safetensors", error)) {
        return -1;
    }
    int status = check_tensors(&file, moments, n_moments, error);
    for (size_t i = 0; i < n_moments && status == 0; i++) {
        status = read_arena(&moments[i], &file, error);
    }
    safetensors_close(&file);
    return status;
}

struct cJSON *checkpoint_load_trainer(const char *folder, Error *error) { return manifest_read(folder, error); }

int checkpoint_model_hash(uint64_t *hash, const Model *model, Error *error)
{
    if (model->packed != NULL) {
        *hash = model->hash;
        return 0;
    }
    cJSON *json = config_to_json(&model->config);
    char *text = json != NULL ? json_to_text(json, false) : NULL;
    cJSON_Delete(json);
    if (text == NULL) {
        return error_set(error, "out of memory for the model's hash");
    }
    *hash = XXH3_64bits_withSeed(model->params, model->table.total * sizeof *model->params, XXH3_64bits(text, strlen(text)));
    free(text);
    return 0;
}
