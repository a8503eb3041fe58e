// A sample of text from a model in training.
#ifndef TRAINING_SAMPLE_H
#define TRAINING_SAMPLE_H

#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "model/model.h"
#include "tokenizer/bpe.h"

#define SAMPLE_TOKENS 96
#define SAMPLE_TEMPERATURE 0.8

// Writes the start of a document that the model makes up to `out`, at most SAMPLE_TOKENS tokens and a newline; control characters
// become spaces. Same weights and seed: same text. Returns 0, or -1 with `error` set.
int sample_text(FILE *out, const Model *model, const Tokenizer *tokenizer, uint64_t seed, Error *error);

#endif
