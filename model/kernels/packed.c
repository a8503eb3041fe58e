// Products with packed weights (packed.h): few rows of x directly, many through blocks of weights that are turned back into f32 and the blocked product.
#include "model/kernels/packed.h"

#include "model/kernels/functions.h"

#define EXPANDED_FLOATS ((size_t)1 << 19)   // 2 MB: the block stays in the L2 caches between being written and being packed

// With bf16 products int8 numbers go through them as they are, which is exact; the scales are for the outputs then.
#ifdef __AVX512BF16__
#define PRODUCT ISA_NAME(gemm_bf16)
#define SCALE_OUTPUTS 1
#else
#define PRODUCT ISA_NAME(gemm)
#define SCALE_OUTPUTS 0
#endif

static void scale_columns(float *out, size_t ldc, const float *scales, size_t n, size_t count)
{
#pragma omp parallel for schedule(static) if (n * count > PARALLEL_WORK)
    for (size_t t = 0; t < n; t++) {
        for (size_t j = 0; j < count; j++) {
            out[t * ldc + j] *= scales[j];
        }
    }
}

static void many_rows(float *out, const float *x, const PackedMatrix *w, size_t n)
{
    float block[EXPANDED_FLOATS] __attribute__((aligned(64)));
    size_t rows = EXPANDED_FLOATS / w->n_in;
    rows = rows > 96 ? rows / 96 * 96 : rows;   // whole register tiles, of any instruction set
    for (size_t first = 0; first < w->n_out; first += rows) {
        size_t count = w->n_out - first < rows ? w->n_out - first : rows;
#pragma omp parallel for schedule(static) if (count * w->n_in > PARALLEL_WORK)
        for (size_t i = 0; i < count; i++) {
            packed_row(block + i * w->n_in, w, first + i, SCALE_OUTPUTS || w->type == WEIGHTS_BF16 ? 1.0f : w->scales[first + i]);
        }
        PRODUCT(out + first, w->n_out, (MatrixView){x, w->n_in, 1}, (MatrixView){block, 1, w->n_in}, n, count, w->n_in, false);
        if (SCALE_OUTPUTS && w->type == WEIGHTS_INT8) {
            scale_columns(out + first, w->n_out, w->scales + first, n, count);
        }
    }
}

void ISA_NAME(packed_forward)(float *out, const float *x, const PackedMatrix *w, size_t n)
{
    if (n <= FEW_ROWS) {
        ISA_NAME(few_rows_packed)(out, x, w, n);
    } else {
        many_rows(out, x, w, n);
    }
}
