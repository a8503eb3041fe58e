// mqar_report: tables and a chart from the rows that mqar has written (main).
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plot.h"
#include "experiments/recall_row.h"
#include "experiments/report.h"

static double accuracy_of(const void *row) { return ((const RecallRow *)row)->accuracy; }
static double steps_of(const void *row) { return (double)((const RecallRow *)row)->steps_run; }
static double seconds_of(const void *row) { return ((const RecallRow *)row)->seconds; }
static double rate_of(const void *row) { return ((const RecallRow *)row)->lr; }

static void print_heading(const RecallRow *row)
{
    printf("\n### %" PRId64 " pairs in %" PRId64 " tokens\n\n", row->pairs, row->length);
    printf("Vocabulary %" PRId64 ", width %" PRId64 ", slots of %" PRId64 " numbers: %" PRId64 "; at most %" PRId64 " steps of %" PRId64 " sequences by %s.\n\n",
           row->vocab, row->d_model, row->d_head, row->n_slot, row->steps, row->batch, row->optimizer);
    printf("| mixer | state | parameters | best lr | accuracy | least | most | seeds | steps | CPU seconds | at other rates |\n");
    printf("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
}

static void print_row(const Cell *cell, const Cells *cells)
{
    const RecallRow *row = cell->first;
    printf("| %s | %" PRId64 " | %" PRId64 " | %g | %.3f | %.3f | %.3f | %zu | %.0f | %.0f | ", row->mixer, row->state, row->parameters, row->lr, cell->mean,
           cell->least, cell->most, cell->seeds, cells_mean(cells, cell, steps_of), cells_mean(cells, cell, seconds_of));
    cells_print_other_rates(cells, cell, rate_of);
    printf(" |\n");
}

static void print_tables(const Cells *cells)
{
    for (size_t i = 0; i < cells->n_best; i++) {
        if (cells_begin_setting(cells, i)) {
            print_heading(cells->best[i].first);
        }
        print_row(&cells->best[i], cells);
    }
}

static const RecallRow *best_row(const Cells *cells, size_t i) { return cells->best[i].first; }

// Whether a mixer was run at the same number of pairs in sequences of several lengths.
static bool has_lengths(const Cells *cells)
{
    for (size_t i = 0; i < cells->n_best; i++) {
        for (size_t j = 0; j < i; j++) {
            const RecallRow *a = best_row(cells, i), *b = best_row(cells, j);
            if (strcmp(a->mixer, b->mixer) == 0 && a->pairs == b->pairs && a->length != b->length) {
                return true;
            }
        }
    }
    return false;
}

// One line a mixer over the pairs, or where lengths differ one a mixer and length; the best cells are in the order of pairs.
static int write_chart(const Cells *cells, const char *path, Error *error)
{
    size_t n_best = cells->n_best;
    PlotSeries *series = calloc(n_best, sizeof *series);
    double *x = calloc(n_best * n_best, sizeof *x), *y = calloc(n_best * n_best, sizeof *y);
    char(*names)[ROW_TEXT_BYTES + 32] = calloc(n_best, sizeof *names);
    bool lengths = has_lengths(cells);
    Plot plot = {"Multi-query recall: share answered at the best learning rate", "pairs of key and value", "accuracy, mean of the seeds", series, 0};
    int result = series == NULL || x == NULL || y == NULL || names == NULL ? error_set(error, "out of memory for the chart %s", path) : 0;
    for (size_t i = 0; i < n_best && result == 0; i++) {
        const RecallRow *row = best_row(cells, i);
        char name[ROW_TEXT_BYTES + 32];
        size_t s = 0;
        int used = snprintf(name, sizeof name, "%s", row->mixer);
        if (lengths) {
            snprintf(name + used, sizeof name - (size_t)used, ", %" PRId64 " tokens", row->length);
        }
        while (s < plot.n_series && strcmp(names[s], name) != 0) {
            s++;
        }
        if (s == plot.n_series) {
            memcpy(names[s], name, sizeof name);
            series[plot.n_series++] = (PlotSeries){names[s], x + s * n_best, y + s * n_best, 0};
        }
        x[s * n_best + series[s].count] = (double)row->pairs;
        y[s * n_best + series[s].count++] = cells->best[i].mean;
    }
    result = result == 0 ? plot_write_png(&plot, path, error) : result;
    free(series);
    free(x);
    free(y);
    free(names);
    return result;
}

int main(int argc, char **argv)
{
    const Report report = {
        .name = "build/mqar_report",
        .description = "Prints tables (Markdown) of what mqar has written: each mixer at the learning rate whose mean over the seeds is best.",
        .plotted = "draw accuracy against pairs",
        .script = "scripts/mqar",
        .layout = &recall_layout,
        .value = accuracy_of,
        .high = true,
        .print_tables = print_tables,
        .write_chart = write_chart,
    };
    return report_main(&report, argc, argv);
}
