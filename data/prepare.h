// Documents in, tokenizer and token shards out: what ./prepare does, and ./train when it is given documents.
#ifndef DATA_PREPARE_H
#define DATA_PREPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/file.h"
#include "data/corpus.h"

typedef struct PrepareOptions {
    CorpusOptions corpus;
    const char *tokenizer_path;   // NULL: train one with `vocab_size` ids on the documents
    int64_t vocab_size;
    double val_fraction;          // of the documents, chosen by hash of their text; at least one document when > 0 and there are two or more (else the tail of the only one)
    int64_t shard_tokens;
    int64_t threads;              // 0: all
    bool quiet;                   // no progress, no table
} PrepareOptions;

void prepare_defaults(PrepareOptions *options);

// Writes DIR/tokenizer.json, DIR/train_000000.bin ..., DIR/val_000000.bin, and last DIR/prepare.json (what was asked, counts, hash of inputs' names, sizes and times): a folder with
// prepare.json is complete. When it is there and was made from the same inputs and options, nothing is done. Returns 0, or -1 with `error` set.
int prepare_documents(const PathList *files, const char *folder, const PrepareOptions *options, Error *error);

// The shards of one split in a prepared folder or a plain list of .bin files: PREFIX "train" or "val". 
int prepare_list_shards(PathList *list, const char *folder, const char *prefix, Error *error);

#endif
