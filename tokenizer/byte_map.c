#include "tokenizer/byte_map.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int array_reserve(void *array_pointer, size_t *capacity, size_t needed, size_t size)
{
    if (needed <= *capacity) {
        return 0;
    }
    size_t wanted = *capacity < 16 ? 16 : *capacity;
    while (wanted < needed) {
        if (wanted > SIZE_MAX / 2) {
            return -1;
        }
        wanted *= 2;
    }
    void *array;
    memcpy(&array, array_pointer, sizeof array);
    void *grown = wanted <= SIZE_MAX / size ? realloc(array, wanted * size) : NULL;
    if (grown == NULL) {
        return -1;
    }
    memcpy(array_pointer, &grown, sizeof grown);
    *capacity = wanted;
    return 0;
}

// The slot of a key, or the free one where it would go. There is always a free one.
static size_t find_slot(const ByteMap *map, const char *key, size_t length, uint64_t hash)
{
    uint32_t tag = (uint32_t)(hash >> 32);
    for (size_t i = hash & (map->n_slots - 1);; i = (i + 1) & (map->n_slots - 1)) {
        const ByteMapSlot *slot = &map->slots[i];
        if (slot->entry == 0) {
            return i;
        }
        if (slot->tag == tag) {
            const ByteMapEntry *entry = &map->entries[slot->entry - 1];
            if (entry->length == length && memcmp(map->bytes + entry->offset, key, length) == 0) {
                return i;
            }
        }
    }
}

static int grow_slots(ByteMap *map)
{
    size_t n = map->n_slots == 0 ? 1024 : map->n_slots * 2;
    ByteMapSlot *slots = calloc(n, sizeof *slots);
    if (slots == NULL) {
        return -1;
    }
    for (size_t e = 0; e < map->count; e++) {
        size_t i = map->entries[e].hash & (n - 1);
        while (slots[i].entry != 0) {
            i = (i + 1) & (n - 1);
        }
        slots[i] = (ByteMapSlot){.tag = (uint32_t)(map->entries[e].hash >> 32), .entry = (uint32_t)(e + 1)};
    }
    free(map->slots);
    map->slots = slots;
    map->n_slots = n;
    return 0;
}

ByteMapEntry *byte_map_insert(ByteMap *map, const char *key, size_t length, bool *is_new)
{
    if (map->count + 1 > map->n_slots / 2 && (map->count >= INT32_MAX || grow_slots(map) != 0)) {
        return NULL;
    }
    uint64_t hash = XXH3_64bits(key, length);
    ByteMapSlot *slot = &map->slots[find_slot(map, key, length, hash)];
    *is_new = slot->entry == 0;
    if (!*is_new) {
        return &map->entries[slot->entry - 1];
    }
    if (length > SIZE_MAX - map->bytes_used
        || array_reserve(&map->bytes, &map->bytes_capacity, map->bytes_used + length, 1) != 0
        || array_reserve(&map->entries, &map->capacity, map->count + 1, sizeof *map->entries) != 0) {
        return NULL;
    }
    if (length > 0) {
        memcpy(map->bytes + map->bytes_used, key, length);
    }
    map->entries[map->count] = (ByteMapEntry){.offset = map->bytes_used, .length = length, .hash = hash};
    map->bytes_used += length;
    map->count++;
    *slot = (ByteMapSlot){.tag = (uint32_t)(hash >> 32), .entry = (uint32_t)map->count};
    return &map->entries[map->count - 1];
}

ByteMapEntry *byte_map_find(const ByteMap *map, const char *key, size_t length)
{
    if (map->count == 0) {
        return NULL;
    }
    const ByteMapSlot *slot = &map->slots[find_slot(map, key, length, XXH3_64bits(key, length))];
    return slot->entry != 0 ? &map->entries[slot->entry - 1] : NULL;
}

void byte_map_free(ByteMap *map)
{
    free(map->bytes);
    free(map->entries);
    free(map->slots);
    *map = (ByteMap){0};
}
