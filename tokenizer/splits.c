#include "tokenizer/splits.h"

#include <stdlib.h>

size_t splits_of(const ByteMap *tokens, size_t place, Split *splits)
{
    const ByteMapEntry *token = &tokens->entries[place];
    const char *bytes = tokens->bytes + token->offset;
    size_t count = 0;
    for (size_t k = 1; token->length <= MAX_SPLIT_LENGTH && k < token->length; k++) {
        const ByteMapEntry *left = byte_map_find(tokens, bytes, k), *right = byte_map_find(tokens, bytes + k, token->length - k);
        if (left != NULL && right != NULL) {
            splits[count++] = (Split){(uint32_t)(left - tokens->entries), (uint32_t)(right - tokens->entries)};
        }
    }
    return count;
}
