#include "base/memory.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define LARGE_PAGE ((size_t)2 << 20)

void *memory_large(size_t bytes)
{
    size_t unit = bytes < 4 * LARGE_PAGE ? 64 : LARGE_PAGE;   // for less the border would weigh too much
    if (bytes > SIZE_MAX / 2) {
        return NULL;
    }
    size_t size = (bytes + unit - 1) / unit * unit;
    void *memory = aligned_alloc(unit, size > 0 ? size : unit);
    if (memory == NULL) {
        return NULL;
    }
#ifdef MADV_HUGEPAGE
    if (unit == LARGE_PAGE) {
        madvise(memory, size, MADV_HUGEPAGE);   // advice: refused, the pages are small ones
    }
#endif
#pragma omp parallel for schedule(static) if (bytes > LARGE_PAGE)
    for (size_t start = 0; start < bytes; start += LARGE_PAGE) {
        memset((char *)memory + start, 0, bytes - start < LARGE_PAGE ? bytes - start : LARGE_PAGE);
    }
    return memory;
}

// A size from a file of lines "KEY:   N kB", in bytes; 0: not there.
static double read_size(const char *path, const char *key)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0.0;
    }
    char line[256];
    uint64_t kilobytes = 0;
    size_t length = strlen(key);
    while (kilobytes == 0 && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, length) != 0 || sscanf(line + length, ": %" SCNu64 " kB", &kilobytes) != 1) {
            kilobytes = 0;
        }
    }
    fclose(file);
    return (double)kilobytes * 1024.0;
}

// The limit of the control group that a container runs in; 0: none.
static double container_limit(void)
{
    FILE *file = fopen("/sys/fs/cgroup/memory.max", "re");
    if (file == NULL) {
        return 0.0;
    }
    uint64_t bytes = 0;
    int found = fscanf(file, "%" SCNu64, &bytes);   // "max" when there is no limit
    fclose(file);
    return found == 1 ? (double)bytes : 0.0;
}

double memory_available(void)
{
    double available = read_size("/proc/meminfo", "MemAvailable");
#ifdef _SC_AVPHYS_PAGES
    if (available <= 0.0) {
        long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
        available = pages > 0 && page > 0 ? (double)pages * (double)page : 0.0;
    }
#endif
    double limit = container_limit();
    return limit > 0.0 && (available <= 0.0 || limit < available) ? limit : available;
}

double memory_resident(void) { return read_size("/proc/self/status", "VmRSS"); }

double memory_peak(void)
{
    double peak = read_size("/proc/self/status", "VmHWM");
    struct rusage usage;
    if (peak <= 0.0 && getrusage(RUSAGE_SELF, &usage) == 0) {
#ifdef __APPLE__
        peak = (double)usage.ru_maxrss;
#else
        peak = (double)usage.ru_maxrss * 1024.0;
#endif
    }
    return peak;
}

int memory_restart_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "we");
    if (file == NULL) {
        return -1;
    }
    int failed = fputs("5", file) < 0;   // Linux: "reset the peak resident set size"
    return fclose(file) != 0 || failed ? -1 : 0;
}
