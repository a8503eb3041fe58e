// Windows of all shards in one shuffled order. The order is a permutation that is computed, not stored: a Feistel network on the numbers
// of the windows.
#include "data/loader.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/rng.h"
#include "data/shards.h"

enum { ROUNDS = 6 };

#define LOADER_STREAM UINT64_C(0x6c6f61646572)   // keeps the order's random numbers apart from other uses of the seed

struct Loader {
    Shard *shards;
    size_t n_shards;
    uint64_t *first_window;   // [n_shards + 1] number of the first window of each shard, then the sum
    uint64_t tokens, seed;
    size_t length, vocab_size;
};

static int open_shards(Loader *loader, const PathList *paths, uint32_t tokenizer_hash, Error *error)
{
    uint32_t hash = tokenizer_hash;
    for (size_t i = 0; i < paths->count; i++) {
        Shard *shard = &loader->shards[i];
        if (shard_open(shard, paths->items[i], error) != 0) {
            return -1;
        }
        loader->n_shards++;
        if (hash != 0 && shard->tokenizer_hash != 0 && shard->tokenizer_hash != hash) {
            return error_set(error, "%s was made with another tokenizer (hash %08" PRIx32 ", expected %08" PRIx32
                             "); prepare the documents again with the model's tokenizer", shard->path, shard->tokenizer_hash, hash);
        }
        if (hash == 0) {
            hash = shard->tokenizer_hash;
        }
        uint64_t windows = shard->count == 0 ? 0 : (shard->count - 1) / loader->length;
        loader->first_window[i + 1] = loader->first_window[i] + windows;
        loader->tokens += shard->count;
    }
    return 0;
}

Loader *loader_create(const PathList *shards, size_t length, uint64_t seed, uint32_t tokenizer_hash, size_t vocab_size, Error *error)
{
    assert(length > 0);
    Loader *loader = calloc(1, sizeof *loader);
    if (loader == NULL) {
        error_set(error, "out of memory for opening %zu shards", shards->count);
        return NULL;
    }
    loader->shards = calloc(shards->count + 1, sizeof *loader->shards);
    loader->first_window = calloc(shards->count + 1, sizeof *loader->first_window);
    loader->length = length;
    loader->seed = seed;
    loader->vocab_size = vocab_size;
    if (loader->shards == NULL || loader->first_window == NULL) {
        error_set(error, "out of memory for opening %zu shards", shards->count);
        loader_free(loader);
        return NULL;
    }
    if (open_shards(loader, shards, tokenizer_hash, error) != 0) {
        loader_free(loader);
        return NULL;
    }
    if (loader_windows(loader) == 0) {
        error_set(error,
                  "the data (%zu shards, the first %s) holds %" PRIu64 " tokens, but one window of length %zu needs %zu in one shard; "
                  "give more data or a smaller --seq-len", shards->count, shards->count > 0 ? shards->items[0] : "missing", loader->tokens,
                  length, length + 1);
        loader_free(loader);
        return NULL;
    }
    return loader;
}

void loader_free(Loader *loader)
{
    if (loader == NULL) {
        return;
    }
    for (size_t i = 0; i < loader->n_shards; i++) {
        shard_close(&loader->shards[i]);
    }
    free(loader->shards);
    free(loader->first_window);
    free(loader);
}

uint64_t loader_tokens(const Loader *loader) { return loader->tokens; }

uint64_t loader_windows(const Loader *loader) { return loader->first_window[loader->n_shards]; }

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

// The place of `index` in a permutation of 0 … n−1. A Feistel network permutes the numbers below the next power of four; what falls
// outside n is sent through again, which ends since the cycle comes back to an index below n (fewer than four rounds on average).
static uint64_t permute(uint64_t index, uint64_t n, uint64_t seed, uint64_t epoch)
{
    Rng rng;
    uint64_t keys[ROUNDS];
    rng_seed(&rng, seed, LOADER_STREAM + epoch);
    for (int round = 0; round < ROUNDS; round++) {
        keys[round] = rng_next(&rng);
    }
    int half = 1;
    while (half < 32 && (n - 1) >> (2 * half) != 0) {
        half++;
    }
    uint64_t mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = index >> half, right = index & mask;
        for (int round = 0; round < ROUNDS; round++) {
            uint64_t next = left ^ (mix(right ^ keys[round]) & mask);
            left = right;
            right = next;
        }
        index = left << half | right;
    } while (index >= n);
    return index;
}

static size_t shard_of_window(const Loader *loader, uint64_t window)
{
    size_t low = 0, high = loader->n_shards;   // first_window[low] <= window < first_window[high]
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (loader->first_window[middle] <= window) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static int check_tokens(const Loader *loader, const Shard *shard, uint64_t start, const int32_t *tokens, size_t count, Error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || (loader->vocab_size > 0 && (size_t)tokens[i] >= loader->vocab_size)) {
            return error_set(error, "%s: token %" PRIu32 " at offset %" PRIu64 " is outside the vocabulary of %zu; "
                             "the shard was made with another tokenizer or is damaged", shard->path, shard_token(shard, start + i), start + i,
                             loader->vocab_size);
        }
    }
    return 0;
}

static int read_window(const Loader *loader, int32_t *tokens, int32_t *targets, uint64_t window, Error *error)
{
    size_t s = shard_of_window(loader, window), length = loader->length;
    const Shard *shard = &loader->shards[s];
    uint64_t start = (window - loader->first_window[s]) * length;
    shard_read(shard, tokens, start, length);
    for (size_t i = 0; i + 1 < length; i++) {
        targets[i] = tokens[i + 1];
    }
    shard_read(shard, targets + length - 1, start + length, 1);
    if (check_tokens(loader, shard, start, tokens, length, error) != 0) {
        return -1;
    }
    return check_tokens(loader, shard, start + length, targets + length - 1, 1, error);
}

int loader_window(const Loader *loader, int32_t *tokens, int32_t *targets, uint64_t index, Error *error)
{
    uint64_t windows = loader_windows(loader);
    return read_window(loader, tokens, targets, permute(index % windows, windows, loader->seed, index / windows), error);
}

int loader_window_in_order(const Loader *loader, int32_t *tokens, int32_t *targets, uint64_t index, Error *error)
{
    return read_window(loader, tokens, targets, index % loader_windows(loader), error);
}
