// The plain reference: every layer in double precision, as loops that read like the definition. Nothing here is fast.
//
// Conventions: outputs first, sizes last; rows are tokens; all gradients (d…) are added to what is there. A gradient's pointer is never NULL unless said.
#ifndef TESTS_REFERENCE_REFERENCE_H
#define TESTS_REFERENCE_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/config.h"
#include "model/params.h"

// Memory that is freed all at once. Running out of it ends the program with a message: these are tests.
typedef struct Pool {
    void **items;
    size_t count, capacity;
} Pool;

// Zeroed arrays of n elements (n may be 0), owned by the pool.
double *pool_doubles(Pool *pool, size_t n);
float *pool_floats(Pool *pool, size_t n);
int32_t *pool_ints(Pool *pool, size_t n);
void pool_free(Pool *pool);

// ‖actual − expected‖ / ‖expected‖ over n numbers; with expected all zero, the RMS of actual. Infinity when any number of either is not finite.
double relative_rms(const double *actual, const double *expected, size_t n);

// ---- Layers (layers.c) ----

// out [n, n_out] = x [n, n_in] · w [n_out, n_in]ᵀ
void reference_linear_forward(double *out, const double *x, const double *w, size_t n, size_t n_in, size_t n_out);
void reference_linear_backward(double *dx, double *dw, const double *dout, const double *x, const double *w, size_t n, size_t n_in, size_t n_out);

// out [n, dim] = x / sqrt(mean(x²) + eps) ⊙ w [dim]
void reference_rmsnorm_forward(double *out, const double *x, const double *w, double eps, size_t n, size_t dim);
void reference_rmsnorm_backward(double *dx, double *dw, const double *dout, const double *x, const double *w, double eps, size_t n, size_t dim);

typedef enum ReferenceNorm {
    REFERENCE_L2,    // x / sqrt(sum(x²) + eps)
    REFERENCE_RMS,   // x / sqrt(mean(x²) + eps)
    REFERENCE_NONE,  // x
    REFERENCE_SOFTMAX,   // exp(x) / sum(exp(x)), of the convolution without silu
} ReferenceNorm;

typedef struct ReferenceConvShape {
    size_t batch, length;        // B sequences of T tokens, each with zeros before it
    size_t n_head, head_size;    // channels = n_head · head_size
    size_t width;                // taps; the last meets the current token
    ReferenceNorm norm;
    double eps;
} ReferenceConvShape;

// out [B·T, channels] = norm per head of silu(causal depthwise conv(x) + bias); weight [channels, width], bias [channels]
void reference_conv_forward(double *out, const double *x, const double *weight, const double *bias, const ReferenceConvShape *shape);
void reference_conv_backward(double *dx, double *dweight, double *dbias, const double *dout, const double *x, const double *weight, const double *bias,
                             const ReferenceConvShape *shape);

// out [n, H·d] = rms(o) per head ⊙ w [H·d] ⊙ gelu(z)
void reference_gate_forward(double *out, const double *o, const double *z, const double *w, double eps, size_t n, size_t n_head, size_t d_head);
void reference_gate_backward(double *do_, double *dz, double *dw, const double *dout, const double *o, const double *z, const double *w, double eps, size_t n,
                             size_t n_head, size_t d_head);

// out [n] = silu(a) ⊙ b
void reference_swiglu_forward(double *out, const double *a, const double *b, size_t n);
void reference_swiglu_backward(double *da, double *db, const double *dout, const double *a, const double *b, size_t n);

// out [n, count] = sigmoid(x + bias [count])
void reference_sigmoid_forward(double *out, const double *x, const double *bias, size_t n, size_t count);
void reference_sigmoid_backward(double *dx, double *dbias, const double *dout, const double *out, size_t n, size_t count);

// g [n, count] = softplus(x + bias [count]), mu [n, count] = exp(−g exp(rate [count]))
void reference_softplus_forward(double *g, double *mu, const double *x, const double *bias, const double *rate, size_t n, size_t count);
void reference_softplus_backward(double *dx, double *dbias, double *drate, const double *dg, const double *dmu, const double *x, const double *bias,
                                 const double *rate, size_t n, size_t count);

// out [n, count] = sigmoid(x + bias [count])^(1/16)
void reference_slot_decay_forward(double *out, const double *x, const double *bias, size_t n, size_t count);
void reference_slot_decay_backward(double *dx, double *dbias, const double *dout, const double *out, size_t n, size_t count);

// out [n, dim] = rows of table [V, dim]
void reference_embedding_forward(double *out, const double *table, const int32_t *ids, size_t n, size_t dim);
void reference_embedding_backward(double *dtable, const double *dout, const int32_t *ids, size_t n, size_t dim);

// losses [n] in nats of targets under logits [n, V], 0 where the target is −1 (losses may be NULL). dlogits (may be NULL) += scale · gradient of the sum.
// Returns the sum.
double reference_cross_entropy(double *losses, double *dlogits, const double *logits, const int32_t *targets, double scale, size_t n, size_t vocab);

// One AdamW step, number `step` counted from 1, as in model/kernels/kernels.h.
void reference_adamw(double *params, double *m, double *v, const double *grad, size_t n, double grad_scale, double lr, double beta1, double beta2, double eps,
                     double decay, double step);

// x [rows, cols] made orthogonal by Muon's iteration, and one step of Muon, as in training/muon.h (muon.c).
void reference_orthogonalise(double *x, size_t rows, size_t cols);
void reference_muon(double *params, double *momentum, const double *grad, size_t rows, size_t cols, double grad_scale, double lr, double beta, double decay);

