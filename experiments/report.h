// What the programs that report rows of results share: flags, reading, tables on standard output, a chart.
#ifndef EXPERIMENTS_REPORT_H
#define EXPERIMENTS_REPORT_H

#include "experiments/cells.h"

typedef struct Report {
    const char *name, *description;   // of the program
    const char *plotted;              // what --plot draws
    const char *script;               // that makes the rows
    const RowLayout *layout;
    RowValue value;                   // what cells are ranked by
    bool high;                        // more of it is better
    void (*print_tables)(const Cells *cells);
    int (*write_chart)(const Cells *cells, const char *path, Error *error);
} Report;

// Prints a table's cell, empty where there is no number.
void report_number(double value, const char *format);

// A program's main; returns its exit code.
int report_main(const Report *report, int argc, char **argv);

#endif
