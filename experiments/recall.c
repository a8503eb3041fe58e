#include "experiments/recall.h"

#include <math.h>
#include <stdlib.h>

#define GAP_EXPONENT (-0.99)
#define MAX_SIZE ((size_t)1 << 24)

int recall_create(Recall *recall, size_t pairs, size_t length, size_t vocab, Error *error)
{
    *recall = (Recall){.pairs = pairs, .length = length, .vocab = vocab};
    if (pairs < 1 || pairs > MAX_SIZE || length < 4 * pairs || length > MAX_SIZE) {
        return error_set(error, "%zu pairs in %zu tokens: there must be at least one, and four tokens a pair, at most %zu", pairs, length, MAX_SIZE);
    }
    if (vocab < 2 * pairs || vocab > MAX_SIZE) {
        return error_set(error, "a vocabulary of %zu for %zu pairs: half of it are keys, so it must be from %zu to %zu", vocab, pairs, 2 * pairs, MAX_SIZE);
    }
    recall->n_places = (length - 2 * pairs) / 2;
    recall->weights = calloc(recall->n_places, sizeof *recall->weights);
    recall->places = calloc(recall->n_places, sizeof *recall->places);
    recall->keys = calloc(vocab / 2, sizeof *recall->keys);
    if (recall->weights == NULL || recall->places == NULL || recall->keys == NULL) {
        recall_free(recall);
        return error_set(error, "out of memory for sequences of %zu tokens", length);
    }
    for (size_t i = 0; i < recall->n_places; i++) {
        recall->weights[i] = pow((double)(i + 1), GAP_EXPONENT);
    }
    return 0;
}

void recall_free(Recall *recall)
{
    free(recall->weights);
    free(recall->places);
    free(recall->keys);
    *recall = (Recall){0};
}

static int compare_places(const void *a, const void *b)
{
    const RecallPlace *x = a, *y = b;
    return x->time != y->time ? (x->time < y->time ? -1 : 1) : (x->place < y->place ? -1 : 1);
}

// The order in which places are drawn without putting back is that of exponential times with the weights as rates: the minimum falls on each place with a
// chance in proportion to its weight, and so does the next among those that are left.
static void draw_places(Recall *recall, Rng *rng)
{
    for (size_t i = 0; i < recall->n_places; i++) {
        recall->places[i] = (RecallPlace){-log(1.0 - rng_uniform(rng)) / recall->weights[i], i};
    }
    qsort(recall->places, recall->n_places, sizeof *recall->places, compare_places);
}

static void draw_keys(Recall *recall, Rng *rng)
{
    size_t count = recall->vocab / 2;
    for (size_t i = 0; i < count; i++) {
        recall->keys[i] = (int32_t)i;
    }
    for (size_t i = 0; i < recall->pairs; i++) {
        size_t other = i + (size_t)rng_below(rng, count - i);
        int32_t key = recall->keys[other];
        recall->keys[other] = recall->keys[i];
        recall->keys[i] = key;
    }
}

// Any id but the sequence's keys: the other keys, then the values.
static int32_t draw_filler(const Recall *recall, Rng *rng)
{
    size_t half = recall->vocab / 2, id = recall->pairs + (size_t)rng_below(rng, recall->vocab - recall->pairs);
    return id < half ? recall->keys[id] : (int32_t)id;
}

void recall_sequence(int32_t *tokens, int32_t *targets, Recall *recall, Rng *rng)
{
    size_t half = recall->vocab / 2, context = 2 * recall->pairs;
    draw_keys(recall, rng);
    draw_places(recall, rng);
    for (size_t t = 0; t < recall->length; t++) {
        targets[t] = -1;
        if (t >= context) {
            tokens[t] = draw_filler(recall, rng);
        }
    }
    for (size_t i = 0; i < recall->pairs; i++) {
        size_t query = context + 2 * recall->places[i].place;
        tokens[2 * i] = tokens[query] = recall->keys[i];
        tokens[2 * i + 1] = targets[query] = (int32_t)(half + rng_below(rng, recall->vocab - half));
    }
}
