// What the fuzz targets that work on folders share.
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// Ends the program, which the fuzzer counts as a find, unless the condition holds.
static inline void check(int holds)
{
    if (!holds) {
        abort();
    }
}

// A folder of this process, in memory where there is such a place: every input is written to it and synced.
static inline void fuzz_folder(char folder[64], const char *name)
{
    snprintf(folder, 64, "%s/fuzz-%s-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", name);
    check(mkdtemp(folder) != NULL);
}

#endif
