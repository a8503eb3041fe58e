// What the fuzz targets that work on folders share.
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define FOLDER_BYTES 256

// Ends the program, which the fuzzer counts as a find, unless the condition holds.
static inline void check(int holds)
{
    if (!holds) {
        abort();
    }
}

// A folder of this process. Every input is written to it and synced, so TMPDIR should be in memory (tests/fuzz/run sees to it).
static inline void fuzz_folder(char folder[FOLDER_BYTES])
{
    Error error;
    check(folder_temporary(folder, FOLDER_BYTES, &error) == 0);
}

// Writes the input, without syncing it, to a file of this process whose name ends with `suffix`, in TMPDIR. Its path, which the next call overwrites.
static inline const char *fuzz_file(const char *suffix, const uint8_t *data, size_t size)
{
    static char folder[FOLDER_BYTES], path[FOLDER_BYTES + 64];
    if (folder[0] == 0) {
        fuzz_folder(folder);
    }
    snprintf(path, sizeof path, "%s/input%s", folder, suffix);
    FILE *file = fopen(path, "wb");
    check(file != NULL && fwrite(data, 1, size, file) == size && fclose(file) == 0);
    return path;
}

#endif
