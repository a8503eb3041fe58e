// Random numbers: xoshiro256++, whose whole state is four words that a checkpoint can hold. Same seed, same numbers everywhere.
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

typedef struct Rng {
    uint64_t state[4];
} Rng;

// Fills the state from a seed through splitmix64. `stream` separates independent uses of one seed (parameters, data, sampling).
void rng_seed(Rng *rng, uint64_t seed, uint64_t stream);
uint64_t rng_next(Rng *rng);
// Uniform in [0, 1), 53 bits.
double rng_uniform(Rng *rng);
// Uniform in 0 … n−1 without bias; n > 0.
uint64_t rng_below(Rng *rng, uint64_t n);
// Standard normal (Box-Muller, one value a call, nothing kept between calls).
double rng_normal(Rng *rng);

#endif
