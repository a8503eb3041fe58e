// The merges of a vocabulary that has none of its own, only an order of its tokens: every way in which a token is made of two others.
#ifndef TOKENIZER_SPLITS_H
#define TOKENIZER_SPLITS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "tokenizer/byte_map.h"

enum { MAX_SPLIT_LENGTH = 1024 };

typedef struct Split {
    uint32_t left, right;   // places in the map
} Split;

// The ways to make the token at `place` of two tokens that are in the map, in the order in which they are tried. Values in the map are the
// tokens' ranks. Tokens longer than MAX_SPLIT_LENGTH have none. Fills `splits` (room for MAX_SPLIT_LENGTH); returns their number.
size_t splits_of(const ByteMap *tokens, size_t place, Split *splits);

#endif
