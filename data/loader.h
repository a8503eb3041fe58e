// Training windows: every shard is cut into windows of length + 1 tokens at stride `length` (each token is a target at most once);
// windows of all shards are shuffled together by seed and epoch, and dealt in that order. The position is one number, so resume is exact.
// A window lies within one shard; fewer than `length` tokens at a shard's end are left out. Several ranks take the indices step·ranks +
// rank: their union over an epoch covers each window once.
//
// Data may come from several sources, each with its share of the windows. Of any first n windows a source has its share to within a few
// windows (less than 1 + log2 of the number of sources), not just on average: which source the next one comes from is computed, not
// drawn. Each source is shuffled by itself and has its own epochs.
#ifndef DATA_LOADER_H
#define DATA_LOADER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/file.h"

#define LOADER_MAX_PARTS (UINT32_C(1) << 31)

typedef struct Loader Loader;

typedef struct LoaderSource {
    const char *name;         // for messages
    const PathList *shards;
    uint32_t parts;           // > 0: the source's share is its parts over the sum of all, at most LOADER_MAX_PARTS
} LoaderSource;

// Opens all shards. A tokenizer hash that differs from `tokenizer_hash` (both non-zero), or between shards, is refused, as is a token
// outside the vocabulary when it is met, and a source without one whole window (the message gives the tokens there are and the length
// asked for). vocab_size 0: not checked. length > 0, n_sources > 0. NULL with `error` set.
Loader *loader_create_mix(const LoaderSource *sources, size_t n_sources, size_t length, uint64_t seed, uint32_t tokenizer_hash, size_t vocab_size,
                          Error *error);
// The same with one source.
Loader *loader_create(const PathList *shards, size_t length, uint64_t seed, uint32_t tokenizer_hash, size_t vocab_size, Error *error);
void loader_free(Loader *loader);

uint64_t loader_tokens(const Loader *loader);    // tokens in all shards
uint64_t loader_windows(const Loader *loader);   // windows in all shards: an epoch, when there is one source

size_t loader_sources(const Loader *loader);
double loader_share(const Loader *loader, size_t source);
uint64_t loader_source_tokens(const Loader *loader, size_t source);
uint64_t loader_source_windows(const Loader *loader, size_t source);   // an epoch of the source
// How many of the windows before `index` come from the source.
uint64_t loader_dealt(const Loader *loader, size_t source, uint64_t index);

// The window `index` counted from the start of training (epoch = index / windows, of several sources each with its own count): tokens and
// targets [length] each. Pure function of (index, seed, shards, shares): any order, any rank, any thread. Returns 0, or -1 with `error`
// set (a token outside the vocabulary: names shard and offset).
int loader_window(const Loader *loader, int32_t *tokens, int32_t *targets, uint64_t index, Error *error);

// The same without shuffling, for validation: the shares stay, and a source that is through starts again.
int loader_window_in_order(const Loader *loader, int32_t *tokens, int32_t *targets, uint64_t index, Error *error);

// Window `window` (below loader_source_windows) of one source.
int loader_source_window(const Loader *loader, int32_t *tokens, int32_t *targets, size_t source, uint64_t window, Error *error);

// For models that forget between documents: starts[i] = 1 where tokens[i] is the first of a document, else 0. Documents begin with the
// token `end_of_text`. The arrays may be a whole batch [count = windows · length]: a window's first token begins nothing unless it is one.
void loader_document_starts(uint8_t *starts, const int32_t *tokens, size_t count, int32_t end_of_text);

#endif
