// ./bench gemm: the three products of a linear layer at the model's shapes, beside the peak and beside installed libraries.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "benchmarks/bench.h"
#include "benchmarks/onednn.h"
#include "model/block.h"

// Tokens of a product.
#define ROWS 2048

// Library functions as their documentation declares them: cblas_sgemm of OpenBLAS, dnnl_sgemm of oneDNN. Both multiply in f32; matrices are row-major.
typedef void CblasSgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb, float beta,
                        float *c, int ldc);
typedef int DnnlSgemm(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                      float beta, float *c, int64_t ldc);

typedef struct Library {
    const char *name;
    CblasSgemm *cblas;   // one of the two
    DnnlSgemm *dnnl;
} Library;

// The function of the first of these files that is installed; NULL without. The library stays loaded.
static void *find_function(const char *const *files, const char *function)
{
    for (; *files != NULL; files++) {
        void *library = dlopen(*files, RTLD_NOW | RTLD_LOCAL), *found = library == NULL ? NULL : dlsym(library, function);
        if (found != NULL) {
            return found;
        }
    }
    return NULL;
}

// Fills the libraries that are installed; returns how many.
static size_t find_libraries(Library libraries[2])
{
    static const char *const dnnl[] = {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so", "libdnnl.dylib", NULL};
    static const char *const openblas[] = {"libopenblas.so.0", "libopenblas.so", "libopenblas.dylib", NULL};
    size_t count = 0;
    Library one = {.name = "oneDNN"}, other = {.name = "OpenBLAS"};
    *(void **)&one.dnnl = find_function(dnnl, "dnnl_sgemm");
    *(void **)&other.cblas = find_function(openblas, "cblas_sgemm");
    if (one.dnnl != NULL) {
        libraries[count++] = one;
    }
    if (other.cblas != NULL) {
        libraries[count++] = other;
    }
    return count;
}

typedef struct ProductContext {
    LinearKernels linear;
    const Library *by;   // NULL: ours
    OnednnProduct *const *rounded;   // the three products in bf16 of oneDNN, or NULL
    float *y, *x, *w, *dx, *dw;
    Rows rows;                 // x, and
    Weights weights;           // w, as training has them
    size_t in, out;
} ProductContext;

static void multiply(const Library *library, bool trans_a, bool trans_b, size_t m, size_t n, size_t k, const float *a, size_t lda, const float *b, size_t ldb,
                     float beta, float *c, size_t ldc)
{
    enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };
    if (library->dnnl != NULL) {
        library->dnnl(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', (int64_t)m, (int64_t)n, (int64_t)k, 1.0f, a, (int64_t)lda, b, (int64_t)ldb, beta, c, (int64_t)ldc);
    } else {
        library->cblas(ROW_MAJOR, trans_a ? TRANSPOSED : PLAIN, trans_b ? TRANSPOSED : PLAIN, (int)m, (int)n, (int)k, 1.0f, a, (int)lda, b, (int)ldb, beta, c,
                       (int)ldc);
    }
}

static void run_products(void *context)
{
    const ProductContext *c = context;
    size_t n = ROWS, in = c->in, out = c->out;
    if (c->rounded != NULL) {
        for (size_t i = 0; i < 3; i++) {
            onednn_product_run(c->rounded[i]);
        }
    } else if (c->by == NULL) {
        c->linear.forward(c->y, c->rows, c->weights, n, in, out);
        c->linear.backward_input(c->dx, rows_f32(c->y), c->weights, n, in, out, false);
        c->linear.backward_weight(c->dw, rows_f32(c->y), c->rows, n, in, out);
    } else {
        multiply(c->by, false, true, n, out, in, c->x, in, c->w, in, 0.0f, c->y, out);
        multiply(c->by, false, false, n, in, out, c->y, out, c->w, in, 0.0f, c->dx, in);
        multiply(c->by, true, false, out, in, n, c->y, out, c->x, in, 1.0f, c->dw, in);
    }
}

// Ours and another's in turns.
static void compare(Bench *bench, const char *type, const char *name, const char *other, ProductContext *ours, ProductContext *theirs, double work, double required)
{
    Spread seconds[2];
    char label[64];
    time_in_turns(seconds, (size_t)bench->runs, (void (*const[])(void *)){run_products, run_products}, (void *const[]){ours, theirs});
    snprintf(label, sizeof label, "gemm %s %s over %s", type, name, other);
    report_line(&bench->report, label, rate_of(seconds[0], work), "GFLOP/s", rate_of(seconds[1], work).median, required);
}

// oneDNN's bf16 products get factors that are rounded already; ours round the gradients while they pack.
static void compare_rounded(Bench *bench, const char *name, ProductContext *ours, double work)
{
    size_t n = ROWS, in = ours->in, out = ours->out;
    OnednnProduct *products[3] = {onednn_product_create(n, out, in, false, true, false), onednn_product_create(n, in, out, false, false, false),
                                  onednn_product_create(out, in, n, true, false, true)};
    if (products[0] != NULL && products[1] != NULL && products[2] != NULL) {
        ProductContext theirs = *ours;
        theirs.rounded = products;
        compare(bench, "bf16", name, "oneDNN", ours, &theirs, work, 0.85);
    }
    for (size_t i = 0; i < 3; i++) {
        onednn_product_free(products[i]);
    }
}

// The three products of one shape.
static void bench_products(Bench *bench, const char *name, ProductContext *ours, bool bf16)
{
    double work = 6.0 * (double)ROWS * (double)ours->in * (double)ours->out / 1e9;
    char label[64];
    Spread rate = rate_of(time_runs((size_t)bench->runs, run_products, ours), work);
    snprintf(label, sizeof label, "gemm %s %s", bf16 ? "bf16" : "f32", name);
    report_line(&bench->report, label, rate, "GFLOP/s", (bf16 ? bench->ceilings.peak_bf16 : bench->ceilings.peak_f32) / 1e9, 0.0);
    Library libraries[2];
    size_t count = bf16 ? 0 : find_libraries(libraries);
    for (size_t i = 0; i < count; i++) {
        ProductContext theirs = *ours;
        theirs.by = &libraries[i];
        compare(bench, "f32", name, libraries[i].name, ours, &theirs, work, libraries[i].dnnl != NULL ? 0.92 : 0.0);
    }
    if (bf16) {
        compare_rounded(bench, name, ours, work);
    }
}

// What training in bf16 makes of x and w.
typedef struct Prepared {
    uint16_t *x;
    WeightPanels panels;
} Prepared;

// Products take x and w prepared, as far as they read that in this build. Returns 0, or -1 when there is no memory.
static int prepare(Prepared *to, ProductContext *c, const Kernels *kernels)
{
    *to = (Prepared){malloc(ROWS * c->in * sizeof(uint16_t)),
                     {malloc(panels_words(c->out, c->in) * sizeof(uint32_t)), malloc(panels_words(c->in, c->out) * sizeof(uint32_t))}};
    if (to->x == NULL || to->panels.forward == NULL || to->panels.backward == NULL) {
        return -1;
    }
    kernels->round_bf16(to->x, c->x, ROWS * c->in);
    c->rows = (Rows){to->x, true};
    if (kernels->make_panels != NULL) {
        kernels->make_panels(&to->panels, c->w, c->out, c->in);
        c->weights.panels = &to->panels;
    }
    return 0;
}

static int bench_shape(Bench *bench, const char *name, size_t out, size_t in, bool bf16, Error *error)
{
    Prepared prepared = {0};
    ProductContext ours = {.linear = linear_kernels(bench->kernels, bf16), .in = in, .out = out};
    ours.x = make_floats(ROWS * in, 1);
    ours.w = make_floats(out * in, 2);
    ours.y = make_floats(ROWS * out, 3);
    ours.dx = make_floats(ROWS * in, 4);
    ours.dw = make_floats(out * in, 5);
    ours.rows = rows_f32(ours.x);
    ours.weights = weights_f32(ours.w);
    bool whole = ours.x != NULL && ours.w != NULL && ours.y != NULL && ours.dx != NULL && ours.dw != NULL;
    whole = whole && (!bf16 || prepare(&prepared, &ours, bench->kernels) == 0);
    if (whole) {
        bench_products(bench, name, &ours, bf16);
    }
    free(prepared.x), free(prepared.panels.forward), free(prepared.panels.backward);
    free(ours.x), free(ours.w), free(ours.y), free(ours.dx), free(ours.dw);
    return whole ? 0 : no_memory(error);
}

int bench_gemm(Bench *bench, Error *error)
{
    BlockShape shape = block_shape(&bench->config, bench->kernels->mixers, 0);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        if (bench_shape(bench, "projections", shape.projection, shape.width, bf16 == 1, error) != 0 ||
            bench_shape(bench, "output", shape.width, shape.value, bf16 == 1, error) != 0 ||
            bench_shape(bench, "mlp up", 2 * shape.hidden, shape.width, bf16 == 1, error) != 0 ||
            bench_shape(bench, "mlp down", shape.width, shape.hidden, bf16 == 1, error) != 0) {
            return -1;
        }
    }
    return 0;
}
