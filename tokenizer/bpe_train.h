// Training of byte-level BPE: counts pre-tokens (memory by distinct ones, 64-bit counts), then merges the commonest pair until the
// vocabulary is full.
#ifndef TOKENIZER_BPE_TRAIN_H
#define TOKENIZER_BPE_TRAIN_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "tokenizer/bpe.h"

typedef struct BpeTrainer BpeTrainer;

enum { BPE_TRAINER_SLOTS = 64, BPE_TRAINER_MIN_VOCAB = 257 };

BpeTrainer *bpe_trainer_create(Error *error);
void bpe_trainer_free(BpeTrainer *trainer);

// Counts the pre-tokens of one document (or of a piece cut at pretokenize_cut). Thread-safe: `slot` (0 … 63) names the calling thread's own
// counts; the result does not depend on who counted what. Pre-tokens above 256 bytes count as pieces of 256.
// Returns 0, or -1 with `error` set (out of memory).
int bpe_trainer_add(BpeTrainer *trainer, size_t slot, const char *text, size_t length, Error *error);

// The same as adding the document `weight` times. Counts beyond 2^63 are an error.
int bpe_trainer_add_weighted(BpeTrainer *trainer, size_t slot, const char *text, size_t length, uint64_t weight, Error *error);

// Returns 0, or -1 with `error` set: a tokenizer of so many ids cannot be trained. For those who want to know before they count.
int bpe_trainer_check_size(size_t vocab_size, Error *error);

// Learns merges up to `vocab_size` ids in all: 0 … 255 are the bytes in order of their value, then the tokens in order of their merges, and
// <|endoftext|> is the last id. The commonest pair of neighbours is merged first; ties go to the smaller left id, then the smaller right id,
// so the result is the same for any number of threads and any order of documents. Pairs that occur once are not merged, so a corpus too
// small gives a smaller vocabulary (the caller says so). The counts are used up: call it once. Returns NULL with `error` set.
Tokenizer *bpe_trainer_finish(BpeTrainer *trainer, size_t vocab_size, Error *error);

#endif
