// What a Tokenizer is made of: shared by the files of tokenizer/, nobody else.
#ifndef TOKENIZER_BPE_INTERNAL_H
#define TOKENIZER_BPE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/bpe.h"

#define END_OF_TEXT "<|endoftext|>"

enum { MAX_VOCAB = 1 << 24, MAX_ADDED = 10000 };

// Two ids that become one. The place in the list of merges is the rank: the smallest goes first.
typedef struct Merge {
    int32_t left, right, result;
} Merge;

// A token that is found in the text before it is cut into pre-tokens.
typedef struct AddedToken {
    int32_t id;
    bool special;      // only when the caller asks for specials; else always
    bool normalized;   // looked for after those that are not, in what they leave
} AddedToken;

typedef struct MergeSlot {
    uint64_t key;           // left << 32 | right
    int32_t rank, result;   // rank −1 = free slot
} MergeSlot;

struct Tokenizer {
    size_t vocab_size;
    char *bytes;            // of all tokens; token i is [offsets[i], offsets[i + 1])
    size_t *offsets;        // [vocab_size + 1]
    int32_t byte_ids[256];
    Merge *merges;
    size_t n_merges;
    AddedToken *added;      // by id
    size_t n_added;
    // Made from the above by tokenizer_complete:
    MergeSlot *slots;       // hash table of the merges
    unsigned slot_shift;    // 64 − log2 of its size
    size_t slot_mask;
    int32_t *longest_first; // places in `added`, longest token first
    bool added_start[256];  // first bytes of added tokens
    int32_t end_of_text;
    uint32_t hash;
};

// Fills the second half of a tokenizer from the first. Takes ownership: on failure (out of memory, a pair that is merged twice, no
// <|endoftext|> among the added tokens) it frees the tokenizer and returns NULL with `error` set.
Tokenizer *tokenizer_complete(Tokenizer *tokenizer, Error *error);

static inline size_t merge_slot_of(const Tokenizer *t, uint64_t key)
{
    return (size_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> t->slot_shift);
}

// The merge of two ids, or NULL.
static inline const MergeSlot *merge_find(const Tokenizer *t, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    for (size_t i = merge_slot_of(t, key);; i = (i + 1) & t->slot_mask) {
        const MergeSlot *slot = &t->slots[i];
        if (slot->rank < 0) {
            return NULL;
        }
        if (slot->key == key) {
            return slot;
        }
    }
}

#endif
