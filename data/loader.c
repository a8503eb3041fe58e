// Windows of all shards in one shuffled order. The order is a permutation that is computed, not stored: a Feistel network on the numbers
// of the windows. Which source a window comes from is computed as well: a tree over the sources halves them, and at each fork the windows
// go left and right in the fixed ratio of the shares.
#include "data/loader.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/rng.h"
#include "data/shards.h"

enum { ROUNDS = 6 };

#define LOADER_STREAM UINT64_C(0x6c6f61646572)   // keeps the order's random numbers apart from other uses of the seed
#define FORK_STREAM UINT64_C(0x6c6f6164666b)
#define SOURCE_STREAM (UINT64_C(1) << 48)        // between the streams of two sources: more than there are epochs

typedef struct Source {
    size_t first_shard, end_shard;   // in Loader.shards
    uint64_t tokens;
} Source;

struct Loader {
    Shard *shards;
    size_t n_shards;
    uint64_t *first_window;   // [n_shards + 1] number of the first window of each shard, then the sum
    Source *sources;
    size_t n_sources;
    uint64_t *first_part;     // [n_sources + 1] parts of the sources before, then the sum
    uint64_t *phase;          // [n_sources] of the fork in front of each source (the first has none): below the fork's parts
    uint64_t seed;
    size_t length, vocab_size;
};

// ---- opening ----

static int open_shard(Loader *loader, Source *source, const char *path, uint32_t *hash, Error *error)
{
    Shard *shard = &loader->shards[loader->n_shards];
    if (shard_open(shard, path, error) != 0) {
        return -1;
    }
    loader->n_shards++;
    if (*hash != 0 && shard->tokenizer_hash != 0 && shard->tokenizer_hash != *hash) {
        return error_set(error, "%s was made with another tokenizer (hash %08" PRIx32 ", expected %08" PRIx32
                         "); prepare the documents again with the model's tokenizer", shard->path, shard->tokenizer_hash, *hash);
    }
    if (*hash == 0) {
        *hash = shard->tokenizer_hash;
    }
    uint64_t windows = shard->count == 0 ? 0 : (shard->count - 1) / loader->length;
    loader->first_window[loader->n_shards] = loader->first_window[loader->n_shards - 1] + windows;
    source->tokens += shard->count;
    return 0;
}

static int open_source(Loader *loader, const LoaderSource *asked, uint32_t *hash, Error *error)
{
    size_t s = loader->n_sources++;
    Source *source = &loader->sources[s];
    source->first_shard = loader->n_shards;
    for (size_t i = 0; i < asked->shards->count; i++) {
        if (open_shard(loader, source, asked->shards->items[i], hash, error) != 0) {
            return -1;
        }
    }
    source->end_shard = loader->n_shards;
    loader->first_part[s + 1] = loader->first_part[s] + asked->parts;
    if (loader_source_windows(loader, s) == 0) {
        return error_set(error,
                         "%s (%zu shards, the first %s) holds %" PRIu64 " tokens, but one window of length %zu needs %zu in one shard; "
                         "give more data or a smaller --seq-len", asked->name, asked->shards->count,
                         asked->shards->count > 0 ? asked->shards->items[0] : "missing", source->tokens, loader->length, loader->length + 1);
    }
    return 0;
}

// Draws where in its pattern each fork begins.
static void draw_phases(Loader *loader, size_t low, size_t high)
{
    if (high - low < 2) {
        return;
    }
    Rng rng;
    size_t middle = low + (high - low) / 2;
    rng_seed(&rng, loader->seed, FORK_STREAM + middle);
    loader->phase[middle] = rng_below(&rng, loader->first_part[high] - loader->first_part[low]);
    draw_phases(loader, low, middle);
    draw_phases(loader, middle, high);
}

static int allocate(Loader *loader, const LoaderSource *sources, size_t n_sources, Error *error)
{
    size_t n_shards = 0;
    for (size_t i = 0; i < n_sources; i++) {
        n_shards += sources[i].shards->count;
    }
    loader->shards = calloc(n_shards + 1, sizeof *loader->shards);
    loader->first_window = calloc(n_shards + 1, sizeof *loader->first_window);
    loader->sources = calloc(n_sources, sizeof *loader->sources);
    loader->first_part = calloc(n_sources + 1, sizeof *loader->first_part);
    loader->phase = calloc(n_sources, sizeof *loader->phase);
    if (loader->shards == NULL || loader->first_window == NULL || loader->sources == NULL || loader->first_part == NULL || loader->phase == NULL) {
        return error_set(error, "out of memory for opening %zu shards", n_shards);
    }
    return 0;
}

Loader *loader_create_mix(const LoaderSource *sources, size_t n_sources, size_t length, uint64_t seed, uint32_t tokenizer_hash, size_t vocab_size,
                          Error *error)
{
    assert(length > 0 && n_sources > 0);
    Loader *loader = calloc(1, sizeof *loader);
    if (loader == NULL) {
        error_set(error, "out of memory for opening the data");
        return NULL;
    }
    loader->length = length;
    loader->seed = seed;
    loader->vocab_size = vocab_size;
    int failed = allocate(loader, sources, n_sources, error);
    for (size_t i = 0; i < n_sources && failed == 0; i++) {
        assert(sources[i].parts > 0);
        failed = open_source(loader, &sources[i], &tokenizer_hash, error);
    }
    if (failed != 0) {
        loader_free(loader);
        return NULL;
    }
    assert(loader->first_part[n_sources] <= LOADER_MAX_PARTS);
    draw_phases(loader, 0, n_sources);
    return loader;
}

