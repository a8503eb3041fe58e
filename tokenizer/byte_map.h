// A hash table from byte strings to 64-bit values, with entries in order of insertion: counts of pre-tokens, ids of tokens.
#ifndef TOKENIZER_BYTE_MAP_H
#define TOKENIZER_BYTE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ByteMapEntry {
    size_t offset, length;   // of the key in `bytes`
    uint64_t hash;
    uint64_t value;
} ByteMapEntry;

typedef struct ByteMapSlot {
    uint32_t tag;     // high half of the hash, so that most misses need no look at the entry
    uint32_t entry;   // its number + 1, 0 = free
} ByteMapSlot;

// All zeros is an empty map.
typedef struct ByteMap {
    char *bytes;
    size_t bytes_used, bytes_capacity;
    ByteMapEntry *entries;
    size_t count, capacity;
    ByteMapSlot *slots;
    size_t n_slots;   // power of two
} ByteMap;

// The entry of a key, which is copied in with value 0 if it is new (then *is_new is true). The pointer holds until the next insertion.
// Returns NULL when out of memory or beyond 2^31 keys.
ByteMapEntry *byte_map_insert(ByteMap *map, const char *key, size_t length, bool *is_new);

// NULL when the key is not there.
ByteMapEntry *byte_map_find(const ByteMap *map, const char *key, size_t length);

void byte_map_free(ByteMap *map);

// Makes room for `needed` items of `size` bytes in a growing array; capacity at least doubles. Returns 0, or -1 when out of memory.
int array_reserve(void *array_pointer, size_t *capacity, size_t needed, size_t size);

#endif
