// Muon: the update of a matrix is its momentum made orthogonal (Jordan et al. 2024), scaled so that AdamW's learning rate and decay carry over.
//
//     m ← β m + (1 − β) g          u = (1 − β) g + β m          (Nesterov)
//     X = u / ‖u‖;  five times  X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X      a, b, c = 3.4445, −4.7750, 2.0315
//     p ← p − lr · (0.2 · √max(rows, cols) · X + decay · p)
//
// The iteration brings every singular value that is not tiny into about 0.7 … 1.2. The Gram matrix stands on the smaller side of X.
#ifndef TRAINING_MUON_H
#define TRAINING_MUON_H

#include <stdbool.h>
#include <stddef.h>

#include "model/model.h"

// Whether Muon is for this tensor: the weights q, k, v, z, o of a mixer and w1, w3, w2 of an MLP. All else is AdamW's.
bool muon_takes(const Tensor *tensor);

// Floats of scratch for a step of any of the table's tensors; 0 when there is none for Muon.
size_t muon_scratch_floats(const TensorTable *table);

// Makes x [rows, cols], both at least 1, orthogonal as above; zeros stay zeros. The result stands in x or at the start of scratch, and is returned.
// scratch: rows·cols + 2·min(rows, cols)² floats. With `bf16` the factors of the products are rounded to bf16.
float *muon_orthogonalise(float *x, float *scratch, size_t rows, size_t cols, const Kernels *kernels, bool bf16);

typedef struct MuonRates {
    double grad_scale;   // of the gradients (clipping)
    double lr, decay;
    double momentum;     // β
} MuonRates;

// One update of params [rows, cols] and its momentum from grad; scratch has muon_scratch_floats.
void muon_step(float *params, float *momentum, const float *grad, float *scratch, size_t rows, size_t cols, const MuonRates *rates, const Kernels *kernels,
               bool bf16);

#endif
