// Any bytes as a Parquet file: all its flat columns are read, or refused with a reason; never a crash, never memory beyond the bounds.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/parquet.h"

// A few bytes may promise billions of equal values: so many are looked at.
enum { MOST_VALUES = 20000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_refused(const Error *error)
{
    if (error->text[0] == 0 || strchr(error->text, '\n') != NULL) {
        abort();
    }
}

static uint64_t read_column(const ParquetFile *file, size_t group, size_t column)
{
    Error error = {{0}};
    ParquetValue value;
    uint64_t sum = 0, rows = 0;
    ParquetCursor *cursor = parquet_cursor_open(file, group, column, &error);
    int more = cursor == NULL ? -1 : 1;
    while (more > 0 && rows < MOST_VALUES && sum < (1 << 24) && (more = parquet_cursor_next(cursor, &value, &error)) > 0) {
        rows++;
        for (size_t i = 0; i < value.length; i++) {
            sum += (unsigned char)value.text[i];
        }
    }
    if (more < 0) {
        check_refused(&error);
    }
    if (more == 0 && rows != parquet_group_rows(file, group)) {
        abort();
    }
    parquet_cursor_close(cursor);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = memfd_create("fuzz_parquet", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) {
        abort();
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    Error error = {{0}};
    ParquetFile *file = parquet_open(path, &error);
    if (file == NULL) {
        check_refused(&error);
    }
    for (size_t i = 0; file != NULL && i < parquet_columns(file) && i < 16; i++) {
        size_t length, column;
        const char *name = parquet_column_name(file, i, &length);
        char *copy = strndup(name, length);
        int found = parquet_find_text(file, copy, &column, &error) == 0 || parquet_find_number(file, copy, &column, &error) == 0;
        free(copy);
        if (!found) {
            check_refused(&error);
        }
        for (size_t group = 0; found && group < parquet_groups(file) && group < 4; group++) {
            read_column(file, group, column);
        }
    }
    parquet_close(file);
    close(fd);
    return 0;
}
