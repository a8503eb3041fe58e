// Encoding: added tokens are cut out, what lies between is normalised and cut into pre-tokens, and each pre-token is merged by rank. Text
// repeats itself, so a cache remembers short pre-tokens whole. Long ones are cut once more at borders that no merge crosses: that makes
// words of texts that have no pre-tokens (Llama-2's).
#include <stdlib.h>
#include <string.h>

#include "tokenizer/bpe_internal.h"
#include "tokenizer/merge.h"

enum {
    CACHE_BITS = 15,        // 2^15 pairs of entries, 2 MB
    CACHE_IDS = 4,          // ids an entry can hold
    CACHE_LENGTH = 15,      // bytes of a pre-token that an entry can hold
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
    Merger *merger;
    Normalizer *normalizer, *prefixer;           // for the edits before and behind the search for added tokens
    Pretokenizer *pretokenizers[MAX_STAGES];     // NULL where a stage has a pattern
    Matcher *matchers[MAX_STAGES];               // NULL where it has none
    bool any_pattern;
    CacheEntry *cache;                           // [2^CACHE_BITS][2], the entry used last in front
};

static int create_parts(Encoder *e, Error *error)
{
    const Pipeline *pipeline = &e->tokenizer->pipeline;
    e->merger = merger_create(e->tokenizer, error);
    e->normalizer = e->merger != NULL ? normalizer_create(error) : NULL;
    e->prefixer = e->normalizer != NULL ? normalizer_create(error) : NULL;
    if (e->prefixer == NULL) {
        return -1;
    }
    for (size_t s = 0; s < pipeline->n_stages; s++) {
        if (pipeline->stages[s].pattern != NULL) {
            e->any_pattern = true;
            e->matchers[s] = matcher_create(error);
        } else {
            e->pretokenizers[s] = pretokenizer_create(pipeline->stages[s].by_hand, error);
        }
        if (e->matchers[s] == NULL && e->pretokenizers[s] == NULL) {
            return -1;
        }
    }
    e->cache = calloc((size_t)2 << CACHE_BITS, sizeof *e->cache);
    return e->cache != NULL ? 0 : error_set(error, "out of memory for an encoder");
}

Encoder *encoder_create(const Tokenizer *tokenizer, Error *error)
{
    Encoder *e = calloc(1, sizeof *e);
    if (e == NULL) {
        error_set(error, "out of memory for an encoder");
        return NULL;
    }
    e->tokenizer = tokenizer;
    if (create_parts(e, error) != 0) {
        encoder_free(e);
        return NULL;
    }
    return e;
}

