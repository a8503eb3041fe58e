// Training: each slot counts distinct pre-tokens ("words" here); bpe_trainer_finish joins the counts and learns. All pairs of neighbours
// are counted once; a merge then visits only the words that hold its pair and corrects the counts around each place. A count is the number of
// places where two ids stand side by side, overlapping ones included, at every moment exactly.
#include "tokenizer/bpe_train.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/bpe_internal.h"
#include "tokenizer/byte_map.h"
#include "tokenizer/pretokenize.h"

enum {
    MAX_PIECE = 256,        // longer pre-tokens are cut, so that a merge's cost is bounded by the number of places
    MIN_COUNT = 2,          // a pair that occurs once teaches nothing
    NONE = UINT32_MAX,
};

typedef struct Slot {
    Pretokenizer *pretokenizer;   // NULL until the slot is used
    ByteMap counts;
    uint64_t total;               // of count · length, an upper bound for the count of any pair
} Slot;

struct BpeTrainer {
    Slot slots[BPE_TRAINER_SLOTS];
};

BpeTrainer *bpe_trainer_create(Error *error)
{
    BpeTrainer *trainer = calloc(1, sizeof *trainer);
    if (trainer == NULL) {
        error_set(error, "out of memory for training a tokenizer");
    }
    return trainer;
}

void bpe_trainer_free(BpeTrainer *trainer)
{
    if (trainer != NULL) {
        for (size_t i = 0; i < BPE_TRAINER_SLOTS; i++) {
            pretokenizer_free(trainer->slots[i].pretokenizer);
            byte_map_free(&trainer->slots[i].counts);
        }
        free(trainer);
    }
}

static int count_piece(Slot *slot, const char *text, size_t length, uint64_t weight, Error *error)
{
    bool is_new;
    uint64_t product;
    ByteMapEntry *entry = byte_map_insert(&slot->counts, text, length, &is_new);
    if (entry == NULL) {
        return error_set(error, "out of memory for the counts of %zu distinct words", slot->counts.count);
    }
    if (__builtin_mul_overflow(weight, (uint64_t)length, &product) || __builtin_add_overflow(slot->total, product, &slot->total)
        || slot->total > INT64_MAX) {
        return error_set(error, "the counts of the tokenizer's training are beyond 2^63");
    }
    entry->value += weight;
    return 0;
}

int bpe_trainer_add_weighted(BpeTrainer *trainer, size_t slot_number, const char *text, size_t length, uint64_t weight, Error *error)
{
    if (slot_number >= BPE_TRAINER_SLOTS) {
        return error_set(error, "slot %zu of the tokenizer's training is beyond %d", slot_number, BPE_TRAINER_SLOTS - 1);
    }
    Slot *slot = &trainer->slots[slot_number];
    if (slot->pretokenizer == NULL && (slot->pretokenizer = pretokenizer_create(PRETOKENIZE_GPT2, error)) == NULL) {
        return -1;
    }
    const char *word;
    size_t n;
    pretokenizer_start(slot->pretokenizer, text, length);
    while ((n = pretokenizer_next(slot->pretokenizer, &word)) > 0) {
        for (size_t at = 0; at < n; at += MAX_PIECE) {
            size_t piece = n - at < MAX_PIECE ? n - at : MAX_PIECE;
            if (count_piece(slot, word + at, piece, weight, error) != 0) {
                return -1;
            }
        }
    }
    return 0;
}

int bpe_trainer_add(BpeTrainer *trainer, size_t slot, const char *text, size_t length, Error *error)
{
    return bpe_trainer_add_weighted(trainer, slot, text, length, 1, error);
}

typedef struct Word {
    size_t start;       // in `symbols`
    uint32_t length;    // shrinks as ids merge
    uint64_t count;
} Word;

typedef struct Pair {
    uint64_t key;       // left << 32 | right
    uint64_t count;
    uint32_t words;     // list of the words that hold it, or held it; first node
    bool raised;        // its count has grown in the present merge
    bool merged;        // it has its place in the list of merges
} Pair;

typedef struct Node {
    uint32_t word, next;
} Node;

typedef struct Candidate {
    uint64_t count, key;
} Candidate;

// Everything that learning needs, in growing arrays.
typedef struct Learning {
    Word *words;
    size_t n_words;
    int32_t *symbols;
    Pair *pairs;
    size_t n_pairs, pairs_capacity;
    uint32_t *pair_slots;           // hash table: number of the pair + 1, 0 = free
    size_t n_pair_slots;
    Node *nodes;
    size_t n_nodes, nodes_capacity;
    uint32_t free_nodes;            // list
    Candidate *heap;                // commonest pair first; counts may be out of date, then they are too large
    size_t heap_count, heap_capacity;
    uint32_t *raised;               // pairs whose counts have grown in the present merge
    size_t n_raised, raised_capacity;
    ByteMap tokens;                 // bytes → id
    Merge *merges;
    size_t n_merges, merges_capacity;
} Learning;

