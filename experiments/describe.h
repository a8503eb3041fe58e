// A model in a word and in numbers, for rows of results.
#ifndef EXPERIMENTS_DESCRIBE_H
#define EXPERIMENTS_DESCRIBE_H

#include <stddef.h>

#include "base/args.h"
#include "model/params.h"

#define DESCRIBED_BYTES 512   // of one flag

// The mixer's name and every flag of the model that was given and is not what it is without (usual: specs of the same flags), but those with columns of
// their own (a NULL-terminated list of flags): "lattice objective=encode". Commas become plus signs. Returns 0, or -1 with `error` set: it is longer than
// `size`.
int describe_mixer(char *text, size_t size, const char *mixer, const ArgSpec *specs, const ArgSpec *usual, size_t n_specs, const char *const *columns,
                   Error *error);

// A flag without its dashes and with its value: "chunk=4", "forget-gate". Returns its bytes as snprintf.
int describe_flag(char *text, size_t size, const ArgSpec *spec);

// Floats that all layers remember of a sequence, without the convolutions' tails. state: params_state_table.
size_t describe_memory(const TensorTable *state);

#endif
