// What is done to text before it is cut: composed characters (NFC), something put in front, strings replaced.
#ifndef TOKENIZER_NORMALIZE_H
#define TOKENIZER_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { MAX_EDIT_TEXT = 16 };

typedef enum EditKind { EDIT_NFC, EDIT_PREPEND, EDIT_REPLACE } EditKind;

// Each leaves an empty text empty.
typedef struct Edit {
    EditKind kind;
    bool unless_there;    // EDIT_PREPEND: not if the text begins with it
    bool only_at_start;   // EDIT_PREPEND: only where the whole text starts
    size_t from_length, to_length;
    char from[MAX_EDIT_TEXT], to[MAX_EDIT_TEXT];   // EDIT_PREPEND uses `to`
} Edit;

// A thread's scratch memory.
typedef struct Normalizer Normalizer;
Normalizer *normalizer_create(Error *error);
void normalizer_free(Normalizer *normalizer);

// Applies edits in order to any bytes (NFC leaves what is no UTF-8 alone). `text` and `length` then tell the result, which is the text
// itself where nothing changes it, or stays valid until the normalizer is used again. Returns 0, or -1 with `error` set (out of memory).
int normalizer_apply(Normalizer *normalizer, const Edit *edits, size_t n_edits, bool at_start, const char **text, size_t *length,
                     Error *error);

#endif
