// trainer.json: what a checkpoint holds beside weights and moments so that a resumed run gives the same bits as an unbroken one.
#ifndef TRAINING_SNAPSHOT_H
#define TRAINING_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "training/settings.h"
#include "training/trainer.h"

struct cJSON;

// What the data position counts in.
typedef struct DataIdentity {
    char *const *arguments;     // DATA as given
    size_t n_arguments;
    bool prepared;              // into OUT/data
    uint64_t tokens, windows;   // of the training shards
    uint32_t tokenizer_hash;    // 0: no tokenizer
} DataIdentity;

// Step, position, random state, settings and data as a JSON object; free with cJSON_Delete. NULL when out of memory.
struct cJSON *snapshot_to_json(const Trainer *trainer, const TrainSettings *settings, const DataIdentity *data);

// Sets the counters, the random state and the number of optimizer updates from trainer.json. Returns 0, or -1 with `error` set: a key
// is missing or bad.
int snapshot_restore(Trainer *trainer, const struct cJSON *json, Error *error);

// Returns 0 when the data is the one that the checkpoint's position counts in, or -1 with `error` saying what differs.
int snapshot_check_data(const struct cJSON *json, const DataIdentity *data, Error *error);

// The step of a checkpoint. Returns 0, or -1 with `error` set.
int snapshot_step(int64_t *step, const struct cJSON *json, Error *error);

// Whether the documents of the run were prepared into OUT/data.
bool snapshot_prepared(const struct cJSON *json);

// DATA of the run as an array of *count strings that belong to `json` (free the array only), or NULL with `error` set.
char **snapshot_arguments(size_t *count, const struct cJSON *json, Error *error);

#endif
