// Any bytes as a packed file or an archive: documents or an error, never a crash. The first byte chooses the form.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/corpus.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int visit(void *context, uint64_t index, const char *text, size_t length, Error *error)
{
    uint64_t *bytes = context;
    (void)index;
    (void)text;
    *bytes += length;
    // A few bytes may unpack to very many: so much is looked at.
    return *bytes > (1 << 24) ? error_set(error, "enough") : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const suffixes[] = {".tar", ".tar.gz", ".tar.zst", ".tar.xz", ".tar.bz2", ".txt.gz", ".jsonl.zst", ".txt.xz", ".jsonl.bz2"};
    const char *suffix = suffixes[size > 0 ? data[0] % (sizeof suffixes / sizeof suffixes[0]) : 0];
    size_t skip = size > 0 ? 1 : 0;
    const char *path = fuzz_file(suffix, data + skip, size - skip);
    Error error = {{0}};
    PathList list = {0};
    if (path_list_add(&list, path, &error) != 0) {
        abort();
    }
    CorpusOptions options = {.quiet = true};
    CorpusStats stats;
    uint64_t bytes = 0;
    int result = corpus_read(&list, &options, &stats, visit, &bytes, &error);
    if (stats.bytes != bytes || stats.bytes_read > size || (result != 0 && error.text[0] == 0)) {
        abort();
    }
    path_list_free(&list);
    return 0;
}