// ---- Mixers (mixer.c; lattice.c, recurrent.c, attention.c) ----

// Which mixer, in which form. objective, chunk_form and chunk_norm belong to "lattice" and may be NULL elsewhere.
typedef struct ReferenceForm {
    const char *mixer, *objective;
    size_t chunk;
    const char *chunk_form, *chunk_norm;
    bool no_projection;      // lattice: writes h itself, keeps the normalisation
    bool no_normalisation;   // lattice: plain gradient steps from the start state as it is, without projection: with "decode" the delta rule
    bool relative_read;      // lattice: o = (S − S_0) q
    bool slot_gate;          // lattice: g has a number for each slot
    double l1;               // lattice: the state is soft-thresholded by g·l1 before the normalisation; 0 = off
    size_t window;           // attention: tokens that a token sees, itself included; 0 = all before it
} ReferenceForm;

// Of a layer; the configuration must be valid.
ReferenceForm reference_form(const ModelConfig *config, size_t layer);

// What a mixer reads beside q, k and v.
typedef struct ReferenceNeeds {
    bool gate;               // g
    bool forget, no_forget;  // may run with mu; may run without
    bool slot_decay;         // alpha
    bool start;              // state0; the others start at zero
    bool norm;               // ln_weight, ln_bias
    bool state;              // has an end state
    bool square;             // m = d
    bool shared_gate;        // in a model, g and mu come from one number: softplus and decay
    bool bare;               // in a model, no convolution, gate and norm around it
    bool products;           // its fast code goes by matrix products over chunks (scan_chunk.h): as token by token, but for rounding
} ReferenceNeeds;

// Of a supported form.
ReferenceNeeds reference_needs(const ReferenceForm *form);

// Numbers of g a head and token, where it is read: 1, or m.
size_t reference_gates(const ReferenceForm *form, size_t n_slot);

// One sequence, one head.
typedef struct ReferenceMixerShape {
    size_t length, n_slot, d_head;   // T, m, d
} ReferenceMixerShape;

// What the mixer does not read may be NULL.
typedef struct ReferenceTensors {
    const double *q, *k, *v;             // [T, m], [T, m], [T, d]
    const double *g, *mu;                // [T], g with a slot_gate [T, m]; mu NULL: 1 everywhere
    const double *state0;                // [m, d]; lattice normalises it on use
    const double *alpha;                 // [T, m] decay of each slot
    const double *ln_weight, *ln_bias;   // [d]
} ReferenceTensors;

// As the tensors: NULL exactly where those are.
typedef struct ReferenceGradients {
    double *q, *k, *v, *g, *mu, *state0, *alpha, *ln_weight, *ln_bias;
} ReferenceGradients;

// NULL when the form is built here; else what is missing, e.g. "chunk_form swapped", written into `text`.
const char *reference_mixer_unsupported(const ReferenceForm *form, char text[128]);

// o [T, d] and the state after the last token [m, d] (may be NULL; untouched without a state). The form must be supported.
void reference_mixer_forward(double *o, double *state, const ReferenceTensors *in, const ReferenceForm *form, const ReferenceMixerShape *shape);
// From do_ [T, d] and dstate [m, d], the gradient into the end state (NULL: zero).
void reference_mixer_backward(const ReferenceGradients *grad, const double *do_, const double *dstate, const ReferenceTensors *in, const ReferenceForm *form,
                              const ReferenceMixerShape *shape);

// The families behind it, called through it.
void reference_lattice_forward(double *o, double *state, const ReferenceTensors *in, const ReferenceForm *form, const ReferenceMixerShape *shape);
void reference_lattice_backward(const ReferenceGradients *grad, const double *do_, const double *dstate, const ReferenceTensors *in, const ReferenceForm *form,
                                const ReferenceMixerShape *shape);
void reference_recurrent_forward(double *o, double *state, const ReferenceTensors *in, const ReferenceForm *form, const ReferenceMixerShape *shape);
void reference_recurrent_backward(const ReferenceGradients *grad, const double *do_, const double *dstate, const ReferenceTensors *in,
                                  const ReferenceForm *form, const ReferenceMixerShape *shape);
void reference_attention_forward(double *o, double *state, const ReferenceTensors *in, const ReferenceForm *form, const ReferenceMixerShape *shape);
void reference_attention_backward(const ReferenceGradients *grad, const double *do_, const double *dstate, const ReferenceTensors *in,
                                  const ReferenceForm *form, const ReferenceMixerShape *shape);

// What they share (mixer.c).
// Σ x y over n numbers
double reference_dot(const double *x, const double *y, size_t n);
// out [d] = S k: the slots s [m, d] weighted by k [m]
void reference_read(double *out, const double *s, const double *k, size_t m, size_t d);
// slots [m, d] = raw with every slot divided by its length, which goes to lengths [m]; slots may be raw. A slot of zeros stays, and passes no gradient.
void reference_normalise(double *slots, double *lengths, const double *raw, size_t m, size_t d);
// ds [m, d], the gradient into the normalised slots, becomes that into the raw ones.
void reference_normalise_backward(double *ds, const double *slots, const double *lengths, size_t m, size_t d);

// ---- The whole model (model.c) ----

// Tokens and targets are [B, T]; targets of −1 do not count. logits [B·T, V] is set unless NULL; dparams [table->total] (NULL: no backward) gets `scale` times
// the gradient of the sum of the losses. Returns the sum. The mixer's form must be supported.
double reference_model(double *logits, double *dparams, const ModelConfig *config, const TensorTable *table, const double *params, const int32_t *tokens,
                       const int32_t *targets, double scale, size_t batch, size_t length);

#endif
