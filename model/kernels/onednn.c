// The products of linear layers by oneDNN, in builds with `make ONEDNN=1`: it knows processors (AMX and others) that the project's own kernels do not.
//
// Same contracts as in kernels.h, but the bits may depend on the threads. What oneDNN cannot do, for want of memory for instance, the own kernels do.
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>

#include "model/kernels/functions.h"

// Rows below which reading the weights bounds the product: the own kernels.
#define MANY_ROWS 16

// What oneDNN hands out for one product; freed together.
typedef struct Product {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_memory_t a, b, c;              // as they come
    dnnl_memory_t a_bf16, b_bf16;       // rounded copies of f32, or NULL
    dnnl_primitive_attr_t attributes;
    dnnl_post_ops_t post_ops;
    dnnl_primitive_desc_t description;
    dnnl_primitive_t primitive;
} Product;

static void product_free(Product *p)
{
    dnnl_memory_t memories[] = {p->a, p->b, p->c, p->a_bf16, p->b_bf16};
    for (size_t i = 0; i < sizeof memories / sizeof memories[0]; i++) {
        if (memories[i] != NULL) {
            dnnl_memory_destroy(memories[i]);
        }
    }
    if (p->primitive != NULL) {
        dnnl_primitive_destroy(p->primitive);
    }
    if (p->description != NULL) {
        dnnl_primitive_desc_destroy(p->description);
    }
    if (p->post_ops != NULL) {
        dnnl_post_ops_destroy(p->post_ops);
    }
    if (p->attributes != NULL) {
        dnnl_primitive_attr_destroy(p->attributes);
    }
    if (p->stream != NULL) {
        dnnl_stream_destroy(p->stream);
    }
    if (p->engine != NULL) {
        dnnl_engine_destroy(p->engine);
    }
}

static bool describe(dnnl_memory_desc_t *to, size_t rows, size_t cols, size_t row, size_t col, dnnl_data_type_t type)
{
    dnnl_dims_t dims = {(dnnl_dim_t)rows, (dnnl_dim_t)cols}, strides = {(dnnl_dim_t)row, (dnnl_dim_t)col};
    return dnnl_memory_desc_init_by_strides(to, 2, dims, type, strides) == dnnl_success;
}

// A bf16 copy of a matrix, in oneDNN's own memory and in the order of `like`.
static bool round_copy(dnnl_memory_t *copy, const Product *p, dnnl_memory_t from, const dnnl_memory_desc_t *like)
{
    dnnl_primitive_desc_t description = NULL;
    dnnl_primitive_t reorder = NULL;
    const dnnl_memory_desc_t *source = NULL;
    bool good = dnnl_memory_create(copy, like, p->engine, DNNL_MEMORY_ALLOCATE) == dnnl_success &&
                dnnl_memory_get_memory_desc(from, &source) == dnnl_success &&
                dnnl_reorder_primitive_desc_create(&description, source, p->engine, like, p->engine, NULL) == dnnl_success &&
                dnnl_primitive_create(&reorder, description) == dnnl_success;
    if (good) {
        dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, *copy}};
        good = dnnl_primitive_execute(reorder, p->stream, 2, args) == dnnl_success;
    }
    if (reorder != NULL) {
        dnnl_primitive_destroy(reorder);
    }
    if (description != NULL) {
        dnnl_primitive_desc_destroy(description);
    }
    return good;
}

// A factor: element (i, j) is data[i·row + j·col].
typedef struct Factor {
    Rows rows;
    size_t row, col;
} Factor;

// What is multiplied in bf16 but is f32.
static bool is_rounded(const Factor *f, bool bf16) { return bf16 && !f->rows.bf16; }

static bool describe_factor(dnnl_memory_desc_t *given, dnnl_memory_desc_t *used, size_t rows, size_t cols, const Factor *f, bool bf16)
{
    return describe(given, rows, cols, f->row, f->col, f->rows.bf16 ? dnnl_bf16 : dnnl_f32) &&
           describe(used, rows, cols, f->row, f->col, bf16 ? dnnl_bf16 : dnnl_f32);
}

