// Muon in double precision, as training/muon.h writes it down: always with X Xᵀ, whichever side is smaller.
#include <math.h>
#include <string.h>

#include "tests/reference/reference.h"

// out [rows, cols] = a [rows, depth] · b [depth, cols], or with `transposed` · bᵀ, b [cols, depth]
static void product(double *out, const double *a, const double *b, bool transposed, size_t rows, size_t cols, size_t depth)
{
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            double sum = 0.0;
            for (size_t k = 0; k < depth; k++) {
                sum += a[i * depth + k] * (transposed ? b[j * depth + k] : b[k * cols + j]);
            }
            out[i * cols + j] = sum;
        }
    }
}

void reference_orthogonalise(double *x, size_t rows, size_t cols)
{
    Pool pool = {0};
    double *gram = pool_doubles(&pool, rows * rows), *once = pool_doubles(&pool, rows * cols), *twice = pool_doubles(&pool, rows * cols);
    double norm = sqrt(reference_dot(x, x, rows * cols));
    for (size_t i = 0; i < rows * cols && norm > 0.0; i++) {
        x[i] /= norm;
    }
    for (int iteration = 0; iteration < 5; iteration++) {
        product(gram, x, x, true, rows, rows, cols);
        product(once, gram, x, false, rows, cols, rows);
        product(twice, gram, once, false, rows, cols, rows);
        for (size_t i = 0; i < rows * cols; i++) {
            x[i] = 3.4445 * x[i] - 4.7750 * once[i] + 2.0315 * twice[i];
        }
    }
    pool_free(&pool);
}

void reference_muon(double *params, double *momentum, const double *grad, size_t rows, size_t cols, double grad_scale, double lr, double beta, double decay)
{
    Pool pool = {0};
    double *update = pool_doubles(&pool, rows * cols);
    for (size_t i = 0; i < rows * cols; i++) {
        double g = grad[i] * grad_scale;
        momentum[i] = beta * momentum[i] + (1.0 - beta) * g;
        update[i] = beta * momentum[i] + (1.0 - beta) * g;
    }
    reference_orthogonalise(update, rows, cols);
    for (size_t i = 0; i < rows * cols; i++) {
        params[i] -= lr * (0.2 * sqrt((double)(rows > cols ? rows : cols)) * update[i] + decay * params[i]);
    }
    pool_free(&pool);
}
