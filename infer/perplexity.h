// How well a model predicts a text: cross-entropy in nats, perplexity and bits per byte, across context lengths and by position.
//
// All documents, each after an <|endoftext|>, are one stream of tokens, as in the training data. For a context of L tokens the stream is
// cut into consecutive windows: inputs s[i] … s[i+L−1], targets s[i+1] … s[i+L], i = 0, L, 2L …, each read from the model's start state.
// The last, shorter window counts too, so every context length scores the same targets: all tokens but the first. By position, each
// document alone is read once with carried state. Bits per byte divides all bits by the bytes of the text's tokens; <|endoftext|> has no
// bytes, its bits count where it is a target.
#ifndef INFER_PERPLEXITY_H
#define INFER_PERPLEXITY_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/file.h"
#include "model/model.h"
#include "tokenizer/bpe.h"

typedef struct TokenStream {
    int32_t *ids;   // starts with <|endoftext|>
    size_t count, capacity;
    size_t max_count;   // reading stops here; SIZE_MAX: no limit
    uint64_t documents;
    uint64_t bytes;     // of the text that the tokens after the first stand for
    uint64_t skipped;   // records that could not be read
} TokenStream;

// True for names that can be evaluated: what corpus_accepts, and .bin.
bool stream_accepts(const char *path);

// Reads documents and token shards, in the order of the list, up to max_targets tokens after the first (0: all). Without a tokenizer (NULL)
// only shards can be read; documents and bytes are then not counted and nothing is put before a shard. Shards of another
// tokenizer are refused, tokens outside the vocabulary are errors by shard and place; a shard that follows documents or stands first gets
// an <|endoftext|> before it where it lacks one. Returns 0, or -1 with `error` set and nothing to free.
int stream_read(TokenStream *stream, const PathList *files, const Tokenizer *tokenizer, size_t vocab_size, uint64_t max_targets,
                Error *error);
void stream_free(TokenStream *stream);

typedef struct Score {
    uint64_t first, last;   // context: both the length L; by position: the bucket's positions, first … last (what the model has read before
                            // the target, less one)
    uint64_t windows;   // windows, or documents that reach the bucket
    uint64_t tokens;    // targets that counted
    uint64_t bytes;
    double nats;   // sum of the losses
} Score;

double score_loss(const Score *score);            // nats a token
double score_perplexity(const Score *score);      // exp of it
double score_bits_per_byte(const Score *score);   // NaN where there are no bytes

// Called now and then with the number of tokens done and in all.
typedef void (*ScoreProgress)(void *context, uint64_t done, uint64_t total);

// Scores the stream in windows of `context` tokens (at least 1). Without a tokenizer (NULL) no bytes are counted. With reset_at_document, for
// which the tokenizer is needed, the model starts anew at each <|endoftext|> inside a window, before reading it, as in training with
// --reset-at-document. The result does not depend on the number of threads. Returns 0, or -1 with `error` set (no memory, a loss that is not finite).
int score_context(Score *score, const Model *model, const Tokenizer *tokenizer, const TokenStream *stream, size_t context, bool reset_at_document,
                  ScoreProgress progress, void *progress_context, Error *error);

#define SCORE_MAX_BUCKETS 48

// Scores each document once, by position of the input token: buckets 0–63, 64–127, 128–255, doubling. Fills buckets [SCORE_MAX_BUCKETS] and
// how many are used. The tokenizer is needed (not NULL): it tells where documents begin.
int score_positions(Score *buckets, size_t *n_buckets, const Model *model, const Tokenizer *tokenizer, const TokenStream *stream,
                    ScoreProgress progress, void *progress_context, Error *error);

#endif
