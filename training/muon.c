#include "training/muon.h"

#include <math.h>
#include <string.h>

#include "model/block.h"

#define ITERATIONS 5
#define LEAST_NORM 1e-30          // below it a matrix counts as zero: its inverse would leave f32
#define UPDATE_SCALE 0.2          // of √max(rows, cols): the RMS of an update is then about that of AdamW's
#define BLOCK 4096                // elements of an array that are worked on in one go: fixed, so that the bits do not depend on the threads

static const float coefficients[3] = {3.4445f, -4.7750f, 2.0315f};

bool muon_takes(const Tensor *tensor)
{
    static const char *const ends[] = {".mixer.q.weight", ".mixer.k.weight", ".mixer.v.weight", ".mixer.z.weight",
                                       ".mixer.o.weight", ".mlp.w1.weight",  ".mlp.w3.weight",  ".mlp.w2.weight"};
    size_t length = strlen(tensor->name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends && tensor->n_dims == 2; i++) {
        size_t end = strlen(ends[i]);
        if (length > end && strcmp(tensor->name + length - end, ends[i]) == 0) {
            return true;
        }
    }
    return false;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

size_t muon_scratch_floats(const TensorTable *table)
{
    size_t most = 0;
    for (size_t i = 0; i < table->count; i++) {
        const Tensor *tensor = &table->items[i];
        if (muon_takes(tensor)) {
            size_t side = least(tensor->shape[0], tensor->shape[1]), floats = 2 * tensor->count + 2 * side * side;
            most = floats > most ? floats : most;
        }
    }
    return most;
}

// gram [s, s] becomes a·1 + b·gram + c·square: what x is multiplied by.
static void polynomial(float *gram, const float *square, size_t side)
{
#pragma omp parallel for schedule(static) if (side * side > BLOCK)
    for (size_t i = 0; i < side; i++) {
        float *row = gram + i * side;
        for (size_t j = 0; j < side; j++) {
            row[j] = coefficients[1] * row[j] + coefficients[2] * square[i * side + j];
        }
        row[i] += coefficients[0];
    }
}

static void scale_array(float *x, size_t count, float factor)
{
#pragma omp parallel for schedule(static) if (count > BLOCK)
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t end = least(count, at + BLOCK);
        for (size_t i = at; i < end; i++) {
            x[i] *= factor;
        }
    }
}

// One iteration: next [rows, cols] from x.
static void iterate(float *next, const float *x, float *gram, float *square, size_t rows, size_t cols, const LinearKernels *linear)
{
    Rows x_rows = rows_f32(x), gram_rows = rows_f32(gram);
    if (rows <= cols) {
        linear->forward(gram, x_rows, weights_f32(x), rows, cols, rows);   // X Xᵀ
    } else {
        memset(gram, 0, cols * cols * sizeof *gram);
        linear->backward_weight(gram, x_rows, x_rows, rows, cols, cols);   // Xᵀ X
    }
    size_t side = least(rows, cols);
    linear->forward(square, gram_rows, weights_f32(gram), side, side, side);   // the Gram matrix is symmetric, and so are its square and the polynomial
    polynomial(gram, square, side);
    if (rows <= cols) {
        linear->backward_input(next, gram_rows, weights_f32(x), rows, cols, rows, false);
    } else {
        linear->forward(next, x_rows, weights_f32(gram), rows, cols, cols);
    }
}

float *muon_orthogonalise(float *x, float *scratch, size_t rows, size_t cols, const Kernels *kernels, bool bf16)
{
    size_t count = rows * cols, side = least(rows, cols);
    float *next = scratch, *gram = scratch + count, *square = gram + side * side;
    double norm = sqrt(kernels->sum_squares(x, count));
    scale_array(x, count, norm > LEAST_NORM ? (float)(1.0 / norm) : 0.0f);
    LinearKernels linear = linear_kernels(kernels, bf16);
    for (int i = 0; i < ITERATIONS; i++) {
        iterate(next, x, gram, square, rows, cols, &linear);
        float *old = x;
        x = next;
        next = old;
    }
    return x;
}

// The new momentum, and what is made orthogonal of it in u.
static void add_momentum(float *u, float *momentum, const float *grad, size_t count, float scale, float beta)
{
#pragma omp parallel for schedule(static) if (count > BLOCK)
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t end = least(count, at + BLOCK);
        for (size_t i = at; i < end; i++) {
            float g = (1.0f - beta) * scale * grad[i];
            momentum[i] = beta * momentum[i] + g;
            u[i] = beta * momentum[i] + g;
        }
    }
}

static void move(float *params, const float *x, size_t count, float keep, float rate)
{
#pragma omp parallel for schedule(static) if (count > BLOCK)
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t end = least(count, at + BLOCK);
        for (size_t i = at; i < end; i++) {
            params[i] = keep * params[i] - rate * x[i];
        }
    }
}

void muon_step(float *params, float *momentum, const float *grad, float *scratch, size_t rows, size_t cols, const MuonRates *rates, const Kernels *kernels,
               bool bf16)
{
    size_t count = rows * cols;
    add_momentum(scratch, momentum, grad, count, (float)rates->grad_scale, (float)rates->momentum);
    const float *x = muon_orthogonalise(scratch, scratch + count, rows, cols, kernels, bf16);
    double scale = UPDATE_SCALE * sqrt((double)(rows > cols ? rows : cols));
    move(params, x, count, (float)(1.0 - rates->lr * rates->decay), (float)(rates->lr * scale));
}
