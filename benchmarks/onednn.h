// oneDNN's products of bf16 matrices, for comparison. Known only where oneDNN 2's headers are there when ./bench is compiled, and its library when it runs.
#ifndef BENCHMARKS_ONEDNN_H
#define BENCHMARKS_ONEDNN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct OnednnProduct OnednnProduct;

// c [rows, cols] in f32 set to a·b, or added to when `accumulate`. a [rows, depth] and b [depth, cols] are bf16, row-major or, where transposed, column-major;
// they and c are the product's own and hold some numbers. NULL where oneDNN is not there or cannot.
OnednnProduct *onednn_product_create(size_t rows, size_t cols, size_t depth, bool a_transposed, bool b_transposed, bool accumulate);

// Multiplies once.
void onednn_product_run(OnednnProduct *product);

void onednn_product_free(OnednnProduct *product);

#endif
