#include "benchmarks/onednn.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_include)
#if __has_include(<oneapi/dnnl/dnnl.h>)
#include <oneapi/dnnl/dnnl.h>
#if DNNL_VERSION_MAJOR == 2
#define HAS_ONEDNN
#endif
#endif
#endif

#ifdef HAS_ONEDNN
// What a product needs of the library, looked up by name: ./bench is not linked with it.
#define FUNCTIONS(F)                                                                                                                                  \
    F(engine_create) F(engine_destroy) F(stream_create) F(stream_destroy) F(stream_wait) F(memory_desc_init_by_strides) F(memory_create) F(memory_destroy) \
    F(memory_get_data_handle) F(primitive_attr_create) F(primitive_attr_destroy) F(post_ops_create) F(post_ops_destroy) F(post_ops_append_sum)           \
    F(primitive_attr_set_post_ops) F(matmul_desc_init) F(primitive_desc_create) F(primitive_desc_destroy) F(primitive_create) F(primitive_destroy)     \
    F(primitive_execute)

struct OnednnProduct {
    void *library;
#define MEMBER(NAME) __typeof__(&dnnl_##NAME) NAME;
    FUNCTIONS(MEMBER)
#undef MEMBER
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_memory_t a, b, c;
    dnnl_primitive_attr_t attributes;
    dnnl_post_ops_t post_ops;
    dnnl_primitive_desc_t description;
    dnnl_primitive_t primitive;
};

static bool load(OnednnProduct *p)
{
    p->library = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
    bool found = p->library != NULL;
#define LOOK_UP(NAME) found = found && (*(void **)&p->NAME = dlsym(p->library, "dnnl_" #NAME)) != NULL;
    FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    return found;
}

static bool matrix(dnnl_memory_t *memory, dnnl_memory_desc_t *description, const OnednnProduct *p, size_t rows, size_t cols, bool transposed, bool bf16)
{
    dnnl_dims_t dims = {(dnnl_dim_t)rows, (dnnl_dim_t)cols};
    dnnl_dims_t strides = {transposed ? 1 : (dnnl_dim_t)cols, transposed ? (dnnl_dim_t)rows : 1};
    void *data = NULL;
    if (p->memory_desc_init_by_strides(description, 2, dims, bf16 ? dnnl_bf16 : dnnl_f32, strides) != dnnl_success ||
        p->memory_create(memory, description, p->engine, DNNL_MEMORY_ALLOCATE) != dnnl_success ||
        p->memory_get_data_handle(*memory, &data) != dnnl_success) {
        return false;
    }
    for (size_t i = 0; bf16 && i < rows * cols; i++) {
        ((uint16_t *)data)[i] = (uint16_t)(0x3f00 + i % 97);   // 0.5 … 1.3
    }
    if (!bf16) {
        memset(data, 0, rows * cols * sizeof(float));
    }
    return true;
}

static bool prepare(OnednnProduct *p, size_t rows, size_t cols, size_t depth, bool a_transposed, bool b_transposed, bool accumulate)
{
    dnnl_memory_desc_t a, b, c;
    dnnl_matmul_desc_t operation;
    bool good = load(p) && p->engine_create(&p->engine, dnnl_cpu, 0) == dnnl_success &&
                p->stream_create(&p->stream, p->engine, dnnl_stream_default_flags) == dnnl_success && matrix(&p->a, &a, p, rows, depth, a_transposed, true) &&
                matrix(&p->b, &b, p, depth, cols, b_transposed, true) && matrix(&p->c, &c, p, rows, cols, false, false) &&
                p->primitive_attr_create(&p->attributes) == dnnl_success;
    if (good && accumulate) {
        good = p->post_ops_create(&p->post_ops) == dnnl_success && p->post_ops_append_sum(p->post_ops, 1.0f) == dnnl_success &&
               p->primitive_attr_set_post_ops(p->attributes, p->post_ops) == dnnl_success;
    }
    return good && p->matmul_desc_init(&operation, &a, &b, NULL, &c) == dnnl_success &&
           p->primitive_desc_create(&p->description, &operation, p->attributes, p->engine, NULL) == dnnl_success &&
           p->primitive_create(&p->primitive, p->description) == dnnl_success;
}

OnednnProduct *onednn_product_create(size_t rows, size_t cols, size_t depth, bool a_transposed, bool b_transposed, bool accumulate)
{
    OnednnProduct *p = calloc(1, sizeof *p);
    if (p != NULL && !prepare(p, rows, cols, depth, a_transposed, b_transposed, accumulate)) {
        onednn_product_free(p);
        return NULL;
    }
    return p;
}

void onednn_product_run(OnednnProduct *p)
{
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->a}, {DNNL_ARG_WEIGHTS, p->b}, {DNNL_ARG_DST, p->c}};
    p->primitive_execute(p->primitive, p->stream, 3, args);
    p->stream_wait(p->stream);
}

void onednn_product_free(OnednnProduct *p)
{
    if (p == NULL) {
        return;
    }
#define DESTROY(MEMBER, FUNCTION)  \
    if (p->MEMBER != NULL) {       \
        p->FUNCTION(p->MEMBER);    \
    }
    DESTROY(primitive, primitive_destroy)
    DESTROY(description, primitive_desc_destroy)
    DESTROY(post_ops, post_ops_destroy)
    DESTROY(attributes, primitive_attr_destroy)
    DESTROY(a, memory_destroy)
    DESTROY(b, memory_destroy)
    DESTROY(c, memory_destroy)
    DESTROY(stream, stream_destroy)
    DESTROY(engine, engine_destroy)
#undef DESTROY
    free(p);   // the library stays loaded, as its threads do
}

#else

OnednnProduct *onednn_product_create(size_t rows, size_t cols, size_t depth, bool a_transposed, bool b_transposed, bool accumulate)
{
    (void)rows, (void)cols, (void)depth, (void)a_transposed, (void)b_transposed, (void)accumulate;
    return NULL;
}

void onednn_product_run(OnednnProduct *product) { (void)product; }

void onednn_product_free(OnednnProduct *product) { (void)product; }

#endif
