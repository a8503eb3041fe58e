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
    char *const *arguments;     // DATA as given, without weights
    size_t n_arguments;
    const uint32_t *parts;      // [n_arguments]: each argument is a source of its own with this share; NULL: all are one source
    bool prepared;              // into OUT/data
    uint64_t tokens, windows;   // of the training shards
    uint64_t fingerprint;       // of their contents (snapshot_fingerprint)
    uint32_t tokenizer_hash;    // 0: no tokenizer
} DataIdentity;

// Step, position, random state, settings and data as a JSON object; free with cJSON_Delete. NULL when out of memory.
struct cJSON *snapshot_to_json(const Trainer *trainer, const TrainSettings *settings, const DataIdentity *data);

// Sets the counters, the random state and the number of optimizer updates from trainer.json. Returns 0, or -1 with `error` set: a key
// is missing or bad.
int snapshot_restore(Trainer *trainer, const struct cJSON *json, Error *error);

// A number that differs between data: hash of windows of `length` tokens, evenly spaced over the shards of each source, some 65,536 tokens
// of it. Returns 0, or -1 with `error` set (a token outside the vocabulary, out of memory).
int snapshot_fingerprint(uint64_t *fingerprint, const Loader *loader, size_t length, Error *error);

// Whether DATA on the command line of a resume names the documents that the run was trained on: the same names, or other names of the
// same files. Returns 0, or -1 with `error` naming the first that differs and saying what to do.
int snapshot_check_arguments(const struct cJSON *json, char *const *arguments, size_t n_arguments, Error *error);

// The sources and their shares must be what they were, because they decide which window comes next. Returns 0, or -1 with `error` set.
int snapshot_check_parts(const struct cJSON *json, const DataIdentity *data, Error *error);

// Returns 0 when the data is the one that the checkpoint's position counts in, or -1 with `error` saying what differs.
int snapshot_check_data(const struct cJSON *json, const DataIdentity *data, Error *error);

// The step of a checkpoint. Returns 0, or -1 with `error` set.
int snapshot_step(int64_t *step, const struct cJSON *json, Error *error);

// Whether the documents of the run were prepared into OUT/data.
bool snapshot_prepared(const struct cJSON *json);

// DATA of the run as an array of *count strings that belong to `json` (free the array only), or NULL with `error` set.
char **snapshot_arguments(size_t *count, const struct cJSON *json, Error *error);

// The parts of `count` sources in an array to free, in *parts; NULL when the data of the run was one source. Returns 0, or -1 with `error`
// set: they are damaged.
int snapshot_parts(uint32_t **parts, size_t count, const struct cJSON *json, Error *error);

#endif
