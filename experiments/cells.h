// Rows of results summed up: a cell is what is compared, in one setting and at one rate, over its seeds. Reports show each at its best rate.
#ifndef EXPERIMENTS_CELLS_H
#define EXPERIMENTS_CELLS_H

#include "experiments/rows.h"

typedef double (*RowValue)(const void *row);

typedef struct Cell {
    const RowLayout *layout;
    const void *first;           // its first row
    size_t seeds;
    double mean, least, most;    // of what cells are ranked by; least and most NaN where no value is a number
    bool high;                   // more is better
} Cell;

typedef struct Cells {
    const ResultRows *rows;
    Cell *items;                 // in the order of the rows
    size_t count;
    Cell *best;                  // for each setting and subject the cell at its best rate: settings in order, then the best first
    size_t n_best;
} Cells;

// Returns 0, or -1 with `error` set and nothing to free. A value that is not a number is worse than all others. The rows must outlive the cells.
int cells_collect(Cells *cells, const ResultRows *rows, RowValue value, bool high, Error *error);
void cells_free(Cells *cells);

// Mean of another value over a cell's seeds.
double cells_mean(const Cells *cells, const Cell *cell, RowValue value);

// Whether best[i] begins a new setting.
bool cells_begin_setting(const Cells *cells, size_t i);

// The setting, but for the column of this name (NULL: none), that most of the best cells have: the first row of the first of them. A chart shows one.
const void *cells_main_setting(const Cells *cells, const char *column);

// Prints the means at the subject's other rates, "0.01: 0.987, 0.003: 0.412"; rate: the column's value.
void cells_print_other_rates(const Cells *cells, const Cell *cell, RowValue rate);

#endif
