// The state of a folder that is being, or has been, prepared.
#ifndef DATA_PREPARE_FOLDER_H
#define DATA_PREPARE_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "data/prepare.h"
#include "data/shards.h"
#include "data/split.h"

// What one split came to.
typedef struct PrepareCounts {
    uint64_t documents, bytes, tokens, shards;
} PrepareCounts;

typedef struct PrepareResult {
    PrepareCounts train, validation;
    uint64_t skipped, filtered, duplicates;
    uint64_t vocab_size;
    uint32_t tokenizer_hash;
    bool tail;   // validation is the tail of each document
} PrepareResult;

// What was asked, as a JSON object: equal for equal inputs (base names, sizes, times) and options that decide the output. NULL with
// `error` set.
cJSON *prepare_request(const PathList *files, const PrepareOptions *options, Error *error);

// How far a preparation has come, kept in the folder so that a stopped one can go on. Pieces are those of data/batch.h.
typedef struct PrepareState {
    bool resumable;                       // the rest is set: the tokenizer is ready, and `pieces` pieces are written
    Split split;
    uint64_t pieces;
    PrepareCounts train, validation;      // documents and bytes of those pieces
    ShardPosition train_at, validation_at;
} PrepareState;

// Looks at the folder, which is made if it is missing. Sets *done when it is complete and was made by the same request. Otherwise it is
// locked (*lock is the descriptor to close at the end, else -1) and made ready for writing: when an unfinished run of the same request
// noted its state, that is given in `state`; else what such a run left is removed. Refused are a folder prepared by another request, one
// that another process is preparing, and one with shards or a tokenizer of unknown origin. Returns 0, or -1 with `error` set.
int prepare_folder_open(const char *folder, const cJSON *request, const PrepareOptions *options, PrepareState *state, bool *done,
                        int *lock, Error *error);

// Notes the state, atomically. Returns 0, or -1 with `error` set.
int prepare_folder_note(const char *folder, const cJSON *request, const PrepareState *state, Error *error);

// Removes the shards that a run left. Returns 0, or -1 with `error` set.
int prepare_folder_clear(const char *folder, Error *error);

// Writes prepare.json: the folder is complete. Returns 0, or -1 with `error` set.
int prepare_folder_finish(const char *folder, const cJSON *request, const PrepareResult *result, Error *error);

#endif
