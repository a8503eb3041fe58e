// Faults on purpose: chosen calls of the C library fail, or do half of what was asked.
//
// The file is used in two ways. Linked into a test program, with the linker's --wrap for each name of FAULT_CALLS in the Makefile, it stands
// between the project's code and the library. As build/tests/libfault.so it is loaded before a whole program:
//
//     LD_PRELOAD=build/tests/libfault.so FAULT=write:ENOSPC:20:3 ./train ...      the 20th to the 22nd write fail
//
// with KIND:EFFECT:FIRST:COUNT. Kinds and effects have the names below without FAULT_, in small letters; effects may be names of errno.
// Nothing is brought to the disk (fsync only counts), which spares the time: a test kills no machine.
#ifndef TESTS_FAULT_FAULT_H
#define TESTS_FAULT_FAULT_H

#include <stdbool.h>

typedef enum FaultKind {
    FAULT_NONE,
    FAULT_MEMORY,   // malloc, calloc, realloc, aligned_alloc, strdup, strndup, asprintf, open_memstream, mmap
    FAULT_OPEN,     // open, fopen
    FAULT_READ,     // read, pread
    FAULT_WRITE,    // write, but not to standard output or standard error
    FAULT_SYNC,     // fsync
    FAULT_CLOSE,    // close: the descriptor is closed all the same
    FAULT_NAMES,    // rename, renameat2, mkdir, unlink, ftruncate
    FAULT_LOCKS,    // flock
} FaultKind;

enum { FAULT_SHORT = -1 };   // an effect: half of the bytes are read or written; every other effect is an errno

// The calls number `first` to first + count − 1 of the kind from now on fail with `effect`. Any thread's calls count.
void fault_arm(FaultKind kind, int effect, long first, long count);

// Everything works again. Returns how many calls failed.
long fault_disarm(void);

#endif
