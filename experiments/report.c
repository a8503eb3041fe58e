#include "experiments/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/plot.h"

static void print_tables(const Report *report, const Cells *cells)
{
    for (size_t i = 0; i < cells->n_best; i++) {
        if (cells_begin_setting(cells, i)) {
            report->print_heading(cells, cells->best[i].first);
        }
        report->print_row(cells, &cells->best[i]);
    }
}

// Adds the cell's points to the line of its subject, which may be a new one. lines: x and y [room] of each.
static void add_points(Plot *plot, PlotSeries *series, double *lines, size_t room, const ReportChart *chart, const Cells *cells, const Cell *cell)
{
    const char *name = rows_subject(cell->layout, cell->first);
    size_t s = 0;
    while (s < plot->n_series && strcmp(series[s].name, name) != 0) {
        s++;
    }
    double *x = lines + 2 * s * room, *y = x + room;
    if (s == plot->n_series) {
        series[plot->n_series++] = (PlotSeries){name, x, y, 0};
    }
    for (size_t i = 0; i < chart->n_points; i++) {
        size_t at = series[s].count++;
        chart->point(&x[at], &y[at], cells, cell, i);
    }
}

static int write_chart(const ReportChart *chart, const Cells *cells, const char *path, Error *error)
{
    size_t n = cells->n_best, room = n * chart->n_points;
    PlotSeries *series = calloc(n, sizeof *series);
    double *lines = calloc(n * room, 2 * sizeof *lines);
    char title[REPORT_TITLE_BYTES];
    Plot plot = {title, chart->x_label, chart->y_label, series, 0};
    int result = series == NULL || lines == NULL ? error_set(error, "out of memory for the chart %s", path) : 0;
    if (result == 0) {
        const void *main = cells_main_setting(cells, chart->across);
        chart->title(title, main);
        for (const Cell *cell = cells->best; cell < cells->best + n; cell++) {
            if (rows_agree_but(cell->layout, cell->first, main, ROLE_SETTING, chart->across)) {
                add_points(&plot, series, lines, room, chart, cells, cell);
            }
        }
        result = plot_write_png(&plot, path, error);
    }
    free(series);
    free(lines);
    return result;
}

static int report_rows(const Report *report, const ResultRows *rows, const char *plot, Error *error)
{
    Cells cells;
    if (cells_collect(&cells, rows, report->value, report->high, error) != 0) {
        return -1;
    }
    print_tables(report, &cells);
    int result = plot != NULL ? write_chart(&report->chart, &cells, plot, error) : 0;
    cells_free(&cells);
    return result != 0 || fflush(stdout) == 0 ? result : error_set(error, "cannot write to standard output");
}

void report_number(double value, const char *format)
{
    if (isnan(value)) {
        printf(" |");
    } else {
        printf(format, value);
    }
}

int report_main(const Report *report, int argc, char **argv)
{
    const char *plot = NULL;
    ArgSpec specs[] = {{.name = "plot", .kind = ARG_STRING, .target = &plot, .value = "FILE.png", .help = report->plotted}};
    ArgProgram program = {
        .name = report->name,
        .usage = "ROWS.csv [--plot FILE.png]",
        .description = report->description,
        .specs = specs,
        .n_specs = sizeof specs / sizeof specs[0],
        .min_positional = 1,
        .max_positional = 1,
    };
    size_t n_positional;
    args_parse(&program, argc, argv, &n_positional);
    Error error;
    ResultRows rows;
    if (rows_read(&rows, report->layout, argv[1], &error) != 0) {
        return args_fail(&error);
    }
    int result = rows.count == 0 ? error_set(&error, "%s: there are no rows: run %s first", argv[1], report->script) : report_rows(report, &rows, plot, &error);
    rows_free(&rows);
    return result == 0 ? 0 : args_fail(&error);
}
