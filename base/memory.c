#include "base/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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