static void learning_free(Learning *l)
{
    free(l->words);
    free(l->symbols);
    free(l->pairs);
    free(l->pair_slots);
    free(l->nodes);
    free(l->heap);
    free(l->raised);
    byte_map_free(&l->tokens);
    free(l->merges);
}

static uint64_t pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static size_t pair_hash(uint64_t key)
{
    key *= UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(key ^ key >> 32);
}

static int grow_pair_slots(Learning *l)
{
    size_t n = l->n_pair_slots == 0 ? 4096 : l->n_pair_slots * 2;
    uint32_t *slots = calloc(n, sizeof *slots);
    if (slots == NULL) {
        return -1;
    }
    for (size_t p = 0; p < l->n_pairs; p++) {
        size_t i = pair_hash(l->pairs[p].key) & (n - 1);
        while (slots[i] != 0) {
            i = (i + 1) & (n - 1);
        }
        slots[i] = (uint32_t)(p + 1);
    }
    free(l->pair_slots);
    l->pair_slots = slots;
    l->n_pair_slots = n;
    return 0;
}

// The pair with a key, made with count 0 if it is not there; NULL when out of memory. The pointer holds until the next call.
static Pair *pair_get(Learning *l, uint64_t key)
{
    if (l->n_pairs + 1 > l->n_pair_slots / 2 && (l->n_pairs + 1 >= NONE || grow_pair_slots(l) != 0)) {
        return NULL;
    }
    size_t i = pair_hash(key) & (l->n_pair_slots - 1);
    for (; l->pair_slots[i] != 0; i = (i + 1) & (l->n_pair_slots - 1)) {
        Pair *pair = &l->pairs[l->pair_slots[i] - 1];
        if (pair->key == key) {
            return pair;
        }
    }
    if (array_reserve(&l->pairs, &l->pairs_capacity, l->n_pairs + 1, sizeof *l->pairs) != 0) {
        return NULL;
    }
    l->pairs[l->n_pairs] = (Pair){.key = key, .words = NONE};
    l->pair_slots[i] = (uint32_t)(l->n_pairs + 1);
    return &l->pairs[l->n_pairs++];
}

// Notes that the pair stands in the word once more.
static int raise_pair(Learning *l, int32_t left, int32_t right, uint32_t word)
{
    Pair *pair = pair_get(l, pair_key(left, right));
    if (pair == NULL) {
        return -1;
    }
    pair->count += l->words[word].count;
    if (!pair->raised) {
        if (array_reserve(&l->raised, &l->raised_capacity, l->n_raised + 1, sizeof *l->raised) != 0) {
            return -1;
        }
        pair->raised = true;
        l->raised[l->n_raised++] = (uint32_t)(pair - l->pairs);
    }
    if (pair->words != NONE && l->nodes[pair->words].word == word) {
        return 0;
    }
    uint32_t node = l->free_nodes;
    if (node != NONE) {
        l->free_nodes = l->nodes[node].next;
    } else {
        if (l->n_nodes >= NONE || array_reserve(&l->nodes, &l->nodes_capacity, l->n_nodes + 1, sizeof *l->nodes) != 0) {
            return -1;
        }
        node = (uint32_t)l->n_nodes++;
    }
    l->nodes[node] = (Node){.word = word, .next = pair->words};
    pair->words = node;
    return 0;
}

// Notes that the pair, which is known, stands in the word once less.
static int lower_pair(Learning *l, int32_t left, int32_t right, uint64_t count)
{
    Pair *pair = pair_get(l, pair_key(left, right));
    if (pair == NULL) {
        return -1;
    }
    pair->count -= count;
    return 0;
}

// True if `a` is merged before `b`.
static bool goes_first(Candidate a, Candidate b)
{
    return a.count != b.count ? a.count > b.count : a.key < b.key;
}

static int heap_push(Learning *l, Candidate item)
{
    if (array_reserve(&l->heap, &l->heap_capacity, l->heap_count + 1, sizeof *l->heap) != 0) {
        return -1;
    }
    size_t i = l->heap_count++;
    while (i > 0 && goes_first(item, l->heap[(i - 1) / 2])) {
        l->heap[i] = l->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    l->heap[i] = item;
    return 0;
}

static Candidate heap_pop(Learning *l)
{
    Candidate top = l->heap[0], item = l->heap[--l->heap_count];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < l->heap_count) {
        child += child + 1 < l->heap_count && goes_first(l->heap[child + 1], l->heap[child]);
        if (!goes_first(l->heap[child], item)) {
            break;
        }
        l->heap[i] = l->heap[child];
        i = child;
    }
    l->heap[i] = item;
    return top;
}

