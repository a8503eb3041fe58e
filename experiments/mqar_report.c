// mqar_report: tables and a chart from the rows that mqar has written (main).
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plot.h"
#include "experiments/recall_row.h"
#include "experiments/report.h"

#define TITLE_BYTES (ROW_TEXT_BYTES + 160)

static double accuracy_of(const void *row) { return ((const RecallRow *)row)->accuracy; }
static double steps_of(const void *row) { return (double)((const RecallRow *)row)->steps_run; }
static double seconds_of(const void *row) { return ((const RecallRow *)row)->seconds; }
static double rate_of(const void *row) { return ((const RecallRow *)row)->lr; }

static void print_heading(const RecallRow *row)
{
    printf("\n### %" PRId64 " pairs in %" PRId64 " tokens\n\n", row->pairs, row->length);
    printf("Vocabulary %" PRId64 ", width %" PRId64 ", slots of %" PRId64 " numbers: %" PRId64 "; at most %" PRId64 " steps of %" PRId64 " sequences",
           row->vocab, row->d_model, row->d_head, row->n_slot, row->steps, row->batch);
    if (row->grow_from > 0) {
        printf(", which grow from %" PRId64 " pairs,", row->grow_from);
    }
    printf(" by %s", row->optimizer);
    if (row->until < 1.0) {
        printf(", until %g of %" PRId64 " test sequences are answered", row->until, row->test);
    }
    printf(".\n\n");
    printf("| mixer | state | parameters | best lr | accuracy | least | most | seeds | steps | CPU seconds | at other rates |\n");
    printf("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
}

static void print_row(const Cell *cell, const Cells *cells)
{
    const RecallRow *row = cell->first;
    printf("| %s | %" PRId64 " | %" PRId64 " | %g |", row->mixer, row->state, row->parameters, row->lr);
    report_number(cell->mean, " %.3f |");
    report_number(cell->least, " %.3f |");
    report_number(cell->most, " %.3f |");
    printf(" %zu | %.0f | %.0f | ", cell->seeds, cells_mean(cells, cell, steps_of), cells_mean(cells, cell, seconds_of));
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

// One line a mixer over the pairs, of the setting that most were run in; the best cells are in the order of pairs.
static int write_chart(const Cells *cells, const char *path, Error *error)
{
    size_t n_best = cells->n_best;
    PlotSeries *series = calloc(n_best, sizeof *series);
    double *x = calloc(n_best * n_best, sizeof *x), *y = calloc(n_best * n_best, sizeof *y);
    int result = series == NULL || x == NULL || y == NULL ? error_set(error, "out of memory for the chart %s", path) : 0;
    const RecallRow *main = cells_main_setting(cells, "pairs");
    char title[TITLE_BYTES];
    snprintf(title, sizeof title, "Recall in %" PRId64 " tokens: width %" PRId64 ", %" PRId64 " slots, %" PRId64 " steps by %s", main->length, main->d_model,
             main->n_slot, main->steps, main->optimizer);
    Plot plot = {title, "pairs of key and value", "accuracy at the best learning rate, mean of the seeds", series, 0};
    for (size_t i = 0; i < n_best && result == 0; i++) {
        const RecallRow *row = cells->best[i].first;
        size_t s = 0;
        if (!rows_agree_but(&recall_layout, row, main, ROLE_SETTING, "pairs")) {
            continue;
        }
        while (s < plot.n_series && strcmp(series[s].name, row->mixer) != 0) {
            s++;
        }
        if (s == plot.n_series) {
            series[plot.n_series++] = (PlotSeries){row->mixer, x + s * n_best, y + s * n_best, 0};
        }
        x[s * n_best + series[s].count] = (double)row->pairs;
        y[s * n_best + series[s].count++] = cells->best[i].mean;
    }
    result = result == 0 ? plot_write_png(&plot, path, error) : result;
    free(series);
    free(x);
    free(y);
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
