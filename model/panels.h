// The matrices of a model in bf16 beside the f32 ones, as training with --dtype bf16 multiplies them (kernels/factors.h): made anew after each update.
#ifndef MODEL_PANELS_H
#define MODEL_PANELS_H

#include <stddef.h>

#include "base/error.h"
#include "model/kernels/kernels.h"
#include "model/params.h"

typedef struct PanelSet PanelSet;

// Memory for the panels of these matrices, listed in the order of the arena; all zeros. NULL with `error` set when there is none.
PanelSet *panel_set_create(const MatrixPlace *places, size_t count, Error *error);
void panel_set_free(PanelSet *set);   // NULL is allowed

// Makes all panels from the arena.
void panel_set_make(PanelSet *set, const float *params, const Kernels *kernels);

// The panels of the matrix at this offset of the arena; NULL when it is not among those listed, or set is NULL.
const WeightPanels *panel_set_find(const PanelSet *set, size_t offset);

// Bytes that the panels of these matrices take.
size_t panel_set_bytes(const MatrixPlace *places, size_t count);

#endif
