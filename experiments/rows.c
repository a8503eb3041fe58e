#include "experiments/rows.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

#define MAX_FILE_BYTES ((size_t)64 << 20)

static const void *place(const void *row, const Column *column) { return (const char *)row + column->offset; }

char *rows_header(char text[ROW_LINE_BYTES], const RowLayout *layout)
{
    size_t used = 0;
    for (size_t i = 0; i < layout->n_columns; i++) {
        used += (size_t)snprintf(text + used, ROW_LINE_BYTES - used, "%s%s", i > 0 ? "," : "", layout->columns[i].name);
    }
    return text;
}

char *rows_line(char text[ROW_LINE_BYTES], const RowLayout *layout, const void *row)
{
    size_t used = 0;
    for (size_t i = 0; i < layout->n_columns; i++) {
        const Column *column = &layout->columns[i];
        const void *value = place(row, column);
        const char *comma = i > 0 ? "," : "";
        size_t rest = ROW_LINE_BYTES - used;
        switch (column->kind) {
        case COLUMN_TEXT: used += (size_t)snprintf(text + used, rest, "%s%s", comma, (const char *)value); break;
        case COLUMN_INT:  used += (size_t)snprintf(text + used, rest, "%s%" PRId64, comma, *(const int64_t *)value); break;
        case COLUMN_REAL: used += (size_t)snprintf(text + used, rest, "%s%.6g", comma, *(const double *)value); break;
        }
    }
    return text;
}

// ---- comparing ----

static bool equal(const void *a, const void *b, const Column *column)
{
    const void *x = place(a, column), *y = place(b, column);
    switch (column->kind) {
    case COLUMN_TEXT: return strcmp(x, y) == 0;
    case COLUMN_INT:  return *(const int64_t *)x == *(const int64_t *)y;
    case COLUMN_REAL: return fabs(*(const double *)x - *(const double *)y) <= 1e-5 * fabs(*(const double *)y);   // six digits are written
    }
    return false;
}

bool rows_agree_but(const RowLayout *layout, const void *a, const void *b, ColumnRole role, const char *column)
{
    for (size_t i = 0; i < layout->n_columns; i++) {
        if (layout->columns[i].role <= role && (column == NULL || strcmp(layout->columns[i].name, column) != 0) && !equal(a, b, &layout->columns[i])) {
            return false;
        }
    }
    return true;
}

bool rows_agree(const RowLayout *layout, const void *a, const void *b, ColumnRole role) { return rows_agree_but(layout, a, b, role, NULL); }

const char *rows_subject(const RowLayout *layout, const void *row)
{
    for (size_t i = 0; i < layout->n_columns; i++) {
        if (layout->columns[i].role == ROLE_SUBJECT) {
            return place(row, &layout->columns[i]);
        }
    }
    return "";
}

int rows_compare_settings(const RowLayout *layout, const void *a, const void *b)
{
    for (size_t i = 0; i < layout->n_columns; i++) {
        const Column *column = &layout->columns[i];
        if (column->role != ROLE_SETTING || equal(a, b, column)) {
            continue;
        }
        const void *x = place(a, column), *y = place(b, column);
        switch (column->kind) {
        case COLUMN_TEXT: return strcmp(x, y);
        case COLUMN_INT:  return *(const int64_t *)x < *(const int64_t *)y ? -1 : 1;
        case COLUMN_REAL: return *(const double *)x < *(const double *)y ? -1 : 1;
        }
    }
    return 0;
}

const void *rows_at(const ResultRows *rows, size_t i) { return rows->items + i * rows->layout->row_bytes; }

const void *rows_find(const ResultRows *rows, const void *row)
{
    for (size_t i = 0; i < rows->count; i++) {
        if (rows_agree(rows->layout, rows_at(rows, i), row, ROLE_SEED)) {
            return rows_at(rows, i);
        }
    }
    return NULL;
}

// ---- reading ----

static bool read_field(void *row, const Column *column, const char *text)
{
    void *to = (char *)row + column->offset;
    char *end = NULL;
    errno = 0;
    switch (column->kind) {
    case COLUMN_TEXT:
        if (strlen(text) >= ROW_TEXT_BYTES) {
            return false;
        }
        memcpy(to, text, strlen(text) + 1);
        return true;
    case COLUMN_INT:
        *(int64_t *)to = strtoll(text, &end, 10);
        break;
    case COLUMN_REAL:
        *(double *)to = strtod(text, &end);
        break;
    }
    return end != text && *end == '\0' && errno == 0;
}

