// Parameters: names and shapes as checkpoints spell them, all in one arena of floats; the same table describes gradients and moments.
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/config.h"

typedef struct Tensor {
    char name[80];      // "layers.3.mixer.q.weight"
    size_t n_dims;
    size_t shape[3];
    size_t offset;      // first element in the arena, in floats
    size_t count;       // elements
    bool is_matrix;     // weight decay applies
} Tensor;

typedef struct TensorTable {
    Tensor *items;
    size_t count;
    size_t total;       // floats in the arena
} TensorTable;

// Lists every parameter of the model in the order of the arena. The configuration must be valid. Returns 0, or -1 with `error` set (sizes overflow, no memory).
int params_table(TensorTable *table, const ModelConfig *config, Error *error);

// Lists what the state of one sequence of up to `longest` tokens holds: for each layer the convolutions' tail and the mixer's memory. SIZE_MAX: of any length;
// else attention has room for no more than those tokens. Returns as params_table.
int params_state_table(TensorTable *table, const ModelConfig *config, size_t longest, Error *error);

void tensor_table_free(TensorTable *table);

// The tensor of that name, or NULL.
const Tensor *tensor_find(const TensorTable *table, const char *name);

// A matrix [n_out, n_in] of the arena, perhaps made of several tensors that stand together.
typedef struct MatrixPlace {
    size_t offset, n_out, n_in;
} MatrixPlace;

// How many of these matrices, listed in the order of the arena, begin at or before the offset.
size_t matrix_places_until(const MatrixPlace *places, size_t count, size_t offset);

// Start values (docs/memories.md 6): matrices and embedding N(0, 0.02²), output projections N(0, 0.02²/(2·n_layer)), convolutions N(0, 0.5²),
// norms and factors 1, biases 0 except mu 4 and g: where a memory has a start state logit(√(m/(2·T·d))), with softmax_codes logit(m/√(2·T·d)), with
// T = train_length and, with unit_values, 1 in place of d; for Mamba-2 steps of 0.001 to 0.1 (and rates exp(A) of 1 to 16); each plus gate_shift but Mamba-2's. state0 is one common direction
// plus N(0, 0.02²), of ttt the noise alone, with random_start N(0, 1/d).
void params_init(float *params, const TensorTable *table, const ModelConfig *config, uint64_t seed, size_t train_length);

#endif
