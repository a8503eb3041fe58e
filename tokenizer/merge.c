// Merging is n² for few symbols (no set-up) and n log n, by a heap, for many.
#include "tokenizer/merge.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/bpe_internal.h"

enum {
    SHORT_LENGTH = 64,        // pieces up to this many bytes are merged by looking at all pairs
    MAX_SYMBOLS = 3,
};

struct Merger {
    const Tokenizer *tokenizer;
    int32_t few[SHORT_LENGTH];
    // For long pieces: ids, the borders of what they have become, and the pairs that may be merged.
    int32_t *ids;
    uint32_t *previous, *next;
    uint64_t *heap;            // rank << 32 | place: the smallest rank goes first, then the leftmost
    size_t heap_count;
    size_t capacity;           // of ids, previous, next; twice as many in the heap
};

Merger *merger_create(const Tokenizer *tokenizer, Error *error)
{
    Merger *m = calloc(1, sizeof *m);
    if (m == NULL) {
        error_set(error, "out of memory for an encoder");
        return NULL;
    }
    m->tokenizer = tokenizer;
    return m;
}

void merger_free(Merger *m)
{
    if (m != NULL) {
        free(m->ids);
        free(m->previous);
        free(m->next);
        free(m->heap);
        free(m);
    }
}

// Merges ids [n] in place, n ≤ SHORT_LENGTH; returns how many are left.
static size_t merge_short(const Tokenizer *t, int32_t *ids, size_t n)
{
    const MergeSlot *pairs[SHORT_LENGTH];   // merge of ids[i] and ids[i + 1]
    for (size_t i = 0; i + 1 < n; i++) {
        pairs[i] = merge_find(t, ids[i], ids[i + 1]);
    }
    while (n > 1) {
        const MergeSlot *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            if (pairs[i] != NULL && (best == NULL || pairs[i]->rank < best->rank)) {
                best = pairs[i];
                at = i;
            }
        }
        if (best == NULL) {
            break;
        }
        ids[at] = best->result;
        n--;
        for (size_t i = at + 1; i < n; i++) {
            ids[i] = ids[i + 1];
            pairs[i - 1] = pairs[i];
        }
        if (at > 0) {
            pairs[at - 1] = merge_find(t, ids[at - 1], ids[at]);
        }
        if (at + 1 < n) {
            pairs[at] = merge_find(t, ids[at], ids[at + 1]);
        }
    }
    return n;
}

static void heap_push(Merger *m, uint64_t item)
{
    size_t i = m->heap_count++;
    while (i > 0 && m->heap[(i - 1) / 2] > item) {
        m->heap[i] = m->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    m->heap[i] = item;
}

static uint64_t heap_pop(Merger *m)
{
    uint64_t top = m->heap[0], item = m->heap[--m->heap_count];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < m->heap_count) {
        child += child + 1 < m->heap_count && m->heap[child + 1] < m->heap[child];
        if (m->heap[child] >= item) {
            break;
        }
        m->heap[i] = m->heap[child];
        i = child;
    }
    m->heap[i] = item;
    return top;
}

static void push_pair(Merger *m, uint32_t left, uint32_t right)
{
    const MergeSlot *pair = merge_find(m->tokenizer, m->ids[left], m->ids[right]);
    if (pair != NULL) {
        heap_push(m, (uint64_t)(uint32_t)pair->rank << 32 | left);
    }
}

// Merges m->ids [n] in place. Pieces are a doubly linked list over places; n as a place means the end, an id of −1 a piece that is gone.
static size_t merge_long(Merger *m, uint32_t n)
{
    m->heap_count = 0;
    for (uint32_t i = 0; i < n; i++) {
        m->previous[i] = i - 1;
        m->next[i] = i + 1;
        if (i + 1 < n) {
            push_pair(m, i, i + 1);
        }
    }
    while (m->heap_count > 0) {
        uint64_t item = heap_pop(m);
        uint32_t left = (uint32_t)item, right = m->next[left];
        if (m->ids[left] < 0 || right == n) {
            continue;
        }
        // What stood here may have grown since the pair was noted; then its rank is another.
        const MergeSlot *pair = merge_find(m->tokenizer, m->ids[left], m->ids[right]);
        if (pair == NULL || (uint32_t)pair->rank != (uint32_t)(item >> 32)) {
            continue;
        }
        m->ids[left] = pair->result;
        m->ids[right] = -1;
        m->next[left] = m->next[right];
        if (m->next[left] < n) {
            m->previous[m->next[left]] = left;
            push_pair(m, left, m->next[left]);
        }
        if (left > 0) {
            push_pair(m, m->previous[left], left);
        }
    }
    size_t count = 0;
    for (uint32_t i = 0; i < n; i = m->next[i]) {
        m->ids[count++] = m->ids[i];
    }
    return count;
}

static int reserve_long(Merger *m, size_t n)
{
    size_t capacities[3] = {m->capacity, m->capacity, m->capacity}, heap = 2 * m->capacity;
    if (array_reserve(&m->ids, &capacities[0], n, sizeof *m->ids) != 0
        || array_reserve(&m->previous, &capacities[1], n, sizeof *m->previous) != 0
        || array_reserve(&m->next, &capacities[2], n, sizeof *m->next) != 0
        || array_reserve(&m->heap, &heap, 2 * capacities[0], sizeof *m->heap) != 0) {
        return -1;
    }
    m->capacity = capacities[0];
    return 0;
}

// The symbols of text [length] before any merge, at most MAX_SYMBOLS for a byte if some bytes have none, else one; returns how many.
static size_t start_symbols(const Tokenizer *t, const unsigned char *text, size_t length, int32_t *ids)
{
    static const unsigned char replacement[MAX_SYMBOLS] = {0xEF, 0xBF, 0xBD};
    size_t count = 0, n;
    if (t->lacks_bytes) {
        for (size_t i = 0; i < length; i++) {
            bool lacks = t->byte_ids[text[i]] < 0;
            for (size_t k = 0; k < (lacks ? MAX_SYMBOLS : 1); k++) {
                ids[count++] = t->byte_ids[lacks ? replacement[k] : text[i]];
            }
        }
        return count;
    }
    if (t->character_ids == NULL) {
        for (; count < length; count++) {
            ids[count] = t->byte_ids[text[count]];
        }
        return count;
    }
    for (size_t i = 0; i < length; i += n) {
        n = utf8_length(text + i, text + length);
        if (n > 0) {
            uint32_t code = n > 1 ? utf8_get(text + i, &n) : text[i];
            if (t->character_ids[code] != 0) {
                ids[count++] = t->character_ids[code] - 1;
                continue;
            }
        }
        n = n > 0 ? n : 1;
        for (size_t k = 0; k < n; k++) {
            ids[count++] = t->byte_ids[text[i + k]];
        }
    }
    return count;
}

const int32_t *merger_run(Merger *m, const unsigned char *text, size_t length, size_t *count, Error *error)
{
    size_t room = m->tokenizer->lacks_bytes ? MAX_SYMBOLS * length : length;
    if (room > SHORT_LENGTH && reserve_long(m, room) != 0) {
        error_set(error, "out of memory for encoding a run of %zu bytes without a break", length);
        return NULL;
    }
    int32_t *ids = room > SHORT_LENGTH ? m->ids : m->few;
    size_t symbols = start_symbols(m->tokenizer, text, length, ids);
    *count = symbols > SHORT_LENGTH ? merge_long(m, (uint32_t)symbols) : merge_short(m->tokenizer, ids, symbols);
    return ids;
}
