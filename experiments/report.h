// What the programs that report rows of results share: flags, reading, tables on standard output, a chart.
#ifndef EXPERIMENTS_REPORT_H
#define EXPERIMENTS_REPORT_H

#include "experiments/cells.h"

#define REPORT_TITLE_BYTES (ROW_TEXT_BYTES + 160)

// One line for each subject, of the setting that most were run in.
typedef struct ReportChart {
    const char *x_label, *y_label;
    const char *across;               // the column of the setting that x runs over; NULL: a cell has all points of its line
    size_t n_points;                  // of a cell
    void (*title)(char text[REPORT_TITLE_BYTES], const void *row);
    void (*point)(double *x, double *y, const Cells *cells, const Cell *cell, size_t i);
} ReportChart;

typedef struct Report {
    const char *name, *description;   // of the program
    const char *plotted;              // what --plot draws
    const char *script;               // that makes the rows
    const RowLayout *layout;
    RowValue value;                   // what cells are ranked by
    bool high;                        // more of it is better
    void (*print_heading)(const Cells *cells, const void *row);   // of a table, one for each setting
    void (*print_row)(const Cells *cells, const Cell *cell);
    ReportChart chart;
} Report;

// Prints a table's cell, empty where there is no number.
void report_number(double value, const char *format);

// A program's main; returns its exit code.
int report_main(const Report *report, int argc, char **argv);

#endif
