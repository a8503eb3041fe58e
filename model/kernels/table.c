// One instruction set's table of kernels; kernels.c chooses among the tables.
#include "model/kernels/functions.h"

#define STRING2(x) #x
#define STRING(x) STRING2(x)

extern const struct Mixer *const ISA_NAME(mixer_table)[];
// A product of a linear layer: the own one, or oneDNN's in a build with it.
// oneDNN packs weights its own way.
#ifdef WITH_ONEDNN
#define LINEAR(NAME, function) NAME(onednn_##function)
#define PANELS(NAME) NULL
#else
#define LINEAR(NAME, function) NAME(function)
#define PANELS(NAME) NAME(make_panels)
#endif

#define OWN(NAME, function) NAME(function)
#define OWN_PANELS(NAME) NAME(make_panels)

// PRODUCTS(f) names the functions that may come from another instruction set: products in bf16 and with packed weights, and what makes bf16 for them.
// BF16(PRODUCTS, f) and MAKE(PRODUCTS) say whose those in bf16 are.
#define KERNELS_TABLE(isa_name, has_fast_bf16, PRODUCTS, BF16, MAKE) \
    { \
        .name = isa_name, \
        .vector_floats = VECTOR_FLOATS, \
        .fast_bf16 = has_fast_bf16, \
        .mixers = ISA_NAME(mixer_table), \
        .linear_forward_bf16 = BF16(PRODUCTS, linear_forward_bf16), \
        .linear_backward_input_bf16 = BF16(PRODUCTS, linear_backward_input_bf16), \
        .linear_backward_weight_bf16 = BF16(PRODUCTS, linear_backward_weight_bf16), \
        .make_panels = MAKE(PRODUCTS), \
        .packed_forward = PRODUCTS(packed_forward), \
        .peak_loop = PRODUCTS(peak_loop), \
        .linear_forward = LINEAR(ISA_NAME, linear_forward), \
        .linear_backward_input = LINEAR(ISA_NAME, linear_backward_input), \
        .linear_backward_weight = LINEAR(ISA_NAME, linear_backward_weight), \
        .round_bf16 = PRODUCTS(round_bf16), \
        .rmsnorm_forward = PRODUCTS(rmsnorm_forward), \
        .rmsnorm_backward = ISA_NAME(rmsnorm_backward), \
        .conv_forward = ISA_NAME(conv_forward), \
        .conv_backward = ISA_NAME(conv_backward), \
        .gate_forward = PRODUCTS(gate_forward), \
        .gate_backward = ISA_NAME(gate_backward), \
        .swiglu_forward = PRODUCTS(swiglu_forward), \
        .swiglu_backward = PRODUCTS(swiglu_backward), \
        .sigmoid_forward = ISA_NAME(sigmoid_forward), \
        .sigmoid_backward = ISA_NAME(sigmoid_backward), \
        .softplus_forward = ISA_NAME(softplus_forward), \
        .softplus_backward = ISA_NAME(softplus_backward), \
        .slot_decay_forward = ISA_NAME(slot_decay_forward), \
        .slot_decay_backward = ISA_NAME(slot_decay_backward), \
        .embedding_forward = ISA_NAME(embedding_forward), \
        .embedding_backward = ISA_NAME(embedding_backward), \
        .cross_entropy = ISA_NAME(cross_entropy), \
        .start_read_forward = ISA_NAME(start_read_forward), \
        .start_read_backward = ISA_NAME(start_read_backward), \
        .add = ISA_NAME(add), \
        .sum_squares = ISA_NAME(sum_squares), \
        .adamw = ISA_NAME(adamw), \
    }

extern const Kernels ISA_NAME(kernels);

const Kernels ISA_NAME(kernels) = KERNELS_TABLE(STRING(ISA), false, ISA_NAME, LINEAR, PANELS);

#if defined(__AVX512F__)
#define BY_AVX512BF16(function) function##_avx512bf16
#define BY_AMX(function) function##_amx

// What PRODUCTS(f) names, and a table with it.
#define TABLE_WITH(PRODUCTS, isa_name, BF16, MAKE) \
    void BF16(PRODUCTS, linear_forward_bf16)(float *out, Rows x, Weights w, size_t n, size_t n_in, size_t n_out); \
    void BF16(PRODUCTS, linear_backward_input_bf16)(float *dx, Rows dout, Weights w, size_t n, size_t n_in, size_t n_out, bool accumulate); \
    void BF16(PRODUCTS, linear_backward_weight_bf16)(float *dw, Rows dout, Rows x, size_t n, size_t n_in, size_t n_out); \
    void PRODUCTS(make_panels)(const WeightPanels *panels, const float *w, size_t n_out, size_t n_in); \
    void PRODUCTS(round_bf16)(uint16_t *out, const float *x, size_t n); \
    void PRODUCTS(rmsnorm_forward)(Rows out, const float *x, const float *w, float eps, size_t n, size_t dim); \
    void PRODUCTS(gate_forward)(Rows out, const float *o, const float *z, size_t z_stride, const float *w, float eps, size_t n, size_t n_head, \
                                size_t d_head); \
    void PRODUCTS(swiglu_forward)(Rows out, Rows h, size_t n, size_t hidden); \
    void PRODUCTS(swiglu_backward)(Rows dh, const float *dout, Rows h, size_t n, size_t hidden); \
    void PRODUCTS(packed_forward)(float *out, const float *x, const struct PackedMatrix *w, size_t n); \
    double PRODUCTS(peak_loop)(size_t iterations, bool bf16); \
    extern const Kernels PRODUCTS(kernels); \
    const Kernels PRODUCTS(kernels) = KERNELS_TABLE(isa_name, true, PRODUCTS, BF16, MAKE)

TABLE_WITH(BY_AVX512BF16, "avx512bf16", LINEAR, PANELS);
#ifdef WITH_AMX
TABLE_WITH(BY_AMX, "amx", OWN, OWN_PANELS);   // the own ones also in a build with oneDNN, which does without AMX (onednn.c)
#endif
#endif
