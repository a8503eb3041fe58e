#include "model/panels.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/progress.h"

struct PanelSet {
    MatrixPlace *places;
    WeightPanels *panels;   // of each
    size_t count;
    uint32_t *memory;
};

// The f32 arena is there, and a weight takes at most PANEL_COLS times 8 bytes here: sizes do not overflow.
static size_t forward_words(const MatrixPlace *place) { return panels_words(place->n_out, place->n_in); }
static size_t backward_words(const MatrixPlace *place) { return panels_words(place->n_in, place->n_out); }

size_t panel_set_bytes(const MatrixPlace *places, size_t count)
{
    size_t words = 0;
    for (size_t i = 0; i < count; i++) {
        words += forward_words(&places[i]) + backward_words(&places[i]);
    }
    return words * sizeof(uint32_t);
}

PanelSet *panel_set_create(const MatrixPlace *places, size_t count, Error *error)
{
    size_t bytes = panel_set_bytes(places, count);
    PanelSet *set = calloc(1, sizeof *set);
    if (set != NULL) {
        *set = (PanelSet){calloc(count + 1, sizeof *places), calloc(count + 1, sizeof *set->panels), count, memory_large(bytes)};
    }
    if (set == NULL || set->places == NULL || set->panels == NULL || set->memory == NULL) {
        char size[32];
        panel_set_free(set);
        error_set(error, "no memory for the model's weights in bf16 (%s): choose a smaller preset, or --dtype f32", format_bytes(size, (double)bytes));
        return NULL;
    }
    memcpy(set->places, places, count * sizeof *places);
    uint32_t *next = set->memory;
    for (size_t i = 0; i < count; i++) {
        set->panels[i] = (WeightPanels){next, next + forward_words(&places[i])};
        next = set->panels[i].backward + backward_words(&places[i]);
    }
    return set;
}

void panel_set_free(PanelSet *set)
{
    if (set != NULL) {
        free(set->places);
        free(set->panels);
        free(set->memory);
        free(set);
    }
}

void panel_set_make(PanelSet *set, const float *params, const Kernels *kernels)
{
    for (size_t i = 0; i < set->count; i++) {
        kernels->make_panels(&set->panels[i], params + set->places[i].offset, set->places[i].n_out, set->places[i].n_in);
    }
}

const WeightPanels *panel_set_find(const PanelSet *set, size_t offset)
{
    size_t before = set == NULL ? 0 : matrix_places_until(set->places, set->count, offset);
    return before > 0 && set->places[before - 1].offset == offset ? &set->panels[before - 1] : NULL;
}
