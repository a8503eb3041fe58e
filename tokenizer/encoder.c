// Encoding: added tokens are cut out, what lies between is cut into pre-tokens, and each pre-token is merged by rank. Text repeats itself,
// so a cache remembers short pre-tokens whole. Merging is n² for short pre-tokens (no set-up) and n log n for long ones.
#include <stdlib.h>
#include <string.h>

#include "tokenizer/bpe_internal.h"
#include "tokenizer/byte_map.h"
#include "tokenizer/pretokenize.h"

enum {
    CACHE_BITS = 15,        // 2^15 pairs of entries, 2 MB
    CACHE_IDS = 4,          // ids an entry can hold
    CACHE_LENGTH = 15,      // bytes of a pre-token that an entry can hold
    SHORT_LENGTH = 64,      // pre-tokens up to this many bytes are merged by looking at all pairs
    MAX_PRETOKEN = INT32_MAX,
};

// The length stands in the byte of the key that 15 bytes of text leave free.
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
enum { LENGTH_SHIFT = 0 };
#else
enum { LENGTH_SHIFT = 56 };
#endif

typedef struct CacheEntry {
    uint64_t low, high;        // text, zeros, length; high is 0 when free
    int32_t ids[CACHE_IDS];    // then −1
} CacheEntry;

struct Encoder {
    const Tokenizer *tokenizer;
    Pretokenizer *pretokenizer;
    CacheEntry *cache;         // [2^CACHE_BITS][2], the entry used last in front
    // For long pre-tokens: their ids, the borders of the pieces, and the pairs that may be merged.
    int32_t *ids;
    uint32_t *previous, *next;
    uint64_t *heap;            // rank << 32 | place: the smallest rank goes first, then the leftmost
    size_t heap_count;
    size_t capacity;           // of ids, previous, next; twice as many in the heap
};

Encoder *encoder_create(const Tokenizer *tokenizer, Error *error)
{
    Encoder *e = calloc(1, sizeof *e);
    if (e == NULL) {
        error_set(error, "out of memory for an encoder");
        return NULL;
    }
    e->tokenizer = tokenizer;
    e->pretokenizer = pretokenizer_create(error);
    if (e->pretokenizer == NULL) {
        encoder_free(e);
        return NULL;
    }
    e->cache = calloc((size_t)2 << CACHE_BITS, sizeof *e->cache);
    if (e->cache == NULL) {
        error_set(error, "out of memory for an encoder");
        encoder_free(e);
        return NULL;
    }
    return e;
}

