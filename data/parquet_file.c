// The footer of a Parquet file: its schema and where its column chunks are. What is needed of a chunk is read from the footer when the
// chunk is opened, so that memory stays within a few times the footer's size.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "data/parquet_internal.h"

enum { TAIL_BYTES = 8, HEAD_BYTES = 4 };
#define MAX_FOOTER ((size_t)64 << 20)

static const char *const type_names[] = {"BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"};

// One element of the schema, as it stands there.
typedef struct Element {
    Column column;
    bool has_type, repeated;
    uint64_t children;
} Element;

static int grow(void **items, size_t count, size_t *capacity, size_t size, Error *error)
{
    if (count < *capacity) {
        return 0;
    }
    size_t larger = *capacity * 2 + 16;
    void *moved = realloc(*items, larger * size);
    if (moved == NULL) {
        return error_set(error, "out of memory for the footer");
    }
    *items = moved;
    *capacity = larger;
    return 0;
}

// LogicalType is a union: a struct with one field, whose number tells which. Of INTEGER the sign counts.
static void read_logical_type(Thrift *t, ThriftType outer, Column *column)
{
    int id = 0, inner_id = 0;
    ThriftType type;
    if (outer != THRIFT_STRUCT) {
        t->failed = true;
    }
    while (thrift_field(t, &id, &type)) {
        column->string = column->string || id == 1;
        column->decimal = column->decimal || id == 5;
        if (id != 10 || type != THRIFT_STRUCT) {
            thrift_skip(t, type);
            continue;
        }
        inner_id = 0;
        while (thrift_field(t, &inner_id, &type)) {
            if (inner_id == 2) {
                column->natural = !thrift_bool(t, type);
            } else {
                thrift_skip(t, type);
            }
        }
    }
}

static void read_element(Thrift *t, Element *element)
{
    enum { UTF8 = 0, DECIMAL = 5, UINT_8 = 11, UINT_64 = 14 };
    int id = 0;
    ThriftType type;
    *element = (Element){.column = {.name = ""}};
    Column *column = &element->column;
    int64_t number;
    while (thrift_field(t, &id, &type)) {
        switch (id) {
        case 1:
            column->type = (ParquetType)thrift_int(t, type, 0, TYPE_FIXED);
            element->has_type = true;
            break;
        case 3:
            number = thrift_int(t, type, 0, 2);
            column->optional = number == 1;
            element->repeated = number == 2;
            break;
        case 4:
            column->name = thrift_binary(t, type, &column->name_length);
            break;
        case 5:
            element->children = (uint64_t)thrift_int(t, type, 0, INT32_MAX);
            break;
        case 6:
            number = thrift_int(t, type, 0, INT32_MAX);
            column->string = column->string || number == UTF8;
            column->decimal = column->decimal || number == DECIMAL;
            column->natural = column->natural || (number >= UINT_8 && number <= UINT_64);
            break;
        case 10:
            read_logical_type(t, type, column);
            break;
        default:
            thrift_skip(t, type);
        }
    }
}

// The schema is a tree in depth-first order, of which the first element is the root. Only its children become columns.
static int read_schema(ParquetFile *file, Thrift *t, ThriftType type, Error *error)
{
    ThriftType kind = THRIFT_STRUCT;
    size_t count = thrift_list(t, type, &kind);
    uint64_t leaf = 0, below = 0;   // elements still to come below the present column
    t->failed = t->failed || kind != THRIFT_STRUCT || file->n_columns > 0;
    for (size_t i = 0; i < count && !t->failed; i++) {
        Element element;
        read_element(t, &element);
        bool is_leaf = element.has_type && element.children == 0;
        if (i > 0 && below == 0) {
            if (grow((void **)&file->columns, file->n_columns, &file->columns_capacity, sizeof *file->columns, error) != 0) {
                return -1;
            }
            element.column.flat = is_leaf && !element.repeated;
            element.column.leaf = leaf;
            file->columns[file->n_columns++] = element.column;
            below = element.children;
        } else if (i > 0) {
            below += element.children - 1;
        }
        leaf += is_leaf;
    }
    return 0;
}

