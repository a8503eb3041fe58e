// Documents of Parquet files: a row is a document.
#include "data/parquet.h"
#include "data/reader.h"

typedef struct Table {
    CorpusReader *reader;
    const ParquetFile *file;
    size_t text, number;   // columns; `number` only with a condition
    uint64_t row;          // in the file, from 0
    uint64_t bytes, bytes_told;   // for progress: the file's, and how many of them count as read
} Table;

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
static void tell_progress(Table *table)
{
    uint64_t rows = parquet_rows(table->file);
    uint64_t done = rows > 0 ? (uint64_t)((double)table->row / (double)rows * (double)table->bytes) : table->bytes;
    if (done > table->bytes_told && done <= table->bytes) {
        table->reader->stats->bytes_read += done - table->bytes_told;
        table->bytes_told = done;
    }
}

static int read_row(Table *table, ParquetCursor *text, ParquetCursor *number, Error *error)
{
    CorpusReader *reader = table->reader;
    ParquetValue value, condition;
    int more = parquet_cursor_next(text, &value, error);
    if (more > 0 && number != NULL) {
        more = parquet_cursor_next(number, &condition, error);
    }
    if (more <= 0) {
        return more;
    }
    table->row++;
    tell_progress(table);
    if (number != NULL && !fulfils(reader->where, &condition)) {
        reader->stats->filtered++;
        return 1;
    }
    return reader_document(reader, value.text, value.length, error) == 0 ? 1 : -1;
}

static int read_group(Table *table, size_t group, Error *error)
{
    bool filtered = table->reader->where != NULL;
    ParquetCursor *text = parquet_cursor_open(table->file, group, table->text, error);
    ParquetCursor *number = text != NULL && filtered ? parquet_cursor_open(table->file, group, table->number, error) : NULL;
    int more = text == NULL || (filtered && number == NULL) ? -1 : 1;
    while (more > 0) {
        more = read_row(table, text, number, error);
    }
    parquet_cursor_close(text);
    parquet_cursor_close(number);
    return more;
}

int read_parquet(CorpusReader *reader, const char *path, Error *error)
{
    ParquetFile *file = parquet_open(path, error);
    if (file == NULL) {
        return -1;
    }
    int64_t size = file_size(path);
    Table table = {.reader = reader, .file = file, .bytes = size > 0 ? (uint64_t)size : 0};
    int result = parquet_find_text(file, reader->options->text_key, &table.text, error);
    if (result == 0 && reader->where != NULL) {
        result = parquet_find_number(file, reader->where->column, &table.number, error);
    }
    for (size_t group = 0; group < parquet_groups(file) && result == 0; group++) {
        result = read_group(&table, group, error);
    }
    if (result == 0) {
        reader->stats->bytes_read += table.bytes - table.bytes_told;
    }
    parquet_close(file);
    return result;
}
