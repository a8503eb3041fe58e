#include "data/batch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "tokenizer/pretokenize.h"

#define SET_BYTES ((size_t)16 << 20)
#define PIECE_BYTES ((size_t)256 << 10)   // small against a set, so that the threads end together
#define CLAIM_BYTES ((size_t)32 << 10)    // short pieces are taken several at once

typedef struct PieceSet {
    char *arena;
    size_t used, capacity, count;
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
    PieceSet sets[2];
    size_t filling;          // which set
    uint64_t skip;           // pieces still to be passed over
    size_t n_workers;
    Worker workers[BATCH_THREADS];

    // The set that is worked on; the lock guards what follows.
    pthread_mutex_t lock;
    pthread_cond_t changed;
    PieceSet *active;        // NULL: none
    size_t next, finished;   // pieces of it taken, and done with
    size_t first_failed;
    Error failure;           // of that piece
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

// Works on some of the active set's pieces. The lock is held at the start and at the end.
static void work_some(Batch *batch, size_t thread)
{
    PieceSet *set = batch->active;
    size_t first = batch->next, bytes = 0, failed = SIZE_MAX;
    while (batch->next < set->count && bytes < CLAIM_BYTES) {
        bytes += set->pieces[batch->next++].length;
    }
    size_t end = batch->next, slot = set == &batch->sets[0] ? 0 : BATCH_PIECES;
    pthread_mutex_unlock(&batch->lock);
    Error error = {{0}};
    for (size_t i = first; i < end && failed == SIZE_MAX; i++) {
        const Piece *piece = &set->pieces[i];
        if (batch->work(batch->context, thread, slot + i, set->arena + piece->offset, piece->length, &error) != 0) {
            failed = i;
        }
    }
    pthread_mutex_lock(&batch->lock);
    if (failed < batch->first_failed) {
        batch->first_failed = failed;
        batch->failure = error;
    }
    batch->finished += end - first;
    if (batch->finished == set->count) {
        pthread_cond_broadcast(&batch->changed);
    }
}

static void *run_worker(void *argument)
{
    Worker *worker = argument;
    Batch *batch = worker->batch;
    pthread_mutex_lock(&batch->lock);
    while (!batch->stop) {
        if (batch->active != NULL && batch->next < batch->active->count) {
            work_some(batch, worker->number);
        } else {
            pthread_cond_wait(&batch->changed, &batch->lock);
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
    batch->first_failed = SIZE_MAX;
    pthread_mutex_init(&batch->lock, NULL);
    pthread_cond_init(&batch->changed, NULL);
    for (size_t i = 0; i < 2; i++) {
        batch->sets[i].arena = malloc(SET_BYTES);
        batch->sets[i].capacity = SET_BYTES;
        if (batch->sets[i].arena == NULL) {
            error_set(error, "out of memory for a batch of documents");
            batch_free(batch);
            return NULL;
        }
    }
    // Thread 0 is the caller's. Where the system gives fewer threads, those there are do the work.
    for (size_t i = 1; i < threads; i++) {
        Worker *worker = &batch->workers[batch->n_workers];
        *worker = (Worker){.batch = batch, .number = i};
        if (pthread_create(&worker->thread, NULL, run_worker, worker) != 0) {
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
    pthread_cond_broadcast(&batch->changed);
    pthread_mutex_unlock(&batch->lock);
    for (size_t i = 0; i < batch->n_workers; i++) {
        pthread_join(batch->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&batch->changed);
    pthread_mutex_destroy(&batch->lock);
    free(batch->sets[0].arena);
    free(batch->sets[1].arena);
    free(batch);
}

// Works along until the active set is finished, and makes `next` (or none) the active one. *finished is the set that was active.
static int switch_active(Batch *batch, PieceSet *next, PieceSet **finished, Error *error)
{
    pthread_mutex_lock(&batch->lock);
    while (batch->active != NULL && batch->finished < batch->active->count) {
        if (batch->next < batch->active->count) {
            work_some(batch, 0);
        } else {
            pthread_cond_wait(&batch->changed, &batch->lock);
        }
    }
    *finished = batch->active;
    int result = batch->first_failed == SIZE_MAX ? 0 : error_set(error, "%s", batch->failure.text);
    batch->active = result == 0 ? next : NULL;
    batch->next = batch->finished = 0;
    pthread_cond_broadcast(&batch->changed);
    pthread_mutex_unlock(&batch->lock);
    return result;
}

// Takes the results of a finished set, which may then be filled again.
static int take_results(Batch *batch, PieceSet *set, Error *error)
{
    if (set == NULL) {
        return 0;
    }
    size_t slot = set == &batch->sets[0] ? 0 : BATCH_PIECES;
    for (size_t i = 0; i < set->count && batch->done != NULL; i++) {
        if (batch->done(batch->context, slot + i, &set->pieces[i], error) != 0) {
            return -1;
        }
    }
    set->count = set->used = 0;
    return 0;
}

// Hands the set that is filled to the threads and goes on with the other.
static int submit(Batch *batch, Error *error)
{
    PieceSet *finished;
    if (switch_active(batch, &batch->sets[batch->filling], &finished, error) != 0 || take_results(batch, finished, error) != 0) {
        return -1;
    }
    batch->filling = 1 - batch->filling;
    return 0;
}

int batch_run(Batch *batch, Error *error)
{
    PieceSet *finished;
    if (submit(batch, error) != 0 || switch_active(batch, NULL, &finished, error) != 0) {
        return -1;
    }
    return take_results(batch, finished, error);
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
    PieceSet *set = &batch->sets[batch->filling];
    if (batch->skip > 0) {
        batch->skip--;
        return 0;
    }
    if (set->count > 0 && (set->count == BATCH_PIECES || length > set->capacity - set->used)) {
        if (submit(batch, error) != 0) {
            return -1;
        }
        set = &batch->sets[batch->filling];
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