Loader *loader_create(const PathList *shards, size_t length, uint64_t seed, uint32_t tokenizer_hash, size_t vocab_size, Error *error)
{
    const LoaderSource source = {.name = "the data", .shards = shards, .parts = 1};
    return loader_create_mix(&source, 1, length, seed, tokenizer_hash, vocab_size, error);
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
    free(loader->sources);
    free(loader->first_part);
    free(loader->phase);
    free(loader);
}

// ---- what there is ----

uint64_t loader_tokens(const Loader *loader)
{
    uint64_t tokens = 0;
    for (size_t s = 0; s < loader->n_sources; s++) {
        tokens += loader->sources[s].tokens;
    }
    return tokens;
}

uint64_t loader_windows(const Loader *loader) { return loader->first_window[loader->n_shards]; }

size_t loader_sources(const Loader *loader) { return loader->n_sources; }

double loader_share(const Loader *loader, size_t source)
{
    return (double)(loader->first_part[source + 1] - loader->first_part[source]) / (double)loader->first_part[loader->n_sources];
}

uint64_t loader_source_tokens(const Loader *loader, size_t source) { return loader->sources[source].tokens; }

uint64_t loader_source_windows(const Loader *loader, size_t source)
{
    return loader->first_window[loader->sources[source].end_shard] - loader->first_window[loader->sources[source].first_shard];
}

// ---- the order ----

// Sources [low, high), and the fork that halves them.
typedef struct Fork {
    size_t low, high, middle;
} Fork;

static Fork fork_of(size_t low, size_t high) { return (Fork){low, high, low + (high - low) / 2}; }

// Of the first n windows that come to the fork, those that go to [low, middle): ⌊(n·left + phase) / all⌋, in 64 bits for every n.
static uint64_t gone_left(const Loader *loader, Fork fork, uint64_t n)
{
    uint64_t left = loader->first_part[fork.middle] - loader->first_part[fork.low];
    uint64_t all = loader->first_part[fork.high] - loader->first_part[fork.low];
    return n / all * left + (n % all * left + loader->phase[fork.middle]) / all;
}

// The source of window `index`; *index becomes its number among the source's windows.
static size_t source_of(const Loader *loader, uint64_t *index)
{
    Fork fork = fork_of(0, loader->n_sources);
    while (fork.high - fork.low > 1) {
        uint64_t left = gone_left(loader, fork, *index);
        if (gone_left(loader, fork, *index + 1) > left) {
            *index = left;
            fork = fork_of(fork.low, fork.middle);
        } else {
            *index -= left;
            fork = fork_of(fork.middle, fork.high);
        }
    }
    return fork.low;
}

uint64_t loader_dealt(const Loader *loader, size_t source, uint64_t index)
{
    Fork fork = fork_of(0, loader->n_sources);
    while (fork.high - fork.low > 1) {
        uint64_t left = gone_left(loader, fork, index);
        index = source < fork.middle ? left : index - left;
        fork = source < fork.middle ? fork_of(fork.low, fork.middle) : fork_of(fork.middle, fork.high);
    }
    return index;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

// The place of `index` in a permutation of 0 … n−1. A Feistel network permutes the numbers below the next power of four; what falls
// outside n is sent through again, which ends since the cycle comes back to an index below n (fewer than four rounds on average).
static uint64_t permute(uint64_t index, uint64_t n, uint64_t seed, uint64_t stream)
{
    Rng rng;
    uint64_t keys[ROUNDS];
    rng_seed(&rng, seed, stream);
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

// ---- windows ----

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

int loader_source_window(const Loader *loader, int32_t *tokens, int32_t *targets, size_t source, uint64_t window, Error *error)
{
    assert(window < loader_source_windows(loader, source));
    return read_window(loader, tokens, targets, loader->first_window[loader->sources[source].first_shard] + window, error);
}

int loader_window(const Loader *loader, int32_t *tokens, int32_t *targets, uint64_t index, Error *error)
{
    size_t source = source_of(loader, &index);
    uint64_t windows = loader_source_windows(loader, source), stream = LOADER_STREAM + source * SOURCE_STREAM + index / windows;
    return loader_source_window(loader, tokens, targets, source, permute(index % windows, windows, loader->seed, stream), error);
}

int loader_window_in_order(const Loader *loader, int32_t *tokens, int32_t *targets, uint64_t index, Error *error)
{
    size_t source = source_of(loader, &index);
    return loader_source_window(loader, tokens, targets, source, index % loader_source_windows(loader, source), error);
}

void loader_document_starts(uint8_t *starts, const int32_t *tokens, size_t count, int32_t end_of_text)
{
    for (size_t i = 0; i < count; i++) {
        starts[i] = tokens[i] == end_of_text;
    }
}
