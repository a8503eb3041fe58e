// Documents in, tokenizer and token shards out: what ./prepare does, and ./train when it is given documents.
#ifndef DATA_PREPARE_H
#define DATA_PREPARE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/file.h"
#include "data/corpus.h"

typedef struct PrepareOptions {
    CorpusOptions corpus;         // `quiet` and `progress` are set by prepare_documents
    const char *tokenizer_path;   // NULL: train one with `vocab_size` ids on the training documents
    int64_t vocab_size;
    const PathList *tokenizer_files;   // documents to train it on; NULL: those that are prepared
    const PathList *rest;         // what lies in the documents' folders and is not read: counted in the table, an error when corpus.strict;
                                  // NULL: none
    double val_fraction;          // of the documents, chosen by hash of their text; with few documents see data/split.h. 0: none
    int64_t shard_tokens;
    int64_t threads;              // 0: all; the output does not depend on it
    const volatile sig_atomic_t *stop;   // not 0: note the state and end with an error; may be NULL
    bool quiet;                   // no progress, no warnings, no table
} PrepareOptions;

void prepare_defaults(PrepareOptions *options);

// Writes DIR/tokenizer.json, DIR/train_000000.bin ..., DIR/val_000000.bin (none when there is no validation data), and last
// DIR/prepare.json (what was asked, counts, hash of inputs' names, sizes and times): a folder with prepare.json is complete. Each
// document begins with the token <|endoftext|>, as in llm.c's shards. When the folder is complete and was made from the same inputs and
// options, nothing is done; made from others, it is refused. An interrupted run goes on behind its last complete shard (when it was
// stopped through `stop`, behind the last document), with the same output as of a whole run; of another request, what it left is made
// anew. Returns 0, or -1 with `error` set.
int prepare_documents(const PathList *files, const char *folder, const PrepareOptions *options, Error *error);

// Refuses a folder in which a preparation began and is not complete: it holds part of the documents only. Returns 0 for every other name, or -1
// with `error` set.
int prepare_check_finished(const char *folder, Error *error);

// Adds the shards of one split, PREFIX "train" or "val", sorted by name: the .bin files of a folder with that word in their name
// ("train_000000.bin", "tiny_train.bin"), or the one file itself when `folder` is such a file. None is no error. Returns 0, or -1 with
// `error` set (a folder that cannot be read, out of memory).
int prepare_list_shards(PathList *list, const char *folder, const char *prefix, Error *error);

#endif