static int read_groups(ParquetFile *file, Thrift *t, ThriftType type, Error *error)
{
    ThriftType kind = THRIFT_STRUCT, field;
    size_t count = thrift_list(t, type, &kind);
    t->failed = t->failed || kind != THRIFT_STRUCT || file->n_groups > 0;
    for (size_t i = 0; i < count && !t->failed; i++) {
        Group group = {0};
        bool has_rows = false;
        int id = 0;
        while (thrift_field(t, &id, &field)) {
            if (id == 1 && field == THRIFT_LIST) {
                group.chunks = t->at;
            }
            if (id == 3) {
                group.rows = (uint64_t)thrift_int(t, field, 0, INT64_MAX);
                has_rows = true;
            } else {
                thrift_skip(t, field);
            }
        }
        t->failed = t->failed || !has_rows || group.chunks == 0 || group.rows > INT64_MAX - file->rows;
        if (grow((void **)&file->groups, file->n_groups, &file->groups_capacity, sizeof *file->groups, error) != 0) {
            return -1;
        }
        file->groups[file->n_groups++] = group;
        file->rows += group.rows;
    }
    return 0;
}

static int read_footer(ParquetFile *file, Error *error)
{
    Thrift t = {.data = file->footer, .size = file->footer_size};
    int id = 0, result = 0;
    bool has_schema = false;
    ThriftType type;
    while (result == 0 && thrift_field(&t, &id, &type)) {
        if (id == 2) {
            result = read_schema(file, &t, type, error);
            has_schema = true;
        } else if (id == 4) {
            result = read_groups(file, &t, type, error);
        } else {
            thrift_skip(&t, type);
        }
    }
    if (result == 0 && (t.failed || !has_schema)) {
        result = error_set(error, "its footer is damaged, at byte %zu of %zu", t.at, t.size);
    }
    return result;
}