// Cuts the line into its fields. Returns the column that is wrong, NULL if none is.
static const Column *read_line(void *row, const RowLayout *layout, char *line)
{
    char *rest = line;
    for (size_t i = 0; i < layout->n_columns; i++) {
        char *text = strsep(&rest, ",");
        if (text == NULL || (i + 1 == layout->n_columns && rest != NULL) || !read_field(row, &layout->columns[i], text)) {
            return &layout->columns[i];
        }
    }
    return NULL;
}

// A place for one more row, zeroed; NULL when there is no memory.
static void *add_row(ResultRows *rows)
{
    size_t bytes = rows->layout->row_bytes;
    char *items = realloc(rows->items, (rows->count + 1) * bytes);
    if (items == NULL) {
        return NULL;
    }
    rows->items = items;
    return memset(items + rows->count++ * bytes, 0, bytes);
}

static int read_rows(ResultRows *rows, char *text, const char *path, Error *error)
{
    char header[ROW_LINE_BYTES], *rest = text, *line;
    rows_header(header, rows->layout);
    for (size_t number = 1; (line = strsep(&rest, "\n")) != NULL; number++) {
        size_t length = strlen(line);
        if (length > 0 && line[length - 1] == '\r') {   // an editor of other systems was there
            line[length - 1] = '\0';
        }
        if (number == 1 && strcmp(line, header) != 0) {
            return error_set(error, "%s: the first line is not \"%s\": give a file that %s has written", path, header, rows->layout->writer);
        }
        if (number == 1 || (line[0] == '\0' && rest == NULL)) {
            continue;
        }
        void *row = add_row(rows);
        if (row == NULL) {
            return error_set(error, "out of memory");
        }
        const Column *wrong = read_line(row, rows->layout, line);
        if (wrong != NULL) {
            return error_set(error, "%s line %zu: no good value for %s: correct or remove the line", path, number, wrong->name);
        }
    }
    return 0;
}

int rows_read(ResultRows *rows, const RowLayout *layout, const char *path, Error *error)
{
    *rows = (ResultRows){.layout = layout};
    if (file_is_missing(path)) {
        return 0;
    }
    size_t size;
    char *text = file_read(path, MAX_FILE_BYTES, &size, error);
    if (text == NULL) {
        return -1;
    }
    int result = size > 0 ? read_rows(rows, text, path, error) : 0;
    free(text);
    if (result != 0) {
        rows_free(rows);
    }
    return result;
}

void rows_free(ResultRows *rows)
{
    free(rows->items);
    rows->items = NULL;
    rows->count = 0;
}

int rows_have(const RowLayout *layout, const char *path, void *row, Error *error)
{
    ResultRows rows;
    if (file_check_output(path, error) != 0 || rows_read(&rows, layout, path, error) != 0) {
        return -1;
    }
    const void *found = rows_find(&rows, row);
    if (found != NULL) {
        memcpy(row, found, layout->row_bytes);
        fprintf(stderr, "%s has this run already\n", path);
    }
    rows_free(&rows);
    return found != NULL;
}

// ---- writing ----

int rows_append(const RowLayout *layout, const char *path, const void *row, Error *error)
{
    char line[ROW_LINE_BYTES], header[ROW_LINE_BYTES], text[2 * ROW_LINE_BYTES + 2], last = '\n';
    struct stat status;
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || flock(fd, LOCK_EX) != 0 || fstat(fd, &status) != 0) {
        error_set(error, "cannot write %s: %s", path, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    // Editors leave out the last line's end: the row must not become part of that line.
    if (status.st_size > 0 && pread(fd, &last, 1, status.st_size - 1) != 1) {
        error_set(error, "cannot read %s: %s", path, strerror(errno));
        close(fd);
        return -1;
    }
    rows_line(line, layout, row);
    int size = status.st_size == 0 ? snprintf(text, sizeof text, "%s\n%s\n", rows_header(header, layout), line)
                                   : snprintf(text, sizeof text, "%s%s\n", last == '\n' ? "" : "\n", line);
    int result = file_write_all(fd, text, (size_t)size, path, error);
    if (close(fd) != 0 && result == 0) {
        result = error_set(error, "cannot write %s: %s", path, strerror(errno));
    }
    return result;
}
