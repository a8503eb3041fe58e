// What a Tokenizer is made of: shared by the files of tokenizer/, nobody else.
#ifndef TOKENIZER_BPE_INTERNAL_H
#define TOKENIZER_BPE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/bpe.h"
#include "tokenizer/byte_map.h"
#include "tokenizer/pipeline.h"

#define END_OF_TEXT "<|endoftext|>"

enum { MAX_VOCAB = 1 << 24, MAX_ADDED = 10000, MAX_TOKENIZER_FILE = 1 << 28, JOIN_BYTES = 256 * 256 };

// Two ids that become one. The place in the list of merges is the rank: the smallest goes first.
typedef struct Merge {
    int32_t left, right, result;
} Merge;

// A token that is found in the text before it is cut into pre-tokens.
typedef struct AddedToken {
    int32_t id;
    bool special;      // only when the caller asks for specials; else always
    bool normalized;   // looked for in normalised text, after those that are not, in what they leave
    bool left_strip, right_strip;   // takes white space beside it along
    size_t text, text_length;       // what is looked for, in `added_text`; made by tokenizer_complete
} AddedToken;

typedef struct MergeSlot {
    uint64_t key;           // left << 32 | right
    int32_t rank, result;   // rank −1 = free slot
} MergeSlot;

// The added tokens of one round of the search.
typedef struct AddedIndex {
    int32_t *order;             // places in `added`, by their text bytewise
    size_t count;
    bool starts[256];           // first bytes
    uint8_t pairs[8192];        // bit of first byte << 8 | second byte: some token begins so
} AddedIndex;

struct Tokenizer {
    size_t vocab_size;
    char *bytes;            // of all tokens as they are written out; token i is [offsets[i], offsets[i + 1]), empty where no token has the id
    size_t *offsets;        // [vocab_size + 1]
    char *names;            // the same as they stand in normalised text; NULL for byte-level BPE, where they are the bytes
    size_t *name_offsets;
    int32_t byte_ids[256];  // byte-level: the symbols; else what stands for the bytes of an unknown character
    bool lacks_bytes;       // byte-level: some bytes that are never in UTF-8 have no symbol (−1); U+FFFD stands for them
    int32_t *character_ids; // by code point: id + 1 of its symbol, 0 = unknown; NULL for byte-level BPE
    Merge *merges;
    size_t n_merges;
    AddedToken *added;      // by id
    size_t n_added;
    bool whole_first;       // a pre-token that is a token of the vocabulary is not merged ("ignore_merges")
    ByteMap whole;          // whole_first: pre-token → id
    Pipeline pipeline;
    const char *form;       // of the file it came from, for people
    char *source;           // the tokenizer.json it came from, NULL: trained
    size_t source_length;
    // Made from the above by tokenizer_complete:
    MergeSlot *slots;       // hash table of the merges
    unsigned slot_shift;    // 64 − log2 of its size
    size_t slot_mask;
    uint8_t *joins;         // [first byte << 8 | second]: 0 = no merge makes a token in which these two stand side by side
    char *added_text;
    AddedIndex added_index[2];   // not normalized, normalized
    int32_t end_of_text;
    uint32_t hash;
};

// Fills the second half of a tokenizer from the first. Takes ownership: on failure (out of memory, a pair that is merged twice, no
// end-of-text token among the added tokens) it frees the tokenizer and returns NULL with `error` set.
Tokenizer *tokenizer_complete(Tokenizer *tokenizer, Error *error);

// A tokenizer from the text of a tokenizer.json, which it keeps (or frees on failure). `what` says where the text comes from, `form` is for
// people. Returns NULL with `error` set.
Tokenizer *tokenizer_from_json(char *text, size_t length, const char *what, const char *form, Error *error);

// Other forms as the text of a tokenizer.json that gives the same ids, in a fresh buffer; NULL with `error` set.
// tiktoken's: lines of base64 and rank. `pattern`: see tokenizer_load_as.
char *convert_ranks(const char *text, size_t length, const char *pattern, size_t *out_length, Error *error);
// GPT-2's: an object from names to ids, and lines of two names each.
char *convert_pair(const char *vocab, size_t vocab_length, const char *merges, size_t *out_length, Error *error);
// llama2.c's: int32 longest token, then for each token float score, int32 length, text.
char *convert_llama2c(const char *data, size_t size, size_t *out_length, Error *error);

// The token's text as it stands in normalised text.
static inline const char *token_name(const Tokenizer *t, size_t id, size_t *length)
{
    const size_t *offsets = t->names != NULL ? t->name_offsets : t->offsets;
    *length = offsets[id + 1] - offsets[id];
    return (t->names != NULL ? t->names : t->bytes) + offsets[id];
}

static inline const char *added_text(const Tokenizer *t, const AddedToken *added)
{
    return t->added_text + added->text;
}

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
