// The kernels, as a table of functions: one table an instruction set, chosen at run time. Forward/backward pairs stand together.
//
// Conventions: outputs first, sizes last; rows are tokens; gradients (d…) are accumulated unless said "set"; arrays need no alignment;
// any size works, multiples of the vector width are fast. All functions use the OpenMP threads there are and give the same bits for any number:
// work is split over outputs, sums over rows go through fixed blocks in a fixed order. Products pack into up to 4.3 MB of the calling thread's stack: the
// threads of a program that embeds them need stacks of 8 MB.
#ifndef MODEL_KERNELS_KERNELS_H
#define MODEL_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/kernels/factors.h"

struct Mixer;
struct PackedMatrix;
struct StartRead;

// Sizes of the short convolution over one buffer of projections.
// Columns of a row: q [n_head·n_slot], k [n_head·n_slot], v [n_head·d_head], then what the convolution does not touch.
typedef struct ConvShape {
    size_t batch, length;      // B sequences of T tokens
    size_t n_head, n_slot, d_head;
    size_t width;              // taps
    size_t proj_stride;        // floats from one row of projections to the next
    float eps;
    const uint8_t *starts;     // [B·T] where documents begin (documents.h): they have zeros before them; only without tails. NULL: nowhere
    bool plain_codes, plain_values;   // without the norm of q and k; of v
    bool unit_values;          // v: length 1 instead of RMS 1
    bool softmax_codes;        // q and k: softmax over a head instead of SiLU and norm
} ConvShape;

