// The tokenizer as a value: tables, hash, access. Encoding is in encoder.c, files in tokenizer_load.c.
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
        free(t->names);
        free(t->name_offsets);
        free(t->character_ids);
        free(t->merges);
        free(t->added);
        byte_map_free(&t->whole);
        pipeline_free(&t->pipeline);
        free(t->source);
        free(t->slots);
        free(t->joins);
        free(t->added_text);
        free(t->added_index[0].order);
        free(t->added_index[1].order);
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
    if (id < 0 || (size_t)id >= t->vocab_size || t->offsets[id] == t->offsets[id + 1]) {
        return NULL;
    }
    *length = t->offsets[id + 1] - t->offsets[id];
    return t->bytes + t->offsets[id];
}

int tokenizer_strips_first_space(const Tokenizer *t)
{
    return t->pipeline.strip_first;
}

// Whether an added token could lie on both sides of a place where pretokenize_cut cuts.
static bool may_cross_cut(const char *text, size_t length)
{
    bool letter = false, space = false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\n' || text[i] == '\r') {
            return true;
        }
        letter |= (text[i] | 32) >= 'a' && (text[i] | 32) <= 'z';
        space |= text[i] == ' ';
    }
    return letter && space;
}

size_t tokenizer_cut(const Tokenizer *t, const char *text, size_t length, size_t wanted)
{
    bool may_cut = t->pipeline.may_cut;
    for (size_t i = 0; i < t->n_added && may_cut; i++) {
        const AddedToken *added = &t->added[i];
        may_cut = !added->left_strip && !added->right_strip && !may_cross_cut(added_text(t, added), added->text_length);
    }
    return may_cut ? pretokenize_cut(text, length, wanted) : 0;
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

// What stands at the end of a document: the first of these that is an added token.
static const char *const end_of_text_names[] = {
    END_OF_TEXT, "<|end_of_text|>", "</s>", "<|im_end|>", "<|eot_id|>", "<eos>", "<|end\xE2\x96\x81of\xE2\x96\x81sentence|>",
    "<\357\275\234end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>", "[EOS]", "\n</s>\n",
};

static int find_end_of_text(Tokenizer *t, Error *error)
{
    t->end_of_text = -1;
    for (size_t n = 0; n < sizeof end_of_text_names / sizeof *end_of_text_names && t->end_of_text < 0; n++) {
        for (size_t i = 0; i < t->n_added; i++) {
            size_t length = 0;
            const char *name = token_name(t, (size_t)t->added[i].id, &length);
            if (length == strlen(end_of_text_names[n]) && memcmp(name, end_of_text_names[n], length) == 0) {
                t->end_of_text = t->added[i].id;
            }
        }
    }
    return t->end_of_text >= 0 ? 0
                               : error_set(error, "added_tokens has no end-of-text token, which separates documents (" END_OF_TEXT
                                                  ", <|end_of_text|>, </s>, ...): add one there");
}

// The texts that are looked for; those of "normalized" tokens are normalised.
static int make_added_texts(Tokenizer *t, Error *error)
{
    Normalizer *normalizer = normalizer_create(error);
    size_t used = 0, capacity = 0;
    int status = normalizer != NULL ? 0 : -1;
    for (size_t i = 0; i < t->n_added && status == 0; i++) {
        AddedToken *added = &t->added[i];
        size_t length = 0;
        const char *text = token_name(t, (size_t)added->id, &length);
        if (added->normalized) {
            status = normalizer_apply(normalizer, t->pipeline.edits, t->pipeline.n_edits, true, &text, &length, error);
        }
        if (status == 0 && array_reserve(&t->added_text, &capacity, used + length + 1, 1) != 0) {
            status = error_set(error, "out of memory for %zu added tokens", t->n_added);
        }
        if (status == 0) {
            memcpy(t->added_text + used, text, length);
            added->text = used;
            added->text_length = length;
            used += length;
        }
    }
    normalizer_free(normalizer);
    return status;
}

typedef struct AddedText {
    const char *text;
    size_t length;
    int32_t place;
} AddedText;

static int compare_texts(const void *a, const void *b)
{
    const AddedText *left = a, *right = b;
    int order = memcmp(left->text, right->text, left->length < right->length ? left->length : right->length);
    if (order != 0 || left->length != right->length) {
        return order != 0 ? order : left->length < right->length ? -1 : 1;
    }
    return left->place < right->place ? -1 : 1;
}

static int build_added_index(Tokenizer *t, bool normalized, Error *error)
{
    AddedIndex *index = &t->added_index[normalized];
    AddedText *sorted = malloc((t->n_added + 1) * sizeof *sorted);
    index->order = malloc((t->n_added + 1) * sizeof *index->order);
    if (sorted == NULL || index->order == NULL) {
        free(sorted);
        return error_set(error, "out of memory for %zu added tokens", t->n_added);
    }
    for (size_t i = 0; i < t->n_added; i++) {
        if (t->added[i].normalized == normalized) {
            sorted[index->count++] = (AddedText){added_text(t, &t->added[i]), t->added[i].text_length, (int32_t)i};
        }
    }
    if (index->count > 0) {
        qsort(sorted, index->count, sizeof *sorted, compare_texts);
    }
    for (size_t i = 0; i < index->count; i++) {
        unsigned first = (unsigned char)sorted[i].text[0];   // NOLINT(clang-analyzer-*): count are set, which qsort keeps
        index->order[i] = sorted[i].place;
        index->starts[first] = true;
        for (unsigned second = 0; second < 256; second++) {
            if (sorted[i].length == 1 || second == (unsigned char)sorted[i].text[1]) {
                index->pairs[(first << 8 | second) / 8] |= (uint8_t)(1u << (second % 8));
            }
        }
    }
    free(sorted);
    return 0;
}

// Two bytes that stand side by side in no token that merging makes are a border that no merge crosses: long runs can be cut there.
static int build_joins(Tokenizer *t, Error *error)
{
    t->joins = calloc(JOIN_BYTES, 1);
    if (t->joins == NULL) {
        return error_set(error, "out of memory for a tokenizer");
    }
    for (size_t i = 0; i < t->n_merges; i++) {
        size_t length = 0;
        const unsigned char *name = (const unsigned char *)token_name(t, (size_t)t->merges[i].result, &length);
        for (size_t k = 1; k < length; k++) {
            t->joins[(size_t)name[k - 1] << 8 | name[k]] = 1;
        }
    }
    // A character is never cut.
    for (size_t first = 0; first < 256 && t->character_ids != NULL; first++) {
        memset(t->joins + (first << 8 | 0x80), 1, 0x40);
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
        size_t length = 0;
        const char *name = token_name(t, i, &length);
        hash = XXH3_64bits_withSeed(name, length, hash);
    }
    for (uint32_t i = 0; i < 256; i++) {
        hash = hash_numbers(hash, i, (uint32_t)t->byte_ids[i], 0);
    }
    for (size_t i = 0; i < t->n_merges; i++) {
        hash = hash_numbers(hash, (uint32_t)t->merges[i].left, (uint32_t)t->merges[i].right, (uint32_t)t->merges[i].result);
    }
    for (size_t i = 0; i < t->n_added; i++) {
        uint32_t strip = (uint32_t)t->added[i].left_strip << 1 | (uint32_t)t->added[i].right_strip << 2;
        hash = hash_numbers(hash, (uint32_t)t->added[i].id, t->added[i].special, t->added[i].normalized | strip);
    }
    // Tokenizers with nothing but GPT-2's pattern have the hash they had when there was nothing else.
    if (t->pipeline.hash != 0 || t->whole_first) {
        hash = hash_numbers(hash, (uint32_t)t->pipeline.hash, (uint32_t)(t->pipeline.hash >> 32), t->whole_first);
    }
    uint32_t folded = (uint32_t)(hash ^ hash >> 32);
    return folded != 0 ? folded : 1;
}

Tokenizer *tokenizer_complete(Tokenizer *t, Error *error)
{
    if (build_merge_table(t, error) != 0 || build_joins(t, error) != 0 || find_end_of_text(t, error) != 0
        || make_added_texts(t, error) != 0 || build_added_index(t, false, error) != 0 || build_added_index(t, true, error) != 0) {
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