// Finds the footer by the last bytes and reads it into memory.
static int load_footer(ParquetFile *file, Error *error)
{
    struct stat status;
    unsigned char tail[TAIL_BYTES], head[HEAD_BYTES];
    if (fstat(file->fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        return error_set(error, "not a regular file");
    }
    uint64_t size = (uint64_t)status.st_size;
    if (size < TAIL_BYTES + HEAD_BYTES) {
        return error_set(error, "not a Parquet file: it has only %" PRIu64 " bytes", size);
    }
    if (file_read_at(file->fd, tail, TAIL_BYTES, size - TAIL_BYTES, file->path, error) != 0 ||
        file_read_at(file->fd, head, HEAD_BYTES, 0, file->path, error) != 0) {
        return -1;
    }
    if (memcmp(tail + 4, "PARE", 4) == 0) {
        return error_set(error, "an encrypted Parquet file, which cannot be read");
    }
    if (memcmp(tail + 4, "PAR1", 4) != 0 || memcmp(head, "PAR1", 4) != 0) {
        return error_set(error, "not a Parquet file, or cut off: it does not begin and end with PAR1");
    }
    file->footer_size = (size_t)((uint32_t)tail[0] | (uint32_t)tail[1] << 8 | (uint32_t)tail[2] << 16 | (uint32_t)tail[3] << 24);
    if (file->footer_size > size - TAIL_BYTES - HEAD_BYTES) {
        return error_set(error, "its footer should have %zu bytes where the file has %" PRIu64 ": it is damaged or cut off", file->footer_size, size);
    }
    if (file->footer_size > MAX_FOOTER) {
        return error_set(error, "its footer has %zu bytes; at most %zu can be read", file->footer_size, MAX_FOOTER);
    }
    file->footer_at = size - TAIL_BYTES - file->footer_size;
    file->footer = malloc(file->footer_size + 1);
    if (file->footer == NULL) {
        return error_set(error, "out of memory for its footer");
    }
    return file_read_at(file->fd, file->footer, file->footer_size, file->footer_at, file->path, error);
}

ParquetFile *parquet_open(const char *path, Error *error)
{
    ParquetFile *file = calloc(1, sizeof *file);
    if (file == NULL) {
        error_set(error, "out of memory for reading %s", path);
        return NULL;
    }
    file->path = strdup(path);
    file->fd = file_open(path, O_RDONLY);
    if (file->path == NULL) {
        error_set(error, "out of memory for reading %s", path);
    } else if (file->fd < 0) {
        error_set(error, "cannot read %s: %s", path, strerror(errno));
    } else if (load_footer(file, error) == 0 && read_footer(file, error) == 0) {
        return file;
    } else {
        error_prefix(error, "%s", path);
    }
    parquet_close(file);
    return NULL;
}

void parquet_close(ParquetFile *file)
{
    if (file != NULL) {
        if (file->fd >= 0) {
            close(file->fd);
        }
        free(file->path);
        free(file->footer);
        free(file->columns);
        free(file->groups);
        free(file);
    }
}

size_t parquet_groups(const ParquetFile *file) { return file->n_groups; }
uint64_t parquet_group_rows(const ParquetFile *file, size_t group) { return file->groups[group].rows; }
uint64_t parquet_rows(const ParquetFile *file) { return file->rows; }
size_t parquet_columns(const ParquetFile *file) { return file->n_columns; }

const char *parquet_column_name(const ParquetFile *file, size_t column, size_t *length)
{
    *length = file->columns[column].name_length;
    return file->columns[column].name;
}

// ---- which column ----

static const Column *find(const ParquetFile *file, const char *name)
{
    for (size_t i = 0; i < file->n_columns; i++) {
        if (file->columns[i].name_length == strlen(name) && memcmp(file->columns[i].name, name, strlen(name)) == 0) {
            return &file->columns[i];
        }
    }
    return NULL;
}

static bool can_be_text(const Column *column) { return column->flat && column->type == TYPE_BYTE_ARRAY && !column->decimal; }

static bool can_be_number(const Column *column)
{
    bool number = column->type == TYPE_INT32 || column->type == TYPE_INT64 || column->type == TYPE_FLOAT || column->type == TYPE_DOUBLE;
    return column->flat && number && !column->decimal;
}

// The names of the columns that fit, as far as they have room.
static const char *list_columns(const ParquetFile *file, bool (*fits)(const Column *column), char *text, size_t size)
{
    size_t used = 0;
    snprintf(text, size, "none");
    for (size_t i = 0; i < file->n_columns && used + 1 < size; i++) {
        const Column *column = &file->columns[i];
        if (fits(column)) {
            int length = column->name_length < 64 ? (int)column->name_length : 64;
            int added = snprintf(text + used, size - used, "%s%.*s", used > 0 ? ", " : "", length, column->name);
            used += added > 0 ? (size_t)added : 0;
        }
    }
    return text;
}

static int check_named(const ParquetFile *file, const char *name, bool (*fits)(const Column *column), const char *what, size_t *index,
                       Error *error)
{
    char names[300];
    const Column *column = find(file, name);
    if (column == NULL) {
        return error_set(error, "%s has no column \"%s\"; its columns of %s: %s", file->path, name, what,
                         list_columns(file, fits, names, sizeof names));
    }
    if (!fits(column)) {
        return error_set(error, "%s: the column \"%s\" is %s, not one of %s; its columns of %s: %s", file->path, name,
                         !column->flat ? "nested or repeated" : column->decimal ? "DECIMAL" : type_names[column->type], what, what,
                         list_columns(file, fits, names, sizeof names));
    }
    *index = (size_t)(column - file->columns);
    return 0;
}

int parquet_find_text(const ParquetFile *file, const char *name, size_t *index, Error *error)
{
    static const char *const usual[] = {"text", "content"};
    if (name != NULL) {
        return check_named(file, name, can_be_text, "text", index, error);
    }
    for (size_t i = 0; i < 2; i++) {
        const Column *column = find(file, usual[i]);
        if (column != NULL && can_be_text(column)) {
            *index = (size_t)(column - file->columns);
            return 0;
        }
    }
    // Old writers do not mark text as such: where none is marked, any bytes may be meant.
    size_t found[2] = {0}, at[2] = {0};
    for (size_t i = 0; i < file->n_columns; i++) {
        const Column *column = &file->columns[i];
        if (can_be_text(column)) {
            at[column->string] = i;
            found[column->string]++;
        }
    }
    bool marked = found[1] > 0;
    if (found[marked] != 1) {
        char names[300];
        return error_set(error, "%s has no column \"text\" or \"content\", and %zu columns of text (%s): name one with --text-key", file->path,
                         found[marked], list_columns(file, can_be_text, names, sizeof names));
    }
    *index = at[marked];
    return 0;
}

int parquet_find_number(const ParquetFile *file, const char *name, size_t *index, Error *error)
{
    return check_named(file, name, can_be_number, "numbers", index, error);
}

// ---- column chunks ----

typedef struct ChunkFields {
    int64_t codec, values, packed, data_at, dictionary_at, type;
    bool elsewhere, encrypted;
} ChunkFields;

static void read_chunk_metadata(Thrift *t, ThriftType outer, ChunkFields *fields)
{
    int id = 0;
    ThriftType type;
    t->failed = t->failed || outer != THRIFT_STRUCT;
    while (thrift_field(t, &id, &type)) {
        int64_t *target = id == 1 ? &fields->type : id == 4 ? &fields->codec : id == 5 ? &fields->values : id == 7 ? &fields->packed
                          : id == 9 ? &fields->data_at : id == 11 ? &fields->dictionary_at : NULL;
        if (target != NULL) {
            *target = thrift_int(t, type, 0, INT64_MAX);
        } else {
            thrift_skip(t, type);
        }
    }
}

static void read_chunk_fields(Thrift *t, ChunkFields *fields)
{
    int id = 0;
    ThriftType type;
    size_t length;
    while (thrift_field(t, &id, &type)) {
        if (id == 1) {
            thrift_binary(t, type, &length);
            fields->elsewhere = length > 0;
        } else if (id == 3) {
            read_chunk_metadata(t, type, fields);
        } else {
            fields->encrypted = fields->encrypted || id == 8 || id == 9;
            thrift_skip(t, type);
        }
    }
}

int parquet_chunk(const ParquetFile *file, size_t group, const Column *column, Chunk *chunk, Error *error)
{
    // Writers before 2016 left the header of the dictionary page out of the size.
    enum { HEADER_SLACK = 100 };
    Thrift t = {.data = file->footer, .size = file->footer_size, .at = file->groups[group].chunks};
    ThriftType kind = THRIFT_STRUCT;
    ChunkFields fields = {.codec = -1, .values = -1, .packed = -1, .data_at = -1, .dictionary_at = -1, .type = -1};
    size_t count = thrift_list(&t, THRIFT_LIST, &kind);
    if (kind != THRIFT_STRUCT || column->leaf >= count) {
        return error_set(error, "the row group has %zu columns, too few for the schema: the file is damaged", count);
    }
    for (uint64_t i = 0; i < column->leaf; i++) {
        thrift_skip(&t, THRIFT_STRUCT);
    }
    read_chunk_fields(&t, &fields);
    if (fields.encrypted) {
        return error_set(error, "the column is encrypted, which cannot be read");
    }
    if (fields.elsewhere) {
        return error_set(error, "the column's data lie in another file: name that file instead");
    }
    if (t.failed || fields.codec < 0 || fields.codec > INT32_MAX || fields.values < 0 || fields.packed < 0 || fields.data_at < 0 ||
        fields.type != (int64_t)column->type) {
        return error_set(error, "the footer's entry for the column is damaged");
    }
    // 0 as the dictionary's place means that there is none.
    bool dictionary = fields.dictionary_at > 0 && fields.dictionary_at < fields.data_at;
    chunk->start = (uint64_t)(dictionary ? fields.dictionary_at : fields.data_at);
    chunk->end = file->footer_at;
    chunk->values = (uint64_t)fields.values;
    chunk->codec = (int)fields.codec;
    if (chunk->start > file->footer_at || (uint64_t)fields.packed > file->footer_at - chunk->start) {
        return error_set(error, "the column's data reach beyond the file: it is damaged or cut off");
    }
    if ((uint64_t)fields.packed + HEADER_SLACK < file->footer_at - chunk->start) {
        chunk->end = chunk->start + (uint64_t)fields.packed + HEADER_SLACK;
    }
    if (chunk->values != file->groups[group].rows) {
        return error_set(error, "the column has %" PRIu64 " values for %" PRIu64 " rows: the file is damaged", chunk->values,
                         file->groups[group].rows);
    }
    return 0;
}