// c [rows, cols] set to a·b, or added to. False when oneDNN could not; c is then as it was.
static bool multiply(float *c, Factor a, Factor b, size_t rows, size_t cols, size_t depth, bool bf16, bool accumulate)
{
    Product p = {0};
    dnnl_memory_desc_t a_given, b_given, c_f32, a_used, b_used;
    dnnl_matmul_desc_t operation;
    dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);   // oneDNN 2.6 multiplies small matrices by AMX without saying what its registers hold, and is stopped
    bool good = describe_factor(&a_given, &a_used, rows, depth, &a, bf16) && describe_factor(&b_given, &b_used, depth, cols, &b, bf16) &&
                describe(&c_f32, rows, cols, cols, 1, dnnl_f32) && dnnl_engine_create(&p.engine, dnnl_cpu, 0) == dnnl_success &&
                dnnl_stream_create(&p.stream, p.engine, dnnl_stream_default_flags) == dnnl_success &&
                dnnl_memory_create(&p.a, &a_given, p.engine, a.rows.data) == dnnl_success &&
                dnnl_memory_create(&p.b, &b_given, p.engine, b.rows.data) == dnnl_success &&
                dnnl_memory_create(&p.c, &c_f32, p.engine, c) == dnnl_success && dnnl_primitive_attr_create(&p.attributes) == dnnl_success;
    if (good && accumulate) {
        good = dnnl_post_ops_create(&p.post_ops) == dnnl_success && dnnl_post_ops_append_sum(p.post_ops, 1.0f) == dnnl_success &&
               dnnl_primitive_attr_set_post_ops(p.attributes, p.post_ops) == dnnl_success;
    }
    good = good && dnnl_matmul_desc_init(&operation, &a_used, &b_used, NULL, &c_f32) == dnnl_success &&
           dnnl_primitive_desc_create(&p.description, &operation, p.attributes, p.engine, NULL) == dnnl_success &&
           dnnl_primitive_create(&p.primitive, p.description) == dnnl_success && (!is_rounded(&a, bf16) || round_copy(&p.a_bf16, &p, p.a, &a_used)) &&
           (!is_rounded(&b, bf16) || round_copy(&p.b_bf16, &p, p.b, &b_used));
    if (good) {
        dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, is_rounded(&a, bf16) ? p.a_bf16 : p.a}, {DNNL_ARG_WEIGHTS, is_rounded(&b, bf16) ? p.b_bf16 : p.b},
                                  {DNNL_ARG_DST, p.c}};
        good = dnnl_primitive_execute(p.primitive, p.stream, 3, args) == dnnl_success && dnnl_stream_wait(p.stream) == dnnl_success;
    }
    product_free(&p);
    return good;
}

#define LINEAR_BY_ONEDNN(SUFFIX, BF16)                                                                                                          \
    void ISA_NAME(onednn_linear_forward##SUFFIX)(float *out, Rows x, Weights w, size_t n, size_t n_in, size_t n_out)                            \
    {                                                                                                                                           \
        if (n < MANY_ROWS || !multiply(out, (Factor){x, n_in, 1}, (Factor){rows_f32(w.data), 1, n_in}, n, n_out, n_in, BF16, false)) {          \
            ISA_NAME(linear_forward##SUFFIX)(out, x, w, n, n_in, n_out);                                                                        \
        }                                                                                                                                       \
    }                                                                                                                                           \
    void ISA_NAME(onednn_linear_backward_input##SUFFIX)(float *dx, Rows dout, Weights w, size_t n, size_t n_in, size_t n_out, bool accumulate)  \
    {                                                                                                                                           \
        if (n < MANY_ROWS || !multiply(dx, (Factor){dout, n_out, 1}, (Factor){rows_f32(w.data), n_in, 1}, n, n_in, n_out, BF16, accumulate)) {  \
            ISA_NAME(linear_backward_input##SUFFIX)(dx, dout, w, n, n_in, n_out, accumulate);                                                   \
        }                                                                                                                                       \
    }                                                                                                                                           \
    void ISA_NAME(onednn_linear_backward_weight##SUFFIX)(float *dw, Rows dout, Rows x, size_t n, size_t n_in, size_t n_out)                     \
    {                                                                                                                                           \
        if (n < MANY_ROWS || !multiply(dw, (Factor){dout, 1, n_out}, (Factor){x, n_in, 1}, n_out, n_in, n, BF16, true)) {                       \
            ISA_NAME(linear_backward_weight##SUFFIX)(dw, dout, x, n, n_in, n_out);                                                              \
        }                                                                                                                                       \
    }

LINEAR_BY_ONEDNN(, false)
LINEAR_BY_ONEDNN(_bf16, true)
