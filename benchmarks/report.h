// What ./bench measures with and reports through: repeated timing, ceilings of this machine, a table or JSON lines.
#ifndef BENCHMARKS_REPORT_H
#define BENCHMARKS_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "model/kernels/kernels.h"

#define REPORT_MAX_RUNS 64

// Repetitions of one measurement: median and extremes.
typedef struct Spread {
    double median, least, most;
} Spread;

// Ceilings, measured once a run.
typedef struct Ceilings {
    double peak_f32, peak_bf16;   // FLOP/s, all threads
    double read;                  // bytes/s from memory, all threads
} Ceilings;

typedef struct Report {
    bool json;
    bool header;   // printed already
    const char *beside;   // what the table calls the column of ceilings; NULL: that
} Report;

// The lines that follow stand beside something else than a ceiling (NULL: beside one again), which the table says by a new header.
void report_beside(Report *report, const char *what);

// One line: value and spread in `unit`; ceiling (0: none) in the same unit; `required` share of the ceiling (0: none), reached from below.
void report_line(Report *report, const char *name, Spread value, const char *unit, double ceiling, double required);

// The same for a value of which less is better: `most` (0: nothing is asked) is what it may be.
void report_limit(Report *report, const char *name, Spread value, const char *unit, double most);

// Of 1 … REPORT_MAX_RUNS values.
Spread spread_of(const double *values, size_t count);

// Runs `function` once to warm up and `runs` times (at most REPORT_MAX_RUNS); seconds of each run.
Spread time_runs(size_t runs, void (*function)(void *context), void *context);

// The same for two functions in turns, so that what the machine does meanwhile meets both.
void time_in_turns(Spread spreads[2], size_t runs, void (*const functions[2])(void *context), void *const contexts[2]);

// time_runs, each run behind a measurement of a ceiling that moves from second to second; *ceiling is their median.
Spread time_beside(double *ceiling, double (*measure)(const Kernels *kernels), const Kernels *kernels, size_t runs, void (*function)(void *context), void *context);

// amount / seconds for each of the extremes.
Spread rate_of(Spread seconds, double amount);

// Fills peaks and read bandwidth.
void measure_ceilings(Ceilings *ceilings, const Kernels *kernels);

#endif
