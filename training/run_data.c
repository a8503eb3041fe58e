#include "training/run_data.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/progress.h"
#include "training/mix.h"

// ---- what DATA names ----

// A folder of OUT when it holds prepared data, in *folder, a buffer to free; else *folder stays NULL. Returns 0, or -1 with `error` set.
static int find_prepared(char **folder, const char *out, const char *name, Error *error)
{
    char *path = path_join(out, name);
    char *mark = path != NULL ? path_join(path, "prepare.json") : NULL;
    int failed = mark == NULL ? error_set(error, "out of memory") : 0;
    if (failed == 0 && file_exists(mark)) {
        *folder = path;
        path = NULL;
    }
    free(path);
    free(mark);
    return failed;
}

// DATA of a run that is resumed: as given, or from the checkpoint.
static int find_saved_arguments(RunData *data, Error *error)
{
    const TrainSettings *settings = data->settings;
    if (settings->n_data > 0) {
        return snapshot_prepared(data->saved) ? snapshot_check_arguments(data->saved, settings->data, settings->n_data, error) : 0;
    }
    data->saved_arguments = snapshot_arguments(&data->identity.n_arguments, data->saved, error);
    data->identity.arguments = data->saved_arguments;
    return data->saved_arguments == NULL ? -1 : snapshot_parts(&data->parts, data->identity.n_arguments, data->saved, error);
}

// The documents of a run that is resumed need not be there any more: what was made of them is.
static int find_saved_data(RunData *data, Error *error)
{
    const TrainSettings *settings = data->settings;
    char name[32];
    for (size_t i = 0; i < data->n_sources && snapshot_prepared(data->saved); i++) {
        if (find_prepared(&data->prepared[i], settings->out, dataset_folder_name(name, i, data->n_sources), error)) {
            return -1;
        }
        if (data->prepared[i] != NULL) {
            fprintf(stderr, "resume: the documents are not read again, the data is %s\n", data->prepared[i]);
            data->identity.prepared = true;
        }
    }
    bool val_changes = settings_given(settings, "val") || settings->val == NULL;
    return val_changes ? 0 : find_prepared(&data->prepared_val, settings->out, "val_data", error);
}

// The log of the run must not take the place of a document.
static int check_log(const RunData *data, const DataSource *source, Error *error)
{
    const PathList *files = &source->files;
    char *log = path_join(data->settings->out, "log.jsonl");
    int failed = log == NULL ? error_set(error, "out of memory") : 0;
    for (size_t i = 0; i < files->count && failed == 0 && data->saved == NULL; i++) {
        if (file_is_same(files->items[i], log)) {
            failed = error_set(error, "%s is DATA, but the run writes its log there: give another --out", log);
        }
    }
    free(log);
    return failed;
}

// One source for each value of --data, else one of all DATA.
static int make_sources(RunData *data, Error *error)
{
    const double *weights = data->settings->weights;
    bool mixed = weights != NULL || data->parts != NULL;
    data->n_sources = mixed ? data->identity.n_arguments : 1;
    data->sources = calloc(data->n_sources, sizeof *data->sources);
    data->prepared = calloc(data->n_sources, sizeof *data->prepared);
    if (weights != NULL) {
        data->parts = calloc(data->n_sources, sizeof *data->parts);
    }
    if (data->sources == NULL || data->prepared == NULL || (mixed && data->parts == NULL)) {
        return error_set(error, "out of memory");
    }
    if (weights != NULL && weights[0] > 0.0) {
        mix_parts(data->parts, weights, data->n_sources);
    }
    return 0;
}

// Shares that are not those of the checkpoint are refused before anything is prepared for them; those by size are known only later.
static int check_shares(RunData *data, Error *error)
{
    bool known = data->parts == NULL || data->parts[0] > 0;
    data->identity.parts = data->parts;
    return data->saved != NULL && known ? snapshot_check_parts(data->saved, &data->identity, error) : 0;
}

