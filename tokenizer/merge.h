// Merging: from the symbols of a piece of text to its ids.
#ifndef TOKENIZER_MERGE_H
#define TOKENIZER_MERGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "tokenizer/bpe.h"

// A thread's scratch memory.
typedef struct Merger Merger;
Merger *merger_create(const Tokenizer *tokenizer, Error *error);
void merger_free(Merger *merger);

// What is merged at once; it takes 28 bytes of memory a byte, and three times that where bytes lack ids.
#define MERGER_MAX_LENGTH ((size_t)4 << 20)

// Merges text [length ≤ MERGER_MAX_LENGTH] by rank, n log n in its length. Returns its ids, which stay valid until the next call, and their
// number; NULL with `error` set when out of memory.
const int32_t *merger_run(Merger *merger, const unsigned char *text, size_t length, size_t *count, Error *error);

#endif
