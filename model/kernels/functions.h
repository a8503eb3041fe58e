// Declarations of one instruction set's kernels (names through ISA_NAME), for table.c. The contracts stand in kernels.h.
#ifndef MODEL_KERNELS_FUNCTIONS_H
#define MODEL_KERNELS_FUNCTIONS_H

#include "model/kernels/kernels.h"
#include "model/kernels/simd.h"

// Rows of tokens that one partial sum of a weight gradient covers: fixed, so that the bits do not depend on the threads.
#define REDUCE_ROWS 64

// Work below this many multiply-adds is not worth waking threads for.
#define PARALLEL_WORK 16384

// Rows of x up to which a product reads the weights once as they are (few_rows.c) instead of packing them into panels.
#define FEW_ROWS 16

static inline size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

// linear_forward for n ≤ FEW_ROWS; packed_forward for n ≤ FEW_ROWS.
void ISA_NAME(few_rows_f32)(float *out, const float *x, const float *w, size_t n, size_t n_in, size_t n_out);
void ISA_NAME(few_rows_packed)(float *out, const float *x, const struct PackedMatrix *w, size_t n);
void ISA_NAME(packed_forward)(float *out, const float *x, const struct PackedMatrix *w, size_t n);
void ISA_NAME(linear_forward)(float *out, Rows x, Weights w, size_t n, size_t n_in, size_t n_out);
void ISA_NAME(linear_backward_input)(float *dx, Rows dout, Weights w, size_t n, size_t n_in, size_t n_out, bool accumulate);
void ISA_NAME(linear_backward_weight)(float *dw, Rows dout, Rows x, size_t n, size_t n_in, size_t n_out);

void ISA_NAME(linear_forward_bf16)(float *out, Rows x, Weights w, size_t n, size_t n_in, size_t n_out);
void ISA_NAME(linear_backward_input_bf16)(float *dx, Rows dout, Weights w, size_t n, size_t n_in, size_t n_out, bool accumulate);
void ISA_NAME(linear_backward_weight_bf16)(float *dw, Rows dout, Rows x, size_t n, size_t n_in, size_t n_out);
void ISA_NAME(make_panels)(const WeightPanels *panels, const float *w, size_t n_out, size_t n_in);
void ISA_NAME(round_bf16)(uint16_t *out, const float *x, size_t n);

#ifdef WITH_ONEDNN
void ISA_NAME(onednn_linear_forward)(float *out, Rows x, Weights w, size_t n, size_t n_in, size_t n_out);
void ISA_NAME(onednn_linear_backward_input)(float *dx, Rows dout, Weights w, size_t n, size_t n_in, size_t n_out, bool accumulate);
void ISA_NAME(onednn_linear_backward_weight)(float *dw, Rows dout, Rows x, size_t n, size_t n_in, size_t n_out);
void ISA_NAME(onednn_linear_forward_bf16)(float *out, Rows x, Weights w, size_t n, size_t n_in, size_t n_out);
void ISA_NAME(onednn_linear_backward_input_bf16)(float *dx, Rows dout, Weights w, size_t n, size_t n_in, size_t n_out, bool accumulate);
void ISA_NAME(onednn_linear_backward_weight_bf16)(float *dw, Rows dout, Rows x, size_t n, size_t n_in, size_t n_out);
#endif

void ISA_NAME(rmsnorm_forward)(Rows out, const float *x, const float *w, float eps, size_t n, size_t dim);
void ISA_NAME(rmsnorm_backward)(float *dx, float *dw, const float *dout, const float *x, const float *w, float eps, size_t n, size_t dim);

void ISA_NAME(conv_forward)(float *qkv, float *tails, size_t tail_stride, const float *proj, const float *weight, const float *bias, const ConvShape *shape);
void ISA_NAME(conv_backward)(float *dproj, float *dweight, float *dbias, float *sums, const float *dqkv, const float *proj, const float *weight,
                             const float *bias, const ConvShape *shape);

void ISA_NAME(gate_forward)(Rows out, const float *o, const float *z, size_t z_stride, const float *w, float eps, size_t n, size_t n_head, size_t d_head);
void ISA_NAME(gate_backward)(float *do_, float *dz, float *dw, const float *dout, const float *o, const float *z, size_t z_stride, const float *w,
                             float eps, size_t n, size_t n_head, size_t d_head);
void ISA_NAME(swiglu_forward)(Rows out, Rows h, size_t n, size_t hidden);
void ISA_NAME(swiglu_backward)(Rows dh, const float *dout, Rows h, size_t n, size_t hidden);
void ISA_NAME(sigmoid_forward)(float *out, const float *x, size_t x_stride, const float *bias, size_t n, size_t count);
void ISA_NAME(sigmoid_backward)(float *dx, size_t x_stride, float *dbias, const float *dout, const float *out, size_t n, size_t count);

void ISA_NAME(softplus_forward)(float *g, float *mu, const float *x, size_t x_stride, const float *bias, const float *rate, size_t n, size_t count);
void ISA_NAME(softplus_backward)(float *dx, float *dbias, float *drate, const float *dg, const float *dmu, const float *g, const float *mu, const float *x,
                                 size_t x_stride, const float *bias, const float *rate, size_t n, size_t count);
void ISA_NAME(slot_decay_forward)(float *out, const float *x, const float *bias, size_t n, size_t count);
void ISA_NAME(slot_decay_backward)(float *dx, float *dbias, const float *dout, const float *out, size_t n, size_t count);

void ISA_NAME(embedding_forward)(float *out, const float *table, const int32_t *ids, size_t n, size_t dim);
void ISA_NAME(embedding_backward)(float *dtable, const float *dout, const int32_t *ids, size_t n, size_t dim);
void ISA_NAME(cross_entropy)(float *losses, float *logits, const int32_t *targets, float scale, size_t n, size_t vocab);

void ISA_NAME(start_read_forward)(float *o, const struct StartRead *read);
void ISA_NAME(start_read_backward)(float *dq, float *dstate0, const float *do_, const struct StartRead *read);

void ISA_NAME(add)(float *y, const float *x, size_t n);
double ISA_NAME(sum_squares)(const float *x, size_t n);
void ISA_NAME(adamw)(float *params, float *m, float *v, const float *grad, size_t n, float grad_scale, float lr, float beta1, float beta2, float eps,
                     float decay, float correction1, float correction2);
double ISA_NAME(peak_loop)(size_t iterations, bool bf16);

#endif
