// What the tests of files share: a folder of their own, files in it, errors that say what they should. Functions end the test through cmocka.
#ifndef TESTS_SCRATCH_H
#define TESTS_SCRATCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"

typedef struct Fixture {
    char folder[256];
} Fixture;

static inline int setup(void **state)
{
    Fixture *fixture = calloc(1, sizeof *fixture);
    Error error;
    *state = fixture;
    return folder_temporary(fixture->folder, sizeof fixture->folder, &error);
}

static inline int teardown(void **state)
{
    Fixture *fixture = *state;
    Error error;
    int result = folder_remove(fixture->folder, &error);
    free(fixture);
    return result;
}

static inline char *in_folder(void **state, const char *name)
{
    char *path = path_join(((Fixture *)*state)->folder, name);
    assert_non_null(path);
    return path;
}

// Makes a file and gives its path (to free).
static inline char *make_file(void **state, const char *name, const void *data, size_t size)
{
    char *path = in_folder(state, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return path;
}

static inline void assert_says(const Error *error, const char *words)
{
    if (strstr(error->text, words) == NULL) {
        fail_msg("the error \"%s\" does not say \"%s\"", error->text, words);
    }
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

#endif