void encoder_free(Encoder *e)
{
    if (e != NULL) {
        for (size_t s = 0; s < MAX_STAGES; s++) {
            pretokenizer_free(e->pretokenizers[s]);
            matcher_free(e->matchers[s]);
        }
        merger_free(e->merger);
        normalizer_free(e->normalizer);
        normalizer_free(e->prefixer);
        free(e->cache);
        free(e);
    }
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

// Length of the next part of a run. Where spaces stand in it (a tokenizer that cuts no words) it ends in front of some, which no token crosses.
static size_t run_part(const Encoder *e, const char *text, size_t length)
{
    if (length <= MERGER_MAX_LENGTH) {
        return length;
    }
    const char *space = e->tokenizer->pipeline.space[0] != 0 ? e->tokenizer->pipeline.space : " ";
    size_t n = strlen(space), cut = MERGER_MAX_LENGTH - n;
    for (; cut > MERGER_MAX_LENGTH / 2; cut--) {
        if (memcmp(text + cut, space, n) == 0 && memcmp(text + cut - n, space, n) != 0) {
            return cut;
        }
    }
    cut = MERGER_MAX_LENGTH;
    for (int i = 0; i < 3 && ((unsigned char)text[cut] & 0xC0) == 0x80; i++) {
        cut--;
    }
    return cut;
}

static int merge_and_append(Encoder *e, TokenList *list, const char *text, size_t length, Error *error)
{
    while (length > 0) {
        size_t count, part = run_part(e, text, length);
        const int32_t *ids = merger_run(e->merger, (const unsigned char *)text, part, &count, error);
        if (ids == NULL || append(list, ids, count, error) != 0) {
            return -1;
        }
        text += part;
        length -= part;
    }
    return 0;
}

// Appends the ids of at most CACHE_LENGTH bytes.
static int encode_short(Encoder *e, TokenList *list, const char *text, size_t length, size_t readable, Error *error)
{
    if (list->capacity - list->count < CACHE_IDS
        && array_reserve(&list->ids, &list->capacity, list->count + CACHE_IDS, sizeof *list->ids) != 0) {
        return error_set(error, "out of memory for %zu tokens", list->count + CACHE_IDS);
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
    size_t before = list->count;
    const ByteMapEntry *whole = e->tokenizer->whole_first ? byte_map_find(&e->tokenizer->whole, text, length) : NULL;
    int32_t id = whole != NULL ? (int32_t)whole->value : -1;
    if ((whole != NULL ? append(list, &id, 1, error) : merge_and_append(e, list, text, length, error)) != 0) {
        return -1;
    }
    size_t count = list->count - before;
    if (count <= CACHE_IDS) {
        entry[1] = entry[0];
        entry[0] = (CacheEntry){.low = low, .high = high, .ids = {-1, -1, -1, -1}};
        memcpy(entry[0].ids, list->ids + before, count * sizeof *list->ids);
    }
    return 0;
}

static int encode_part(Encoder *e, TokenList *list, const char *text, size_t length, size_t readable, Error *error)
{
    return length <= CACHE_LENGTH ? encode_short(e, list, text, length, readable, error) : merge_and_append(e, list, text, length, error);
}

static int encode_long(Encoder *e, TokenList *list, const char *text, size_t length, size_t readable, Error *error)
{
    const Tokenizer *t = e->tokenizer;
    if (t->whole_first) {
        // A part that is a token would be taken whole, though merging may not make it: no cutting here.
        const ByteMapEntry *whole = byte_map_find(&t->whole, text, length);
        int32_t id = whole != NULL ? (int32_t)whole->value : -1;
        return whole != NULL ? append(list, &id, 1, error) : merge_and_append(e, list, text, length, error);
    }
    const unsigned char *bytes = (const unsigned char *)text;
    size_t start = 0;
    for (size_t i = 1; i < length; i++) {
        if (t->joins[(size_t)bytes[i - 1] << 8 | bytes[i]] == 0) {
            if (encode_part(e, list, text + start, i - start, readable - start, error) != 0) {
                return -1;
            }
            start = i;
        }
    }
    return encode_part(e, list, text + start, length - start, readable - start, error);
}

static inline int encode_pretoken(Encoder *e, TokenList *list, const char *text, size_t length, size_t readable, Error *error)
{
    return length <= CACHE_LENGTH ? encode_short(e, list, text, length, readable, error)
                                  : encode_long(e, list, text, length, readable, error);
}

static int encode_stage(Encoder *e, TokenList *list, size_t s, const char *text, size_t length, Error *error);

// A piece that a pattern has cut, before it is known whether the next one joins it.
typedef struct Cut {
    size_t start, end;
    bool is_match;
} Cut;

static bool joins_next(Behavior behavior, bool is_match, bool next_is_match)
{
    switch (behavior) {
    case BEHAVIOR_PREVIOUS:
        return !is_match && next_is_match;
    case BEHAVIOR_NEXT:
        return is_match && !next_is_match;
    case BEHAVIOR_CONTIGUOUS:
        return is_match == next_is_match;
    case BEHAVIOR_ISOLATED:
    case BEHAVIOR_REMOVED:
        break;
    }
    return false;
}

static int hand_on(Encoder *e, TokenList *list, size_t s, const char *text, Cut piece, Error *error)
{
    bool removed = e->tokenizer->pipeline.stages[s].behavior == BEHAVIOR_REMOVED && piece.is_match;
    return piece.start == piece.end || removed ? 0 : encode_stage(e, list, s + 1, text + piece.start, piece.end - piece.start, error);
}

// Hands the waiting piece on, unless `next` joins it; then `next` waits.
static int pass_cut(Encoder *e, TokenList *list, size_t s, const char *text, Cut *waiting, Cut next, Error *error)
{
    const Stage *stage = &e->tokenizer->pipeline.stages[s];
    int status = 0;
    next.is_match ^= stage->invert;
    if (waiting->start < waiting->end && joins_next(stage->behavior, waiting->is_match, next.is_match)) {
        next.start = waiting->start;
    } else {
        status = hand_on(e, list, s, text, *waiting, error);
    }
    *waiting = next;
    return status;
}

static size_t character_length(const char *text, size_t length)
{
    size_t n = 1;
    while (n < length && ((unsigned char)text[n] & 0xC0) == 0x80) {
        n++;
    }
    return n;
}

// Cuts valid UTF-8 at the matches of a pattern. An empty match cuts too, but not right behind another match.
static int encode_by_pattern(Encoder *e, TokenList *list, size_t s, const char *text, size_t length, Error *error)
{
    const Stage *stage = &e->tokenizer->pipeline.stages[s];
    Cut waiting = {0};
    size_t from = 0, done = 0, start, end;
    bool any = false;
    int found = 0;
    while (from <= length && (found = pattern_find(stage->pattern, e->matchers[s], text, length, from, &start, &end, error)) > 0) {
        if (start == end && any && start == done) {
            if (from == length) {
                break;
            }
            from += character_length(text + from, length - from);
            continue;
        }
        if (start > done && pass_cut(e, list, s, text, &waiting, (Cut){done, start, false}, error) != 0) {
            return -1;
        }
        if (pass_cut(e, list, s, text, &waiting, (Cut){start, end, true}, error) != 0) {
            return -1;
        }
        from = done = end;
        any = true;
    }
    if (found < 0 || (done < length && pass_cut(e, list, s, text, &waiting, (Cut){done, length, false}, error) != 0)) {
        return -1;
    }
    return hand_on(e, list, s, text, waiting, error);
}

// Cuts by stage `s` and those behind it.
static int encode_stage(Encoder *e, TokenList *list, size_t s, const char *text, size_t length, Error *error)
{
    const Pipeline *pipeline = &e->tokenizer->pipeline;
    if (s == pipeline->n_stages) {
        return encode_pretoken(e, list, text, length, length, error);
    }
    if (pipeline->stages[s].pattern != NULL) {
        return encode_by_pattern(e, list, s, text, length, error);
    }
    const char *token, *end = text + length;
    bool last = s + 1 == pipeline->n_stages;
    size_t n;
    pretokenizer_start(e->pretokenizers[s], text, length);
    while ((n = pretokenizer_next(e->pretokenizers[s], &token)) > 0) {
        int status = last ? encode_pretoken(e, list, token, n, (size_t)(end - token), error)
                          : encode_stage(e, list, s + 1, token, n, error);
        if (status != 0) {
            return -1;
        }
    }
    return 0;
}

// Text without added tokens. Patterns see valid UTF-8 only; each run of other bytes is a pre-token.
static int encode_plain(Encoder *e, TokenList *list, const char *text, size_t length, bool at_start, Error *error)
{
    const Pipeline *pipeline = &e->tokenizer->pipeline;
    if (normalizer_apply(e->prefixer, pipeline->prefixes, pipeline->n_prefixes, at_start, &text, &length, error) != 0) {
        return -1;
    }
    if (!e->any_pattern) {
        return encode_stage(e, list, 0, text, length, error);
    }
    const unsigned char *p = (const unsigned char *)text, *end = p + length;
    while (p < end) {
        const unsigned char *valid = utf8_valid_end(p, end), *next = utf8_invalid_end(valid, end);
        if ((valid > p && encode_stage(e, list, 0, (const char *)p, (size_t)(valid - p), error) != 0)
            || (next > valid
                && encode_pretoken(e, list, (const char *)valid, (size_t)(next - valid), (size_t)(end - valid), error) != 0)) {
            return -1;
        }
        p = next;
    }
    return 0;
}

// First place in order[low … high) whose text has at least the byte `byte` at `depth`; all texts there agree up to it and are longer.
static size_t lower_bound(const Tokenizer *t, const AddedIndex *index, size_t low, size_t high, size_t depth, int byte)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const AddedToken *added = &t->added[index->order[middle]];
        if ((unsigned char)added_text(t, added)[depth] < byte) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// The longest added token that the text begins with, or NULL. The sorted tokens are narrowed down byte by byte.
static const AddedToken *added_at(const Tokenizer *t, const AddedIndex *index, const unsigned char *text, size_t length, bool specials)
{
    const AddedToken *best = NULL;
    size_t low = 0, high = index->count;
    for (size_t depth = 0; depth < length && low < high; depth++) {
        low = lower_bound(t, index, low, high, depth, text[depth]);
        high = lower_bound(t, index, low, high, depth, text[depth] + 1);
        for (bool first = true; low < high && t->added[index->order[low]].text_length == depth + 1; low++) {
            const AddedToken *added = &t->added[index->order[low]];
            if (first && (specials || !added->special)) {
                best = added;
                first = false;
            }
        }
    }
    return best;
}

// The leftmost added token at or after `from`, the longest of those that start there; NULL when there is none. *at is its place.
static const AddedToken *find_added(const Tokenizer *t, const AddedIndex *index, const unsigned char *text, size_t length, size_t from,
                                    bool specials, size_t *at)
{
    for (size_t i = from; i < length; i++) {
        if (!index->starts[text[i]]) {
            continue;
        }
        if (i + 1 < length && !(index->pairs[((size_t)text[i] << 8 | text[i + 1]) / 8] & 1u << (text[i + 1] % 8))) {
            continue;
        }
        const AddedToken *added = added_at(t, index, text + i, length - i, specials);
        if (added != NULL) {
            *at = i;
            return added;
        }
    }
    return NULL;
}

// Where the white space begins that ends at `at`.
static size_t space_start(const unsigned char *text, size_t at)
{
    while (at > 0) {
        size_t start = at - 1, length = 1;
        while (start > 0 && at - start < 4 && (text[start] & 0xC0) == 0x80) {
            start--;
        }
        if (utf8_length(text + start, text + at) != at - start) {
            break;
        }
        uint32_t code = text[start] < 0x80 ? text[start] : utf8_get(text + start, &length);
        if (!is_white_space(code)) {
            break;
        }
        at = start;
    }
    return at;
}

// Where the white space ends that begins at `at`.
static size_t space_end(const unsigned char *text, size_t at, size_t length)
{
    size_t n;
    while (at < length && (n = utf8_length(text + at, text + length)) > 0) {
        uint32_t code = n == 1 ? text[at] : utf8_get(text + at, &n);
        if (!is_white_space(code)) {
            break;
        }
        at += n;
    }
    return at;
}

// Finds added tokens, in two rounds: first those that are not normalized, then, in what they leave, normalised, those that are.
static int encode_with_added(Encoder *e, TokenList *list, const char *text, size_t length, bool normalized, bool specials, bool at_start,
                             Error *error)
{
    const Tokenizer *t = e->tokenizer;
    if (!normalized) {
        at_start = true;
    } else if (normalizer_apply(e->normalizer, t->pipeline.edits, t->pipeline.n_edits, at_start, &text, &length, error) != 0) {
        return -1;
    }
    const AddedIndex *index = &t->added_index[normalized];
    const unsigned char *bytes = (const unsigned char *)text;
    size_t done = 0, from = 0;
    while (done < length) {
        size_t at = length;
        const AddedToken *added = index->count > 0 ? find_added(t, index, bytes, length, from, specials, &at) : NULL;
        size_t start = at, end = length;
        if (added != NULL) {
            from = end = at + added->text_length;
            start = added->left_strip ? space_start(bytes, at) : at;
            end = added->right_strip ? space_end(bytes, end, length) : end;
        }
        bool first = at_start && done == 0;
        if (start > done && (normalized ? encode_plain(e, list, text + done, start - done, first, error)
                                        : encode_with_added(e, list, text + done, start - done, true, specials, first, error)) != 0) {
            return -1;
        }
        if (added != NULL && append(list, &added->id, 1, error) != 0) {
            return -1;
        }
        done = end > done ? end : done;
    }
    return 0;
}

int encoder_encode(Encoder *e, TokenList *list, const char *text, size_t length, int specials, Error *error)
{
    return encode_with_added(e, list, text, length, false, specials != 0, true, error);
}
