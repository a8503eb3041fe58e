// Large pieces of memory, what this machine has free, and what a program holds.
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stddef.h>

// `bytes` zeroed bytes to free(), beginning at a cache line; NULL when there are none. Where the system can, large pieces lie in large pages, which are read
// through faster. All threads write the zeros, so that on machines of several parts each part holds a share.
void *memory_large(size_t bytes);

// Bytes that are free or can be freed at once: MemAvailable of /proc/meminfo, no more than a container's limit; elsewhere what sysconf
// tells. 0: unknown.
double memory_available(void);

// Bytes that this process holds in memory now, and the most that it ever held. 0: unknown.
double memory_resident(void);
double memory_peak(void);

// Starts memory_peak anew from what is held now. Returns 0, or -1 where the system cannot: memory_peak then stays what it was, if not more.
int memory_restart_peak(void);

#endif
