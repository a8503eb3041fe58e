#include "experiments/cells.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// Whether one mean is better than another.
static bool better(double a, double b, bool high) { return isnan(a) ? false : isnan(b) ? true : high ? a > b : a < b; }

// Of cells: settings by their columns, then the best first; equals in the order of the rows, where qsort would leave them anywhere.
static int compare(const void *a, const void *b)
{
    const Cell *x = a, *y = b;
    int order = rows_compare_settings(x->layout, x->first, y->first);
    if (order != 0) {
        return order;
    }
    return better(x->mean, y->mean, x->high) ? -1 : better(y->mean, x->mean, x->high) ? 1 : x->first < y->first ? -1 : 1;
}

static bool is_in(const Cell *cell, const void *row) { return rows_agree(cell->layout, cell->first, row, ROLE_RATE); }

// Adds the row to its cell, which may be a new one.
static void add_row(Cells *cells, const void *row, double value, bool high)
{
    size_t i = 0;
    while (i < cells->count && !is_in(&cells->items[i], row)) {
        i++;
    }
    Cell *cell = &cells->items[i];
    if (i == cells->count) {
        *cell = (Cell){.layout = cells->rows->layout, .first = row, .least = NAN, .most = NAN, .high = high};
        cells->count++;
    }
    cell->mean = (cell->mean * (double)cell->seeds + value) / (double)(cell->seeds + 1);
    cell->least = fmin(cell->least, value);
    cell->most = fmax(cell->most, value);
    cell->seeds++;
}

// Whether no other rate does better; of equals the first in the file counts.
static bool is_best(const Cells *cells, const Cell *cell)
{
    for (const Cell *other = cells->items; other < cells->items + cells->count; other++) {
        bool same = rows_agree(cell->layout, cell->first, other->first, ROLE_SUBJECT);
        if (same && (better(other->mean, cell->mean, cell->high) || (other < cell && !better(cell->mean, other->mean, cell->high)))) {
            return false;
        }
    }
    return true;
}

int cells_collect(Cells *cells, const ResultRows *rows, RowValue value, bool high, Error *error)
{
    *cells = (Cells){.rows = rows, .items = calloc(rows->count + 1, sizeof *cells->items), .best = calloc(rows->count + 1, sizeof *cells->best)};
    if (cells->items == NULL || cells->best == NULL) {
        cells_free(cells);
        return error_set(error, "out of memory for a report of %zu rows", rows->count);
    }
    for (size_t i = 0; i < rows->count; i++) {
        add_row(cells, rows_at(rows, i), value(rows_at(rows, i)), high);
    }
    for (size_t i = 0; i < cells->count; i++) {
        if (is_best(cells, &cells->items[i])) {
            cells->best[cells->n_best++] = cells->items[i];
        }
    }
    qsort(cells->best, cells->n_best, sizeof *cells->best, compare);
    return 0;
}

void cells_free(Cells *cells)
{
    free(cells->items);
    free(cells->best);
    *cells = (Cells){0};
}

double cells_mean(const Cells *cells, const Cell *cell, RowValue value)
{
    double sum = 0.0;
    for (size_t i = 0; i < cells->rows->count; i++) {
        const void *row = rows_at(cells->rows, i);
        sum += is_in(cell, row) ? value(row) : 0.0;
    }
    return sum / (double)cell->seeds;
}

bool cells_begin_setting(const Cells *cells, size_t i)
{
    return i == 0 || !rows_agree(cells->rows->layout, cells->best[i - 1].first, cells->best[i].first, ROLE_SETTING);
}

const void *cells_main_setting(const Cells *cells, const char *column)
{
    const void *main = NULL;
    size_t most = 0;
    for (size_t i = 0; i < cells->n_best; i++) {
        size_t count = 0;
        for (size_t j = 0; j < cells->n_best; j++) {
            count += rows_agree_but(cells->rows->layout, cells->best[i].first, cells->best[j].first, ROLE_SETTING, column) ? 1 : 0;
        }
        if (count > most) {
            most = count;
            main = cells->best[i].first;
        }
    }
    return main;
}

void cells_print_other_rates(const Cells *cells, const Cell *cell, RowValue rate)
{
    bool any = false;
    for (const Cell *other = cells->items; other < cells->items + cells->count; other++) {
        if (other->first != cell->first && rows_agree(cell->layout, cell->first, other->first, ROLE_SUBJECT)) {
            printf("%s%g: %.4g", any ? ", " : "", rate(other->first), other->mean);
            any = true;
        }
    }
}