typedef struct Kernels {
    const char *name;          // "generic", "avx2", "avx512", "avx512bf16", "amx"
    size_t vector_floats;      // floats in a vector register
    bool fast_bf16;            // the processor multiplies bf16; without, the bf16 products take as long as f32's or a little longer
    const struct Mixer *const *mixers;   // NULL-terminated

    // out [n, n_out] = x [n, n_in] · w [n_out, n_in]ᵀ; all factors f32
    void (*linear_forward)(float *out, Rows x, Weights w, size_t n, size_t n_in, size_t n_out);
    // dx [n, n_in] set (or added to when `accumulate`) to dout [n, n_out] · w
    void (*linear_backward_input)(float *dx, Rows dout, Weights w, size_t n, size_t n_in, size_t n_out, bool accumulate);
    // dw [n_out, n_in] += doutᵀ · x
    void (*linear_backward_weight)(float *dw, Rows dout, Rows x, size_t n, size_t n_in, size_t n_out);

    // The same three with both factors bf16 and sums in f32. Factors in f32 are rounded (nearest even); rows that are bf16 and panels give the same bits.
    void (*linear_forward_bf16)(float *out, Rows x, Weights w, size_t n, size_t n_in, size_t n_out);
    void (*linear_backward_input_bf16)(float *dx, Rows dout, Weights w, size_t n, size_t n_in, size_t n_out, bool accumulate);
    void (*linear_backward_weight_bf16)(float *dw, Rows dout, Rows x, size_t n, size_t n_in, size_t n_out);

    // The panels of w [n_out, n_in] are set. NULL: the bf16 products of this build do not read panels.
    void (*make_panels)(const WeightPanels *panels, const float *w, size_t n_out, size_t n_in);
    // out [n] = x [n] in bf16
    void (*round_bf16)(uint16_t *out, const float *x, size_t n);

    // out [n, n_out] = x [n, n_in] · wᵀ with packed weights (packed.h), for inference. Up to 16 rows of x (decoding) read the weights once, as they are, and each
    // row's bits do not depend on how many there are; int8: these rows of x are quantised like the weights. bf16, and int8 in many rows: x is rounded to bf16
    // where fast_bf16 says so. Whatever is not finite in a row of x makes that row's outputs not finite.
    void (*packed_forward)(float *out, const float *x, const struct PackedMatrix *w, size_t n);

    // What stands as Rows below is f32 or bf16, as the caller says: bf16 is the same number rounded when it is stored.

    // out [n, dim] = x / sqrt(mean(x²) + eps) ⊙ w [dim]
    void (*rmsnorm_forward)(Rows out, const float *x, const float *w, float eps, size_t n, size_t dim);
    // dx [n, dim] += ..., dw [dim] += ...
    void (*rmsnorm_backward)(float *dx, float *dw, const float *dout, const float *x, const float *w, float eps, size_t n, size_t dim);

    // qkv [B·T, 2·H·m + H·d] = per-head l2 (q, k) or rms (v) norm of silu(conv(proj) + bias). weight [channels, width], bias [channels], in the order of q, k, v.
    // tails [B][width − 1, channels], each tail_stride floats apart: the projections before the first row, oldest first; updated to the last rows. NULL: zeros, not kept.
    void (*conv_forward)(float *qkv, float *tails, size_t tail_stride, const float *proj, const float *weight, const float *bias, const ConvShape *shape);
    // dproj columns of q, k, v are set; dweight, dbias accumulate. sums [B, width + 1, 2·H·m + H·d] is scratch. Starts from zero tails.
    void (*conv_backward)(float *dproj, float *dweight, float *dbias, float *sums, const float *dqkv, const float *proj, const float *weight, const float *bias, const ConvShape *shape);

    // out [n, H·d] = rms(o) per head ⊙ w [H·d] ⊙ gelu(z), z at row stride z_stride
    void (*gate_forward)(Rows out, const float *o, const float *z, size_t z_stride, const float *w, float eps, size_t n, size_t n_head, size_t d_head);
    // do_ [n, H·d] and dz (row stride z_stride) are set, dw accumulates
    void (*gate_backward)(float *do_, float *dz, float *dw, const float *dout, const float *o, const float *z, size_t z_stride, const float *w, float eps, size_t n, size_t n_head, size_t d_head);

    // out [n, F] = silu(h[:, :F]) ⊙ h[:, F:], h [n, 2F]
    void (*swiglu_forward)(Rows out, Rows h, size_t n, size_t hidden);
    // dh [n, 2F] set (may be h itself)
    void (*swiglu_backward)(Rows dh, const float *dout, Rows h, size_t n, size_t hidden);

    // out [n, count] = sigmoid(x [n, count] at x_stride + bias [count])
    void (*sigmoid_forward)(float *out, const float *x, size_t x_stride, const float *bias, size_t n, size_t count);
    // dx (row stride x_stride) set, dbias accumulates
    void (*sigmoid_backward)(float *dx, size_t x_stride, float *dbias, const float *dout, const float *out, size_t n, size_t count);

    // g [n, count] = softplus(x + bias [count]), mu [n, count] = exp(−g·exp(rate [count])); x at row stride x_stride
    void (*softplus_forward)(float *g, float *mu, const float *x, size_t x_stride, const float *bias, const float *rate, size_t n, size_t count);
    // dx (row stride x_stride, as x) set, dbias and drate accumulate
    void (*softplus_backward)(float *dx, float *dbias, float *drate, const float *dg, const float *dmu, const float *g, const float *mu, const float *x, size_t x_stride,
                              const float *bias, const float *rate, size_t n, size_t count);

    // out [n, count] = sigmoid(x + bias [count])^(1/16); out may be x
    void (*slot_decay_forward)(float *out, const float *x, const float *bias, size_t n, size_t count);
    // dx [n, count] set (may be dout), dbias accumulates
    void (*slot_decay_backward)(float *dx, float *dbias, const float *dout, const float *out, size_t n, size_t count);

    // out [n, dim] = table [V, dim] rows of ids
    void (*embedding_forward)(float *out, const float *table, const int32_t *ids, size_t n, size_t dim);
    void (*embedding_backward)(float *dtable, const float *dout, const int32_t *ids, size_t n, size_t dim);

    // losses [n] of targets given logits [n, V]; 0 where the target is −1. With `scale` not 0 the logits are replaced by scale·(softmax − onehot), 0 where it does not count.
    void (*cross_entropy)(float *losses, float *logits, const int32_t *targets, float scale, size_t n, size_t vocab);

    // What reading relative to the start takes away (mixers/start_read.h): o [rows, H, d] −= S_0 q. From do_ [rows, H, d], dq (row stride q_stride) and
    // dstate0 [H, m, d] accumulate.
    void (*start_read_forward)(float *o, const struct StartRead *read);
    void (*start_read_backward)(float *dq, float *dstate0, const float *do_, const struct StartRead *read);

    // y [n] += x [n]
    void (*add)(float *y, const float *x, size_t n);

    // Sum of squares in double, fixed order.
    double (*sum_squares)(const float *x, size_t n);

    // One AdamW step on n parameters: g = grad·grad_scale; m = β1 m + (1−β1) g; v = β2 v + (1−β2) g²; p −= lr·( (m/correction1) / (sqrt(v/correction2) + eps) + decay·p ).
    // correction1 = 1 − β1^step, correction2 = 1 − β2^step.
    void (*adamw)(float *params, float *m, float *v, const float *grad, size_t n, float grad_scale, float lr, float beta1, float beta2, float eps, float decay, float correction1, float correction2);

    // Runs `iterations` of independent multiply-adds (bf16 ones where asked for and fast) on the calling thread and returns how many floating-point
    // operations that was (multiply-add = 2).
    double (*peak_loop)(size_t iterations, bool bf16);
} Kernels;

// The best table that this processor can run, or the one that the environment variable LATTICE_ISA names. NULL with `error` set when that is unknown or not runnable here.
const Kernels *kernels_select(Error *error);

// All tables that this processor can run, best first, NULL-terminated.
const Kernels *const *kernels_available(void);

// Measures the peak of all threads in FLOP/s, of f32 or of bf16 products (about 100 ms). Every thread's time is its own processor time, so the figure
// also holds where threads share a core for a while; more threads than processors count as these.
double kernels_measure_peak(const Kernels *kernels, bool bf16);

// Measures how many bytes/s all threads together read from memory, in the same way (about 150 ms, 400 MB). 0 when there is no memory for it.
double kernels_measure_read(const Kernels *kernels);

// "avx512, 2 threads, OpenMP on"
char *kernels_describe(char text[96], const Kernels *kernels);

#endif
