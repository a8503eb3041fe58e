#include "benchmarks/report.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/progress.h"

void report_line(Report *report, const char *name, Spread value, const char *unit, double ceiling, double required)
{
    double ratio = ceiling > 0.0 ? value.median / ceiling : 0.0;
    if (report->json) {
        printf("{\"name\": \"%s\", \"value\": %.6g, \"least\": %.6g, \"most\": %.6g, \"unit\": \"%s\"", name, value.median, value.least, value.most, unit);
        if (ceiling > 0.0) {
            printf(", \"ceiling\": %.6g, \"ratio\": %.4f", ceiling, ratio);
        }
        if (required > 0.0) {
            printf(", \"required\": %.4g", required);
        }
        printf("}\n");
    } else {
        if (!report->header) {
            printf("%-34s %12s %21s  %-9s %10s %7s %9s\n", "what", "median", "least … most", "unit", "ceiling", "share", "required");
            report->header = true;
        }
        printf("%-34s %12.4g %9.4g … %9.4g  %-9s", name, value.median, value.least, value.most, unit);
        if (ceiling > 0.0) {
            printf(" %10.4g %6.1f%%", ceiling, 100.0 * ratio);
        }
        if (required > 0.0) {
            printf(" %8.1f%%%s", 100.0 * required, ratio < required ? "  short" : "");
        }
        printf("\n");
    }
    fflush(stdout);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

Spread time_runs(size_t runs, void (*function)(void *context), void *context)
{
    enum { MOST = 64 };
    double seconds[MOST];
    runs = runs > MOST ? MOST : runs;
    function(context);
    for (size_t i = 0; i < runs; i++) {
        double start = seconds_now();
        function(context);
        seconds[i] = seconds_now() - start;
    }
    qsort(seconds, runs, sizeof *seconds, compare_doubles);
    return (Spread){seconds[runs / 2], seconds[0], seconds[runs - 1]};
}

Spread rate_of(Spread seconds, double amount) { return (Spread){amount / seconds.median, amount / seconds.most, amount / seconds.least}; }

void measure_ceilings(Ceilings *ceilings, const Kernels *kernels)
{
    *ceilings = (Ceilings){.peak_f32 = kernels_measure_peak(kernels, false), .peak_bf16 = kernels_measure_peak(kernels, true),
                           .read = kernels_measure_read(kernels)};
}

LibrarySgemm *find_library_sgemm(void)
{
    static const char *const files[] = {"libopenblas.so.0", "libopenblas.so", "libopenblas.dylib"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        void *library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
        LibrarySgemm *sgemm = NULL;
        if (library != NULL) {
            *(void **)&sgemm = dlsym(library, "cblas_sgemm");
        }
        if (sgemm != NULL) {
            return sgemm;   // the library stays loaded
        }
    }
    return NULL;
}
