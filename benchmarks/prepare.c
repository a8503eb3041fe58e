#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "benchmarks/encode.h"
#include "data/batch.h"
#include "data/prepare.h"

#define DOCUMENT_BYTES ((size_t)512 << 10)   // of a book
#define OWN_BYTES ((size_t)200 << 20)

typedef struct PrepareContext {
    const char *text;
    size_t length, threads;
    Encoder *encoders[BATCH_THREADS];
    TokenList lists[BATCH_THREADS];
    PathList files;
    size_t file_bytes;
    char folder[PATH_MAX];                 // temporary; "": there is none
    char *out, *tokenizer_path;            // in it: folder of the shards, the tokenizer's file
    int failed;
    Error error;
} PrepareContext;

static void run_encoders(void *context)
{
    PrepareContext *c = context;
    int failed = 0;
#pragma omp parallel for num_threads((int)c->threads) schedule(static, 1) reduction(| : failed)
    for (size_t i = 0; i < c->threads; i++) {
        Error error;
        TokenList list = c->lists[i];
        list.count = 0;
        failed |= encoder_encode(c->encoders[i], &list, c->text, c->length, 0, &error);
        c->lists[i] = list;
    }
    if (failed != 0) {
        c->failed = error_set(&c->error, "out of memory for encoding");
    }
}

static void run_prepare(void *context)
{
    PrepareContext *c = context;
    PrepareOptions options;
    prepare_defaults(&options);
    options.tokenizer_path = c->tokenizer_path;
    options.threads = (int64_t)c->threads;
    options.quiet = true;
    if (c->failed == 0) {
        c->failed = prepare_documents(&c->files, c->out, &options, &c->error) != 0 || folder_remove(c->out, &c->error) != 0 ? -1 : 0;
    }
}

static int make_folder(PrepareContext *c, Error *error)
{
    if (folder_temporary(c->folder, sizeof c->folder, error) != 0) {
        c->folder[0] = 0;
        return -1;
    }
    c->out = path_join(c->folder, "data");
    c->tokenizer_path = path_join(c->folder, "tokenizer.json");
    return c->out == NULL || c->tokenizer_path == NULL ? error_set(error, "out of memory for the benchmark of ./prepare") : 0;
}

// Writes one document of the text that begins at `at`, and moves on to the next line.
static int write_document(PrepareContext *c, size_t number, size_t *at, Error *error)
{
    char name[32];
    size_t left = c->length - *at, length = left < DOCUMENT_BYTES ? left : DOCUMENT_BYTES;
    const char *line = memchr(c->text + *at + length, '\n', left - length);
    length = line != NULL ? (size_t)(line - (c->text + *at)) + 1 : left;
    snprintf(name, sizeof name, "document_%05zu.txt", number);
    char *path = path_join(c->folder, name);
    int failed = path == NULL ? error_set(error, "out of memory for the benchmark of ./prepare")
                              : file_write_atomic(path, c->text + *at, length, error) != 0 || path_list_add(&c->files, path, error) != 0;
    free(path);
    c->file_bytes += length;
    *at += length;
    return failed != 0 ? -1 : 0;
}

// The text in documents, over and over until there are so many bytes, and at least once.
static int write_documents(PrepareContext *c, size_t least, Error *error)
{
    for (size_t number = 0; number == 0 || c->file_bytes < least;) {
        for (size_t at = 0; at < c->length; number++) {
            if (write_document(c, number, &at, error) != 0) {
                return -1;
            }
        }
    }
    return 0;
}

static int measure(Report *report, PrepareContext *c, const Tokenizer *tokenizer, bool own_text, size_t runs, Error *error)
{
    if (make_folder(c, error) != 0 || tokenizer_save(tokenizer, c->tokenizer_path, error) != 0 || write_documents(c, own_text ? OWN_BYTES : 0, error) != 0) {
        return -1;
    }
    c->threads = batch_threads(0);
    for (size_t i = 0; i < c->threads; i++) {
        c->encoders[i] = encoder_create(tokenizer, error);
        if (c->encoders[i] == NULL) {
            return -1;
        }
    }
    Spread spreads[2];
    time_in_turns(spreads, runs, (void (*const[])(void *)){run_encoders, run_prepare}, (void *const[]){c, c});
    if (c->failed != 0) {
        *error = c->error;
        return -1;
    }
    double encoded = rate_of(spreads[0], (double)(c->length * c->threads) / 1e6).median;
    // Texts made here have so few different words that they are encoded several times as fast as English: no figure is required of them.
    report_line(report, "prepare, all threads", rate_of(spreads[1], (double)c->file_bytes / 1e6), "MB/s", encoded, own_text ? 0.0 : 0.8);
    return 0;
}

int bench_prepare(Report *report, const char *tokenizer_path, const char *text_path, size_t runs, Error *error)
{
    PrepareContext c = {0};
    char *text = bench_text(text_path, &c.length, error);
    Tokenizer *tokenizer = text != NULL ? bench_text_tokenizer(tokenizer_path, text, c.length, error) : NULL;
    c.text = text;
    if (tokenizer != NULL && c.length == 0) {
        error_set(error, "%s is empty", text_path);
        tokenizer_free(tokenizer);
        tokenizer = NULL;
    }
    int result = tokenizer != NULL ? measure(report, &c, tokenizer, text_path == NULL, runs, error) : -1;
    Error ignored;
    if (c.folder[0] != 0 && folder_remove(c.folder, result == 0 ? error : &ignored) != 0) {
        result = -1;
    }
    for (size_t i = 0; i < BATCH_THREADS; i++) {
        encoder_free(c.encoders[i]);
        token_list_free(&c.lists[i]);
    }
    path_list_free(&c.files);
    free(c.out);
    free(c.tokenizer_path);
    tokenizer_free(tokenizer);
    free(text);
    return result;
}
