// One instruction set's table of kernels; kernels.c chooses among the tables.
#include "model/kernels/functions.h"

#define STRING2(x) #x
#define STRING(x) STRING2(x)

extern const struct Mixer *const ISA_NAME(mixer_table)[];
extern const Kernels ISA_NAME(kernels);

const Kernels ISA_NAME(kernels) = {
    .name = STRING(ISA),
    .vector_floats = VECTOR_FLOATS,
    .mixers = ISA_NAME(mixer_table),
    .gemm = ISA_NAME(gemm),
    .linear_forward = ISA_NAME(linear_forward),
    .linear_backward_input = ISA_NAME(linear_backward_input),
    .linear_backward_weight = ISA_NAME(linear_backward_weight),
    .rmsnorm_forward = ISA_NAME(rmsnorm_forward),
    .rmsnorm_backward = ISA_NAME(rmsnorm_backward),
    .conv_forward = ISA_NAME(conv_forward),
    .conv_backward = ISA_NAME(conv_backward),
    .gate_forward = ISA_NAME(gate_forward),
    .gate_backward = ISA_NAME(gate_backward),
    .swiglu_forward = ISA_NAME(swiglu_forward),
    .swiglu_backward = ISA_NAME(swiglu_backward),
    .sigmoid_forward = ISA_NAME(sigmoid_forward),
    .sigmoid_backward = ISA_NAME(sigmoid_backward),
    .embedding_forward = ISA_NAME(embedding_forward),
    .embedding_backward = ISA_NAME(embedding_backward),
    .cross_entropy = ISA_NAME(cross_entropy),
    .add = ISA_NAME(add),
    .sum_squares = ISA_NAME(sum_squares),
    .adamw = ISA_NAME(adamw),
    .peak_loop = ISA_NAME(peak_loop),
};
