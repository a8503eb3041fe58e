// One problem for a mixer, in double, with B sequences of H heads: run by the reference and by the fast code of any instruction set, in the same layout.
#ifndef TESTS_REFERENCE_MIXER_CASE_H
#define TESTS_REFERENCE_MIXER_CASE_H

#include "base/rng.h"
#include "model/kernels/kernels.h"
#include "model/mixers/mixer.h"
#include "tests/reference/reference.h"

// Arrays that the mixer does not read are NULL.
typedef struct MixerCase {
    ReferenceForm form;
    size_t batch, n_head, length, n_slot, d_head;   // B, H, T, m, d
    double *q, *k, *v;         // [B, H, T, m], [B, H, T, m], [B, H, T, d]
    double *g, *mu;            // [B, H, T], g with a slot_gate [B, H, T, m]; mu NULL: no forget gate
    double *state0;            // [H, m, d]
    double *do_;               // [B, H, T, d] gradient into the outputs
    double *dstate;            // [B, H, m, d] gradient into the end states; NULL: zero
    double *alpha;             // [B, H, T, m]
    double *ln_weight, *ln_bias;   // [H, d]
    const char *fast;          // name of the fast mixer; NULL: mixer_case_fast_name
    bool shared_norm;          // all heads hold the same norm: its gradients are compared as their sum over heads, in the first head's place
} MixerCase;

// NULL where the case has no such input, or the mixer no end state.
typedef struct MixerResult {
    double *o;                 // [B, H, T, d]
    double *state;             // [B, H, m, d]
    double *d_q, *d_k, *d_v, *d_g, *d_mu, *d_state0, *d_alpha, *d_ln_weight, *d_ln_bias;   // as the inputs
} MixerResult;

// Arrays of a result for the case, zeroed.
MixerResult mixer_result_create(Pool *pool, const MixerCase *mixer_case);

// Form and sizes must stand in the case already: allocates and fills inputs that f32 holds exactly. q and k have unit length, v about √d,
// gate logits are N(0, gate_spread²) + gate_mean for g and N(0, gate_spread²) + 2 for mu and alpha; state0 is random. `forget_gate` counts where there is a choice.
void mixer_case_fill(MixerCase *mixer_case, Pool *pool, Rng *rng, bool forget_gate, double gate_mean, double gate_spread);

MixerResult mixer_case_reference(Pool *pool, const MixerCase *mixer_case);

// Name of the fast mixer that runs the case by default.
const char *mixer_case_fast_name(const MixerCase *mixer_case);

// The same by the fast mixer of `kernels`, which must be there.
MixerResult mixer_case_fast(Pool *pool, const MixerCase *mixer_case, const Kernels *kernels);

// The case's inputs as the fast mixer takes them: rows of tokens with q, k and v side by side. `in` and `shape` are set; everything belongs to the pool.
void mixer_case_tensors(MixerTensors *in, MixerShape *shape, Pool *pool, const MixerCase *mixer_case);

// Floats of one sequence's state of the fast mixer. [H, m, d] of it, from the beginning, is what dstate and state are about.
size_t mixer_case_state_floats(const Mixer *mixer, const MixerTensors *in, const MixerShape *shape);

// rows [B·T, H, size] at row stride `stride` → out [B, H, T, size]
void heads_from_rows(double *out, const float *rows, size_t stride, const MixerCase *mixer_case, size_t size);

// Calls visit for outputs, state and each gradient with the relative RMS error of actual against expected.
typedef void (*MixerVisit)(void *context, const char *name, bool is_gradient, double error);
void mixer_result_compare(const MixerResult *actual, const MixerResult *expected, const MixerCase *mixer_case, MixerVisit visit, void *context);

#endif
