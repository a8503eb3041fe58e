// Checks files in golden's format (tests/reference/golden.h), one line each: errors of outputs, state and gradients, then ok or FAILED.
#include <stdio.h>
#include <string.h>

#include "tests/reference/golden.h"

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        puts("usage: golden FILE.json...\n\n"
             "Checks the double-precision reference, and the fast code of every instruction set that this processor has, against files of known results.\n"
             "Prints one line a file: largest relative RMS error of outputs, state and each gradient, ok or FAILED. Exits 1 if any FAILED.");
        return 0;
    }
    if (argc < 2) {
        fputs("error: no file given; usage: golden FILE.json...\n", stderr);
        return 2;
    }
    int failed = 0;
    for (int i = 1; i < argc; i++) {
        char line[4096];
        failed += !golden_check(line, sizeof line, argv[i]);
        puts(line);
        fflush(stdout);
    }
    if (failed > 0) {
        fprintf(stderr, "error: %d of %d files FAILED\n", failed, argc - 1);
    }
    return failed > 0;
}
