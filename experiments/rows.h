// Results of runs as a CSV file, one row a run; what stands there need not be run again. A layout says what columns a kind of row has: recall_row.h,
// text_row.h.
#ifndef EXPERIMENTS_ROWS_H
#define EXPERIMENTS_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define ROW_TEXT_BYTES 256
#define ROW_LINE_BYTES 2048

typedef enum ColumnKind {
    COLUMN_TEXT,   // char[ROW_TEXT_BYTES], without comma and line break
    COLUMN_INT,    // int64_t
    COLUMN_REAL,   // double; six digits are written
} ColumnKind;

// What a column tells apart. The rows of a layout come in this order of roles, however their columns stand.
typedef enum ColumnRole {
    ROLE_SETTING,   // the same in all that is compared
    ROLE_SUBJECT,   // what is compared
    ROLE_RATE,      // at the rate that is best for it
    ROLE_SEED,
    ROLE_RESULT,
} ColumnRole;

typedef struct Column {
    const char *name;
    ColumnKind kind;
    ColumnRole role;
    size_t offset;       // in the row's struct
} Column;

typedef struct RowLayout {
    const Column *columns;
    size_t n_columns, row_bytes;
    const char *writer;  // the program that writes such files
} RowLayout;

typedef struct ResultRows {
    const RowLayout *layout;
    char *items;         // [count] structs of the layout
    size_t count;
} ResultRows;

// Reads a file. One that is missing has no rows. Returns 0, or -1 with `error` set (file and line) and nothing to free.
int rows_read(ResultRows *rows, const RowLayout *layout, const char *path, Error *error);
void rows_free(ResultRows *rows);

const void *rows_at(const ResultRows *rows, size_t i);

// Whether two rows agree in every column of this role and those before it.
bool rows_agree(const RowLayout *layout, const void *a, const void *b, ColumnRole role);

// The same but for the column of this name.
bool rows_agree_but(const RowLayout *layout, const void *a, const void *b, ColumnRole role, const char *column);

// The text that names what is compared; "" in a layout that compares nothing.
const char *rows_subject(const RowLayout *layout, const void *row);

// The row of the same run, whatever came out; NULL when there is none.
const void *rows_find(const ResultRows *rows, const void *row);

// Orders rows by the columns of their setting: below 0, 0 or above 0, as qsort has it.
int rows_compare_settings(const RowLayout *layout, const void *a, const void *b);

// Adds a row at the file's end, whole even when several processes do so at once; a new or empty file gets the header first. Returns 0, or -1 with `error` set.
int rows_append(const RowLayout *layout, const char *path, const void *row, Error *error);

// Whether a run's row stands in the file: 1 or 0; -1 with `error` set when the file cannot be used. Where it does, tells so on standard error, and `row` becomes
// what the file says.
int rows_have(const RowLayout *layout, const char *path, void *row, Error *error);

// The header and one row as CSV lines without line break.
char *rows_header(char text[ROW_LINE_BYTES], const RowLayout *layout);
char *rows_line(char text[ROW_LINE_BYTES], const RowLayout *layout, const void *row);

#endif
