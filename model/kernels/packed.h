// Weights as inference keeps them: a matrix in bf16, or in int8 with a scale for each row, in the order in which decoding reads it.
//
// PACKED_ROWS rows lie side by side: a cache line of the first, the same of the second, the next of the first … Rows are padded with zeros to whole lines of
// int8, their number to whole groups, so that no product has borders and the memory is read from its beginning to its end.
#ifndef MODEL_KERNELS_PACKED_H
#define MODEL_KERNELS_PACKED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PACKED_ROWS 2
#define PACKED_LINE 64            // bytes
#define PACKED_UNIT 64            // a row has a multiple of this many numbers
#define PACKED_MAX_IN 65536       // longest row: sums of int8 products stay in 32 bits, and a row of x fits on the stack
#define INT8_LEAST 1e-30f         // a row whose largest number is below this becomes zeros: its scale would leave the range of f32

typedef enum WeightType {
    WEIGHTS_F32,
    WEIGHTS_BF16,
    WEIGHTS_INT8,
} WeightType;

typedef struct PackedMatrix {
    WeightType type;         // WEIGHTS_BF16 or WEIGHTS_INT8
    size_t n_out, n_in;
    size_t lines;            // cache lines of a row
    char *memory;            // [groups][lines][PACKED_ROWS][PACKED_LINE]: uint16_t, the high halves of f32s, or int8_t, −127 … 127
    float *scales;           // int8: [n_out], a weight is its number times this
    int32_t *sums;           // int8: [n_out], the sum of a row's numbers
} PackedMatrix;

// Numbers in a cache line.
static inline size_t packed_line_numbers(WeightType type) { return type == WEIGHTS_INT8 ? PACKED_LINE : PACKED_LINE / sizeof(uint16_t); }

// A cache line of a row.
static inline char *packed_line(const PackedMatrix *m, size_t row, size_t line)
{
    return m->memory + ((row / PACKED_ROWS * m->lines + line) * PACKED_ROWS + row % PACKED_ROWS) * PACKED_LINE;
}

// out [n_in] = a row as f32; int8 numbers times `scale`.
static inline void packed_row(float *out, const PackedMatrix *m, size_t row, float scale)
{
    size_t numbers = packed_line_numbers(m->type);
    for (size_t line = 0; line * numbers < m->n_in; line++) {
        const char *from = packed_line(m, row, line);
        float *to = out + line * numbers;
        size_t count = m->n_in - line * numbers < numbers ? m->n_in - line * numbers : numbers;
        if (m->type == WEIGHTS_INT8) {
            for (size_t i = 0; i < count; i++) {
                to[i] = (float)((const int8_t *)from)[i] * scale;
            }
        } else {
            for (size_t i = 0; i < count; i++) {
                uint32_t bits = (uint32_t)((const uint16_t *)(const void *)from)[i] << 16;
                memcpy(to + i, &bits, sizeof bits);
            }
        }
    }
}

#endif
