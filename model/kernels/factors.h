// The factors of a linear layer's products: rows of activations, which may be bf16, and weights, which bf16 products read as panels.
//
// A bf16 number is the upper half of an f32. Panels are made once when weights have changed, for all products until the next change: PANEL_COLS columns of a
// product's second factor side by side, in words of 32 bits that hold two numbers of consecutive depth, the earlier one in the low half. Columns and depth
// are filled up with zeros, the depth to whole blocks of PANEL_UNITS words. The layout is the same for every instruction set.
#ifndef MODEL_KERNELS_FACTORS_H
#define MODEL_KERNELS_FACTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Rows of numbers, one behind the other: float, or uint16_t where they are bf16.
typedef struct Rows {
    void *data;
    bool bf16;
} Rows;

static inline Rows rows_f32(const float *x) { return (Rows){(void *)(uintptr_t)x, false}; }

// Bytes of n elements.
static inline size_t rows_bytes(Rows rows, size_t n) { return n * (rows.bf16 ? sizeof(uint16_t) : sizeof(float)); }

// The rows from an element on.
static inline Rows rows_from(Rows rows, size_t element)
{
    return (Rows){(char *)rows.data + rows_bytes(rows, element), rows.bf16};
}

#define PANEL_COLS 32
#define PANEL_UNITS 16

// The two second factors that weights w [n_out, n_in] are: wᵀ in the forward, w in the backward.
typedef struct WeightPanels {
    uint32_t *forward;    // n_out columns, n_in deep
    uint32_t *backward;   // n_in columns, n_out deep
} WeightPanels;

// Words of depth in a panel, words from one panel to the next, and words in all of them.
static inline size_t panel_units(size_t depth) { return (depth + 2 * PANEL_UNITS - 1) / (2 * PANEL_UNITS) * PANEL_UNITS; }
static inline size_t panel_words(size_t depth) { return panel_units(depth) * PANEL_COLS; }
static inline size_t panels_words(size_t cols, size_t depth) { return (cols + PANEL_COLS - 1) / PANEL_COLS * panel_words(depth); }

typedef struct Weights {
    const float *data;            // [n_out, n_in]
    const WeightPanels *panels;   // of them, or NULL: bf16 products then round `data` while they pack it. Others never look at panels
} Weights;

static inline Weights weights_f32(const float *w) { return (Weights){w, NULL}; }

#endif
