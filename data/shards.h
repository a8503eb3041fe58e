// Token shards in the llm.c format: a header of 256 little-endian int32 (magic, version, count low, count high, tokenizer hash, zeros),
// then the tokens. Magic 20240520 version 1: uint16 tokens. Magic 20240801 version 7: uint32 tokens.
#ifndef DATA_SHARDS_H
#define DATA_SHARDS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

// One shard, mapped into memory for reading.
typedef struct Shard {
    char *path;
    const unsigned char *map;   // the whole file
    size_t map_bytes;
    uint64_t count;             // tokens
    unsigned width;             // bytes a token: 2 or 4
    uint32_t tokenizer_hash;    // 0 = unknown
} Shard;

// Opens and checks header against file size (which must fit exactly). Returns 0, or -1 with `error` set and nothing to close.
int shard_open(Shard *shard, const char *path, Error *error);
void shard_close(Shard *shard);
// Copies tokens [start, start + count) as int32; a uint32 token above 2^31 − 1 gives -1. The range must lie within the shard (asserted).
// The pages read are given back, so resident memory does not grow with the data. Any number of threads may read one shard.
void shard_read(const Shard *shard, int32_t *out, uint64_t start, size_t count);
// The token at `at` as it stands in the file, for messages. `at` must lie within the shard (asserted).
uint32_t shard_token(const Shard *shard, uint64_t at);

// Writes shards: tokens are buffered and the file gets its name only when it is complete (atomic rename).
typedef struct ShardWriter ShardWriter;
// Files are DIR/PREFIX_000000.bin, _000001 ...; each holds at most `shard_tokens` (> 0) tokens (a document may be cut across shards).
// Width by vocab_size: uint16 up to 65,536 ids. Nothing is created before the first token. Returns NULL with `error` set when out of
// memory.
ShardWriter *shard_writer_create(const char *folder, const char *prefix, uint64_t shard_tokens, size_t vocab_size,
                                 uint32_t tokenizer_hash, Error *error);
// Returns 0, or -1 with `error` set (an id outside the vocabulary, a failed write): then only shard_writer_abort may follow.
int shard_writer_add(ShardWriter *writer, const int32_t *ids, size_t count, Error *error);
// The same in two steps, of which any thread may do the first for any number of tokens: a writer's vocabulary tells the bytes of a token in its
// file, and shard_put_tokens sets `out` [count · width] to the tokens as they stand there; -1 with `error` set when an id is outside of it.
unsigned shard_token_width(size_t vocab_size);
int shard_put_tokens(unsigned char *out, const int32_t *ids, size_t count, size_t vocab_size, Error *error);
int shard_writer_add_bytes(ShardWriter *writer, const unsigned char *bytes, size_t count, Error *error);
size_t shard_writer_shards(const ShardWriter *writer);   // complete ones
// Where a writer stands: complete shards, and tokens in the one that is unfinished.
typedef struct ShardPosition {
    uint64_t shards, tokens;
} ShardPosition;

// Brings all tokens so far onto the disk, the unfinished shard under its temporary name, and tells where the writer stands.
int shard_writer_sync(ShardWriter *writer, ShardPosition *position, Error *error);
// Goes on, with a new writer, from a position that shard_writer_sync told: what stands behind it is cut off. Returns 0, or -1 with `error`
// set when the files there do not reach so far: then only shard_writer_abort may follow.
int shard_writer_resume(ShardWriter *writer, const ShardPosition *position, Error *error);
// Frees the writer and leaves the files as they are, for shard_writer_resume; NULL is allowed.
void shard_writer_leave(ShardWriter *writer);
// Completes the last shard and frees the writer (also on failure: the unfinished shard then stays, for shard_writer_resume). No tokens at
// all: no file, *n_shards = 0.
int shard_writer_close(ShardWriter *writer, uint64_t *total_tokens, size_t *n_shards, Error *error);
// Drops the shard that is unfinished (complete ones stay) and frees the writer; NULL is allowed.
void shard_writer_abort(ShardWriter *writer);

#endif
