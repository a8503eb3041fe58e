// The choice of an instruction set at start. The only kernel file that is compiled once.
#include "model/kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef _OPENMP
#include <omp.h>
#endif

extern const Kernels kernels_generic;
#ifdef __x86_64__
extern const Kernels kernels_avx2, kernels_avx512, kernels_avx512bf16;

static const Kernels *const all_avx512bf16[] = {&kernels_avx512bf16, &kernels_avx512, &kernels_avx2, &kernels_generic, NULL};
static const Kernels *const all_avx512[] = {&kernels_avx512, &kernels_avx2, &kernels_generic, NULL};
static const Kernels *const all_avx2[] = {&kernels_avx2, &kernels_generic, NULL};
#endif
static const Kernels *const only_generic[] = {&kernels_generic, NULL};

const Kernels *const *kernels_available(void)
{
#ifdef __x86_64__
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
        return __builtin_cpu_supports("avx512bf16") ? all_avx512bf16 : all_avx512;
    }
    if (avx2) {
        return all_avx2;
    }
#endif
    return only_generic;
}

const Kernels *kernels_select(Error *error)
{
    const Kernels *const *tables = kernels_available();
    const char *wanted = getenv("LATTICE_ISA");
    if (wanted == NULL || wanted[0] == '\0') {
        return tables[0];
    }
    char names[128] = "";
    for (size_t i = 0; tables[i] != NULL; i++) {
        if (strcmp(tables[i]->name, wanted) == 0) {
            return tables[i];
        }
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", tables[i]->name);
    }
    error_set(error, "LATTICE_ISA=%s: this processor and build can run %s; name one of these or unset it", wanted, names);
    return NULL;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double kernels_measure_peak(const Kernels *kernels, bool bf16)
{
    // The best of several short runs: a peak is what the machine can do when nothing else runs.
    double best = 0.0;
    kernels->peak_loop(10000000, bf16);   // long enough for the system to give every thread a core of its own
    for (int run = 0; run < 20; run++) {
        double start = seconds(), done = kernels->peak_loop(1000000, bf16), rate = done / (seconds() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

char *kernels_describe(char text[96], const Kernels *kernels)
{
#ifdef _OPENMP
    int threads = omp_get_max_threads();
    snprintf(text, 96, "%s, %d thread%s, OpenMP on", kernels->name, threads, threads == 1 ? "" : "s");
#else
    snprintf(text, 96, "%s, 1 thread, OpenMP off", kernels->name);
#endif
    return text;
}
