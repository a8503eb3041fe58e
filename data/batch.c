#include "data/batch.h"

#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "tokenizer/pretokenize.h"

#define BATCH_BYTES ((size_t)16 << 20)
#define PIECE_BYTES ((size_t)256 << 10)   // small against a batch, so that the threads end together

size_t batch_threads(size_t asked)
{
#ifdef _OPENMP
    size_t threads = asked > 0 ? asked : (size_t)omp_get_max_threads();
    return threads < BATCH_THREADS ? threads : BATCH_THREADS;
#else
    (void)asked;
    return 1;
#endif
}

Batch *batch_create(size_t threads, BatchWork work, BatchDone done, void *context, Error *error)
{
    Batch *batch = calloc(1, sizeof *batch);
    char *arena = malloc(BATCH_BYTES);
    if (batch == NULL || arena == NULL) {
        free(batch);
        free(arena);
        error_set(error, "out of memory for a batch of documents");
        return NULL;
    }
    batch->threads = threads;
    batch->work = work;
    batch->done = done;
    batch->context = context;
    batch->arena = arena;
    batch->capacity = BATCH_BYTES;
    return batch;
}

void batch_free(Batch *batch)
{
    if (batch != NULL) {
        free(batch->arena);
        free(batch);
    }
}

static size_t thread_number(void)
{
#ifdef _OPENMP
    return (size_t)omp_get_thread_num();
#else
    return 0;
#endif
}

int batch_run(Batch *batch, Error *error)
{
    size_t count = batch->count, first_failed = count;
    Error failure = {{0}};
#pragma omp parallel for schedule(dynamic, 1) num_threads((int)batch->threads)
    for (size_t i = 0; i < count; i++) {
        Error own;
        const Piece *piece = &batch->pieces[i];
        if (batch->work(batch->context, thread_number(), i, batch->arena + piece->offset, piece->length, &own) != 0) {
#pragma omp critical(batch_failure)
            if (i < first_failed) {
                first_failed = i;
                failure = own;
            }
        }
    }
    batch->count = 0;
    batch->used = 0;
    if (first_failed < count) {
        return error_set(error, "%s", failure.text);
    }
    for (size_t i = 0; i < count && batch->done != NULL; i++) {
        if (batch->done(batch->context, i, &batch->pieces[i], error) != 0) {
            return -1;
        }
    }
    return 0;
}

// Length of the next piece of a text.
static size_t piece_length(const char *text, size_t length)
{
    size_t cut = length > PIECE_BYTES ? pretokenize_cut(text, length, PIECE_BYTES) : 0;
    return cut > 0 ? cut : length;
}

static int add_piece(Batch *batch, const char *text, size_t length, bool starts_document, bool validation, Error *error)
{
    if ((batch->count == BATCH_PIECES || length > batch->capacity - batch->used) && batch_run(batch, error) != 0) {
        return -1;
    }
    if (length > batch->capacity) {
        char *larger = realloc(batch->arena, length);
        if (larger == NULL) {
            return error_set(error, "out of memory for a document's piece of %zu bytes without line ends", length);
        }
        batch->arena = larger;
        batch->capacity = length;
    }
    memcpy(batch->arena + batch->used, text, length);
    batch->pieces[batch->count++] = (Piece){batch->used, length, starts_document, validation};
    batch->used += length;
    return 0;
}

int batch_add(Batch *batch, const char *text, size_t length, bool validation, Error *error)
{
    bool starts_document = true;
    while (length > 0) {
        size_t piece = piece_length(text, length);
        if (add_piece(batch, text, piece, starts_document, validation, error) != 0) {
            return -1;
        }
        starts_document = false;
        text += piece;
        length -= piece;
    }
    return 0;
}
