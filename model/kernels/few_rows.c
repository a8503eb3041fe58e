// Products of few rows of x with weights, as decoding needs them: bound by the reading of the weights, which happens once for all rows of x.
//
// The weights are read from the beginning to the end, each thread its range of rows, for that is what memory does fastest: packed weights lie in groups of
// rows whose sums overlap (packed.h); f32 rows, which stand one behind the other, go one by one, and side by side only where arithmetic is the bound.
// Every sum of a (row of weights, row of x) runs through the depth in order, in one vector of partial sums: its bits depend neither on the threads nor on how
// many rows of weights or of x go together.
//
// bf16: where the processor multiplies bf16, x is rounded to it; else the weights become f32 by a shift. int8: every row of x is quantised as the weights are,
// the integer products are exact, and one factor a sum brings them back. AVX512-VNNI multiplies unsigned by signed bytes: x gets an offset of 128 there, and
// 128 times the row sum of the weights is taken off again.
#include "model/kernels/functions.h"
#include "model/kernels/packed.h"
#include "model/mixers/slots.h"

#if VECTOR_FLOATS == 16
#define TILE_TOKENS 4
#else
#define TILE_TOKENS 2   // 16 registers
#endif
#define F32_ROWS 4                               // f32 rows side by side
#define F32_TOKENS (VECTOR_FLOATS == 4 ? 1 : 8)  // from so many rows of x on; short vectors are bound by arithmetic at once
#define LINE_STEP (PACKED_ROWS * PACKED_LINE)    // bytes from a line of a packed row to its next
#define LINE_VECTORS (16 / VECTOR_FLOATS)
#define PREFETCH 2048                            // bytes ahead
#define PREPARED_BYTES ((size_t)1 << 19)         // x as the products read it; a row of PACKED_MAX_IN fits twice

// One product. x and w as bytes: what they hold depends on the kind of weights.
typedef struct Few {
    float *out;              // [n, n_out]
    size_t n, n_out;
    const char *x, *w;
    size_t x_row;            // bytes from one row to the next
    size_t n_in;
    size_t lines;            // packed: cache lines of a row of weights
    float x_scales[FEW_ROWS];
    const float *scales;     // int8: of the weights
    const int32_t *sums;
} Few;

// All tokens for rows row … row + rows − 1 of the weights; rows is the kind's group or 1.
typedef void GroupFunction(const Few *f, size_t row, size_t rows);

// A packed row's first line. `row` begins a group, or is the last one of an odd number.
INLINE const char *packed_start(const Few *f, size_t row) { return f->w + row * f->lines * PACKED_LINE; }

// A packed line, with the line on its way that will be needed a little later.
INLINE const char *packed_at(const char *w, size_t line, size_t r)
{
    const char *at = w + line * LINE_STEP + r * PACKED_LINE;
    __builtin_prefetch(at + PREFETCH, 0, 2);
    return at;
}

// sum [rows][TILE_TOKENS]
INLINE void store_sums(const Few *f, size_t row, size_t token, vfloat (*sum)[TILE_TOKENS], size_t rows, size_t tokens)
{
    for (size_t t = 0; t < tokens; t++) {
        for (size_t r = 0; r < rows; r++) {
            f->out[(token + t) * f->n_out + row + r] = v_sum(sum[r][t]);
        }
    }
}

INLINE void tile_f32(const Few *f, size_t row, size_t token, size_t rows, size_t tokens)
{
    size_t n_in = f->n_in, k = 0;
    const float *w = (const float *)(const void *)f->w + row * n_in, *x = (const float *)(const void *)f->x + token * n_in;
    vfloat sum[F32_ROWS][TILE_TOKENS] = {{{0}}}, xs[TILE_TOKENS];
    for (; k + VECTOR_FLOATS <= n_in; k += VECTOR_FLOATS) {
#pragma GCC unroll 4
        for (size_t t = 0; t < tokens; t++) {
            xs[t] = v_load(x + t * n_in + k);
        }
#pragma GCC unroll 4
        for (size_t r = 0; r < rows; r++) {
            __builtin_prefetch((const char *)(w + r * n_in + k) + PREFETCH, 0, 2);
            vfloat wr = v_load(w + r * n_in + k);
#pragma GCC unroll 4
            for (size_t t = 0; t < tokens; t++) {
                sum[r][t] = v_fma(wr, xs[t], sum[r][t]);
            }
        }
    }
    for (size_t r = 0; r < rows && k < n_in; r++) {
        vfloat wr = v_load_n(w + r * n_in + k, n_in - k);
        for (size_t t = 0; t < tokens; t++) {
            sum[r][t] = v_fma(wr, v_load_n(x + t * n_in + k, n_in - k), sum[r][t]);
        }
    }
    store_sums(f, row, token, sum, rows, tokens);
}

