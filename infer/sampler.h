// Chooses the next token from logits. Same options, seed and logits: same tokens.
//
// Order: repeat penalty on the logits, division by the temperature, then of the probabilities the top_k largest, then of those
// (renormalised) the fewest that together reach top_p, then those of at least min_p times the largest; one is drawn from what is left.
// Equal logits go by the smaller id.
#ifndef INFER_SAMPLER_H
#define INFER_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/rng.h"

#define SAMPLER_WINDOW 64   // tokens that the repeat penalty looks back

typedef struct SamplerOptions {
    double temperature;      // 0: always the largest logit (greedy)
    int64_t top_k;           // 0: off
    double top_p;            // in (0, 1]; 1: off
    double min_p;            // in [0, 1]; 0: off
    double repeat_penalty;   // above 0; 1: off. Positive logits of recent tokens are divided by it, negative ones multiplied
} SamplerOptions;

typedef struct SamplerCandidate {
    float logit;
    int32_t id;
} SamplerCandidate;

typedef struct Sampler {
    SamplerOptions options;
    size_t vocab_size;
    Rng rng;
    SamplerCandidate *candidates;     // [vocab_size] scratch
    float *weights;                   // [vocab_size] scratch: e to the (logit − largest) / temperature
    int32_t recent[SAMPLER_WINDOW];   // ring of the last tokens
    uint64_t n_seen;                  // tokens that ever went into the ring
} Sampler;

// Temperature 0.8, everything else off.
void sampler_defaults(SamplerOptions *options);

// Checks the options and allocates. `stream` separates samplers of one seed (sample 0, 1, ...). Returns 0, or -1 with `error` naming the
// option or nothing to free.
int sampler_create(Sampler *sampler, const SamplerOptions *options, size_t vocab_size, uint64_t seed, uint64_t stream, Error *error);
void sampler_free(Sampler *sampler);

// Remembers a token of the prompt for the repeat penalty (sampler_sample does it by itself for those it returns).
void sampler_accept(Sampler *sampler, int32_t token);

// Draws a token from logits [vocab_size], which stay as they are. A NaN or +infinity among them, or no finite one, is an error that names
// the place. Returns 0, or -1 with `error` set (the random numbers and the remembered tokens are then as before).
int sampler_sample(Sampler *sampler, int32_t *token, const float *logits, Error *error);

// Random state and remembered tokens as one line of text in a buffer to free, and back; NULL when out of memory. The options are not part
// of it.
char *sampler_to_text(const Sampler *sampler);
// Returns 0, or -1 with `error` set and the sampler as before when the text is not one that sampler_to_text wrote, or names tokens outside
// the vocabulary.
int sampler_from_text(Sampler *sampler, const char *text, Error *error);

#endif
