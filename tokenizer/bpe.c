// The tokenizer as a value: tables, hash, access. Encoding is in encoder.c, files in tokenizer_json.c.
#include "tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tokenizer/bpe_internal.h"

void tokenizer_free(Tokenizer *t)
{
    if (t != NULL) {
        free(t->bytes);
        free(t->offsets);
        free(t->merges);
        free(t->added);
        free(t->slots);
        free(t->longest_first);
        free(t);
    }
}

size_t tokenizer_vocab_size(const Tokenizer *t)
{
    return t->vocab_size;
}

int32_t tokenizer_end_of_text(const Tokenizer *t)
{
    return t->end_of_text;
}

uint32_t tokenizer_hash(const Tokenizer *t)
{
    return t->hash;
}

const char *tokenizer_token(const Tokenizer *t, int32_t id, size_t *length)
{
    if (id < 0 || (size_t)id >= t->vocab_size) {
        return NULL;
    }
    *length = t->offsets[id + 1] - t->offsets[id];
    return t->bytes + t->offsets[id];
}

static int build_merge_table(Tokenizer *t, Error *error)
{
    unsigned bits = 4;
    while (((size_t)1 << bits) < t->n_merges * 2) {
        bits++;
    }
    size_t size = (size_t)1 << bits;
    t->slots = malloc(size * sizeof *t->slots);
    if (t->slots == NULL) {
        return error_set(error, "out of memory for %zu merges", t->n_merges);
    }
    t->slot_mask = size - 1;
    t->slot_shift = 64 - bits;
    for (size_t i = 0; i < size; i++) {
        t->slots[i] = (MergeSlot){.rank = -1};
    }
    for (size_t rank = 0; rank < t->n_merges; rank++) {
        const Merge *merge = &t->merges[rank];
        uint64_t key = (uint64_t)(uint32_t)merge->left << 32 | (uint32_t)merge->right;
        size_t i = merge_slot_of(t, key);
        for (; t->slots[i].rank >= 0; i = (i + 1) & t->slot_mask) {
            if (t->slots[i].key == key) {
                return error_set(error, "model.merges[%zu] merges the same pair as model.merges[%d]", rank, (int)t->slots[i].rank);
            }
        }
        t->slots[i] = (MergeSlot){.key = key, .rank = (int32_t)rank, .result = merge->result};
    }
    return 0;
}

static int build_added(Tokenizer *t, Error *error)
{
    t->longest_first = malloc((t->n_added + 1) * sizeof *t->longest_first);
    if (t->longest_first == NULL) {
        return error_set(error, "out of memory for %zu added tokens", t->n_added);
    }
    t->end_of_text = -1;
    for (size_t i = 0; i < t->n_added; i++) {
        size_t length = 0, other_length = 0, place = i;
        const char *text = tokenizer_token(t, t->added[i].id, &length);
        t->added_start[(unsigned char)text[0]] = true;
        if (length == strlen(END_OF_TEXT) && memcmp(text, END_OF_TEXT, length) == 0) {
            t->end_of_text = t->added[i].id;
        }
        while (place > 0) {
            tokenizer_token(t, t->added[t->longest_first[place - 1]].id, &other_length);
            if (other_length >= length) {
                break;
            }
            t->longest_first[place] = t->longest_first[place - 1];
            place--;
        }
        t->longest_first[place] = (int32_t)i;
    }
    if (t->end_of_text < 0) {
        return error_set(error, "added_tokens has no " END_OF_TEXT ", which separates documents: add it there");
    }
    return 0;
}

static uint64_t hash_numbers(uint64_t seed, uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t numbers[3] = {a, b, c};
    unsigned char bytes[12];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)(numbers[i / 4] >> (8 * (i % 4)));
    }
    return XXH3_64bits_withSeed(bytes, sizeof bytes, seed);
}

static uint32_t compute_hash(const Tokenizer *t)
{
    uint64_t hash = hash_numbers(0, (uint32_t)t->vocab_size, (uint32_t)t->n_merges, (uint32_t)t->n_added);
    for (size_t i = 0; i < t->vocab_size; i++) {
        hash = XXH3_64bits_withSeed(t->bytes + t->offsets[i], t->offsets[i + 1] - t->offsets[i], hash);
    }
    for (uint32_t i = 0; i < 256; i++) {
        hash = hash_numbers(hash, i, (uint32_t)t->byte_ids[i], 0);
    }
    for (size_t i = 0; i < t->n_merges; i++) {
        hash = hash_numbers(hash, (uint32_t)t->merges[i].left, (uint32_t)t->merges[i].right, (uint32_t)t->merges[i].result);
    }
    for (size_t i = 0; i < t->n_added; i++) {
        hash = hash_numbers(hash, (uint32_t)t->added[i].id, t->added[i].special, t->added[i].normalized);
    }
    uint32_t folded = (uint32_t)(hash ^ hash >> 32);
    return folded != 0 ? folded : 1;
}

Tokenizer *tokenizer_complete(Tokenizer *t, Error *error)
{
    if (build_merge_table(t, error) != 0 || build_added(t, error) != 0) {
        tokenizer_free(t);
        return NULL;
    }
    t->hash = compute_hash(t);
    return t;
}

void token_list_free(TokenList *list)
{
    free(list->ids);
    *list = (TokenList){0};
}
