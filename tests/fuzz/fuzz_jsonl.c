// Any bytes as .jsonl: documents or skipped records, never a crash. The first byte chooses the options.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/corpus.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct Sum {
    uint64_t documents, bytes, sum;
} Sum;

static int visit(void *context, uint64_t index, const char *text, size_t length, Error *error)
{
    (void)error;
    Sum *sum = context;
    if (index != sum->documents || length == 0) {
        abort();
    }
    sum->documents++;
    sum->bytes += length;
    for (size_t i = 0; i < length; i++) {
        sum->sum += (unsigned char)text[i];
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned choice = size > 0 ? data[0] : 0;
    size_t skip = size > 0 ? 1 : 0;
    const char *path = fuzz_file(".jsonl", data + skip, size - skip);   // the form goes by the name
    Error error;
    PathList list = {0};
    if (path_list_add(&list, path, &error) != 0) {
        abort();
    }
    CorpusOptions options = {.text_key = choice & 1 ? "t" : NULL, .strict = (choice & 2) != 0, .quiet = true,
                             .where = choice & 4 ? "n>=1" : NULL, .dedup = (choice & 8) != 0};
    CorpusStats stats;
    Sum sum = {0};
    int result = corpus_read(&list, &options, &stats, visit, &sum, &error);
    if (stats.documents != sum.documents || stats.bytes != sum.bytes || stats.bytes_read > size || (result != 0 && !options.strict)) {
        abort();
    }
    path_list_free(&list);
    return 0;
}
