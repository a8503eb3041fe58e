#include "data/batch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/thread.h"
#include "tokenizer/pretokenize.h"

#define SET_BYTES ((size_t)8 << 20)
#define PIECE_BYTES ((size_t)256 << 10)   // small against a set, so that the threads end together
#define CLAIM_BYTES ((size_t)32 << 10)    // short pieces are taken several at once

typedef struct PieceSet {
    char *arena;
    size_t used, capacity, count;
    // The lock guards the rest.
    size_t next, finished;   // pieces taken, and done with
    size_t first_failed;     // SIZE_MAX: none
    Error failure;           // of that piece
    Piece pieces[BATCH_PIECES];
} PieceSet;

typedef struct Worker {
    struct Batch *batch;
    size_t number;
    pthread_t thread;
} Worker;

struct Batch {
    const Tokenizer *tokenizer;
    BatchWork work;
    BatchDone done;
    void *context;
    uint64_t skip;           // pieces still to be passed over
    size_t n_workers;        // 0: the caller works
    Worker workers[BATCH_THREADS];
    PieceSet sets[BATCH_SETS];   // set n at n % BATCH_SETS
    uint64_t taken;          // sets whose results are taken

    pthread_mutex_t lock;    // guards the rest
    pthread_cond_t more, finished;   // for the workers; for the caller
    uint64_t submitted;      // sets; the next one is being filled
    uint64_t claiming;       // the set whose pieces are given out
    bool stop;
};

size_t batch_threads(size_t asked)
{
#ifdef _OPENMP
    size_t all = (size_t)omp_get_max_threads();
#else
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    size_t all = online > 0 ? (size_t)online : 1;
#endif
    size_t threads = asked > 0 ? asked : all;
    return threads < BATCH_THREADS ? threads : BATCH_THREADS;
}

static PieceSet *set_at(Batch *batch, uint64_t number) { return &batch->sets[number % BATCH_SETS]; }

// Works on some pieces, or returns false when none is left. The lock is held at the start and at the end.
static bool work_some(Batch *batch, size_t thread)
{
    while (batch->claiming < batch->submitted && set_at(batch, batch->claiming)->next == set_at(batch, batch->claiming)->count) {
        batch->claiming++;
    }
    if (batch->claiming == batch->submitted) {
        return false;
    }
    PieceSet *set = set_at(batch, batch->claiming);
    size_t first = set->next, bytes = 0, failed = SIZE_MAX;
    while (set->next < set->count && bytes < CLAIM_BYTES) {
        bytes += set->pieces[set->next++].length;
    }
    size_t end = set->next, slot = (size_t)(set - batch->sets) * BATCH_PIECES;
    pthread_mutex_unlock(&batch->lock);
    Error error = {{0}};
    for (size_t i = first; i < end && failed == SIZE_MAX; i++) {
        const Piece *piece = &set->pieces[i];
        if (batch->work(batch->context, thread, slot + i, set->arena + piece->offset, piece->length, &error) != 0) {
            failed = i;
        }
    }
    pthread_mutex_lock(&batch->lock);
    if (failed < set->first_failed) {
        set->first_failed = failed;
        set->failure = error;
    }
    set->finished += end - first;
    if (set->finished == set->count) {
        pthread_cond_signal(&batch->finished);
    }
    return true;
}

static void *run_worker(void *argument)
{
    Worker *worker = argument;
    Batch *batch = worker->batch;
    pthread_mutex_lock(&batch->lock);
    while (!batch->stop) {
        if (!work_some(batch, worker->number)) {
            pthread_cond_wait(&batch->more, &batch->lock);
        }
    }
    pthread_mutex_unlock(&batch->lock);
    return NULL;
}

Batch *batch_create(size_t threads, const Tokenizer *tokenizer, BatchWork work, BatchDone done, void *context, Error *error)
{
    Batch *batch = calloc(1, sizeof *batch);
    if (batch == NULL) {
        error_set(error, "out of memory for a batch of documents");
        return NULL;
    }
    batch->tokenizer = tokenizer;
    batch->work = work;
    batch->done = done;
    batch->context = context;
    pthread_mutex_init(&batch->lock, NULL);
    pthread_cond_init(&batch->more, NULL);
    pthread_cond_init(&batch->finished, NULL);
    for (size_t i = 0; i < BATCH_SETS; i++) {
        batch->sets[i].arena = malloc(SET_BYTES);
        batch->sets[i].capacity = SET_BYTES;
        batch->sets[i].first_failed = SIZE_MAX;
        if (batch->sets[i].arena == NULL) {
            error_set(error, "out of memory for a batch of documents");
            batch_free(batch);
            return NULL;
        }
    }
    // Where the system gives fewer threads, those there are do the work.
    for (size_t i = 0; i < threads && threads > 1; i++) {
        Worker *worker = &batch->workers[batch->n_workers];
        *worker = (Worker){.batch = batch, .number = i};
        if (thread_start(&worker->thread, run_worker, worker) != 0) {
            break;
        }
        batch->n_workers++;
    }
    return batch;
}

