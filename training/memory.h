// Memory of this machine: what a program may still take, and what it has.
#ifndef TRAINING_MEMORY_H
#define TRAINING_MEMORY_H

// Bytes that are free or can be freed at once: MemAvailable of /proc/meminfo, no more than a container's limit; elsewhere what sysconf
// tells. 0: unknown.
double memory_available(void);

// Bytes that this process holds in memory now, and the most that it ever held. 0: unknown.
double memory_resident(void);
double memory_peak(void);

// Starts memory_peak anew from what is held now. Returns 0, or -1 where the system cannot: memory_peak then stays what it was, if not more.
int memory_restart_peak(void);

#endif
