// Pieces of text worked on by several threads, with results taken in the order in which the pieces came.
#ifndef DATA_BATCH_H
#define DATA_BATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { BATCH_PIECES = 8192, BATCH_THREADS = 64 };

typedef struct Piece {
    size_t offset, length;    // in the batch's arena
    bool starts_document;
    bool validation;
} Piece;

// Called for each piece by some thread (0 … threads−1), in any order. Returns 0, or -1 with `error` set.
typedef int (*BatchWork)(void *context, size_t thread, size_t slot, const char *text, size_t length, Error *error);
// Called for each piece in order, by one thread, when all of the batch are worked on. May be NULL.
typedef int (*BatchDone)(void *context, size_t slot, const Piece *piece, Error *error);

typedef struct Batch {
    BatchWork work;
    BatchDone done;
    void *context;
    size_t threads;
    char *arena;
    size_t used, capacity, count;
    Piece pieces[BATCH_PIECES];
} Batch;

// The number of threads that `asked` (0: all) means here: at most BATCH_THREADS, 1 without OpenMP.
size_t batch_threads(size_t asked);

// Returns a batch to free with batch_free, or NULL with `error` set.
Batch *batch_create(size_t threads, BatchWork work, BatchDone done, void *context, Error *error);
void batch_free(Batch *batch);

// Copies the text; full batches are run. A long text is cut into several pieces, only where no pre-token reaches across, so that the ids
// of the pieces together are those of the text. Empty text: nothing. Returns 0, or -1 with `error` set (of the first piece that failed).
int batch_add(Batch *batch, const char *text, size_t length, bool validation, Error *error);
// Runs what has been added.
int batch_run(Batch *batch, Error *error);

#endif
