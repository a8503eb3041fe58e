// text_report: tables and a chart from the rows that text_run has written (main).
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/plot.h"
#include "experiments/report.h"
#include "experiments/text_row.h"

#define TITLE_BYTES (ROW_TEXT_BYTES + 128)

static double rate_of(const void *row) { return ((const TextRow *)row)->lr; }

static double main_perplexity(const void *row)
{
    size_t context = text_main_context(row);
    return context < TEXT_CONTEXTS ? ((const TextRow *)row)->perplexity[context] : NAN;
}

// Training tokens a second of the processor.
static double speed_of(const void *row) { return (double)((const TextRow *)row)->tokens / ((const TextRow *)row)->cpu_seconds; }

// Mean over a cell's seeds of the perplexity at a context.
static double perplexity_at(const Cells *cells, const Cell *cell, size_t context)
{
    double sum = 0.0;
    for (size_t i = 0; i < cells->rows->count; i++) {
        const TextRow *row = rows_at(cells->rows, i);
        sum += rows_agree(cell->layout, cell->first, row, ROLE_RATE) ? row->perplexity[context] : 0.0;
    }
    return sum / (double)cell->seeds;
}

static bool was_measured(const ResultRows *rows, size_t context)
{
    for (size_t i = 0; i < rows->count; i++) {
        if (!isnan(((const TextRow *)rows_at(rows, i))->perplexity[context])) {
            return true;
        }
    }
    return false;
}

static void print_heading(const TextRow *row, const ResultRows *rows)
{
    printf("\n### %s, width %" PRId64 ", %" PRId64 " layers, sequences of %" PRId64 " tokens\n\n", row->data, row->d_model, row->n_layer, row->seq_len);
    printf("%" PRId64 " heads, MLP %" PRId64 "; %" PRId64 " tokens of training in steps of %" PRId64 " by %s in %s. ", row->n_head, row->mlp_hidden,
           row->tokens, row->batch_tokens, row->optimizer, row->dtype);
    printf("Perplexity of the validation split by context length; least and most over the seeds, of the one that rates are chosen by.\n\n");
    printf("| mixer | parameters | state bytes | best lr |");
    for (size_t i = 0; i < TEXT_CONTEXTS; i++) {
        if (was_measured(rows, i)) {
            printf(" %" PRId64 " |", text_contexts[i]);
        }
    }
    printf(" least | most | seeds | tokens a CPU second | at other rates |\n| --- | --- | --- | --- |");
    for (size_t i = 0; i < TEXT_CONTEXTS; i++) {
        printf("%s", was_measured(rows, i) ? " --- |" : "");
    }
    printf(" --- | --- | --- | --- | --- |\n");
}

static void print_row(const Cell *cell, const Cells *cells)
{
    const TextRow *row = cell->first;
    printf("| %s | %" PRId64 " | %" PRId64 " | %g |", row->mixer, row->parameters, row->state_bytes, row->lr);
    for (size_t i = 0; i < TEXT_CONTEXTS; i++) {
        if (was_measured(cells->rows, i)) {
            report_number(perplexity_at(cells, cell, i), " %.2f |");
        }
    }
    report_number(cell->least, " %.2f |");
    report_number(cell->most, " %.2f |");
    printf(" %zu |", cell->seeds);
    report_number(cells_mean(cells, cell, speed_of), " %.0f |");
    printf(" ");
    cells_print_other_rates(cells, cell, rate_of);
    printf(" |\n");
}

static void print_tables(const Cells *cells)
{
    for (size_t i = 0; i < cells->n_best; i++) {
        if (cells_begin_setting(cells, i)) {
            print_heading(cells->best[i].first, cells->rows);
        }
        print_row(&cells->best[i], cells);
    }
}

// One line a mixer, of the setting that most were run in.
static int write_chart(const Cells *cells, const char *path, Error *error)
{
    size_t n_best = cells->n_best;
    PlotSeries *series = calloc(n_best, sizeof *series);
    double *x = calloc(n_best * TEXT_CONTEXTS, sizeof *x), *y = calloc(n_best * TEXT_CONTEXTS, sizeof *y);
    int result = series == NULL || x == NULL || y == NULL ? error_set(error, "out of memory for the chart %s", path) : 0;
    const TextRow *main = cells_main_setting(cells, NULL);
    char title[TITLE_BYTES];
    snprintf(title, sizeof title, "Perplexity on %s: width %" PRId64 ", %" PRId64 " layers, %" PRId64 " tokens", main->data, main->d_model, main->n_layer,
             main->tokens);
    Plot plot = {title, "context length in tokens", "perplexity, mean of the seeds", series, 0};
    for (size_t i = 0; i < n_best && result == 0; i++) {
        const TextRow *row = cells->best[i].first;
        if (!rows_agree(&text_layout, row, main, ROLE_SETTING)) {
            continue;
        }
        double *at = x + i * TEXT_CONTEXTS, *height = y + i * TEXT_CONTEXTS;
        for (size_t context = 0; context < TEXT_CONTEXTS; context++) {
            at[context] = (double)text_contexts[context];
            height[context] = perplexity_at(cells, &cells->best[i], context);
        }
        series[plot.n_series++] = (PlotSeries){row->mixer, at, height, TEXT_CONTEXTS};
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
        .name = "build/text_report",
        .description = "Prints tables (Markdown) of what text_run has written: each mixer at the learning rate whose mean over the seeds is best, by\n"
                       "the perplexity at the longest context that is not above the training length.",
        .plotted = "draw perplexity against context length",
        .script = "scripts/compare_text",
        .layout = &text_layout,
        .value = main_perplexity,
        .high = false,
        .print_tables = print_tables,
        .write_chart = write_chart,
    };
    return report_main(&report, argc, argv);
}
