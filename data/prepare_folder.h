// The state of a folder that is being, or has been, prepared.
#ifndef DATA_PREPARE_FOLDER_H
#define DATA_PREPARE_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "data/prepare.h"

// What one split came to.
typedef struct PrepareCounts {
    uint64_t documents, bytes, tokens, shards;
} PrepareCounts;

typedef struct PrepareResult {
    PrepareCounts train, validation;
    uint64_t skipped;
    uint64_t vocab_size;
    uint32_t tokenizer_hash;
    bool tail;   // validation is the tail of each document
} PrepareResult;

// What was asked, as a JSON object: equal for equal inputs (base names, sizes, times) and options that decide the output. NULL with
// `error` set.
cJSON *prepare_request(const PathList *files, const PrepareOptions *options, Error *error);

// Looks at the folder, which is made if it is missing. Sets *done when it is complete and was made by the same request. Otherwise it is
// made ready for writing: what an interrupted run left is removed. Refused are a folder prepared by another request and one with shards
// or a tokenizer of unknown origin.
int prepare_folder_open(const char *folder, const cJSON *request, const PrepareOptions *options, bool *done, Error *error);

// Writes prepare.json: the folder is complete. Returns 0, or -1 with `error` set.
int prepare_folder_finish(const char *folder, const cJSON *request, const PrepareResult *result, Error *error);

#endif
