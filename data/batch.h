// Pieces of text worked on by several threads, with results taken in the order in which the pieces came. The caller fills sets of pieces,
// some ahead of the threads that work on them, so that these need not wait while the caller reads or writes. A single thread is the caller's.
#ifndef DATA_BATCH_H
#define DATA_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "tokenizer/bpe.h"

// Number of the rule by which texts are cut into pieces: what counted pieces by another cannot go on from its count.
enum { BATCH_CUTS = 2 };

enum { BATCH_PIECES = 8192, BATCH_SETS = 6, BATCH_SLOTS = BATCH_SETS * BATCH_PIECES, BATCH_THREADS = 64 };

typedef struct Piece {
    size_t offset, length;    // in its set's arena
    bool starts_document;
    bool validation;
} Piece;

// Called for each piece by some thread (0 … threads−1), in any order; `slot` is below BATCH_SLOTS and no other piece's until this one is
// done. Returns 0, or -1 with `error` set.
typedef int (*BatchWork)(void *context, size_t thread, size_t slot, const char *text, size_t length, Error *error);
// Called for each piece in order, by the thread that fills the batch, some time after it is worked on. May be NULL.
typedef int (*BatchDone)(void *context, size_t slot, const Piece *piece, Error *error);

typedef struct Batch Batch;

// The number of threads that `asked` (0: all) means here: at most BATCH_THREADS.
size_t batch_threads(size_t asked);

// Returns a batch to free with batch_free, or NULL with `error` set. `tokenizer` tells where a text may be cut; NULL: where the trainer of
// tokenizers may.
Batch *batch_create(size_t threads, const Tokenizer *tokenizer, BatchWork work, BatchDone done, void *context, Error *error);
void batch_free(Batch *batch);

// Copies the text; full sets are worked on. A long text is cut into several pieces, only where no pre-token reaches across, so that the
// ids of the pieces together are those of the text. Empty text: nothing. Returns
// 0, or -1 with `error` set (of the first piece that failed); then only batch_free may follow.
int batch_add(Batch *batch, const char *text, size_t length, bool validation, Error *error);
// Of what is added from now on, the first `pieces` pieces are passed over: those that were done with before.
void batch_skip(Batch *batch, uint64_t pieces);
bool batch_skipping(const Batch *batch);
// Waits for all that has been added.
int batch_run(Batch *batch, Error *error);

#endif
