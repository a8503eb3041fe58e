// text_report: tables and a chart from the rows that text_run has written (main).
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "experiments/report.h"
#include "experiments/text_row.h"

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

static void print_heading(const Cells *cells, const void *of)
{
    const TextRow *row = of;
    const ResultRows *rows = cells->rows;
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

static void print_row(const Cells *cells, const Cell *cell)
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

static void write_title(char text[REPORT_TITLE_BYTES], const void *of)
{
    const TextRow *row = of;
    snprintf(text, REPORT_TITLE_BYTES, "Perplexity on %s: width %" PRId64 ", %" PRId64 " layers, %" PRId64 " tokens", row->data, row->d_model, row->n_layer,
             row->tokens);
}

static void find_point(double *x, double *y, const Cells *cells, const Cell *cell, size_t i)
{
    *x = (double)text_contexts[i];
    *y = perplexity_at(cells, cell, i);
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
        .print_heading = print_heading,
        .print_row = print_row,
        .chart = {"context length in tokens", "perplexity, mean of the seeds", NULL, TEXT_CONTEXTS, write_title, find_point},
    };
    return report_main(&report, argc, argv);
}
