// Training windows: every shard is cut into windows of length + 1 tokens at stride `length` (each token is a target at most once);
// windows of all shards are shuffled together by seed and epoch, and dealt in that order. The position is one number, so resume is exact.
// A window lies within one shard; fewer than `length` tokens at a shard's end are left out. Several ranks take the indices step·ranks +
// rank: their union over an epoch covers each window once.
#ifndef DATA_LOADER_H
#define DATA_LOADER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/file.h"

typedef struct Loader Loader;

// Opens all shards. A tokenizer hash that differs from `tokenizer_hash` (both non-zero), or between shards, is refused, as is a token
// outside the vocabulary when it is met, and a corpus without one whole window (the message gives the tokens there are and the length
// asked for). vocab_size 0: not checked. length > 0.
Loader *loader_create(const PathList *shards, size_t length, uint64_t seed, uint32_t tokenizer_hash, size_t vocab_size, Error *error);
void loader_free(Loader *loader);

uint64_t loader_tokens(const Loader *loader);    // tokens in all shards
uint64_t loader_windows(const Loader *loader);   // windows in an epoch

// The window `index` counted from the start of training (epoch = index / windows): tokens and targets [length] each. Pure function of
// (index, seed, shards): any order, any rank, any thread. Returns 0, or -1 with `error` set (a token outside the vocabulary: names shard
// and offset).
int loader_window(const Loader *loader, int32_t *tokens, int32_t *targets, uint64_t index, Error *error);

// The same without shuffling, for validation; behind the last window it starts again.
int loader_window_in_order(const Loader *loader, int32_t *tokens, int32_t *targets, uint64_t index, Error *error);

#endif
