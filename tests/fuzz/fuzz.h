// What the fuzz targets that work on folders share.
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Ends the program, which the fuzzer counts as a find, unless the condition holds.
static inline void check(int holds)
{
    if (!holds) {
        abort();
    }
}

// A folder of this process. Every input is written to it and synced, so TMPDIR should be in memory (tests/fuzz/run sees to it).
static inline void fuzz_folder(char folder[64], const char *name)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, 64, "%s/fuzz-%s-XXXXXX", base != NULL && strlen(base) < 32 ? base : "/tmp", name);
    check(mkdtemp(folder) != NULL);
}

#endif