// ---- bf16 ----

#ifdef __AVX512BF16__
#define BF16_X_BYTES 2

// x [n_in] → bf16, zeros behind it.
static void prepare_bf16(void *dst, const float *x, size_t n_in, size_t padded)
{
    for (size_t k = 0; k < padded; k += 32) {
        vfloat low = v_load_n(x + k, rest_of(n_in, k)), high = v_load_n(x + k + 16, rest_of(n_in, k + 16));
        __m512bh pair = _mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
        memcpy((uint16_t *)dst + k, &pair, sizeof pair);
    }
}

INLINE void tile_bf16(const Few *f, size_t row, size_t token, size_t rows, size_t tokens)
{
    const char *w = packed_start(f, row), *x = f->x + token * f->x_row;
    vfloat sum[PACKED_ROWS][TILE_TOKENS] = {{{0}}};
    for (size_t line = 0; line < f->lines; line++) {
        __m512bh xs[TILE_TOKENS];
#pragma GCC unroll 4
        for (size_t t = 0; t < tokens; t++) {
            xs[t] = (__m512bh)_mm512_loadu_si512(x + t * f->x_row + line * PACKED_LINE);
        }
#pragma GCC unroll 4
        for (size_t r = 0; r < rows; r++) {
            __m512bh wr = (__m512bh)_mm512_loadu_si512(packed_at(w, line, r));
#pragma GCC unroll 4
            for (size_t t = 0; t < tokens; t++) {
                sum[r][t] = (vfloat)_mm512_dpbf16_ps((__m512)sum[r][t], wr, xs[t]);
            }
        }
    }
    store_sums(f, row, token, sum, rows, tokens);
}
#else
#define BF16_X_BYTES 4

// Of every 32 numbers the 16 even ones, then the 16 odd ones: a word of two bf16 weights gives one of each. Zeros behind n_in.
static void prepare_bf16(void *dst, const float *x, size_t n_in, size_t padded)
{
    for (size_t k = 0; k < padded; k += 32) {
        float block[32] = {0}, *to = (float *)dst + k;
        size_t count = rest_of(n_in, k);
        if (count > 0) {
            memcpy(block, x + k, (count < 32 ? count : 32) * sizeof(float));
        }
        for (size_t i = 0; i < 16; i++) {
            to[i] = block[2 * i];
            to[16 + i] = block[2 * i + 1];
        }
    }
}

INLINE void tile_bf16(const Few *f, size_t row, size_t token, size_t rows, size_t tokens)
{
    const char *w = packed_start(f, row), *x = f->x + token * f->x_row;
    vfloat sum[PACKED_ROWS][TILE_TOKENS] = {{{0}}};
    for (size_t line = 0; line < f->lines; line++) {
        for (size_t part = 0; part < LINE_VECTORS; part++) {
            size_t even = line * 32 + part * VECTOR_FLOATS, odd = even + 16;
#pragma GCC unroll 4
            for (size_t r = 0; r < rows; r++) {
                vint pair = (vint)v_load((const float *)(const void *)packed_at(w, line, r) + part * VECTOR_FLOATS);
                vfloat low = (vfloat)(pair << 16), high = (vfloat)(pair & (int32_t)0xffff0000);
#pragma GCC unroll 4
                for (size_t t = 0; t < tokens; t++) {
                    const float *xt = (const float *)(const void *)(x + t * f->x_row);
                    sum[r][t] = v_fma(low, v_load(xt + even), sum[r][t]);
                    sum[r][t] = v_fma(high, v_load(xt + odd), sum[r][t]);
                }
            }
        }
    }
    store_sums(f, row, token, sum, rows, tokens);
}
#endif

// ---- int8 ----

// Sums of integer products; int8_line adds those of a line of weights with x.
#if defined(__AVX512VNNI__)
typedef uint8_t Quantum;
typedef __m512i IntegerSums;
typedef __m512i IntegerLine;
#define QUANTUM_OFFSET 128

INLINE IntegerLine load_line(const char *w) { return _mm512_loadu_si512(w); }
INLINE IntegerSums int8_line(IntegerSums sum, IntegerLine w, const Quantum *x) { return _mm512_dpbusd_epi32(sum, _mm512_loadu_si512(x), w); }
INLINE int32_t integer_sum(IntegerSums sum) { return _mm512_reduce_add_epi32(sum); }
#elif defined(__AVX512BW__)
typedef int16_t Quantum;
typedef __m512i IntegerSums;
typedef struct IntegerLine {
    __m512i part[2];
} IntegerLine;
#define QUANTUM_OFFSET 0

