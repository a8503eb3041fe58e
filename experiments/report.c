#include "experiments/report.h"

#include <math.h>
#include <stdio.h>

#include "base/args.h"

static int report_rows(const Report *report, const ResultRows *rows, const char *plot, Error *error)
{
    Cells cells;
    if (cells_collect(&cells, rows, report->value, report->high, error) != 0) {
        return -1;
    }
    report->print_tables(&cells);
    int result = plot != NULL ? report->write_chart(&cells, plot, error) : 0;
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
