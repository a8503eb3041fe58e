// One problem for a mixer, in double, with B sequences of H heads: run by the reference and by the fast code of any instruction set, in the same layout.
#ifndef TESTS_REFERENCE_MIXER_CASE_H
#define TESTS_REFERENCE_MIXER_CASE_H

#include "base/rng.h"
#include "model/kernels/kernels.h"
#include "model/mixers/mixer.h"
#include "tests/reference/reference.h"

typedef struct MixerCase {
    ReferenceForm form;
    size_t batch, n_head, length, n_slot, d_head;   // B, H, T, m, d
    double *q, *k, *v;         // [B, H, T, m], [B, H, T, m], [B, H, T, d]
    double *g, *mu;            // [B, H, T]; mu NULL: no forget gate
    double *state0;            // [H, m, d]
    double *do_;               // [B, H, T, d] gradient into the outputs
    double *dstate;            // [B, H, m, d] gradient into the end states; NULL: zero
} MixerCase;

typedef struct MixerResult {
    double *o;                 // [B, H, T, d]
    double *state;             // [B, H, m, d]
    double *d_q, *d_k, *d_v, *d_g, *d_mu, *d_state0;   // as the inputs; d_mu NULL without a forget gate
} MixerResult;

// Arrays of a result for the case, zeroed.
MixerResult mixer_result_create(Pool *pool, const MixerCase *mixer_case);

// Form and sizes must stand in the case already: allocates and fills inputs that f32 holds exactly. q and k have unit length, v about √d,
// gate logits are N(0, gate_spread²) + gate_mean for g and N(0, gate_spread²) + 2 for mu; state0 is random.
void mixer_case_fill(MixerCase *mixer_case, Pool *pool, Rng *rng, bool forget_gate, double gate_mean, double gate_spread);

MixerResult mixer_case_reference(Pool *pool, const MixerCase *mixer_case);

// The same by the fast mixer of this name in `kernels`.
MixerResult mixer_case_fast(Pool *pool, const MixerCase *mixer_case, const Kernels *kernels);

// The case's inputs as the fast mixer takes them: rows of tokens with q, k and v side by side. `in` and `shape` are set; everything belongs to the pool.
void mixer_case_tensors(MixerTensors *in, MixerShape *shape, Pool *pool, const MixerCase *mixer_case);

// rows [B·T, H, size] at row stride `stride` → out [B, H, T, size]
void heads_from_rows(double *out, const float *rows, size_t stride, const MixerCase *mixer_case, size_t size);

// Calls visit for outputs, state and each gradient with the relative RMS error of actual against expected.
typedef void (*MixerVisit)(void *context, const char *name, bool is_gradient, double error);
void mixer_result_compare(const MixerResult *actual, const MixerResult *expected, const MixerCase *mixer_case, MixerVisit visit, void *context);

#endif
