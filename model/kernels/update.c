// What touches whole arrays: sums, rounding, the AdamW step; and the loop that measures peak.
#include "model/kernels/amx.h"
#include "model/kernels/bf16.h"
#include "model/kernels/functions.h"

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

void ISA_NAME(add)(float *y, const float *x, size_t n)
{
#pragma omp parallel for schedule(static) if (n > PARALLEL_WORK)
    for (size_t j = 0; j < n; j += VECTOR_FLOATS) {
        v_store_n(y + j, v_load_n(y + j, n - j) + v_load_n(x + j, n - j), n - j);
    }
}

void ISA_NAME(round_bf16)(uint16_t *out, const float *x, size_t n)
{
#pragma omp parallel for schedule(static) if (n > PARALLEL_WORK)
    for (size_t j = 0; j < n; j += VECTOR_FLOATS) {
        v_store_bf16_n(out + j, v_load_n(x + j, n - j), n - j);
    }
}

#define BLOCK_FLOATS (256 * VECTOR_FLOATS)
#define MOST_PARTS 256

// Squares of up to BLOCK_FLOATS numbers in f32; in double where they leave its range. Four sums hide the latency of an addition.
static inline double block_squares(const float *x, size_t n)
{
    vfloat squares[4] = {{0}};
    size_t i = 0;
    for (; i + 4 * VECTOR_FLOATS <= n; i += 4 * VECTOR_FLOATS) {
        for (size_t j = 0; j < 4; j++) {
            vfloat v = v_load(x + i + j * VECTOR_FLOATS);
            squares[j] += v * v;
        }
    }
    for (; i < n; i += VECTOR_FLOATS) {
        vfloat v = v_load_n(x + i, n - i);
        squares[0] += v * v;
    }
    float sum = v_sum((squares[0] + squares[1]) + (squares[2] + squares[3]));
    if (sum <= 1e30f && sum >= 1e-20f) {
        return (double)sum;
    }
    double exact = 0.0;
    for (i = 0; i < n; i++) {
        exact += (double)x[i] * (double)x[i];
    }
    return exact;
}

// An array is cut into parts by its size alone; a part is summed block after block, the parts in order.
double ISA_NAME(sum_squares)(const float *x, size_t n)
{
    size_t blocks = (n + BLOCK_FLOATS - 1) / BLOCK_FLOATS, part_blocks = blocks / MOST_PARTS + 1, parts = (blocks + part_blocks - 1) / part_blocks;
    double sums[MOST_PARTS];
#pragma omp parallel for schedule(static) if (n > 4 * PARALLEL_WORK)
    for (size_t part = 0; part < parts; part++) {
        size_t last = (part + 1) * part_blocks < blocks ? (part + 1) * part_blocks : blocks;
        double sum = 0.0;
        for (size_t block = part * part_blocks; block < last; block++) {
            size_t at = block * BLOCK_FLOATS;
            sum += block_squares(x + at, n - at < BLOCK_FLOATS ? n - at : BLOCK_FLOATS);
        }
        sums[part] = sum;
    }
    double total = 0.0;
    for (size_t part = 0; part < parts; part++) {
        total += sums[part];
    }
    return total;
}

void ISA_NAME(adamw)(float *params, float *m, float *v, const float *grad, size_t n, float grad_scale, float lr, float beta1, float beta2, float eps,
                     float decay, float correction1, float correction2)
{
    const vfloat b1 = v_set(beta1), c1 = v_set(1.0f - beta1), b2 = v_set(beta2), c2 = v_set(1.0f - beta2);
    const vfloat rate = v_set(lr / correction1), root = v_set(1.0f / correction2), small = v_set(eps), keep = v_set(1.0f - lr * decay), scale = v_set(grad_scale);
#pragma omp parallel for schedule(static) if (n > PARALLEL_WORK)
    for (size_t j = 0; j < n; j += VECTOR_FLOATS) {
        vfloat g = v_load_n(grad + j, n - j) * scale;
        vfloat mj = b1 * v_load_n(m + j, n - j) + c1 * g;
        vfloat vj = b2 * v_load_n(v + j, n - j) + c2 * g * g;
        v_store_n(m + j, mj, n - j);
        v_store_n(v + j, vj, n - j);
        v_store_n(params + j, v_load_n(params + j, n - j) * keep - rate * mj / (v_sqrt(vj * root) + small), n - j);
    }
}

// Independent sums: enough of them to hide the latency of a multiply-add.
#define CHAINS 10

static double peak_f32(size_t iterations)
{
    vfloat sum[CHAINS];
    for (size_t i = 0; i < CHAINS; i++) {
        sum[i] = v_set((float)(i + iterations % 2));   // not known to the compiler, or it computes a chain ahead
    }
    vfloat factor = v_set(0.999f), term = v_set(0.001f);
    for (size_t k = 0; k < iterations; k++) {
#pragma GCC unroll 10
        for (size_t i = 0; i < CHAINS; i++) {
            sum[i] = sum[i] * factor + term;
        }
    }
    for (size_t i = 1; i < CHAINS; i++) {
        sum[0] += sum[i];
    }
    __asm__ volatile("" : : "r"(&sum[0]) : "memory");   // the sums must be computed
    return (double)iterations * CHAINS * VECTOR_FLOATS * 2;
}

#ifdef __AMX_BF16__
static double peak_bf16(size_t iterations)
{
    AmxShapes before;
    amx_begin(&before);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    for (size_t k = 0; k < iterations / 16; k++) {   // each takes 16 cycles
        _tile_dpbf16ps(0, 4, 5);
        _tile_dpbf16ps(1, 4, 5);
        _tile_dpbf16ps(2, 4, 5);
        _tile_dpbf16ps(3, 4, 5);
    }
    amx_end(&before);
    return (double)(iterations / 16) * 4 * 2 * AMX_SIDE * AMX_SIDE * 2 * PANEL_UNITS;
}
#elif defined(__AVX512BF16__)
static double peak_bf16(size_t iterations)
{
    __m512 sum[CHAINS];
    for (size_t i = 0; i < CHAINS; i++) {
        sum[i] = _mm512_set1_ps((float)(i + iterations % 2));
    }
    __m512bh factor = (__m512bh)_mm512_set1_epi32(0x3a003a00);
    for (size_t k = 0; k < iterations; k++) {
#pragma GCC unroll 10
        for (size_t i = 0; i < CHAINS; i++) {
            sum[i] = _mm512_dpbf16_ps(sum[i], factor, factor);
        }
    }
    for (size_t i = 1; i < CHAINS; i++) {
        sum[0] = _mm512_add_ps(sum[0], sum[i]);
    }
    __asm__ volatile("" : : "r"(&sum[0]) : "memory");
    return (double)iterations * CHAINS * VECTOR_FLOATS * 4;
}
#else
static double peak_bf16(size_t iterations) { return peak_f32(iterations); }
#endif

double ISA_NAME(peak_loop)(size_t iterations, bool bf16) { return bf16 ? peak_bf16(iterations) : peak_f32(iterations); }
