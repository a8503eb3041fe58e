#include "experiments/recall_rows.h"

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

typedef enum ColumnKind { COLUMN_TEXT, COLUMN_INT, COLUMN_REAL } ColumnKind;

typedef enum ColumnRole {
    ROLE_SETTING,   // the same in all that is compared
    ROLE_RUN,       // tells runs of a setting apart
    ROLE_RESULT,
} ColumnRole;

typedef struct Column {
    const char *name;
    ColumnKind kind;
    ColumnRole role;
    size_t offset;
} Column;

#define AT(field) offsetof(RecallRow, field)
static const Column columns[] = {
    {"mixer", COLUMN_TEXT, ROLE_RUN, AT(mixer)},
    {"pairs", COLUMN_INT, ROLE_SETTING, AT(pairs)},
    {"length", COLUMN_INT, ROLE_SETTING, AT(length)},
    {"vocab", COLUMN_INT, ROLE_SETTING, AT(vocab)},
    {"d_model", COLUMN_INT, ROLE_SETTING, AT(d_model)},
    {"d_head", COLUMN_INT, ROLE_SETTING, AT(d_head)},
    {"n_slot", COLUMN_INT, ROLE_SETTING, AT(n_slot)},
    {"steps", COLUMN_INT, ROLE_SETTING, AT(steps)},
    {"batch", COLUMN_INT, ROLE_SETTING, AT(batch)},
    {"lr", COLUMN_REAL, ROLE_RUN, AT(lr)},
    {"seed", COLUMN_INT, ROLE_RUN, AT(seed)},
    {"state", COLUMN_INT, ROLE_RESULT, AT(state)},
    {"parameters", COLUMN_INT, ROLE_RESULT, AT(parameters)},
    {"steps_run", COLUMN_INT, ROLE_RESULT, AT(steps_run)},
    {"accuracy", COLUMN_REAL, ROLE_RESULT, AT(accuracy)},
    {"loss", COLUMN_REAL, ROLE_RESULT, AT(loss)},
    {"seconds", COLUMN_REAL, ROLE_RESULT, AT(seconds)},
};
#undef AT
enum { N_COLUMNS = sizeof columns / sizeof columns[0] };

static const void *place(const RecallRow *row, const Column *column) { return (const char *)row + column->offset; }

char *recall_rows_header(char *text)
{
    size_t used = 0;
    for (size_t i = 0; i < N_COLUMNS; i++) {
        used += (size_t)snprintf(text + used, RECALL_LINE_BYTES - used, "%s%s", i > 0 ? "," : "", columns[i].name);
    }
    return text;
}

char *recall_rows_line(char *text, const RecallRow *row)
{
    size_t used = 0;
    for (size_t i = 0; i < N_COLUMNS; i++) {
        const void *value = place(row, &columns[i]);
        const char *comma = i > 0 ? "," : "";
        size_t rest = RECALL_LINE_BYTES - used;
        switch (columns[i].kind) {
        case COLUMN_TEXT: used += (size_t)snprintf(text + used, rest, "%s%s", comma, (const char *)value); break;
        case COLUMN_INT:  used += (size_t)snprintf(text + used, rest, "%s%" PRId64, comma, *(const int64_t *)value); break;
        case COLUMN_REAL: used += (size_t)snprintf(text + used, rest, "%s%.6g", comma, *(const double *)value); break;
        }
    }
    return text;
}

// ---- comparing ----

static bool equal(const RecallRow *a, const RecallRow *b, const Column *column)
{
    const void *x = place(a, column), *y = place(b, column);
    switch (column->kind) {
    case COLUMN_TEXT: return strcmp(x, y) == 0;
    case COLUMN_INT:  return *(const int64_t *)x == *(const int64_t *)y;
    case COLUMN_REAL: return fabs(*(const double *)x - *(const double *)y) <= 1e-5 * fabs(*(const double *)y);   // six digits are written
    }
    return false;
}

