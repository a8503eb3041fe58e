// Checkpoints: folders OUT/step_00001000/ with model.safetensors, config.json, tokenizer.json, optimizer.safetensors, trainer.json.
// Written under OUT/step_00001000.tmp, every file and the folder fsynced, then renamed: without the suffix it is complete.
// trainer.json holds {"files": {"model.safetensors": {"bytes": N, "xxh3": "16 hex digits"}, ...}, ...}, checked on every load.
#ifndef CHECKPOINT_CHECKPOINT_H
#define CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/model.h"

struct cJSON;

// Numbers that lie as a table says: each tensor stands in its file as prefix + name.
typedef struct NamedArena {
    const char *prefix;
    const TensorTable *table;
    float *values;   // [table->total]
} NamedArena;

// What a save writes.
typedef struct CheckpointSource {
    const Model *model;
    const char *tokenizer_path;        // copied as tokenizer.json; NULL: none (tests)
    const NamedArena *moments;         // of the optimizer; NULL: no optimizer.safetensors
    size_t n_moments;
    const struct cJSON *trainer;       // step, tokens, data position, random state, settings; "files" is added by the save
} CheckpointSource;

// Saves OUT/step_%08lld atomically; an existing folder of that step is replaced only once the new one is complete.
// Returns 0, or -1 with `error` set; on failure the temporary folder is removed and older checkpoints are untouched.
int checkpoint_save(const CheckpointSource *source, const char *out, int64_t step, Error *error);

// Removes all but the newest `keep` checkpoints of OUT (keep 0: all stay), and left-over temporary folders.
int checkpoint_prune(const char *out, size_t keep, Error *error);

// Resolves CKPT: a checkpoint folder itself (verified), or a run's OUT (its newest checkpoint that verifies). `note`, if not NULL, receives text about newer
// ones that were passed over and why, else "". Returns the folder in a buffer to free, or NULL with `error` set.
char *checkpoint_resolve(const char *path, Error *note, Error *error);

// The same for using the model alone: optimizer.safetensors may have been removed; everything else is verified.
char *checkpoint_resolve_model(const char *path, Error *note, Error *error);

// Whether a file of that name lies, or would lie, in the folder of a checkpoint: nothing else may be written there. True also when out of
// memory.
bool checkpoint_holds(const char *path);

// Checks names, sizes and checksums of all files that trainer.json lists. Returns 0, or -1 naming the file that is wrong.
int checkpoint_verify(const char *folder, Error *error);

// Creates the model from config.json and model.safetensors (missing, extra or misshapen tensors are errors by name). The folder should have been verified.
// Returns 0, or -1 with nothing to free.
int checkpoint_load_model(Model *model, const Kernels *kernels, const char *folder, Error *error);

// Fills the optimizer's arenas. Returns 0, or -1 with `error` set: a tensor is missing, misshapen or of none of them.
int checkpoint_load_moments(const NamedArena *moments, size_t n_moments, const char *folder, Error *error);

// trainer.json; free with cJSON_Delete. NULL with `error` set.
struct cJSON *checkpoint_load_trainer(const char *folder, Error *error);

// A number that differs between models: hash of configuration and weights in memory. State files carry it.
// Of a packed model: model->hash, so that a state goes with the checkpoint, whatever the weights' type.
// Returns 0, or -1 with `error` set: out of memory.
int checkpoint_model_hash(uint64_t *hash, const Model *model, Error *error);

#endif
