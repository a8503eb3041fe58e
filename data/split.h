// Which documents, or which parts of them, are validation data.
#ifndef DATA_SPLIT_H
#define DATA_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/file.h"
#include "data/corpus.h"

// A document belongs to validation when the XXH3 hash of its text lies below `limit` (so equal texts never stand on both sides); with
// `tail`, the end of every document does instead.
typedef struct Split {
    uint64_t limit;
    bool tail;
    double fraction;
} Split;

// Chooses the rule. `fraction` of the documents in general. Where few documents would leave one side empty, the one with the least hash
// becomes validation (with the greatest, training). Where that would take more than a tenth of the bytes (and twice the fraction), as
// with one or two books, it is the tail of each document: `fraction` of its bytes, at least 16 kB or a tenth. Reads the corpus only as
// far as needed. Returns 0, or -1 with `error` set (also when there is no document).
int split_choose(Split *split, const PathList *files, const CorpusOptions *options, double fraction, Error *error);

// Cuts a document: bytes [0, result) are for training, the rest for validation.
size_t split_cut(const Split *split, const char *text, size_t length);

#endif
