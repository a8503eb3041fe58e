// Ways to cut a window into documents, for the tests of packed documents.
#ifndef TESTS_DOCUMENTS_H
#define TESTS_DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/rng.h"

typedef enum DocumentCut {
    DOCUMENTS_NONE,        // no border at all
    DOCUMENTS_FIRST,       // the first token begins one, as it does without being marked
    DOCUMENTS_LAST,        // the last token begins one
    DOCUMENTS_TWO,         // two in a row: a document of one token
    DOCUMENTS_MANY,        // around the places where mixers keep states
    DOCUMENTS_RANDOM,
    DOCUMENTS_EVERY,       // each token is a document
    DOCUMENT_CUTS,
} DocumentCut;

static inline void cut_documents(uint8_t *starts, size_t length, DocumentCut cut, Rng *rng)
{
    static const size_t many[] = {1, 31, 32, 65, 66, 98, 131};
    memset(starts, 0, length);
    starts[0] = cut == DOCUMENTS_FIRST;
    starts[length - 1] = cut == DOCUMENTS_LAST;
    for (size_t i = 1; i < length; i++) {
        bool two = cut == DOCUMENTS_TWO && (i == length / 3 || i == length / 3 + 1);
        starts[i] = starts[i] != 0 || two || cut == DOCUMENTS_EVERY || (cut == DOCUMENTS_RANDOM && rng_below(rng, 9) == 0);
    }
    for (size_t i = 0; cut == DOCUMENTS_MANY && i < sizeof many / sizeof many[0]; i++) {
        if (many[i] < length) {
            starts[many[i]] = 1;
        }
    }
}

#endif
