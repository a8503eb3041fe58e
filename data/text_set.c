#include "data/text_set.h"

#include <stdint.h>
#include <stdlib.h>
#include <xxhash.h>

enum { FIRST_SLOTS = 1 << 12 };

// Open addressing with linear probing; a slot of zeros is empty.
struct TextSet {
    XXH128_hash_t *slots;   // [capacity], a power of two
    size_t capacity, count;
};

static bool is_empty(XXH128_hash_t hash) { return hash.low64 == 0 && hash.high64 == 0; }

static bool is_same(XXH128_hash_t a, XXH128_hash_t b) { return a.low64 == b.low64 && a.high64 == b.high64; }

TextSet *text_set_create(Error *error)
{
    TextSet *set = calloc(1, sizeof *set);
    XXH128_hash_t *slots = calloc(FIRST_SLOTS, sizeof *slots);
    if (set == NULL || slots == NULL) {
        free(set);
        free(slots);
        error_set(error, "out of memory for finding duplicates");
        return NULL;
    }
    set->slots = slots;
    set->capacity = FIRST_SLOTS;
    return set;
}

void text_set_free(TextSet *set)
{
    if (set != NULL) {
        free(set->slots);
        free(set);
    }
}

// The slot that has the hash, or the empty one where it belongs.
static XXH128_hash_t *find(XXH128_hash_t *slots, size_t capacity, XXH128_hash_t hash)
{
    size_t at = (size_t)hash.low64 & (capacity - 1);
    while (!is_empty(slots[at]) && !is_same(slots[at], hash)) {
        at = (at + 1) & (capacity - 1);
    }
    return &slots[at];
}

static int grow(TextSet *set, Error *error)
{
    size_t capacity = set->capacity * 2;
    XXH128_hash_t *slots = capacity > SIZE_MAX / sizeof *slots ? NULL : calloc(capacity, sizeof *slots);
    if (slots == NULL) {
        return error_set(error, "out of memory for finding duplicates among %zu documents; leave out --dedup", set->count);
    }
    for (size_t i = 0; i < set->capacity; i++) {
        if (!is_empty(set->slots[i])) {
            *find(slots, capacity, set->slots[i]) = set->slots[i];
        }
    }
    free(set->slots);
    set->slots = slots;
    set->capacity = capacity;
    return 0;
}

int text_set_add(TextSet *set, const char *text, size_t length, bool *is_new, Error *error)
{
    XXH128_hash_t hash = XXH3_128bits(text, length);
    if (is_empty(hash)) {
        hash.low64 = 1;   // zeros mean an empty slot
    }
    if (set->count >= set->capacity / 10 * 7 && grow(set, error) != 0) {
        return -1;
    }
    XXH128_hash_t *slot = find(set->slots, set->capacity, hash);
    *is_new = is_empty(*slot);
    if (*is_new) {
        *slot = hash;
        set->count++;
    }
    return 0;
}
