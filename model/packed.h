// The matrices of a model, converted once for inference into what decoding reads (kernels/packed.h): bf16, or int8 with a scale for each row.
#ifndef MODEL_PACKED_H
#define MODEL_PACKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/kernels/packed.h"
#include "model/params.h"

typedef struct PackedWeights PackedWeights;

// Packs matrices of the arena, listed in its order; the table gives tensors' names for errors.
// type: WEIGHTS_BF16 or WEIGHTS_INT8. bf16 rounds to nearest even and keeps NaN; int8 takes for each row the scale max|w| / 127.
// Returns NULL with `error` set: no memory; a row longer than PACKED_MAX_IN, or for int8 a weight that is not finite, by the tensor's name.
PackedWeights *packed_create(const float *params, const MatrixPlace *places, size_t count, const TensorTable *table, WeightType type, Error *error);
void packed_free(PackedWeights *packed);   // NULL is allowed

// The matrix that began at this offset of the arena; NULL when none did.
const PackedMatrix *packed_find(const PackedWeights *packed, size_t offset);

// Whether this offset lies in a packed matrix.
bool packed_holds(const PackedWeights *packed, size_t offset);

// out [n, n_in] = rows `ids` of the matrix, as f32.
void packed_embedding(float *out, const PackedMatrix *table, const int32_t *ids, size_t n);

// Bytes of a matrix with its scales; of all, and how many weights these hold.
size_t packed_bytes(const PackedMatrix *matrix);
size_t packed_total(const PackedWeights *packed, size_t *weights);

// "f32", "bf16", "int8". Returns 0, or -1 with `error` set: it lists what there is.
int weight_type_parse(WeightType *type, const char *name, Error *error);
const char *weight_type_name(WeightType type);

#endif
