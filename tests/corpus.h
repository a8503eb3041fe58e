// What the tests of corpora share: the documents that were seen, and what they should be. Functions end the test through cmocka.
#ifndef TESTS_CORPUS_H
#define TESTS_CORPUS_H

#include <stdbool.h>

#include "data/corpus.h"
#include "tests/scratch.h"

typedef struct Seen {
    char text[64][64];
    size_t length[64];
    size_t count, total;
    size_t stop_at;   // 0: never
} Seen;

static inline int see(void *context, uint64_t index, const char *text, size_t length, Error *error)
{
    Seen *seen = context;
    assert_int_equal(index, seen->count);
    if (seen->count < 64) {
        memcpy(seen->text[seen->count], text, length < 64 ? length : 64);
        seen->length[seen->count] = length;
    }
    seen->count++;
    seen->total += length;
    return seen->count == seen->stop_at ? error_set(error, "stopped") : 0;
}

static inline int read_path(const char *path, const CorpusOptions *options, CorpusStats *stats, Seen *seen, Error *error)
{
    PathList list = {0};
    memset(seen, 0, sizeof *seen);
    assert_int_equal(path_list_add(&list, path, error), 0);
    int result = corpus_read(&list, options, stats, see, seen, error);
    path_list_free(&list);
    return result;
}

static inline int read_one(void **state, const char *name, const void *data, size_t size, const CorpusOptions *options, CorpusStats *stats,
                           Seen *seen, Error *error)
{
    char *path = make_file(state, name, data, size);
    int result = read_path(path, options, stats, seen, error);
    free(path);
    return result;
}

static inline void assert_document(const Seen *seen, size_t i, const char *text, size_t length)
{
    assert_true(i < seen->count);
    assert_int_equal(seen->length[i], length);
    assert_memory_equal(seen->text[i], text, length);
}

#endif
