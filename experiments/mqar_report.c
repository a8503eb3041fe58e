// mqar_report: tables and a chart from the rows that mqar has written (main).
#include <inttypes.h>
#include <stdio.h>

#include "experiments/recall_row.h"
#include "experiments/report.h"

static double accuracy_of(const void *row) { return ((const RecallRow *)row)->accuracy; }
static double steps_of(const void *row) { return (double)((const RecallRow *)row)->steps_run; }
static double seconds_of(const void *row) { return ((const RecallRow *)row)->seconds; }
static double rate_of(const void *row) { return ((const RecallRow *)row)->lr; }

static void print_heading(const Cells *cells, const void *of)
{
    const RecallRow *row = of;
    (void)cells;
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

static void print_row(const Cells *cells, const Cell *cell)
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

static void write_title(char text[REPORT_TITLE_BYTES], const void *of)
{
    const RecallRow *row = of;
    snprintf(text, REPORT_TITLE_BYTES, "Recall in %" PRId64 " tokens%s: %" PRId64 " slots, %" PRId64 " steps by %s", row->length,
             row->grow_from > 0 ? ", grown" : "", row->n_slot, row->steps, row->optimizer);
}

static void find_point(double *x, double *y, const Cells *cells, const Cell *cell, size_t i)
{
    (void)cells;
    (void)i;
    *x = (double)((const RecallRow *)cell->first)->pairs;
    *y = cell->mean;
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
        .print_heading = print_heading,
        .print_row = print_row,
        .chart = {"pairs of key and value", "accuracy at the best learning rate, mean of the seeds", "pairs", 1, write_title, find_point},
    };
    return report_main(&report, argc, argv);
}