void encoder_free(Encoder *e)
{
    if (e != NULL) {
        pretokenizer_free(e->pretokenizer);
        free(e->cache);
        free(e->ids);
        free(e->previous);
        free(e->next);
        free(e->heap);
        free(e);
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

static void heap_push(Encoder *e, uint64_t item)
{
    size_t i = e->heap_count++;
    while (i > 0 && e->heap[(i - 1) / 2] > item) {
        e->heap[i] = e->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    e->heap[i] = item;
}

static uint64_t heap_pop(Encoder *e)
{
    uint64_t top = e->heap[0], item = e->heap[--e->heap_count];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < e->heap_count) {
        child += child + 1 < e->heap_count && e->heap[child + 1] < e->heap[child];
        if (e->heap[child] >= item) {
            break;
        }
        e->heap[i] = e->heap[child];
        i = child;
    }
    e->heap[i] = item;
    return top;
}

static void push_pair(Encoder *e, uint32_t left, uint32_t right)
{
    const MergeSlot *pair = merge_find(e->tokenizer, e->ids[left], e->ids[right]);
    if (pair != NULL) {
        heap_push(e, (uint64_t)(uint32_t)pair->rank << 32 | left);
    }
}

// Merges e->ids [n] in place. Pieces are a doubly linked list over places; n as a place means the end, an id of −1 a piece that is gone.
static size_t merge_long(Encoder *e, uint32_t n)
{
    e->heap_count = 0;
    for (uint32_t i = 0; i < n; i++) {
        e->previous[i] = i - 1;
        e->next[i] = i + 1;
        if (i + 1 < n) {
            push_pair(e, i, i + 1);
        }
    }
    while (e->heap_count > 0) {
        uint64_t item = heap_pop(e);
        uint32_t left = (uint32_t)item, right = e->next[left];
        if (e->ids[left] < 0 || right == n) {
            continue;
        }
        // What stood here may have grown since the pair was noted; then its rank is another.
        const MergeSlot *pair = merge_find(e->tokenizer, e->ids[left], e->ids[right]);
        if (pair == NULL || (uint32_t)pair->rank != (uint32_t)(item >> 32)) {
            continue;
        }
        e->ids[left] = pair->result;
        e->ids[right] = -1;
        e->next[left] = e->next[right];
        if (e->next[left] < n) {
            e->previous[e->next[left]] = left;
            push_pair(e, left, e->next[left]);
        }
        if (left > 0) {
            push_pair(e, e->previous[left], left);
        }
    }
    size_t count = 0;
    for (uint32_t i = 0; i < n; i = e->next[i]) {
        e->ids[count++] = e->ids[i];
    }
    return count;
}

static int reserve_long(Encoder *e, size_t n)
{
    size_t capacity = e->capacity, same = e->capacity, also = e->capacity, heap = 2 * e->capacity;
    if (array_reserve(&e->ids, &capacity, n, sizeof *e->ids) != 0 || array_reserve(&e->previous, &same, n, sizeof *e->previous) != 0
        || array_reserve(&e->next, &also, n, sizeof *e->next) != 0
        || array_reserve(&e->heap, &heap, 2 * capacity, sizeof *e->heap) != 0) {
        return -1;
    }
    e->capacity = capacity;
    return 0;
}

// Merges a pre-token. Returns its ids (in `scratch` or the encoder) and their number, or NULL with `error` set.
static const int32_t *merge_bytes(Encoder *e, const unsigned char *text, size_t length, int32_t *scratch, size_t *count, Error *error)
{
    const Tokenizer *t = e->tokenizer;
    if (length > MAX_PRETOKEN) {
        error_set(error, "a run of %zu bytes without a break is too long to encode: put a space or a line break into it", length);
        return NULL;
    }
    if (length > SHORT_LENGTH && reserve_long(e, length) != 0) {
        error_set(error, "out of memory for encoding a run of %zu bytes without a break", length);
        return NULL;
    }
    int32_t *ids = length > SHORT_LENGTH ? e->ids : scratch;
    for (size_t i = 0; i < length; i++) {
        ids[i] = t->byte_ids[text[i]];
    }
    *count = length > SHORT_LENGTH ? merge_long(e, (uint32_t)length) : merge_short(t, ids, length);
    return ids;
}

static int append(TokenList *list, const int32_t *ids, size_t count, Error *error)
{
    if (array_reserve(&list->ids, &list->capacity, list->count + count, sizeof *list->ids) != 0) {
        return error_set(error, "out of memory for %zu tokens", list->count + count);
    }
    memcpy(list->ids + list->count, ids, count * sizeof *ids);
    list->count += count;
    return 0;
}

// Appends an entry's ids. The copy is always whole, which is faster than asking how many there are; `list` has room for it.
static inline void append_entry(TokenList *list, const CacheEntry *entry)
{
    memcpy(list->ids + list->count, entry->ids, sizeof entry->ids);
    list->count += 1 + (size_t)(entry->ids[1] >= 0) + (size_t)(entry->ids[2] >= 0) + (size_t)(entry->ids[3] >= 0);
}

// The key of a pre-token of at most CACHE_LENGTH bytes; `readable` bytes may be read from its start.
static inline void cache_key(const char *text, size_t length, size_t readable, uint64_t *low, uint64_t *high)
{
    static const unsigned char keep[32] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    unsigned char copy[16] = {0};
    uint64_t keep_low, keep_high;
    if (readable < sizeof copy) {
        memcpy(copy, text, length);
        text = (const char *)copy;
    }
    memcpy(low, text, 8);
    memcpy(high, text + 8, 8);
    memcpy(&keep_low, keep + 16 - length, 8);
    memcpy(&keep_high, keep + 24 - length, 8);
    *low &= keep_low;
    *high = (*high & keep_high) | (uint64_t)length << LENGTH_SHIFT;
}

static int encode_pretoken(Encoder *e, TokenList *list, const char *text, size_t length, size_t readable, Error *error)
{
    int32_t scratch[SHORT_LENGTH];
    size_t count;
    if (length > CACHE_LENGTH) {
        const int32_t *ids = merge_bytes(e, (const unsigned char *)text, length, scratch, &count, error);
        return ids != NULL ? append(list, ids, count, error) : -1;
    }
    if (list->capacity - list->count < CACHE_IDS
        && array_reserve(&list->ids, &list->capacity, list->count + CACHE_IDS, sizeof *list->ids) != 0) {
        return error_set(error, "out of memory for %zu tokens", list->count);
    }
    uint64_t low, high;
    cache_key(text, length, readable, &low, &high);
    uint64_t hash = (low ^ (high * UINT64_C(0xD6E8FEB86659FD93))) * UINT64_C(0x9E3779B97F4A7C15);
    CacheEntry *entry = &e->cache[(hash >> (64 - CACHE_BITS)) * 2];
    if (entry[0].low == low && entry[0].high == high) {
        append_entry(list, &entry[0]);
        return 0;
    }
    if (entry[1].low == low && entry[1].high == high) {
        append_entry(list, &entry[1]);
        CacheEntry used = entry[1];
        entry[1] = entry[0];
        entry[0] = used;
        return 0;
    }
    const int32_t *ids = merge_bytes(e, (const unsigned char *)text, length, scratch, &count, error);
    if (ids == NULL) {
        return -1;
    }
    if (count <= CACHE_IDS) {
        entry[1] = entry[0];
        entry[0] = (CacheEntry){.low = low, .high = high, .ids = {-1, -1, -1, -1}};
        memcpy(entry[0].ids, ids, count * sizeof *ids);
    }
    return append(list, ids, count, error);
}

static int encode_plain(Encoder *e, TokenList *list, const char *text, size_t length, Error *error)
{
    const char *token, *end = text + length;
    size_t n;
    pretokenizer_start(e->pretokenizer, text, length);
    while ((n = pretokenizer_next(e->pretokenizer, &token)) > 0) {
        if (encode_pretoken(e, list, token, n, (size_t)(end - token), error) != 0) {
            return -1;
        }
    }
    return 0;
}

typedef struct Search {
    bool specials, normalized;   // which added tokens count
} Search;

static bool counts(const AddedToken *added, Search search)
{
    return added->normalized == search.normalized && (search.specials || !added->special);
}

// The leftmost added token in the text, the longest of those that start there; NULL when there is none. *at is its place.
static const AddedToken *find_added(const Tokenizer *t, const char *text, size_t length, Search search, size_t *at, size_t *token_length)
{
    for (size_t i = 0; i < length; i++) {
        if (!t->added_start[(unsigned char)text[i]]) {
            continue;
        }
        for (size_t k = 0; k < t->n_added; k++) {
            const AddedToken *added = &t->added[t->longest_first[k]];
            const char *token = tokenizer_token(t, added->id, token_length);
            if (counts(added, search) && *token_length <= length - i && memcmp(text + i, token, *token_length) == 0) {
                *at = i;
                return added;
            }
        }
    }
    return NULL;
}

// Tokens that are not normalized are looked for first, then in what they leave those that are, then the rest is plain text.
static int encode_with_added(Encoder *e, TokenList *list, const char *text, size_t length, Search search, Error *error)
{
    const Tokenizer *t = e->tokenizer;
    bool any = false;
    for (size_t k = 0; k < t->n_added; k++) {
        any |= counts(&t->added[k], search);
    }
    while (length > 0) {
        size_t at = length, token_length = 0;
        const AddedToken *added = any ? find_added(t, text, length, search, &at, &token_length) : NULL;
        Search deeper = {.specials = search.specials, .normalized = true};
        int failed = search.normalized ? encode_plain(e, list, text, at, error) : encode_with_added(e, list, text, at, deeper, error);
        if (failed || (added != NULL && append(list, &added->id, 1, error) != 0)) {
            return -1;
        }
        size_t done = added != NULL ? at + token_length : length;
        text += done;
        length -= done;
    }
    return 0;
}

int encoder_encode(Encoder *e, TokenList *list, const char *text, size_t length, int specials, Error *error)
{
    return encode_with_added(e, list, text, length, (Search){.specials = specials != 0, .normalized = false}, error);
}
