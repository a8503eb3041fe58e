// Documents of Parquet files: a row is a document.
#include <stdlib.h>

#include "data/parquet.h"
#include "data/reader.h"

struct ParquetTable {
    ParquetFile *file;
    size_t text, number;   // columns; `number` only with a condition
    uint64_t bytes;        // of the file
    uint64_t *first_row;   // [groups + 1] rows before each group, then all
};

// One group being read.
typedef struct Group {
    const ParquetTable *table;
    CorpusReader *reader;
    uint64_t row;          // in the file, from 0
    uint64_t bytes_told;   // of the file's bytes, how many count as read
} Group;

static bool fulfils(const Where *where, const ParquetValue *value)
{
    switch (value->kind) {
    case PARQUET_INTEGER:
        return where_integer(where, value->number.integer);
    case PARQUET_UNSIGNED:
        return where_unsigned(where, value->number.natural);
    case PARQUET_REAL:
        return where_real(where, value->number.real);
    default:
        return false;   // null
    }
}

// Only some columns are read, so progress goes by rows.
static uint64_t bytes_before(const ParquetTable *table, uint64_t row)
{
    uint64_t rows = table->first_row[parquet_groups(table->file)];
    return row < rows ? (uint64_t)((double)row / (double)rows * (double)table->bytes) : table->bytes;
}

static void tell_progress(Group *group)
{
    uint64_t done = bytes_before(group->table, group->row);
    if (done > group->bytes_told) {
        group->reader->stats->bytes_read += done - group->bytes_told;
        group->bytes_told = done;
    }
}

static int read_row(Group *group, ParquetCursor *text, ParquetCursor *number, Error *error)
{
    CorpusReader *reader = group->reader;
    ParquetValue value, condition;
    int more = parquet_cursor_next(text, &value, error);
    if (more > 0 && number != NULL) {
        more = parquet_cursor_next(number, &condition, error);
    }
    if (more <= 0) {
        return more;
    }
    group->row++;
    tell_progress(group);
    if (number != NULL && !fulfils(reader->where, &condition)) {
        reader->stats->filtered++;
        return 1;
    }
    return reader_document(reader, value.text, value.length, error) == 0 ? 1 : -1;
}

int parquet_table_read(const ParquetTable *table, CorpusReader *reader, size_t number_of_group, Error *error)
{
    bool filtered = reader->where != NULL;
    Group group = {.table = table, .reader = reader, .row = table->first_row[number_of_group]};
    group.bytes_told = bytes_before(table, group.row);
    ParquetCursor *text = parquet_cursor_open(table->file, number_of_group, table->text, error);
    ParquetCursor *number = text != NULL && filtered ? parquet_cursor_open(table->file, number_of_group, table->number, error) : NULL;
    int more = text == NULL || (filtered && number == NULL) ? -1 : 1;
    while (more > 0) {
        more = read_row(&group, text, number, error);
    }
    parquet_cursor_close(text);
    parquet_cursor_close(number);
    group.row = table->first_row[number_of_group + 1];
    if (more == 0) {
        tell_progress(&group);
    }
    return more;
}

static int find_rows(ParquetTable *table, Error *error)
{
    size_t groups = parquet_groups(table->file);
    table->first_row = calloc(groups + 1, sizeof *table->first_row);
    if (table->first_row == NULL) {
        return error_set(error, "out of memory for %zu row groups", groups);
    }
    for (size_t i = 0; i < groups; i++) {
        table->first_row[i + 1] = table->first_row[i] + parquet_group_rows(table->file, i);
    }
    return 0;
}

ParquetTable *parquet_table_open(const CorpusReader *reader, const char *path, Error *error)
{
    ParquetTable *table = calloc(1, sizeof *table);
    if (table == NULL) {
        error_set(error, "out of memory for reading %s", path);
        return NULL;
    }
    int64_t size = file_size(path);
    table->bytes = size > 0 ? (uint64_t)size : 0;
    table->file = parquet_open(path, error);
    if (table->file == NULL || parquet_find_text(table->file, reader->options->text_key, &table->text, error) != 0 ||
        (reader->where != NULL && parquet_find_number(table->file, reader->where->column, &table->number, error) != 0) ||
        find_rows(table, error) != 0) {
        parquet_table_close(table);
        return NULL;
    }
    return table;
}

void parquet_table_close(ParquetTable *table)
{
    if (table != NULL) {
        parquet_close(table->file);
        free(table->first_row);
        free(table);
    }
}

size_t parquet_table_groups(const ParquetTable *table) { return parquet_groups(table->file); }

int read_parquet(CorpusReader *reader, const char *path, Error *error)
{
    ParquetTable *table = parquet_table_open(reader, path, error);
    if (table == NULL) {
        return -1;
    }
    int result = 0;
    for (size_t group = 0; group < parquet_table_groups(table) && result == 0; group++) {
        result = parquet_table_read(table, reader, group, error);
    }
    parquet_table_close(table);
    return result;
}
