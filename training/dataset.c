#include "training/dataset.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/expand.h"
#include "data/corpus.h"
#include "data/prepare.h"

// ---- what the arguments name ----

static bool is_shard(const char *path)
{
    size_t length = strlen(path);
    return length > 4 && strcmp(path + length - 4, ".bin") == 0;
}

static bool accepts(const char *path) { return is_shard(path) || corpus_accepts(path); }

static bool is_prepared(const char *path) { return file_is_folder(path) && folder_holds(path, "prepare.json"); }

static int classify_files(DataSource *source, Error *error)
{
    size_t n_shards = 0;
    for (size_t i = 0; i < source->files.count; i++) {
        const char *path = source->files.items[i];
        if (!accepts(path)) {
            return error_set(error, "%s: not a kind of file that can be trained on: there are documents (" CORPUS_FORMS ") and .bin token shards", path);
        }
        n_shards += is_shard(path);
    }
    if (n_shards != 0 && n_shards != source->files.count) {
        return error_set(error, "%s: token shards (.bin) and documents cannot be mixed in one source: give one kind, or each with --data",
                         source->files.items[0]);
    }
    source->kind = n_shards != 0 ? DATA_SHARDS : DATA_DOCUMENTS;
    return 0;
}

int data_source_find(DataSource *source, char *const *arguments, size_t n_arguments, Error *error)
{
    *source = (DataSource){.kind = DATA_DOCUMENTS};
    for (size_t i = 0; i < n_arguments; i++) {
        if (prepare_check_finished(arguments[i], error)) {
            return -1;
        }
        if (is_prepared(arguments[i]) && n_arguments > 1) {
            return error_set(error, "%s: a prepared folder must be the only DATA: give several with --data, each with its weight", arguments[i]);
        }
    }
    if (n_arguments == 1 && is_prepared(arguments[0])) {
        source->kind = DATA_PREPARED;
        source->folder = strdup(arguments[0]);
        return source->folder != NULL ? 0 : error_set(error, "out of memory");
    }
    if (path_expand_with_rest(&source->files, &source->rest, arguments, n_arguments, accepts, error) || classify_files(source, error)) {
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
    path_list_free(&source->rest);
}

// ---- names of shards ----

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

static int add_shards(DatasetShards *shards, const PathList *files, bool with_split, Error *error)
{
    size_t n_val = 0;
    for (size_t i = 0; i < files->count; i++) {
        n_val += is_validation_name(files->items[i]);
    }
    bool split = with_split && n_val < files->count;
    for (size_t i = 0; i < files->count; i++) {
        const char *path = files->items[i];
        if (path_list_add(split && is_validation_name(path) ? &shards->val : &shards->train, path, error)) {
            return -1;
        }
    }
    return 0;
}

// ---- the tokenizer ----

static int load_tokenizer(Dataset *dataset, char *path, Error *error)
{
    dataset->tokenizer_path = path;
    if (path == NULL) {
        return error_set(error, "out of memory");
    }
    dataset->tokenizer = tokenizer_load(path, error);
    return dataset->tokenizer != NULL ? 0 : -1;
}

// The folder where the tokenizer of a source lies that brings one, in a buffer to free; NULL for documents.
static char *tokenizer_folder(const DataSource *source)
{
    return source->kind == DATA_PREPARED ? strdup(source->folder) : source->kind == DATA_SHARDS ? path_folder(source->files.items[0]) : NULL;
}

// Loads the tokenizer that was asked for, or that of the first source which has one. None is no error.
static int find_tokenizer(Dataset *dataset, const DatasetRequest *request, Error *error)
{
    if (request->tokenizer != NULL) {
        return load_tokenizer(dataset, strdup(request->tokenizer), error);
    }
    for (size_t i = 0; i < request->n_train && dataset->tokenizer == NULL; i++) {
        char *folder = tokenizer_folder(&request->train[i]);
        bool required = request->train[i].kind == DATA_PREPARED;
        int failed = folder != NULL && (required || folder_holds(folder, "tokenizer.json"))
                         ? load_tokenizer(dataset, path_join(folder, "tokenizer.json"), error) : 0;
        free(folder);
        if (failed) {
            return -1;
        }
    }
    return 0;
}

// Of several sources, each that brings a tokenizer must have been made with the one that is used.
static int check_tokenizer(const Dataset *dataset, const DataSource *source, Error *error)
{
    char *folder = tokenizer_folder(source), *path = folder != NULL ? path_join(folder, "tokenizer.json") : NULL;
    int failed = 0;
    if (path != NULL && file_exists(path)) {
        Tokenizer *own = tokenizer_load(path, error);
        failed = own == NULL ? -1 : 0;
        if (own != NULL && tokenizer_hash(own) != tokenizer_hash(dataset->tokenizer)) {
            failed = error_set(error, "%s was prepared with another tokenizer than %s (%zu ids and %zu): prepare its documents again with "
                               "--tokenizer %s", folder, dataset->tokenizer_path, tokenizer_vocab_size(own),
                               tokenizer_vocab_size(dataset->tokenizer), dataset->tokenizer_path);
        }
        if (own != NULL) {
            tokenizer_free(own);
        }
    }
    free(path);
    free(folder);
    return failed;
}

// The documents of all sources, on which a tokenizer for them is trained.
static int list_documents(PathList *files, const DatasetRequest *request, Error *error)
{
    for (size_t i = 0; i < request->n_train; i++) {
        const DataSource *source = &request->train[i];
        for (size_t f = 0; f < source->files.count; f++) {
            if (source->kind == DATA_DOCUMENTS && path_list_add(files, source->files.items[f], error)) {
                return -1;
            }
        }
    }
    return 0;
}

// ---- shards ----

// Prepares documents into OUT/NAME and returns that folder in a buffer to free, or NULL with `error` set.
static char *prepare_into(const DatasetRequest *request, const char *name, const DataSource *source, PrepareOptions *options, Error *error)
{
    options->corpus = request->documents;
    options->vocab_size = request->vocab_size;
    options->threads = request->threads;
    options->stop = request->stop;
    options->rest = &source->rest;
    char *folder = path_join(request->out, name);
    if (folder == NULL) {
        error_set(error, "out of memory");
        return NULL;
    }
    if (prepare_documents(&source->files, folder, options, error)) {
        free(folder);
        return NULL;
    }
    return folder;
}

char *dataset_folder_name(char name[32], size_t source, size_t n_sources)
{
    if (n_sources == 1) {
        snprintf(name, 32, "data");
    } else {
        snprintf(name, 32, "data_%zu", source + 1);
    }
    return name;
}

// Prepares the documents of one source. Where there is no tokenizer yet, it is trained on the documents of all.
static char *prepare_source(Dataset *dataset, const DatasetRequest *request, size_t i, Error *error)
{
    char name[32];
    PathList all = {0};
    PrepareOptions options;
    prepare_defaults(&options);
    options.tokenizer_path = dataset->tokenizer_path;
    options.val_fraction = request->val == NULL ? request->val_fraction : 0.0;
    if (request->n_train > 1 && dataset->tokenizer_path == NULL) {
        if (list_documents(&all, request, error)) {
            path_list_free(&all);
            return NULL;
        }
        options.tokenizer_files = &all;
    }
    char *folder = prepare_into(request, dataset_folder_name(name, i, request->n_train), &request->train[i], &options, error);
    path_list_free(&all);
    if (folder != NULL && dataset->tokenizer == NULL && load_tokenizer(dataset, path_join(folder, "tokenizer.json"), error)) {
        free(folder);
        return NULL;
    }
    dataset->prepared = true;
    return folder;
}

// Lists the shards of a prepared folder: the training split, and with `with_split` the validation split if it has one.
static int list_prepared(DatasetShards *shards, const char *folder, bool with_split, Error *error)
{
    if (prepare_list_shards(&shards->train, folder, "train", error) || (with_split && prepare_list_shards(&shards->val, folder, "val", error))) {
        return -1;
    }
    return shards->train.count > 0 ? 0 : error_set(error, "%s holds no training shards (train_*.bin): prepare the documents again", folder);
}

static int open_source(Dataset *dataset, const DatasetRequest *request, size_t i, Error *error)
{
    const DataSource *source = &request->train[i];
    DatasetShards *shards = &dataset->sources[i];
    bool with_split = request->val == NULL;
    if (source->kind == DATA_SHARDS) {
        return add_shards(shards, &source->files, with_split, error);
    }
    if (source->kind == DATA_PREPARED) {
        return list_prepared(shards, source->folder, with_split, error);
    }
    char *folder = prepare_source(dataset, request, i, error);
    int failed = folder == NULL || list_prepared(shards, folder, with_split, error);
    free(folder);
    return failed ? -1 : 0;
}

// Ids without a tokenizer are no match for documents, whatever they are encoded with.
static int check_kinds(const Dataset *dataset, const DatasetRequest *request, Error *error)
{
    const DataSource *shards = NULL;
    bool documents = false;
    for (size_t i = 0; i < request->n_train; i++) {
        documents = documents || request->train[i].kind == DATA_DOCUMENTS;
        shards = request->train[i].kind == DATA_SHARDS ? &request->train[i] : shards;
    }
    if (dataset->tokenizer == NULL && documents && shards != NULL) {
        return error_set(error, "%s: token shards without a tokenizer cannot be mixed with documents: give --tokenizer FILE", shards->files.items[0]);
    }
    return 0;
}

static int open_train(Dataset *dataset, const DatasetRequest *request, Error *error)
{
    dataset->sources = calloc(request->n_train, sizeof *dataset->sources);
    if (dataset->sources == NULL) {
        return error_set(error, "out of memory");
    }
    dataset->n_sources = request->n_train;
    if (find_tokenizer(dataset, request, error) || check_kinds(dataset, request, error)) {
        return -1;
    }
    for (size_t i = 0; i < request->n_train; i++) {
        if (request->n_train > 1 && dataset->tokenizer != NULL && check_tokenizer(dataset, &request->train[i], error)) {
            return -1;
        }
    }
    for (size_t i = 0; i < request->n_train; i++) {
        if (open_source(dataset, request, i, error)) {
            return -1;
        }
    }
    return 0;
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
    PrepareOptions options;
    prepare_defaults(&options);
    options.tokenizer_path = dataset->tokenizer_path;
    options.val_fraction = 0.0;
    char *folder = prepare_into(request, "val_data", source, &options, error);
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
    for (size_t i = 0; i < dataset->n_sources; i++) {
        path_list_free(&dataset->sources[i].train);
        path_list_free(&dataset->sources[i].val);
    }
    free(dataset->sources);
    path_list_free(&dataset->val);
    free(dataset->tokenizer_path);
    if (dataset->tokenizer != NULL) {
        tokenizer_free(dataset->tokenizer);
    }
    *dataset = (Dataset){0};
}