static int find_sources(RunData *data, Error *error)
{
    for (size_t i = 0; i < data->n_sources; i++) {
        bool prepared = data->prepared[i] != NULL, all = !prepared && data->parts == NULL;
        char *const *arguments = prepared ? &data->prepared[i] : data->identity.arguments + (all ? 0 : i);
        if (data_source_find(&data->sources[i], arguments, all ? data->identity.n_arguments : 1, error) ||
            check_log(data, &data->sources[i], error)) {
            return -1;
        }
    }
    return 0;
}

// A new run whose data is all encoded already cannot heed flags that choose among documents, and does not leave them out in silence.
static int check_document_flags(const RunData *data, Error *error)
{
    static const char *const flags[] = {"text-key", "where", "dedup", "strict", "val-fraction"};
    bool documents = data->has_val && data->val_source.kind == DATA_DOCUMENTS;
    for (size_t i = 0; i < data->n_sources; i++) {
        documents |= data->sources[i].kind == DATA_DOCUMENTS;
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags && data->saved == NULL && !documents; i++) {
        if (settings_given(data->settings, flags[i])) {
            return error_set(error, "--%s is for documents, and the data is prepared already: give it to ./prepare, or the documents to ./train", flags[i]);
        }
    }
    return 0;
}

int run_data_find(RunData *data, Error *error)
{
    const TrainSettings *settings = data->settings;
    data->identity.arguments = settings->data;
    data->identity.n_arguments = settings->n_data;
    if ((data->saved != NULL && find_saved_arguments(data, error)) || make_sources(data, error) ||
        check_shares(data, error) || (data->saved != NULL && find_saved_data(data, error)) || find_sources(data, error)) {
        return -1;
    }
    if (settings->val != NULL) {
        char *val = data->prepared_val != NULL ? data->prepared_val : (char *)(uintptr_t)settings->val;
        if (data_source_find(&data->val_source, &val, 1, error)) {
            return error_prefix(error, "--val");
        }
        data->has_val = true;
    }
    return check_document_flags(data, error);
}

// ---- shards and loaders ----

int run_data_prepare(RunData *data, int64_t vocab_size, Error *error)
{
    const TrainSettings *settings = data->settings;
    char *own = data->checkpoint != NULL ? path_join(data->checkpoint, "tokenizer.json") : NULL;
    if (data->checkpoint != NULL && own == NULL) {
        return error_set(error, "out of memory");
    }
    DatasetRequest request = {.out = settings->out, .tokenizer = settings->tokenizer, .vocab_size = vocab_size,
                              .val_fraction = settings->val_fraction, .threads = settings->threads, .stop = data->stop,
                              .documents = {.text_key = settings->text_key, .where = settings->where, .dedup = settings->dedup,
                                            .strict = settings->strict},
                              .train = data->sources, .n_train = data->n_sources, .val = data->has_val ? &data->val_source : NULL};
    if (request.tokenizer == NULL && own != NULL && file_exists(own)) {
        request.tokenizer = own;
    }
    int failed = dataset_open(&data->dataset, &request, error);
    free(own);
    if (failed) {
        return -1;
    }
    data->identity.prepared = data->identity.prepared || data->dataset.prepared;
    data->identity.tokenizer_hash = data->dataset.tokenizer != NULL ? tokenizer_hash(data->dataset.tokenizer) : 0;
    return 0;
}

// A loader of the training or of the validation shards of some sources, in the shares that they have; `chosen` tells which, NULL: all.
static Loader *open_mix(const RunData *data, int64_t vocab_size, bool validation, const bool *chosen, Error *error)
{
    const TrainSettings *settings = data->settings;
    LoaderSource *sources = calloc(data->n_sources, sizeof *sources);
    Loader *loader = NULL;
    size_t n = 0;
    for (size_t i = 0; i < data->n_sources && sources != NULL; i++) {
        if (chosen == NULL || chosen[i]) {
            const DatasetShards *shards = &data->dataset.sources[i];
            // Without shares (one source, or shares by sizes that are not known yet) any will do.
            sources[n++] = (LoaderSource){.name = data->parts != NULL ? data->identity.arguments[i] : "the data",
                                          .shards = validation ? &shards->val : &shards->train,
                                          .parts = data->parts != NULL && data->parts[i] > 0 ? data->parts[i] : 1};
        }
    }
    if (sources == NULL) {
        error_set(error, "out of memory");
    } else {
        loader = loader_create_mix(sources, n, (size_t)settings->seq_len, (uint64_t)settings->seed, data->identity.tokenizer_hash,
                                   (size_t)vocab_size, error);
    }
    free(sources);
    return loader;
}

