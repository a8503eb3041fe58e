#include "data/split.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

enum { ENOUGH_DOCUMENTS = 100, TAIL_BYTES = 16384 };

typedef struct Scan {
    uint64_t limit;                      // of the plain rule
    uint64_t documents, bytes;
    uint64_t chosen, chosen_bytes;       // documents that the plain rule takes for validation
    uint64_t least, greatest;            // hashes
    uint64_t least_bytes, greatest_bytes;   // bytes of the documents that have them
    bool enough;
} Scan;

static int scan_document(void *context, uint64_t index, const char *text, size_t length, Error *error)
{
    (void)index;
    (void)error;
    Scan *scan = context;
    uint64_t hash = XXH3_64bits(text, length);
    bool chosen = hash < scan->limit;
    scan->documents++;
    scan->bytes += length;
    scan->chosen += chosen;
    scan->chosen_bytes += chosen ? length : 0;
    if (scan->documents == 1 || hash < scan->least) {
        scan->least = hash;
        scan->least_bytes = 0;
    }
    if (scan->documents == 1 || hash > scan->greatest) {
        scan->greatest = hash;
        scan->greatest_bytes = 0;
    }
    scan->least_bytes += hash == scan->least ? length : 0;
    scan->greatest_bytes += hash == scan->greatest ? length : 0;
    // Both sides have something and no document weighs much: the rest of a large corpus need not be read for this.
    scan->enough = scan->documents >= ENOUGH_DOCUMENTS && scan->chosen > 0 && scan->chosen < scan->documents;
    return scan->enough ? 1 : 0;
}

int split_choose(Split *split, const PathList *files, const CorpusOptions *options, double fraction, Error *error)
{
    *split = (Split){.limit = fraction >= 1.0 ? UINT64_MAX : (uint64_t)ldexp(fraction, 64), .fraction = fraction};
    if (fraction <= 0.0) {
        split->limit = 0;
        return 0;
    }
    CorpusOptions quiet = *options;
    quiet.quiet = true;
    CorpusStats stats;
    Scan scan = {.limit = split->limit};
    if (corpus_read(files, &quiet, &stats, scan_document, &scan, error) != 0) {
        return scan.enough ? 0 : -1;
    }
    if (scan.documents == 0) {
        return corpus_no_documents(files, &stats, error);
    }
    if (scan.chosen == 0) {
        split->limit = scan.least == UINT64_MAX ? scan.least : scan.least + 1;
        scan.chosen_bytes = scan.least_bytes;
    } else if (scan.chosen == scan.documents) {
        split->limit = scan.greatest;
        scan.chosen_bytes = scan.bytes - scan.greatest_bytes;
    }
    double share = (double)scan.chosen_bytes / (double)scan.bytes;
    split->tail = scan.least == scan.greatest || (share > 0.1 && share > 2.0 * fraction);
    return 0;
}

static size_t cut_tail(const char *text, size_t length, double fraction)
{
    size_t least = length / 10 < TAIL_BYTES ? length / 10 : TAIL_BYTES;
    size_t tail = (size_t)(fraction * (double)length);
    tail = tail < least ? least : tail > length ? length : tail;
    size_t start = length - tail;
    const char *line = memchr(text + start, '\n', tail / 2);
    if (line != NULL) {
        return (size_t)(line - text) + 1;
    }
    // No line ends near: at least no character is cut in two (more than three bytes on there would be no UTF-8).
    for (int i = 0; i < 3 && start < length && ((unsigned char)text[start] & 0xc0) == 0x80; i++) {
        start++;
    }
    return start;
}

size_t split_cut(const Split *split, const char *text, size_t length)
{
    if (split->tail) {
        return cut_tail(text, length, split->fraction);
    }
    return split->limit > 0 && XXH3_64bits(text, length) < split->limit ? 0 : length;
}