// Puts the pairs whose counts have grown into the heap.
static int flush_raised(Learning *l)
{
    for (size_t i = 0; i < l->n_raised; i++) {
        Pair *pair = &l->pairs[l->raised[i]];
        pair->raised = false;
        if (pair->count >= MIN_COUNT && heap_push(l, (Candidate){.count = pair->count, .key = pair->key}) != 0) {
            return -1;
        }
    }
    l->n_raised = 0;
    return 0;
}

// Replaces the pair by `result` in one word, from left to right, and corrects the counts around each place.
static int merge_in_word(Learning *l, uint32_t word_number, const Merge *merge)
{
    Word *word = &l->words[word_number];
    int32_t *symbols = l->symbols + word->start;
    uint32_t out = 0;
    for (uint32_t in = 0; in < word->length; in++) {
        if (symbols[in] != merge->left || in + 1 == word->length || symbols[in + 1] != merge->right) {
            symbols[out++] = symbols[in];
            continue;
        }
        if (lower_pair(l, merge->left, merge->right, word->count) != 0) {
            return -1;
        }
        if (out > 0 && (lower_pair(l, symbols[out - 1], merge->left, word->count) != 0
                        || raise_pair(l, symbols[out - 1], merge->result, word_number) != 0)) {
            return -1;
        }
        if (in + 2 < word->length && (lower_pair(l, merge->right, symbols[in + 2], word->count) != 0
                                      || raise_pair(l, merge->result, symbols[in + 2], word_number) != 0)) {
            return -1;
        }
        symbols[out++] = merge->result;
        in++;
    }
    word->length = out;
    return 0;
}

static int merge_everywhere(Learning *l, const Merge *merge)
{
    Pair *pair = pair_get(l, pair_key(merge->left, merge->right));
    if (pair == NULL) {
        return -1;
    }
    uint32_t node = pair->words;
    pair->words = NONE;
    while (node != NONE) {
        uint32_t next = l->nodes[node].next;
        if (merge_in_word(l, l->nodes[node].word, merge) != 0) {
            return -1;
        }
        l->nodes[node].next = l->free_nodes;
        l->free_nodes = node;
        node = next;
    }
    return flush_raised(l);
}

// The id of the joined bytes of two tokens: a new one, or an old one that another pair has made before.
static int join_tokens(Learning *l, Merge *merge)
{
    const ByteMapEntry *left = &l->tokens.entries[merge->left], *right = &l->tokens.entries[merge->right];
    size_t length = left->length + right->length;
    char joined[2 * MAX_PIECE];
    bool is_new;
    memcpy(joined, l->tokens.bytes + left->offset, left->length);
    memcpy(joined + left->length, l->tokens.bytes + right->offset, right->length);
    ByteMapEntry *entry = byte_map_insert(&l->tokens, joined, length, &is_new);
    if (entry == NULL) {
        return -1;
    }
    if (is_new) {
        entry->value = l->tokens.count - 1;
    }
    merge->result = (int32_t)entry->value;
    return 0;
}

// Joins the slots' counts and lays out the words as bytes. Slots are emptied on the way.
static int start_words(Learning *l, BpeTrainer *trainer)
{
    Slot *first = &trainer->slots[0];
    size_t n_symbols = 0;
    bool is_new;
    for (size_t s = 1; s < BPE_TRAINER_SLOTS; s++) {
        const ByteMap *counts = &trainer->slots[s].counts;
        for (size_t i = 0; i < counts->count; i++) {
            const ByteMapEntry *from = &counts->entries[i];
            ByteMapEntry *to = byte_map_insert(&first->counts, counts->bytes + from->offset, from->length, &is_new);
            if (to == NULL) {
                return -1;
            }
            to->value += from->value;
        }
        byte_map_free(&trainer->slots[s].counts);
    }
    const ByteMap *counts = &first->counts;
    l->words = malloc((counts->count + 1) * sizeof *l->words);
    l->symbols = malloc((counts->bytes_used + 1) * sizeof *l->symbols);
    if (l->words == NULL || l->symbols == NULL) {
        return -1;
    }
    for (size_t i = 0; i < counts->count; i++) {
        const ByteMapEntry *entry = &counts->entries[i];
        l->words[l->n_words++] = (Word){.start = n_symbols, .length = (uint32_t)entry->length, .count = entry->value};
        for (size_t k = 0; k < entry->length; k++) {
            l->symbols[n_symbols++] = (unsigned char)counts->bytes[entry->offset + k];
        }
    }
    byte_map_free(&first->counts);
    return 0;
}

