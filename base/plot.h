// Small line charts as PNG files: a logarithmic x axis in powers of two, a linear y axis, grid, labels, legend.
#ifndef BASE_PLOT_H
#define BASE_PLOT_H

#include <stddef.h>

#include "base/error.h"

typedef struct PlotSeries {
    const char *name;      // for the legend
    const double *x, *y;   // [count]; x above 0; points that are not finite are left out
    size_t count;
} PlotSeries;

typedef struct Plot {
    const char *title, *x_label, *y_label;   // characters outside ASCII are shown as '?'
    const PlotSeries *series;
    size_t n_series;
} Plot;

// Draws the chart, 1200 × 720 pixels, and writes it atomically. Returns 0, or -1 with `error` set (no point to draw, no memory, the file
// cannot be written).
int plot_write_png(const Plot *plot, const char *path, Error *error);

#endif