INLINE IntegerLine load_line(const char *w)
{
    return (IntegerLine){{_mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)w)), _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)(w + 32)))}};
}

INLINE IntegerSums int8_line(IntegerSums sum, IntegerLine w, const Quantum *x)
{
    for (size_t i = 0; i < 2; i++) {
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(w.part[i], _mm512_loadu_si512(x + 32 * i)));
    }
    return sum;
}

INLINE int32_t integer_sum(IntegerSums sum) { return _mm512_reduce_add_epi32(sum); }
#elif defined(__AVX2__)
typedef int16_t Quantum;
typedef __m256i IntegerSums;
typedef struct IntegerLine {
    __m256i part[4];
} IntegerLine;
#define QUANTUM_OFFSET 0

INLINE IntegerLine load_line(const char *w)
{
    IntegerLine line;
    for (size_t i = 0; i < 4; i++) {
        line.part[i] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(w + 16 * i)));
    }
    return line;
}

INLINE IntegerSums int8_line(IntegerSums sum, IntegerLine w, const Quantum *x)
{
    for (size_t i = 0; i < 4; i++) {
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(w.part[i], _mm256_loadu_si256((const void *)(x + 16 * i))));
    }
    return sum;
}

INLINE int32_t integer_sum(IntegerSums sum)
{
    int32_t lanes[8], total = 0;
    memcpy(lanes, &sum, sizeof lanes);
    for (size_t i = 0; i < 8; i++) {
        total += lanes[i];
    }
    return total;
}
#else
typedef int16_t Quantum;
typedef struct IntegerSums {
    int32_t total;
} IntegerSums;
typedef const int8_t *IntegerLine;
#define QUANTUM_OFFSET 0

INLINE IntegerLine load_line(const char *w) { return (const int8_t *)w; }

INLINE IntegerSums int8_line(IntegerSums sum, IntegerLine w, const Quantum *x)
{
    for (size_t i = 0; i < PACKED_LINE; i++) {
        sum.total += (int32_t)w[i] * (int32_t)x[i];
    }
    return sum;
}

// NOLINTNEXTLINE(clang-analyzer-*): it cannot follow that i / tokens and i % tokens reach all sums in tile_int8
INLINE int32_t integer_sum(IntegerSums sum) { return sum.total; }
#endif

// x [n_in] → numbers −127 … 127 (plus the offset), zeros behind it. Returns the scale; NaN where x holds anything that is not finite, so that the products
// are NaN too.
static float prepare_int8(Quantum *dst, const float *x, size_t n_in, size_t padded)
{
    typedef Quantum quanta __attribute__((vector_size(VECTOR_FLOATS * sizeof(Quantum))));
    const vfloat zero = {0}, round = v_set(12582912.0f);   // 1.5·2^23: adding it rounds to an integer held in the low bits
    vfloat most = zero, poison = zero;
    for (size_t k = 0; k < n_in; k += VECTOR_FLOATS) {
        vfloat v = v_load_n(x + k, n_in - k);
        most = v_max(v_max(v, -v), most);
        poison += v * zero;
    }
    float largest = 0.0f;
    for (size_t i = 0; i < VECTOR_FLOATS; i++) {
        largest = most[i] > largest ? most[i] : largest;
    }
    vfloat inverse = v_set(largest > INT8_LEAST ? 127.0f / largest : 0.0f);
    for (size_t k = 0; k < padded; k += VECTOR_FLOATS) {
        vint numbers = (vint)(v_load_n(x + k, rest_of(n_in, k)) * inverse + round) - (vint)round + QUANTUM_OFFSET;
        quanta small = __builtin_convertvector(numbers, quanta);
        memcpy(dst + k, &small, sizeof small);
    }
    return largest / 127.0f + v_sum(poison);
}

