// Memory of this machine: what a program may still take.
#ifndef TRAINING_MEMORY_H
#define TRAINING_MEMORY_H

// Bytes that are free or can be freed at once: MemAvailable of /proc/meminfo, no more than a container's limit; elsewhere what sysconf
// tells. 0: unknown.
double memory_available(void);

#endif
