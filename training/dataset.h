// From DATA on the command line to shards and a tokenizer: documents are prepared on the way.
#ifndef TRAINING_DATASET_H
#define TRAINING_DATASET_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/file.h"
#include "data/corpus.h"
#include "tokenizer/bpe.h"

typedef enum DataKind {
    DATA_PREPARED,    // one folder that holds prepare.json
    DATA_SHARDS,      // .bin files
    DATA_DOCUMENTS,   // whatever data/corpus.h reads
} DataKind;

// What one list of DATA arguments names.
typedef struct DataSource {
    DataKind kind;
    char *folder;      // DATA_PREPARED
    PathList files;    // the others, at least one
    PathList rest;     // DATA_DOCUMENTS: what lies in the folders and is not read
} DataSource;

// Finds out what the arguments (files, folders, globs) name; nothing is opened or written. Returns 0, or -1 with `error` set and
// nothing to free: an argument names nothing or a folder whose preparation did not finish, a file is of no kind that can be read, or shards and
// documents are mixed.
int data_source_find(DataSource *source, char *const *arguments, size_t n_arguments, Error *error);
void data_source_free(DataSource *source);

typedef struct DatasetRequest {
    const char *out;             // the folder of the run
    const char *tokenizer;       // tokenizer.json, NULL: the data's own, or one trained on the documents
    int64_t vocab_size;          // of a tokenizer that is trained
    double val_fraction;         // of documents, without `val`
    CorpusOptions documents;     // how documents are read (text_key, where, dedup, strict)
    int64_t threads;             // for preparing; 0: all
    const volatile sig_atomic_t *stop;   // not 0: preparing ends with an error, and the next time goes on from there; may be NULL
    const DataSource *train;     // [n_train], at least one
    size_t n_train;
    const DataSource *val;       // NULL: the validation splits of `train`, as far as there are any
} DatasetRequest;

// The shards of one source of training data.
typedef struct DatasetShards {
    PathList train, val;         // val: of its validation split, may be empty
} DatasetShards;

typedef struct Dataset {
    DatasetShards *sources;      // [n_sources], as in the request
    size_t n_sources;
    PathList val;                // shards of `val`; empty without it
    char *tokenizer_path;        // NULL: shards without a tokenizer
    Tokenizer *tokenizer;        // NULL: the same
    bool prepared;               // documents were prepared into OUT
} Dataset;

// The folder in OUT into which the documents of a source are prepared: "data", with several sources "data_1", "data_2" ... Writes it to
// `name` and returns it.
char *dataset_folder_name(char name[32], size_t source, size_t n_sources);

// Prepares documents where needed (those for validation into OUT/val_data), lists the shards and loads the tokenizer, which is the one
// asked for; else that of the first source that has one (a prepared folder, or token shards with a tokenizer.json in their folder); else
// one trained on the documents of all sources; else, with token shards alone, none. Of token shards given directly, those with "val" as
// a word of their name are the validation split. Returns 0, or -1 with `error` set and nothing to free: also when a prepared folder of
// several has another tokenizer.
int dataset_open(Dataset *dataset, const DatasetRequest *request, Error *error);
void dataset_free(Dataset *dataset);

#endif