static int start_pairs(Learning *l)
{
    for (int byte = 0; byte < 256; byte++) {
        char text = (char)byte;
        bool is_new;
        ByteMapEntry *entry = byte_map_insert(&l->tokens, &text, 1, &is_new);
        if (entry == NULL) {
            return -1;
        }
        entry->value = (uint64_t)byte;
    }
    l->free_nodes = NONE;
    for (size_t w = 0; w < l->n_words; w++) {
        const int32_t *symbols = l->symbols + l->words[w].start;
        for (uint32_t i = 0; i + 1 < l->words[w].length; i++) {
            if (raise_pair(l, symbols[i], symbols[i + 1], (uint32_t)w) != 0) {
                return -1;
            }
        }
    }
    return flush_raised(l);
}

static int learn(Learning *l, size_t vocab_size)
{
    while (l->tokens.count + 1 < vocab_size && l->heap_count > 0) {
        Candidate best = heap_pop(l);
        Pair *pair = pair_get(l, best.key);
        if (pair == NULL) {
            return -1;
        }
        if (pair->count != best.count) {
            // Its count has fallen, and a count that grows enters the heap anew: what is there is never below the truth.
            if (pair->count < best.count && pair->count >= MIN_COUNT
                && heap_push(l, (Candidate){.count = pair->count, .key = best.key}) != 0) {
                return -1;
            }
            continue;
        }
        Merge merge = {.left = (int32_t)(best.key >> 32), .right = (int32_t)(uint32_t)best.key};
        if (join_tokens(l, &merge) != 0
            || array_reserve(&l->merges, &l->merges_capacity, l->n_merges + 1, sizeof *l->merges) != 0) {
            return -1;
        }
        // A merged pair can come back when one of its tokens is made in a second way; its old place in the list then serves.
        if (!pair->merged) {
            pair->merged = true;
            l->merges[l->n_merges++] = merge;
        }
        if (merge_everywhere(l, &merge) != 0) {
            return -1;
        }
    }
    return 0;
}

// Moves what was learnt into a tokenizer.
static Tokenizer *make_tokenizer(Learning *l, Error *error)
{
    Tokenizer *t = calloc(1, sizeof *t);
    size_t n = l->tokens.count, bytes = l->tokens.bytes_used;
    if (t == NULL || (t->bytes = malloc(bytes + sizeof END_OF_TEXT)) == NULL || (t->offsets = malloc((n + 2) * sizeof *t->offsets)) == NULL
        || (t->added = malloc(sizeof *t->added)) == NULL) {
        tokenizer_free(t);
        error_set(error, "out of memory for training a tokenizer");
        return NULL;
    }
    memcpy(t->bytes, l->tokens.bytes, bytes);
    memcpy(t->bytes + bytes, END_OF_TEXT, sizeof END_OF_TEXT);
    for (size_t i = 0; i < n; i++) {
        t->offsets[i] = l->tokens.entries[i].offset;
    }
    t->offsets[n] = bytes;
    t->offsets[n + 1] = bytes + strlen(END_OF_TEXT);
    t->vocab_size = n + 1;
    t->form = "trained here";
    pipeline_gpt2(&t->pipeline);
    for (int byte = 0; byte < 256; byte++) {
        t->byte_ids[byte] = byte;
    }
    t->merges = l->merges;
    t->n_merges = l->n_merges;
    l->merges = NULL;
    t->added[0] = (AddedToken){.id = (int32_t)n, .special = true, .normalized = false};
    t->n_added = 1;
    return tokenizer_complete(t, error);
}

int bpe_trainer_check_size(size_t vocab_size, Error *error)
{
    if (vocab_size >= BPE_TRAINER_MIN_VOCAB && vocab_size <= MAX_VOCAB) {
        return 0;
    }
    return error_set(error, "a vocabulary of %zu tokens cannot be: it must hold the 256 bytes and " END_OF_TEXT ": give --vocab-size from %d to %d",
                     vocab_size, BPE_TRAINER_MIN_VOCAB, MAX_VOCAB);
}

Tokenizer *bpe_trainer_finish(BpeTrainer *trainer, size_t vocab_size, Error *error)
{
    if (bpe_trainer_check_size(vocab_size, error) != 0) {
        return NULL;
    }
    uint64_t total = 0;
    for (size_t s = 0; s < BPE_TRAINER_SLOTS; s++) {
        if (__builtin_add_overflow(total, trainer->slots[s].total, &total) || total > INT64_MAX) {
            error_set(error, "the counts of the tokenizer's training are beyond 2^63");
            return NULL;
        }
    }
    Learning l = {.free_nodes = NONE};
    Tokenizer *tokenizer = NULL;
    if (start_words(&l, trainer) == 0 && start_pairs(&l) == 0 && learn(&l, vocab_size) == 0) {
        tokenizer = make_tokenizer(&l, error);
    } else {
        error_set(error, "out of memory for training a tokenizer");
    }
    learning_free(&l);
    return tokenizer;
}
