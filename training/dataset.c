#include "training/dataset.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "data/corpus.h"
#include "data/prepare.h"

// ---- what the arguments name ----

static bool is_shard(const char *path)
{
    size_t length = strlen(path);
    return length > 4 && strcmp(path + length - 4, ".bin") == 0;
}

static bool accepts(const char *path) { return is_shard(path) || corpus_accepts(path); }

static bool folder_has(const char *folder, const char *name)
{
    char *path = path_join(folder, name);
    bool found = path != NULL && file_exists(path);
    free(path);
    return found;
}

static bool is_prepared(const char *path) { return file_is_folder(path) && folder_has(path, "prepare.json"); }

static int classify_files(DataSource *source, Error *error)
{
    size_t n_shards = 0;
    for (size_t i = 0; i < source->files.count; i++) {
        const char *path = source->files.items[i];
        if (!accepts(path)) {
            return error_set(error, "%s: not a kind of file that can be trained on: there are documents (.txt, .jsonl, .parquet and packed ones) "
                             "and .bin token shards", path);
        }
        n_shards += is_shard(path);
    }
    if (n_shards != 0 && n_shards != source->files.count) {
        return error_set(error, "%s: token shards (.bin) and documents cannot be mixed: give one kind",
                         source->files.items[0]);
    }
    source->kind = n_shards != 0 ? DATA_SHARDS : DATA_DOCUMENTS;
    return 0;
}

int data_source_find(DataSource *source, char *const *arguments, size_t n_arguments, Error *error)
{
    *source = (DataSource){.kind = DATA_DOCUMENTS};
    for (size_t i = 0; i < n_arguments; i++) {
        if (is_prepared(arguments[i]) && n_arguments > 1) {
            return error_set(error, "%s: a prepared folder must be the only DATA: give its .bin files to mix several", arguments[i]);
        }
    }
    if (n_arguments == 1 && is_prepared(arguments[0])) {
        source->kind = DATA_PREPARED;
        source->folder = strdup(arguments[0]);
        return source->folder != NULL ? 0 : error_set(error, "out of memory");
    }
    if (path_expand(&source->files, arguments, n_arguments, accepts, error) || classify_files(source, error)) {
        data_source_free(source);
        return -1;
    }
    return 0;
}

void data_source_free(DataSource *source)
{
    free(source->folder);
    source->folder = NULL;
    path_list_free(&source->files);
}

// ---- shards and tokenizer ----

// Whether "val" stands in the name as a word of its own: val_000000.bin, corpus_val.bin.
static bool is_validation_name(const char *path)
{
    const char *name = path_base(path);
    for (const char *at = strstr(name, "val"); at != NULL; at = strstr(at + 1, "val")) {
        if ((at == name || !isalpha((unsigned char)at[-1])) && !isalpha((unsigned char)at[3])) {
            return true;
        }
    }
    return false;
}

static int add_shards(Dataset *dataset, const PathList *files, bool with_split, Error *error)
{
    size_t n_val = 0;
    for (size_t i = 0; i < files->count; i++) {
        n_val += is_validation_name(files->items[i]);
    }
    bool split = with_split && n_val < files->count;
    for (size_t i = 0; i < files->count; i++) {
        const char *path = files->items[i];
        if (path_list_add(split && is_validation_name(path) ? &dataset->val : &dataset->train, path, error)) {
            return -1;
        }
    }
    return 0;
}

static int choose_tokenizer(Dataset *dataset, const char *asked, const char *folder, bool required, Error *error)
{
    if (asked != NULL) {
        dataset->tokenizer_path = strdup(asked);
    } else if (required || folder_has(folder, "tokenizer.json")) {
        dataset->tokenizer_path = path_join(folder, "tokenizer.json");
    } else {
        return 0;
    }
    if (dataset->tokenizer_path == NULL) {
        return error_set(error, "out of memory");
    }
    dataset->tokenizer = tokenizer_load(dataset->tokenizer_path, error);
    return dataset->tokenizer != NULL ? 0 : -1;
}

