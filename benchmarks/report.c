#include "benchmarks/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/progress.h"

typedef struct Line {
    const char *name, *unit;
    Spread value;
    double ceiling, required;   // 0: none
    bool lower;                 // less is better: required is the largest share of the ceiling, not the least
} Line;

static void print_json(const Line *line, double ratio)
{
    printf("{\"name\": \"%s\", \"value\": %.6g, \"least\": %.6g, \"most\": %.6g, \"unit\": \"%s\"", line->name, line->value.median, line->value.least,
           line->value.most, line->unit);
    if (line->ceiling > 0.0) {
        printf(", \"ceiling\": %.6g, \"ratio\": %.4f", line->ceiling, ratio);
    }
    if (line->required > 0.0) {
        printf(", \"required\": %.4g, \"better\": \"%s\"", line->required, line->lower ? "lower" : "higher");
    }
    printf("}\n");
}

static void print_row(const Line *line, double ratio)
{
    printf("%-34s %12.4g %9.4g … %9.4g  %-9s", line->name, line->value.median, line->value.least, line->value.most, line->unit);
    if (line->ceiling > 0.0) {
        printf(" %10.4g %6.1f%%", line->ceiling, 100.0 * ratio);
    }
    if (line->required > 0.0) {
        const char *missed = line->lower ? (ratio > line->required ? "  over" : "") : ratio < line->required ? "  short" : "";
        printf(" %s%6.1f%%%s", line->lower ? "≤ " : "  ", 100.0 * line->required, missed);
    }
    printf("\n");
}

static void print_line(Report *report, const Line *line)
{
    double ratio = line->ceiling > 0.0 ? line->value.median / line->ceiling : 0.0;
    if (report->json) {
        print_json(line, ratio);
    } else {
        if (!report->header) {
            printf("%-34s %12s %21s  %-9s %10s %7s %9s\n", "what", "median", "least … most", "unit",
                   report->beside != NULL ? report->beside : "ceiling", "share", "required");
            report->header = true;
        }
        print_row(line, ratio);
    }
    fflush(stdout);
}

void report_beside(Report *report, const char *what)
{
    report->beside = what;
    report->header = false;
}

void report_line(Report *report, const char *name, Spread value, const char *unit, double ceiling, double required)
{
    print_line(report, &(Line){.name = name, .unit = unit, .value = value, .ceiling = ceiling, .required = required});
}

void report_limit(Report *report, const char *name, Spread value, const char *unit, double most)
{
    print_line(report, &(Line){.name = name, .unit = unit, .value = value, .ceiling = most, .required = most > 0.0 ? 1.0 : 0.0, .lower = true});
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

Spread spread_of(const double *values, size_t count)
{
    double sorted[REPORT_MAX_RUNS];
    memcpy(sorted, values, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_doubles);
    return (Spread){sorted[count / 2], sorted[0], sorted[count - 1]};
}

static double time_run(void (*function)(void *context), void *context)
{
    double start = seconds_now();
    function(context);
    return seconds_now() - start;
}

Spread time_runs(size_t runs, void (*function)(void *context), void *context)
{
    double seconds[REPORT_MAX_RUNS];
    runs = runs > REPORT_MAX_RUNS ? REPORT_MAX_RUNS : runs;
    function(context);
    for (size_t i = 0; i < runs; i++) {
        seconds[i] = time_run(function, context);
    }
    return spread_of(seconds, runs);
}

void time_in_turns(Spread spreads[2], size_t runs, void (*const functions[2])(void *context), void *const contexts[2])
{
    double seconds[2][REPORT_MAX_RUNS];
    runs = runs > REPORT_MAX_RUNS ? REPORT_MAX_RUNS : runs;
    for (size_t i = 0; i < 2; i++) {
        functions[i](contexts[i]);
    }
    for (size_t i = 0; i < 2 * runs; i++) {
        seconds[i % 2][i / 2] = time_run(functions[i % 2], contexts[i % 2]);
    }
    for (size_t i = 0; i < 2; i++) {
        spreads[i] = spread_of(seconds[i], runs);
    }
}

Spread time_beside(double *ceiling, double (*measure)(const Kernels *kernels), const Kernels *kernels, size_t runs, void (*function)(void *context), void *context)
{
    double seconds[REPORT_MAX_RUNS], ceilings[REPORT_MAX_RUNS];
    runs = runs > REPORT_MAX_RUNS ? REPORT_MAX_RUNS : runs;
    function(context);
    for (size_t i = 0; i < runs; i++) {
        ceilings[i] = measure(kernels);
        seconds[i] = time_run(function, context);
    }
    *ceiling = spread_of(ceilings, runs).median;
    return spread_of(seconds, runs);
}

Spread rate_of(Spread seconds, double amount) { return (Spread){amount / seconds.median, amount / seconds.most, amount / seconds.least}; }

void measure_ceilings(Ceilings *ceilings, const Kernels *kernels)
{
    *ceilings = (Ceilings){.peak_f32 = kernels_measure_peak(kernels, false), .peak_bf16 = kernels_measure_peak(kernels, true),
                           .read = kernels_measure_read(kernels)};
}