// Shares that were left to the sizes: the sources then come to their ends together.
static int size_shares(RunData *data, int64_t vocab_size, Error *error)
{
    Loader *loader = open_mix(data, vocab_size, false, NULL, error);
    double *sizes = calloc(data->n_sources, sizeof *sizes);
    int failed = loader == NULL ? -1 : sizes == NULL ? error_set(error, "out of memory") : 0;
    if (failed == 0) {
        for (size_t i = 0; i < data->n_sources; i++) {
            sizes[i] = (double)loader_source_windows(loader, i);
        }
        mix_parts(data->parts, sizes, data->n_sources);
    }
    free(sizes);
    loader_free(loader);
    return failed;
}

// Validation data without --val: the splits of those sources that have enough.
static void open_val_splits(RunData *data, int64_t vocab_size)
{
    Error error = {""};
    bool *chosen = calloc(data->n_sources, sizeof *chosen);
    size_t n_chosen = 0;
    for (size_t i = 0; i < data->n_sources && chosen != NULL; i++) {
        if (data->dataset.sources[i].val.count == 0) {
            continue;
        }
        chosen[i] = true;
        Loader *alone = open_mix(data, vocab_size, true, chosen, &error);
        chosen[i] = alone != NULL;
        loader_free(alone);
        n_chosen += chosen[i];
        if (!chosen[i]) {
            fprintf(stderr, "no validation%s%s: %s\n", data->parts != NULL ? " on " : "", data->parts != NULL ? data->identity.arguments[i] : "",
                    error.text);
        }
    }
    data->val = n_chosen > 0 ? open_mix(data, vocab_size, true, chosen, &error) : NULL;
    free(chosen);
}

int run_data_load(RunData *data, int64_t vocab_size, Error *error)
{
    const TrainSettings *settings = data->settings;
    size_t length = (size_t)settings->seq_len;
    if (data->parts != NULL && data->parts[0] == 0 && size_shares(data, vocab_size, error)) {
        return -1;
    }
    data->train = open_mix(data, vocab_size, false, NULL, error);
    if (data->train == NULL) {
        return -1;
    }
    data->identity.tokens = loader_tokens(data->train);
    data->identity.windows = loader_windows(data->train);
    if (snapshot_fingerprint(&data->identity.fingerprint, data->train, length, error) ||
        (data->saved != NULL && snapshot_check_data(data->saved, &data->identity, error))) {
        return -1;
    }
    if (!data->has_val) {
        open_val_splits(data, vocab_size);
        return 0;
    }
    data->val = loader_create(&data->dataset.val, length, (uint64_t)settings->seed, data->identity.tokenizer_hash, (size_t)vocab_size, error);
    return data->val != NULL ? 0 : error_prefix(error, "--val");
}

void run_data_print_sources(const RunData *data, uint64_t windows)
{
    for (size_t i = 0; i < data->n_sources && data->parts != NULL; i++) {
        char tokens[32];
        uint64_t dealt = loader_dealt(data->train, i, windows), epoch = loader_source_windows(data->train, i);
        fprintf(stderr, "source      %s: %.4g %% of the tokens, %s tokens, %" PRIu64 " windows, %.3g epochs\n", data->identity.arguments[i],
                100.0 * loader_share(data->train, i), format_count(tokens, (double)loader_source_tokens(data->train, i)), epoch,
                (double)dealt / (double)epoch);
    }
}

void run_data_free(RunData *data)
{
    loader_free(data->train);
    loader_free(data->val);
    dataset_free(&data->dataset);
    for (size_t i = 0; i < data->n_sources; i++) {
        if (data->sources != NULL) {
            data_source_free(&data->sources[i]);
        }
        if (data->prepared != NULL) {
            free(data->prepared[i]);
        }
    }
    free(data->sources);
    free(data->prepared);
    free(data->prepared_val);
    free(data->parts);
    data_source_free(&data->val_source);
    free(data->saved_arguments);
    *data = (RunData){0};
}