// Prepares documents into OUT/NAME and returns that folder in a buffer to free, or NULL with `error` set.
static char *prepare_into(const DatasetRequest *request, const char *name, const DataSource *source, const char *tokenizer, double val_fraction,
                          Error *error)
{
    PrepareOptions options;
    prepare_defaults(&options);
    options.corpus = request->documents;
    options.tokenizer_path = tokenizer;
    options.vocab_size = request->vocab_size;
    options.val_fraction = val_fraction;
    options.threads = request->threads;
    options.stop = request->stop;
    char *folder = path_join(request->out, name);
    if (folder == NULL) {
        error_set(error, "out of memory");
        return NULL;
    }
    if (prepare_documents(&source->files, folder, &options, error)) {
        free(folder);
        return NULL;
    }
    return folder;
}

// Lists the shards of a prepared folder: the training split, and with `with_split` the validation split if it has one.
static int list_prepared(Dataset *dataset, const char *folder, bool with_split, Error *error)
{
    if (prepare_list_shards(&dataset->train, folder, "train", error) ||
        (with_split && prepare_list_shards(&dataset->val, folder, "val", error))) {
        return -1;
    }
    return dataset->train.count > 0 ? 0 : error_set(error, "%s holds no training shards (train_*.bin): prepare the documents again", folder);
}

static int open_train(Dataset *dataset, const DatasetRequest *request, Error *error)
{
    const DataSource *source = request->train;
    bool with_split = request->val == NULL;
    char *folder = NULL;
    int failed;
    if (source->kind == DATA_SHARDS) {
        folder = path_folder(source->files.items[0]);
        failed = add_shards(dataset, &source->files, with_split, error);
    } else {
        dataset->prepared = source->kind == DATA_DOCUMENTS;
        folder = dataset->prepared ? prepare_into(request, "data", source, request->tokenizer, with_split ? request->val_fraction : 0.0, error)
                                   : strdup(source->folder);
        failed = folder == NULL || list_prepared(dataset, folder, with_split, error);
    }
    failed = failed || folder == NULL || choose_tokenizer(dataset, request->tokenizer, folder, source->kind != DATA_SHARDS, error);
    free(folder);
    return failed ? -1 : 0;
}

// All of a folder that was prepared without a split is validation data.
static int list_val(Dataset *dataset, const char *folder, Error *error)
{
    if (prepare_list_shards(&dataset->val, folder, "val", error)) {
        return -1;
    }
    if (dataset->val.count == 0 && prepare_list_shards(&dataset->val, folder, "train", error)) {
        return -1;
    }
    return dataset->val.count > 0 ? 0 : error_set(error, "--val %s holds no shards", folder);
}

static int open_val(Dataset *dataset, const DatasetRequest *request, Error *error)
{
    const DataSource *source = request->val;
    if (source->kind == DATA_SHARDS) {
        for (size_t i = 0; i < source->files.count; i++) {
            if (path_list_add(&dataset->val, source->files.items[i], error)) {
                return -1;
            }
        }
        return 0;
    }
    if (source->kind == DATA_PREPARED) {
        return list_val(dataset, source->folder, error);
    }
    if (dataset->tokenizer_path == NULL) {
        return error_set(error, "--val names documents, but the training shards come without a tokenizer: give --tokenizer FILE");
    }
    char *folder = prepare_into(request, "val_data", source, dataset->tokenizer_path, 0.0, error);
    int failed = folder == NULL || list_val(dataset, folder, error);
    free(folder);
    return failed ? -1 : 0;
}

int dataset_open(Dataset *dataset, const DatasetRequest *request, Error *error)
{
    *dataset = (Dataset){0};
    if (open_train(dataset, request, error) || (request->val != NULL && open_val(dataset, request, error))) {
        dataset_free(dataset);
        return -1;
    }
    return 0;
}

void dataset_free(Dataset *dataset)
{
    path_list_free(&dataset->train);
    path_list_free(&dataset->val);
    free(dataset->tokenizer_path);
    if (dataset->tokenizer != NULL) {
        tokenizer_free(dataset->tokenizer);
    }
    *dataset = (Dataset){0};
}
