// Training of byte-level BPE: counts pre-tokens (memory by distinct ones, 64-bit counts), then merges the commonest pair until the vocabulary is full.
#ifndef TOKENIZER_BPE_TRAIN_H
#define TOKENIZER_BPE_TRAIN_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "tokenizer/bpe.h"

typedef struct BpeTrainer BpeTrainer;

BpeTrainer *bpe_trainer_create(Error *error);
void bpe_trainer_free(BpeTrainer *trainer);

// Counts the pre-tokens of one document. Thread-safe: `slot` (0 … 63) names the calling thread's own counts; the result does not depend on who counted what.
int bpe_trainer_add(BpeTrainer *trainer, size_t slot, const char *text, size_t length, Error *error);

// Learns merges up to `vocab_size` ids in all: 256 bytes, merges, and <|endoftext|> as the last id. Ties go to the smaller pair of ids, so the result is the same for any
// number of threads. A corpus too small to fill the vocabulary gives a smaller one (the caller says so). Returns NULL with `error` set.
Tokenizer *bpe_trainer_finish(BpeTrainer *trainer, size_t vocab_size, Error *error);

#endif
