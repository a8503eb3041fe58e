// Documents in packed windows. `starts` holds a number for each row of a sequence: not 0 where the row is the first of a document; NULL: the sequence is
// one document. A sequence's first row begins a document, marked or not.
#ifndef MODEL_KERNELS_DOCUMENTS_H
#define MODEL_KERNELS_DOCUMENTS_H

#include <stddef.h>
#include <stdint.h>

// The starts of sequence b, out of those of a batch.
static inline const uint8_t *sequence_starts(const uint8_t *starts, size_t b, size_t length) { return starts == NULL ? NULL : starts + b * length; }

// The row behind the last of the document that begins at row `first` of a sequence of `length` rows.
static inline size_t document_end(const uint8_t *starts, size_t first, size_t length)
{
    size_t end = starts == NULL ? length : first + 1;
    while (end < length && starts[end] == 0) {
        end++;
    }
    return end;
}

// The first row of the document that ends before row `end`, which is not 0.
static inline size_t document_begin(const uint8_t *starts, size_t end)
{
    size_t first = starts == NULL ? 0 : end - 1;
    while (first > 0 && starts[first] == 0) {
        first--;
    }
    return first;
}

#endif