INLINE void tile_int8(const Few *f, size_t row, size_t token, size_t rows, size_t tokens)
{
    const char *w = packed_start(f, row), *x = f->x + token * f->x_row;
    IntegerSums sum[PACKED_ROWS][TILE_TOKENS];
    for (size_t i = 0; i < rows * tokens; i++) {
        sum[i / tokens][i % tokens] = (IntegerSums){0};
    }
    for (size_t line = 0; line < f->lines; line++) {
#pragma GCC unroll 4
        for (size_t r = 0; r < rows; r++) {
            IntegerLine numbers = load_line(packed_at(w, line, r));
#pragma GCC unroll 4
            for (size_t t = 0; t < tokens; t++) {
                sum[r][t] = int8_line(sum[r][t], numbers, (const Quantum *)(x + t * f->x_row) + line * PACKED_LINE);
            }
        }
    }
    for (size_t t = 0; t < tokens; t++) {
        for (size_t r = 0; r < rows; r++) {
            int32_t total = integer_sum(sum[r][t]) - QUANTUM_OFFSET * f->sums[row + r];
            f->out[(token + t) * f->n_out + row + r] = (float)total * (f->scales[row + r] * f->x_scales[token + t]);
        }
    }
}

// ---- all tokens, all rows ----

// Constant numbers of rows and tokens keep the sums in registers.
#define EACH_TILE(tile, f, row, rows)                                                \
    do {                                                                             \
        size_t token = 0;                                                            \
        for (; token + TILE_TOKENS <= (f)->n; token += TILE_TOKENS) {                \
            tile(f, row, token, rows, TILE_TOKENS);                                  \
        }                                                                            \
        switch ((f)->n - token) {                                                    \
        case 3: tile(f, row, token, rows, 3 < TILE_TOKENS ? 3 : TILE_TOKENS); break; \
        case 2: tile(f, row, token, rows, 2); break;                                 \
        case 1: tile(f, row, token, rows, 1); break;                                 \
        default: break;                                                              \
        }                                                                            \
    } while (0)

#define GROUP_FUNCTION(name, tile, group)                     \
    static void name(const Few *f, size_t row, size_t rows)   \
    {                                                         \
        if (rows == (group)) {                                \
            EACH_TILE(tile, f, row, group);                   \
        } else {                                              \
            EACH_TILE(tile, f, row, 1);                       \
        }                                                     \
    }

GROUP_FUNCTION(group_f32, tile_f32, F32_ROWS)
GROUP_FUNCTION(group_bf16, tile_bf16, PACKED_ROWS)
GROUP_FUNCTION(group_int8, tile_int8, PACKED_ROWS)

static void each_group(GroupFunction *function, const Few *f, size_t rows)
{
    size_t groups = f->n_out / rows;
#pragma omp parallel for schedule(static) if (f->n_out * f->n_in > PARALLEL_WORK)
    for (size_t i = 0; i < groups; i++) {
        function(f, i * rows, rows);
    }
    for (size_t row = groups * rows; row < f->n_out; row++) {
        function(f, row, 1);
    }
}

void ISA_NAME(few_rows_f32)(float *out, const float *x, const float *w, size_t n, size_t n_in, size_t n_out)
{
    Few f = {.out = out, .n = n, .n_out = n_out, .x = (const char *)x, .w = (const char *)w, .n_in = n_in};
    each_group(group_f32, &f, n < F32_TOKENS ? 1 : F32_ROWS);
}

// Rows of x as the kind of weights reads them.
static void prepare(Few *f, char *prepared, const float *x, const PackedMatrix *w)
{
    size_t padded = w->lines * packed_line_numbers(w->type);
    for (size_t t = 0; t < f->n; t++) {
        char *row = prepared + t * f->x_row;
        if (w->type == WEIGHTS_BF16) {
            prepare_bf16(row, x + t * w->n_in, w->n_in, padded);
        } else {
            f->x_scales[t] = prepare_int8((Quantum *)(void *)row, x + t * w->n_in, w->n_in, padded);
        }
    }
}

void ISA_NAME(few_rows_packed)(float *out, const float *x, const PackedMatrix *w, size_t n)
{
    char prepared[PREPARED_BYTES] __attribute__((aligned(64)));
    bool bf16 = w->type == WEIGHTS_BF16;
    size_t x_row = w->lines * packed_line_numbers(w->type) * (bf16 ? BF16_X_BYTES : sizeof(Quantum));
    size_t most = PREPARED_BYTES / x_row < FEW_ROWS ? PREPARED_BYTES / x_row : FEW_ROWS;
    for (size_t done = 0; done < n; done += most) {
        Few f = {.out = out + done * w->n_out, .n = n - done < most ? n - done : most, .n_out = w->n_out, .x = prepared, .w = w->memory, .x_row = x_row,
                 .n_in = w->n_in, .lines = w->lines, .scales = w->scales, .sums = w->sums};
        prepare(&f, prepared, x + done * w->n_in, w);
        each_group(bf16 ? group_bf16 : group_int8, &f, PACKED_ROWS);
    }
}