static bool equal_up_to(const RecallRow *a, const RecallRow *b, ColumnRole role)
{
    for (size_t i = 0; i < N_COLUMNS; i++) {
        if (columns[i].role <= role && !equal(a, b, &columns[i])) {
            return false;
        }
    }
    return true;
}

const RecallRow *recall_rows_find(const RecallRows *rows, const RecallRow *row)
{
    for (size_t i = 0; i < rows->count; i++) {
        if (equal_up_to(&rows->items[i], row, ROLE_RUN)) {
            return &rows->items[i];
        }
    }
    return NULL;
}

bool recall_rows_same_setting(const RecallRow *a, const RecallRow *b) { return equal_up_to(a, b, ROLE_SETTING); }

// ---- reading ----

static bool read_field(RecallRow *row, const Column *column, const char *text)
{
    void *to = (char *)row + column->offset;
    char *end = NULL;
    errno = 0;
    switch (column->kind) {
    case COLUMN_TEXT:
        if (strlen(text) >= ROW_MIXER_BYTES) {
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

// Cuts the line into its fields. Returns the number of the column that is wrong, N_COLUMNS if none is.
static size_t read_line(RecallRow *row, char *line)
{
    char *rest = line;
    for (size_t i = 0; i < N_COLUMNS; i++) {
        char *text = strsep(&rest, ",");
        if (text == NULL || (i + 1 == N_COLUMNS && rest != NULL) || !read_field(row, &columns[i], text)) {
            return i;
        }
    }
    return N_COLUMNS;
}

static int add_row(RecallRows *rows, const RecallRow *row, Error *error)
{
    RecallRow *items = realloc(rows->items, (rows->count + 1) * sizeof *items);
    if (items == NULL) {
        return error_set(error, "out of memory");
    }
    rows->items = items;
    rows->items[rows->count++] = *row;
    return 0;
}

static int read_rows(RecallRows *rows, char *text, const char *path, Error *error)
{
    char header[RECALL_LINE_BYTES], *rest = text, *line;
    recall_rows_header(header);
    for (size_t number = 1; (line = strsep(&rest, "\n")) != NULL; number++) {
        RecallRow row = {0};
        if (number == 1 && strcmp(line, header) != 0) {
            return error_set(error, "%s: the first line is not \"%s\": give a file that mqar has written", path, header);
        }
        if (number == 1 || (line[0] == '\0' && rest == NULL)) {
            continue;
        }
        size_t wrong = read_line(&row, line);
        if (wrong < N_COLUMNS) {
            return error_set(error, "%s line %zu: no good value for %s: correct or remove the line", path, number, columns[wrong].name);
        }
        if (add_row(rows, &row, error) != 0) {
            return -1;
        }
    }
    return 0;
}

int recall_rows_read(RecallRows *rows, const char *path, Error *error)
{
    *rows = (RecallRows){0};
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
        recall_rows_free(rows);
    }
    return result;
}

void recall_rows_free(RecallRows *rows)
{
    free(rows->items);
    *rows = (RecallRows){0};
}

// ---- writing ----

int recall_rows_append(const char *path, const RecallRow *row, Error *error)
{
    char line[RECALL_LINE_BYTES], header[RECALL_LINE_BYTES], text[2 * RECALL_LINE_BYTES + 2];
    struct stat status;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || flock(fd, LOCK_EX) != 0 || fstat(fd, &status) != 0) {
        error_set(error, "cannot write %s: %s", path, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    recall_rows_line(line, row);
    int size = status.st_size == 0 ? snprintf(text, sizeof text, "%s\n%s\n", recall_rows_header(header), line) : snprintf(text, sizeof text, "%s\n", line);
    int result = file_write_all(fd, text, (size_t)size, path, error);
    if (close(fd) != 0 && result == 0) {
        result = error_set(error, "cannot write %s: %s", path, strerror(errno));
    }
    return result;
}
