// The choice of an instruction set at start. The only kernel file that is compiled once.
#include "model/kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef _OPENMP
#include <omp.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "base/memory.h"

// The Makefile says which instruction sets were compiled beside the generic one. Best first; a processor that runs one runs all behind it.
extern const Kernels kernels_amx, kernels_avx512bf16, kernels_avx512, kernels_avx2, kernels_generic;

static const Kernels *const compiled[] = {
#ifdef WITH_AMX
    &kernels_amx,
#endif
#ifdef WITH_AVX512
    &kernels_avx512bf16, &kernels_avx512,
#endif
#ifdef WITH_AVX2
    &kernels_avx2,
#endif
    &kernels_generic, NULL,
};

// Whether the processor has AMX for bf16, and the kernel lets this process use its registers, which it has to be asked for.
static bool amx_runs_here(void)
{
#if defined(__x86_64__) && defined(__linux__)
    const unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;   // CPUID 7, EDX
    const int request = 0x1023, tile_data = 18;                // ARCH_REQ_XCOMP_PERM, the registers' part of a thread's state
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & amx_bf16) && (d & amx_tile) && syscall(SYS_arch_prctl, request, tile_data) == 0;
#else
    return false;
#endif
}

static bool runs_here(const Kernels *kernels)
{
#ifdef __x86_64__
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
    bool bf16 = avx512 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
    if (strcmp(kernels->name, "amx") == 0) {
        return bf16 && amx_runs_here();
    }
    if (strcmp(kernels->name, "avx512bf16") == 0) {
        return bf16;
    }
    if (strcmp(kernels->name, "avx512") == 0) {
        return avx512;
    }
    if (strcmp(kernels->name, "avx2") == 0) {
        return avx2;
    }
#endif
    return strcmp(kernels->name, "generic") == 0;
}

const Kernels *const *kernels_available(void)
{
    const Kernels *const *best = compiled;
    while (best[1] != NULL && !runs_here(*best)) {   // generic, the last of them, runs everywhere
        best++;
    }
    return best;
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

// ---- ceilings ----

static double seconds(clockid_t clock)
{
    struct timespec now = {0};
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// The part of a common work that belongs to the calling thread: thread `index` of `count`.
typedef struct ThreadPart {
    size_t index, count;
} ThreadPart;

static ThreadPart thread_part(void)
{
#ifdef _OPENMP
    return (ThreadPart){(size_t)omp_get_thread_num(), (size_t)omp_get_num_threads()};
#else
    return (ThreadPart){0, 1};
#endif
}

// Of the threads that a parallel region gets, the share that can run at the same time.
static double running_share(void)
{
#ifdef _OPENMP
    double threads = omp_get_max_threads(), processors = omp_get_num_procs();
    return processors < threads ? processors / threads : 1.0;
#else
    return 1.0;
#endif
}

// One run of a measurement on the calling thread; returns how much it did.
typedef double Run(const void *context);

// Amount a second of the best run within a window of `length` seconds. A thread that waits for a core loses no processor time, so it is measured by that.
// Runs at the borders of the window do not count, because other threads may not run yet, or no longer; a run is much shorter than the window.
static double best_run(Run *run, const void *context, double begin, double length)
{
    double best = 0.0, best_at_border = 0.0, end;
    do {
        double start = seconds(CLOCK_MONOTONIC), own = seconds(CLOCK_THREAD_CPUTIME_ID), done = run(context);
        own = seconds(CLOCK_THREAD_CPUTIME_ID) - own;
        end = seconds(CLOCK_MONOTONIC);
        bool inside = start >= begin + 0.1 * length && end <= begin + length;
        double *most = inside ? &best : &best_at_border;
        *most = own > 0.0 && done / own > *most ? done / own : *most;
    } while (end < begin + length);
    return best > 0.0 ? best : best_at_border;
}

// The best rates of all threads, added.
static double sum_of_threads(Run *run, const void *context, double length)
{
    double sum = 0.0, begin = seconds(CLOCK_MONOTONIC);
#pragma omp parallel reduction(+ : sum)
    sum += best_run(run, context, begin, length);
    return sum * running_share();
}

typedef struct PeakContext {
    const Kernels *kernels;
    bool bf16;
} PeakContext;

static double run_peak(const void *context)
{
    const PeakContext *c = context;
    return c->kernels->peak_loop(200000, c->bf16);
}

double kernels_measure_peak(const Kernels *kernels, bool bf16) { return sum_of_threads(run_peak, &(PeakContext){kernels, bf16}, 0.1); }

typedef struct ReadContext {
    const Kernels *kernels;
    float *data;
    size_t count;
} ReadContext;

static double run_read(const void *context)
{
    const ReadContext *c = context;
    ThreadPart part = thread_part();
    size_t first = c->count * part.index / part.count, count = c->count * (part.index + 1) / part.count - first;
    // The sum is looked at, or it would not be computed.
    return c->kernels->sum_squares(c->data + first, count) >= 0.0 ? (double)count * sizeof(float) : 0.0;
}

double kernels_measure_read(const Kernels *kernels)
{
    ReadContext read = {.kernels = kernels, .count = (size_t)96 << 20};   // far beyond any cache
    read.data = memory_large(read.count * sizeof *read.data);   // as weights lie
    if (read.data == NULL) {
        return 0.0;
    }
    // Written by all threads, as the arrays of a model are.
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < read.count; i++) {
        read.data[i] = 1.0f;
    }
    double rate = sum_of_threads(run_read, &read, 0.15);
    free(read.data);
    return rate;
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
