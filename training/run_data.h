// The data of a run, from what the command line or a checkpoint names to loaders: which sources there are, what was prepared of them, their
// shares, their shards.
#ifndef TRAINING_RUN_DATA_H
#define TRAINING_RUN_DATA_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "data/loader.h"
#include "training/dataset.h"
#include "training/settings.h"
#include "training/snapshot.h"

struct cJSON;

typedef struct RunData {
    // Set by the caller before run_data_find; not owned.
    const TrainSettings *settings;
    const struct cJSON *saved;    // trainer.json of the checkpoint that is resumed; NULL: a new run
    const char *checkpoint;       // its folder
    const volatile sig_atomic_t *stop;   // not 0: preparing ends with an error, and the next time goes on from there; may be NULL

    // Set by run_data_find.
    char **saved_arguments;       // DATA from the checkpoint
    uint32_t *parts;              // [n_sources] shares of the sources; NULL: DATA is one source
    DataSource *sources;          // [n_sources]
    size_t n_sources;
    char **prepared;              // [n_sources] folder of OUT when resuming a run that prepared documents into it
    char *prepared_val;           // OUT/val_data, the same
    DataSource val_source;        // with has_val
    bool has_val;

    Dataset dataset;              // set by run_data_prepare
    Loader *train, *val;          // set by run_data_load; val NULL: no validation
    DataIdentity identity;        // complete after run_data_load
} RunData;

// Finds out what DATA names; nothing is opened or written. On a resume what is not given comes from the checkpoint. Returns 0, or -1 with
// `error` set. Whatever was done, run_data_free follows.
int run_data_find(RunData *data, Error *error);

// Prepares documents where needed and finds tokenizer and shards. `vocab_size` is that of a tokenizer to be trained. Returns 0, or -1 with
// `error` set.
int run_data_prepare(RunData *data, int64_t vocab_size, Error *error);

// Opens the loaders, and on a resume refuses data, or shares, that are not those of the checkpoint. Returns 0, or -1 with `error` set.
int run_data_load(RunData *data, int64_t vocab_size, Error *error);

// One line on standard error for each source of several: its share, and how often `windows` windows go through it.
void run_data_print_sources(const RunData *data, uint64_t windows);

void run_data_free(RunData *data);

#endif