void batch_free(Batch *batch)
{
    if (batch == NULL) {
        return;
    }
    pthread_mutex_lock(&batch->lock);
    batch->stop = true;
    pthread_cond_broadcast(&batch->more);
    pthread_mutex_unlock(&batch->lock);
    for (size_t i = 0; i < batch->n_workers; i++) {
        pthread_join(batch->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&batch->finished);
    pthread_cond_destroy(&batch->more);
    pthread_mutex_destroy(&batch->lock);
    for (size_t i = 0; i < BATCH_SETS; i++) {
        free(batch->sets[i].arena);
    }
    free(batch);
}

// Waits for the oldest set that was submitted, and takes its results: it may then be filled again.
static int take_oldest(Batch *batch, Error *error)
{
    PieceSet *set = set_at(batch, batch->taken);
    pthread_mutex_lock(&batch->lock);
    while (set->finished < set->count) {
        if (batch->n_workers > 0 || !work_some(batch, 0)) {
            pthread_cond_wait(&batch->finished, &batch->lock);
        }
    }
    int result = set->first_failed == SIZE_MAX ? 0 : error_set(error, "%s", set->failure.text);
    // Its place is filled again: nobody looks for pieces there.
    batch->claiming = batch->claiming > batch->taken ? batch->claiming : batch->taken + 1;
    pthread_mutex_unlock(&batch->lock);
    size_t slot = (size_t)(set - batch->sets) * BATCH_PIECES;
    for (size_t i = 0; i < set->count && result == 0 && batch->done != NULL; i++) {
        result = batch->done(batch->context, slot + i, &set->pieces[i], error);
    }
    set->count = set->used = set->next = set->finished = 0;
    batch->taken++;
    return result == 0 ? 0 : -1;
}

// Whether the results of a set can be had without waiting, or only by working for them.
static bool is_ready(Batch *batch, uint64_t number)
{
    if (batch->n_workers == 0) {
        return true;
    }
    pthread_mutex_lock(&batch->lock);
    bool finished = set_at(batch, number)->finished == set_at(batch, number)->count;
    pthread_mutex_unlock(&batch->lock);
    return finished;
}

// Hands the set that is filled to the threads and finds one to go on with.
static int submit(Batch *batch, Error *error)
{
    pthread_mutex_lock(&batch->lock);
    uint64_t submitted = ++batch->submitted;
    pthread_cond_broadcast(&batch->more);
    pthread_mutex_unlock(&batch->lock);
    while (batch->taken < submitted && (submitted - batch->taken == BATCH_SETS || is_ready(batch, batch->taken))) {
        if (take_oldest(batch, error) != 0) {
            return -1;
        }
    }
    return 0;
}

int batch_run(Batch *batch, Error *error)
{
    int result = submit(batch, error);
    while (result == 0 && batch->taken < batch->submitted) {
        result = take_oldest(batch, error);
    }
    return result;
}

void batch_skip(Batch *batch, uint64_t pieces) { batch->skip = pieces; }
bool batch_skipping(const Batch *batch) { return batch->skip > 0; }

// Length of the next piece of a text.
static size_t piece_length(const Batch *batch, const char *text, size_t length)
{
    if (length <= PIECE_BYTES) {
        return length;
    }
    size_t cut = batch->tokenizer != NULL ? tokenizer_cut(batch->tokenizer, text, length, PIECE_BYTES)
                                          : pretokenize_cut(text, length, PIECE_BYTES);
    return cut > 0 ? cut : length;
}

static int add_piece(Batch *batch, const char *text, size_t length, bool starts_document, bool validation, Error *error)
{
    PieceSet *set = set_at(batch, batch->submitted);
    if (batch->skip > 0) {
        batch->skip--;
        return 0;
    }
    if (set->count > 0 && (set->count == BATCH_PIECES || length > set->capacity - set->used)) {
        if (submit(batch, error) != 0) {
            return -1;
        }
        set = set_at(batch, batch->submitted);
    }
    // A long piece has a set of its own, and its memory is not kept.
    size_t capacity = length > SET_BYTES ? length : SET_BYTES;
    if (set->count == 0 && set->capacity != capacity) {
        char *arena = realloc(set->arena, capacity);
        if (arena == NULL) {
            return error_set(error, "out of memory for a document's piece of %zu bytes without line ends", length);
        }
        set->arena = arena;
        set->capacity = capacity;
    }
    memcpy(set->arena + set->used, text, length);
    set->pieces[set->count++] = (Piece){set->used, length, starts_document, validation};
    set->used += length;
    return 0;
}

int batch_add(Batch *batch, const char *text, size_t length, bool validation, Error *error)
{
    bool starts_document = true;
    while (length > 0) {
        size_t piece = piece_length(batch, text, length);
        if (add_piece(batch, text, piece, starts_document, validation, error) != 0) {
            return -1;
        }
        starts_document = false;
        text += piece;
        length -= piece;
    }
    return 0;
}
