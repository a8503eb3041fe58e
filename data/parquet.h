// Parquet files: flat columns, read value by value. Only the bytes of the columns asked for are read, page by page.
//
// Supported: data pages v1 and v2; PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY, DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY for text;
// PLAIN, dictionaries, DELTA_BINARY_PACKED, BYTE_STREAM_SPLIT for numbers; uncompressed, snappy, gzip, zstd, lz4_raw and lz4, brotli;
// required and optional columns. Checksums of pages are checked where there are any. Everything else is refused with a reason.
// Nested and repeated columns are passed over. Files may be hostile: sizes are bounded before memory is taken.
#ifndef DATA_PARQUET_H
#define DATA_PARQUET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

// The largest page, unpacked, that is read.
#define PARQUET_MAX_PAGE ((size_t)256 << 20)

typedef struct ParquetFile ParquetFile;

// Reads the footer. NULL with `error` set. An open file is never changed: any number of threads may read its columns at the same time.
ParquetFile *parquet_open(const char *path, Error *error);
void parquet_close(ParquetFile *file);   // NULL is allowed

size_t parquet_groups(const ParquetFile *file);
uint64_t parquet_group_rows(const ParquetFile *file, size_t group);
uint64_t parquet_rows(const ParquetFile *file);   // of all groups

// The columns of the top level. A name is not NUL-terminated.
size_t parquet_columns(const ParquetFile *file);
const char *parquet_column_name(const ParquetFile *file, size_t column, size_t *length);

// Finds the column with text: `name`, or with NULL "text", then "content", then the only column of strings. Returns 0, or -1 with `error`
// set (there is none, or it is of another kind; the columns that could be meant are named).
int parquet_find_text(const ParquetFile *file, const char *name, size_t *column, Error *error);
// Finds a column of numbers: INT32, INT64, FLOAT or DOUBLE.
int parquet_find_number(const ParquetFile *file, const char *name, size_t *column, Error *error);

typedef enum ParquetKind { PARQUET_NULL, PARQUET_TEXT, PARQUET_INTEGER, PARQUET_UNSIGNED, PARQUET_REAL } ParquetKind;

typedef struct ParquetValue {
    ParquetKind kind;
    const char *text;   // [length], valid until the next call
    size_t length;
    union {
        int64_t integer;
        uint64_t natural;
        double real;
    } number;
} ParquetValue;

// One column of one row group, read from its start.
typedef struct ParquetCursor ParquetCursor;

// `file` must outlive the cursor. NULL with `error` set.
ParquetCursor *parquet_cursor_open(const ParquetFile *file, size_t group, size_t column, Error *error);
void parquet_cursor_close(ParquetCursor *cursor);   // NULL is allowed

// Reads the next value, one for each row of the group. Returns 1, behind the last one 0, or -1 with `error` set.
int parquet_cursor_next(ParquetCursor *cursor, ParquetValue *value, Error *error);

#endif
